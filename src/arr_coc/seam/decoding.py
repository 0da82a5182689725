"""`generate` on a compacted prompt, with the results of an ordinary `generate` on the whole prompt.

Returned sequences begin with the whole prompt, length limits count it, callbacks (stopping criteria, logits
processors, `prefix_allowed_tokens_fn`, streamers) get it before the new tokens, and arguments that can't be
honoured while tokens are dropped raise a ValueError that names them.

Shapes: whole prompts are [B, S], compacted ones [B, S'].
"""

from __future__ import annotations

import copy
import inspect
import numbers
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import transformers
from packaging.version import Version
from torch import Tensor
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.generation import logits_process, stopping_criteria
from transformers.generation.streamers import BaseStreamer
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils import ModelOutput

from arr_coc.choose.allocation import Allocation
from arr_coc.seam.assembly import GESTALT, PROMPT_NAMES, Compacted, consecutive_positions
from arr_coc.seam.base import FamilyAdapter

# Callbacks of `generate`: wrappers that give them the whole prompt's ids, and a streamer of new tokens.
#
# Stopping criteria, logits processors, `prefix_allowed_tokens_fn` and streamers are wrapped where a prompt
# is
# compacted. Shapes: whole prompts are [B, S], compacted ones [B, S'], rows of a running generation
# [R, S' + new] with R a multiple of B (beams, returned sequences), the copies of a prompt next to each
# other.

PROMPT_COUNTS: dict[type, str] = {
    stopping_criteria.MaxLengthCriteria: "max_length",
    logits_process.MinLengthLogitsProcessor: "min_length",
    logits_process.MinNewTokensLengthLogitsProcessor: "prompt_length_to_skip",
    logits_process.ForcedEOSTokenLogitsProcessor: "max_length",
    logits_process.SuppressTokensAtBeginLogitsProcessor: "begin_index",
    logits_process.ExponentialDecayLengthPenalty: "regulation_start",
    logits_process.RepetitionPenaltyLogitsProcessor: "prompt_ignore_length",
}
"""Classes of transformers' own that count the prompt's tokens, and the attribute that holds the count."""


class WholeIds:
    """Replaces the compacted prompts by the whole ones in the ids of a running generation.

    Args:
        prompts: long [B, S].
        length: S' of the compacted prompts.
    """

    def __init__(self, prompts: Tensor, length: int) -> None:
        self._prompts = prompts
        self._length = length

    def __call__(self, ids: Tensor) -> Tensor:
        """[R, S' + new] -> [R, S + new]."""
        return torch.cat([self.prompts(len(ids)).to(ids), ids[:, self._length :]], dim=1)

    def prompts(self, rows: int) -> Tensor:
        """The whole prompt of each of R rows: [R, S]."""
        return self._prompts.repeat_interleave(rows // len(self._prompts), dim=0)


class WholeCriterion(stopping_criteria.StoppingCriteria):
    """A stopping criterion that calls another one with the whole prompt."""

    def __init__(self, criterion: Callable[..., Any], whole: WholeIds) -> None:
        self._criterion = criterion
        self._whole = whole

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        """Called by `generate` after each new token."""
        return self._criterion(self._whole(input_ids), scores, **kwargs)


class WholeProcessor(logits_process.LogitsProcessor):
    """A logits processor that calls another one with the whole prompt."""

    def __init__(self, processor: Callable[..., Any], whole: WholeIds) -> None:
        self._processor = processor
        self._whole = whole

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Called by `generate` before each new token."""
        return self._processor(self._whole(input_ids), scores)


def whole_callbacks(callbacks: Iterable[Any], whole: WholeIds, dropped: int, wrapper: type) -> list[Any]:
    """Stopping criteria or logits processors, made ready for `generate` on the compacted prompt.

    Instances of transformers' own classes are not wrapped, because in `generate` they override the settings
    that make an instance of the same class. Those that count the prompt (`PROMPT_COUNTS`) are copied with the
    compacted prompt's count; the others don't depend on what is dropped.

    Args:
        callbacks: stopping criteria or logits processors.
        whole: the whole prompts.
        dropped: S - S', tokens; below 0 where gestalt tokens made the prompt longer.
        wrapper: `WholeCriterion` or `WholeProcessor`.
    """
    ready = []
    for callback in callbacks:
        if (attribute := PROMPT_COUNTS.get(type(callback))) is not None:
            callback, count = copy.copy(callback), getattr(callback, attribute)
            if isinstance(count, Tensor):
                setattr(callback, attribute, (count - dropped).clamp_min(0))
            elif count is not None:
                setattr(callback, attribute, max(count - dropped, 0))
        elif type(callback).__module__ not in (stopping_criteria.__name__, logits_process.__name__, __name__):
            callback = wrapper(callback, whole)
        ready.append(callback)
    return ready


def whole_prefix(allowed: Callable[[int, Tensor], Any], prompts: Tensor, length: int, copies: int) -> Any:
    """A `prefix_allowed_tokens_fn` that calls the caller's with the whole prompt.

    Args:
        allowed: the caller's function, from the number of a row and its ids [S + new] to allowed tokens.
        prompts: long [B, S].
        length: S' of the compacted prompts.
        copies: rows per prompt that `generate` numbers apart (returned sequences, in some releases).
    """

    def compacted(row: int, ids: Tensor) -> Any:
        return allowed(row, torch.cat([prompts[row // copies].to(ids), ids[length:]]))

    return compacted


class WholePrompt(BaseStreamer):
    """A streamer that passes the whole prompts to another one in place of the compacted, then new tokens."""

    def __init__(self, streamer: Any, whole: WholeIds) -> None:
        self._streamer = streamer
        self._whole: WholeIds | None = whole

    def put(self, value: Tensor) -> None:
        """Called by `generate` with the prompts [R, S'], then with the new token of each row [R]."""
        if self._whole is not None:
            value, self._whole = self._whole.prompts(len(value)).cpu(), None
        self._streamer.put(value)

    def end(self) -> None:
        """Called by `generate` at the end."""
        self._streamer.end()


def show_whole_prompt(kwargs: dict[str, Any], ids: Tensor, length: int, copies: int = 1) -> None:
    """Wrap the callbacks among the arguments of `generate`, in place.

    Args:
        kwargs: arguments of `generate` on compacted prompts.
        ids: long [B, S], the whole prompts.
        length: S' of the compacted prompts.
        copies: rows per prompt that `generate` numbers apart (returned sequences, in some releases).
    """
    whole, dropped = WholeIds(ids, length), ids.shape[1] - length
    if kwargs.get("streamer") is not None:
        kwargs["streamer"] = WholePrompt(kwargs["streamer"], whole)
    if kwargs.get("stopping_criteria") is not None:
        kwargs["stopping_criteria"] = stopping_criteria.StoppingCriteriaList(
            whole_callbacks(kwargs["stopping_criteria"], whole, dropped, WholeCriterion)
        )
    if kwargs.get("logits_processor") is not None:
        kwargs["logits_processor"] = logits_process.LogitsProcessorList(
            whole_callbacks(kwargs["logits_processor"], whole, dropped, WholeProcessor)
        )
    if (allowed := kwargs.get("prefix_allowed_tokens_fn")) is not None:
        kwargs["prefix_allowed_tokens_fn"] = whole_prefix(allowed, ids, length, copies)


class FirstLogits(logits_process.LogitsProcessor):
    """A logits processor that changes nothing, and records whether a model's first logits are numbers.

    A model with NaN among its weights generates as any other does: the first token of the vocabulary, again
    and again. Nothing is read back from the device before `numbers` is asked for, after the answer.
    """

    def __init__(self) -> None:
        self._lacking: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Called by `generate` before each new token."""
        if self._lacking is None:
            self._lacking = scores.isnan().any()
        return scores

    @property
    def numbers(self) -> bool:
        """Whether none of the first logits is NaN; True before there are any."""
        return self._lacking is None or not bool(self._lacking)


class NewTokens(BaseStreamer):
    """A streamer that records the time of the first new token and passes on the answer so far.

    Args:
        now: the clock, in seconds.
        decode: token ids to text.
        on_text: called with the whole answer so far after each new token; or None.
    """

    def __init__(
        self,
        now: Callable[[], float],
        decode: Callable[[list[int]], str] = lambda _: "",
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self._now, self._decode, self._on_text = now, decode, on_text
        self._arrivals: list[float] = []
        self._ids: list[int] = []

    def put(self, value: Tensor) -> None:
        """Called by `generate` with the prompt and then with each new token."""
        if len(self._arrivals) < 2:
            self._arrivals.append(self._now())
        if self._on_text is not None and len(self._arrivals) == 2:
            self._ids += value.flatten().tolist()
            self._on_text(self._decode(self._ids))

    def end(self) -> None:
        """Called by `generate` at the end; nothing to do."""

    def arrived(self) -> float:
        """The time of the first new token, in seconds of the clock."""
        return self._arrivals[-1]


# Key/value caches of a call: their name in this release of transformers, and which of them can be continued.
#
# A call that dropped tokens leaves a cache with fewer columns than the prompt that the caller holds.
# Nothing in
# it says so, so such caches are marked, and refused where the whole prompt would be continued.

CACHE = "cache" if "cache" in BaseModelOutputWithPast.__dataclass_fields__ else "past_key_values"
"""The argument, and the output, that is a key/value cache: `cache` since transformers 5.24, which deprecates
the older name, `past_key_values`.
"""

LACKING = "arr_coc_lacks_tokens"
"""The attribute of a key/value cache whose call dropped tokens."""


def cache_of(arguments: Mapping[str, Any]) -> Any:
    """The key/value cache among the arguments of a call, by its name of today or the older one; or None."""
    cache = arguments.get(CACHE)
    return arguments.get("past_key_values") if cache is None else cache


def refuse_continuation(inputs: Mapping[str, Any], stock: bool) -> None:
    """Check a call's key/value cache.

    Args:
        inputs: arguments of the call.
        stock: whether it runs as the stock model.

    Raises:
        ValueError: a stock call continues a cache that lacks tokens; another one continues any cache.
    """
    past = cache_of(inputs)
    if stock:
        refuse_pruned_cache(past)
        return
    refuse_cache(past)


def refuse_cache(past: Any) -> None:
    """Check that a key/value cache passed by the caller is empty.

    Raises:
        ValueError: it is filled; a call that drops tokens can't continue it, with or without new images.
    """
    if past is not None and past.get_seq_length() > 0:
        raise ValueError(
            f"{CACHE} can't be continued while tokens are dropped: a cache doesn't say which tokens it "
            "lacks; pass the whole conversation with its images and no cache, or use "
            "mode='full' in every turn"
        )


def mark_caches(output: Any, past: Any, columns: Tensor, length: int) -> None:
    """Mark the key/value caches of a call that dropped tokens of the prompt, for `refuse_pruned_cache`.

    Args:
        output: returned by the base model; the caches in it, if any, are marked.
        past: the cache that the caller passed to be filled, or None.
        columns: long [B, S'], `Compacted.columns` of the call.
        length: S of the whole prompt.
    """
    if columns.shape[1] == length and bool((columns == torch.arange(length, device=columns.device)).all()):
        return
    results = output.to_tuple() if isinstance(output, ModelOutput) else output
    for cache in (past, *(results if isinstance(results, tuple) else ())):
        if isinstance(cache, Cache):
            setattr(cache, LACKING, True)


def refuse_pruned_cache(past: Any) -> None:
    """Check, for mode "full", that a cache is not of a call that dropped tokens (see `mark_caches`).

    Such a cache has fewer columns than the prompt that the caller holds, so the stock model would read the
    prompt's end again or skip some of it. A mark on a cache that was emptied since is removed.

    Raises:
        ValueError: it is of such a call.
    """
    if not getattr(past, LACKING, False):
        return
    if past.get_seq_length() == 0:
        delattr(past, LACKING)
        return
    raise ValueError(
        f"{CACHE} comes from a call that dropped visual tokens, and mode='full' can't continue it: it is "
        "shorter than the prompt; use mode='full' in every turn, or pass the whole conversation "
        "with its images and no cache"
    )


# Kept prompts: keys and values of whole prompts about the same images, for the prompts that begin alike.
#
#     kept = KeptPrompts()
#     kept.read_image(base, adapter, compacted)      once: every column up to the last visual token
#     compacted = kept.continued(adapter, compacted)  later: only what the prompt doesn't share is still to
# read
#     kept.keep(ids, compacted)                      after `generate`: the answer may begin the next prompt
#
# What a server calls its prefix cache. Images stand first in a chat, so all questions about them share their
# columns, and the turns of one conversation all but the last words. Nothing may be dropped from such a
# prompt:
# its answers are those of the stock model, up to rounding.
#
# P columns that are kept, S of a prompt.

PER_COLUMN = (*PROMPT_NAMES, "position_ids")
"""Arguments of the base model with a value for every column of the prompt."""


@dataclass(frozen=True)
class KeptPrompt:
    """One prompt that was read.

    Attributes:
        ids: long [P], its token ids.
        cache: their keys and values; never continued itself, see `beginning`.
    """

    ids: Tensor
    cache: DynamicCache

    @property
    def divisible(self) -> bool:
        """Whether any first part of it can be continued: not where a layer keeps a window or a state."""
        return all(type(layer) is DynamicLayer for layer in self.cache.layers)

    def shared(self, ids: Tensor) -> int:
        """How many first columns of a prompt [S] needn't be read again; at least its last one must be."""
        width = min(len(self.ids), len(ids) - 1)
        differ = (self.ids[:width] != ids[:width]).nonzero()
        same = int(differ[0]) if len(differ) else width
        return same if self.divisible or same == len(self.ids) else 0

    def beginning(self, length: int) -> DynamicCache:
        """A cache of the first columns that may be continued, while this one stays as it is."""
        if not self.divisible:
            return copy.deepcopy(self.cache)  # states are written in place
        part = copy.copy(self.cache)
        part.layers = [
            copy.copy(layer) for layer in self.cache.layers
        ]  # they grow by cat: tensors are shared
        part.crop(length - len(self.ids))
        return part


class KeptPrompts:
    """The images, and the last prompt that went on from them; any number of threads may use it."""

    def __init__(self) -> None:
        self._image: KeptPrompt | None = None
        self._last: KeptPrompt | None = None

    @property
    def columns(self) -> int:
        """Columns that are kept, those that both prompts share counted once."""
        return max((len(one.ids) for one in (self._image, self._last) if one is not None), default=0)

    @torch.no_grad()
    def read_image(self, base: Any, adapter: FamilyAdapter, compacted: Compacted) -> None:
        """Read a prompt up to its last visual token, and keep that.

        Args:
            base: the model that reads.
            adapter: of its family.
            compacted: one row with every token of its images.
        """
        kwargs = _explicit(adapter, compacted.kwargs)
        ids = kwargs["input_ids"][0]
        length = int((ids == adapter.image_token_id).nonzero()[-1]) + 1
        shared = {name: kwargs[name][..., :length] for name in PER_COLUMN if kwargs.get(name) is not None}
        cache = DynamicCache(config=base.config.get_text_config())
        visual = compacted.kwargs["mm_encoder_outputs"]
        base(**shared, mm_encoder_outputs=visual, **{CACHE: cache}, use_cache=True, logits_to_keep=1)
        self._image, self._last = KeptPrompt(ids[:length], cache), None

    def continued(self, adapter: FamilyAdapter, compacted: Compacted) -> Compacted:
        """A prompt of one row and all tokens that goes on from what is kept.

        Raises:
            ValueError: no image is kept, or the prompt doesn't begin with it.
        """
        kwargs = _explicit(adapter, compacted.kwargs)
        ids = kwargs["input_ids"][0]
        image, kept = self._image, [one for one in (self._last, self._image) if one is not None]
        best = max(kept, key=lambda one: one.shared(ids), default=None)
        if image is None or best is None or best.shared(ids) < len(image.ids):
            raise ValueError("the prompt doesn't begin with images that are kept: read them first")
        return replace(compacted, kwargs=kwargs | {CACHE: best.beginning(best.shared(ids))})

    def keep(self, ids: Tensor, compacted: Compacted) -> None:
        """Keep a prompt that was continued, in place of the last one.

        Args:
            ids: long [S + new], the prompt and its answer.
            compacted: of `continued`; its cache was filled by `generate`.
        """
        cache, image = compacted.kwargs[CACHE], self._image
        last = KeptPrompt(ids[: cache.get_seq_length()], cache)
        if image is not None and last.divisible:  # its tensors hold the image's: one copy is enough
            self._image = KeptPrompt(image.ids, last.beginning(len(image.ids)))
        self._last = last


def check_keeping(count: int | None, adapter: FamilyAdapter) -> None:
    """Check after how many questions images are to be kept.

    Args:
        count: None for never.
        adapter: of the model.

    Raises:
        ValueError: it is no count, or the family's images see the question, so that there is nothing to keep.
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise ValueError(
            f"keep_image_after {count!r} is no number of questions: use 0, 1, 2, ... or None for never"
        )
    if count is not None and adapter.prefix:
        raise ValueError(
            f"{adapter.model.config.model_type} reads an image together with each question: its keys and "
            "values can't be kept for the next one"
        )


def unread(compacted: Compacted) -> dict[str, Any]:
    """Arguments of `forward` for a continued prompt: what its cache lacks; `generate` sees to that itself."""
    kwargs = dict(compacted.kwargs)
    start = kwargs[CACHE].get_seq_length()
    names = [name for name in PER_COLUMN if name != "attention_mask" and kwargs.get(name) is not None]
    return kwargs | {name: kwargs[name][..., start:] for name in names}


def _explicit(adapter: FamilyAdapter, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without images, which columns that were read don't need again, and with their positions.

    The model counts positions by the images where it does so at all; plain ones it counts right by itself.
    """
    own = {name: value for name, value in kwargs.items() if name not in adapter.visual_names}
    own.pop("mm_encoder_outputs", None)
    if not adapter.plain_positions:
        positions = adapter.positions(kwargs)
        if adapter.text_row:
            numbers = consecutive_positions(adapter.attention_mask(kwargs))
            positions = torch.cat([numbers[None].to(positions), positions])
        own["position_ids"] = positions
    return own


# Prefix caching: keys and values of the columns that all questions about one image share.
#
# A gestalt comes first in the prompt and depends on no question, so its keys and values (and those of the
# words
# before it) are computed once: each new question then costs its saccades and its words alone. Answers are
# those
# of the whole prompt, up to rounding.


@dataclass(frozen=True)
class Prefix:
    """The first P columns of a prompt with their keys and values.

    Attributes:
        ids: long [P], their token ids.
        coarse: number of gestalt tokens among them.
        cache: their keys and values; copied for every use.
    """

    ids: Tensor
    coarse: int
    cache: DynamicCache


def shared_columns(compacted: Compacted) -> int:
    """The number of first columns that depend on no question, for one row and image; 0 without a gestalt."""
    columns = compacted.columns
    coarse = (columns[0] == GESTALT).nonzero().flatten()
    return int(coarse[-1]) + 1 if len(columns) == 1 and len(coarse) else 0


@torch.no_grad()
def read_prefix(base: Any, compacted: Compacted) -> Prefix | None:
    """Run the language model on the columns that all questions share; None where there is no gestalt."""
    length = shared_columns(compacted)
    if not length:
        return None
    kwargs = compacted.kwargs
    coarse = int((compacted.columns[0] == GESTALT).sum())
    cache = DynamicCache(config=base.config.get_text_config())
    shared = {name: kwargs[name][..., :length] for name in PER_COLUMN if kwargs.get(name) is not None}
    shared["mm_encoder_outputs"] = _tokens(kwargs, slice(0, coarse))
    base(**shared, **{CACHE: cache}, use_cache=True, logits_to_keep=1)
    return Prefix(kwargs["input_ids"][0, :length], coarse, cache)


def after(prefix: Prefix | None, compacted: Compacted) -> Compacted:
    """The prompt with the prefix's cache; unchanged where its first columns differ."""
    if prefix is None or shared_columns(compacted) != len(prefix.ids):
        return compacted
    if not torch.equal(compacted.kwargs["input_ids"][0, : len(prefix.ids)], prefix.ids):
        return compacted
    rest = {"mm_encoder_outputs": _tokens(compacted.kwargs, slice(prefix.coarse, None))}
    if not len(rest["mm_encoder_outputs"]["image"].pooler_output[0]):
        del rest["mm_encoder_outputs"]
    kwargs = {name: value for name, value in compacted.kwargs.items() if name != "mm_encoder_outputs"}
    return replace(compacted, kwargs=kwargs | rest | {CACHE: copy.deepcopy(prefix.cache)})


def _tokens(kwargs: dict[str, Any], part: slice) -> dict[str, Any]:
    """A value of `mm_encoder_outputs` with a part of the image's tokens, in every level."""
    visual = kwargs["mm_encoder_outputs"]["image"]
    own = visual.pooler_output
    # Packed tokens are pieces of one token each.
    packed = isinstance(own, Tensor)
    fields: dict[str, Any] = {"pooler_output": own[part] if packed else [tokens[part] for tokens in own]}
    if getattr(visual, "deepstack_features", None):
        fields["deepstack_features"] = [
            [tokens[part] for tokens in level] for level in visual.deepstack_features
        ]
    return {"image": type(visual)(**fields)}


T = TypeVar("T")

REFUSED = {
    "assistant_model": "assisted decoding needs the whole prompt in both models",
    "prompt_lookup_num_tokens": "assisted decoding needs the whole prompt",
    "assistant_early_exit": "assisted decoding needs the whole prompt",
    "use_mtp": "assisted decoding needs the whole prompt",
    "custom_generate": "custom decoding may not know of dropped tokens",
    "guidance_scale": "guidance runs a second prompt without the images",
    "negative_prompt_ids": "guidance runs a second prompt without the images",
    "token_healing": "healing rewrites the end of the prompt",
    "inputs_embeds": "tokens to drop are found by their ids, pass input_ids",
    "mm_encoder_outputs": "images are encoded here, pass pixel_values",
    "per_layer_inputs": "they are made of the tokens that are kept, leave them out",
    "visual_pos_masks": "the model finds the visual tokens that are kept, leave them out",
    "deepstack_visual_embeds": "images are encoded here, pass pixel_values",
    "cache_position": "columns are numbered anew, leave it out",
    "rope_deltas": "they belong to the whole prompt, leave them out",
    "position_embeddings": "they belong to the whole prompt, pass position_ids",
    "shift_labels": "labels of the kept tokens are shifted by the model, pass labels",
    "cu_seq_lens_q": "packed prompts can't be divided anew, pad them",
    "cu_seq_lens_k": "packed prompts can't be divided anew, pad them",
    "seq_idx": "packed prompts can't be divided anew, pad them",
}
"""Arguments that dropping tokens can't honour, and why; all of them work with mode="full"."""

CHUNKED_PREFILL = Version("5.23")
"""The first transformers whose `prefill_chunk_size` gives each chunk the features of its own placeholders.
Stock 5.18 to 5.22 fail or answer wrongly with images, whether tokens are dropped or not.
"""

NUMBERED_BY_PROMPT = Version("5.24")
"""The first transformers that gives `prefix_allowed_tokens_fn` the number of the prompt in every case;
before, returned sequences without beams were numbered apart.
"""

COLUMN_COUNTERS: set[str] = set()
"""Model types whose `generate` counts positions along the columns, whatever it is given: families say so when
they are registered (`FamilyAdapter.ignores_positions`).
"""


def heeding_positions(model: Any) -> Any:
    """The model, or for `COLUMN_COUNTERS` a view with the same modules that heeds given positions."""
    if model.config.model_type not in COLUMN_COUNTERS:
        return model
    view: Any = copy.copy(model)
    prepare = GenerationMixin.prepare_inputs_for_generation
    view.__dict__["prepare_inputs_for_generation"] = types.MethodType(prepare, view)
    return view


def named_arguments(
    call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call of the base model by name, the prompt as `input_ids`.

    Stock `generate` and `forward` take positional arguments, the prompt first (`generate` calls it `inputs`).

    Args:
        call: the base model's `generate` or `forward`.
        args: positional arguments.
        kwargs: arguments by name.

    Returns:
        All of them by name. A prompt that came as `inputs` is `input_ids`.

    Raises:
        ValueError: too many positional arguments, an argument given twice, or a prompt that isn't ids, such
            as a picture or all processor inputs in one object.
    """
    name = getattr(call, "__name__", "the call")
    if args:
        _check_ids(args[0], name)
    parameters = inspect.signature(call).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(args) > len(names):
        raise ValueError(f"{len(args)} positional arguments were given but there are {len(names)}; name them")
    positional = dict(zip(names, args, strict=False))
    if twice := sorted(set(positional) & set(kwargs)):
        raise ValueError(f"{', '.join(twice)} was given twice, by position and by name; pass it once")
    named = {**positional, **kwargs}
    prompt = named.pop("inputs", None)
    for value in (prompt, named.get("input_ids")):
        _check_ids(value, name)
    if prompt is not None:
        if named.get("input_ids") is not None:
            raise ValueError("inputs and input_ids were both given, and both are the prompt; pass input_ids")
        named["input_ids"] = prompt
    return named


def naming(*names: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """A decorator: the signature of a function that takes any arguments names these, each None by default.

    transformers' Trainer reads it: what it doesn't name is left out of the data, and labels aren't found.
    """

    def named(function: Callable[..., T]) -> Callable[..., T]:
        signature = inspect.signature(function)
        *own, last = signature.parameters.values()
        new = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *new, last])
        return function

    return named


def _check_ids(prompt: Any, name: str) -> None:
    """Raise a ValueError where something else than ids stands in the place of a call's prompt.

    Args:
        prompt: what does; None: nothing.
        name: of the call.
    """
    if prompt is None or isinstance(prompt, Tensor):
        return
    kind = type(prompt).__name__
    if isinstance(prompt, Mapping):
        raise ValueError(f"{name} got a {kind} in place of input_ids: unpack it, {name}(**inputs)")
    raise ValueError(
        f"{name} got a {kind} in place of input_ids: use ask(image, question), or pass all that the "
        f"processor makes of a prompt and its images, {name}(**inputs)"
    )


def check_length(count: object) -> None:
    """Check the number of tokens at which an answer is cut off.

    Raises:
        ValueError: not a whole number from 1 on.
    """
    if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 1:
        raise ValueError(f"max_new_tokens {count!r} is no count of tokens: use a whole number, 1 or more")


def with_inferred_mask(base: PreTrainedModel, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `generate` with the attention mask that stock `generate` infers where none is given.

    A padding token in the prompt is padding, unless it also ends sequences (it could then be text). With no
    padding token in the prompt nothing is added. `forward` infers nothing, neither here nor in stock.

    Args:
        base: the base model; its generation_config has the token ids that the call lacks.
        kwargs: arguments of `generate`, `input_ids` [B, S] among them.

    Returns:
        The same arguments, with `attention_mask` long [B, S] where one is inferred.
    """
    ids = kwargs.get("input_ids")
    pad, eos = (setting(base, kwargs, f"{name}_token_id") for name in ("pad", "eos"))
    if kwargs.get("attention_mask") is not None or not isinstance(ids, Tensor) or pad is None:
        return dict(kwargs)
    ends = torch.as_tensor([] if eos is None else eos).flatten().tolist()
    if int(pad) in ends or not bool((ids == pad).any()):
        return dict(kwargs)
    return {**kwargs, "attention_mask": (ids != pad).long()}


def setting(base: PreTrainedModel, kwargs: Mapping[str, Any], name: str) -> Any:
    """A generation setting: the call's own, else its generation_config's, else the model's, else None."""
    sources = (kwargs.get("generation_config"), base.generation_config)
    values = (kwargs.get(name), *(getattr(source, name, None) for source in sources))
    return next((value for value in values if value is not None), None)


def refuse_settings(base: PreTrainedModel, kwargs: Mapping[str, Any]) -> None:
    """Check the settings of a call of `generate`, its own and those of the model's generation_config.

    Raises:
        ValueError: names the setting, the reason and the remedy.
    """
    if not isinstance(kwargs.get("logits_to_keep", 0), int | None):
        raise ValueError("logits_to_keep of columns is for one forward: leave it out of generate")
    names = (*REFUSED, "cache_implementation", "prefill_chunk_size")
    refuse_arguments({name: setting(base, kwargs, name) for name in names})


def refuse_arguments(arguments: Mapping[str, Any]) -> None:
    """Check arguments or settings for those that can't be honoured while tokens are dropped.

    Args:
        arguments: arguments or settings by name.

    Raises:
        ValueError: names the argument, the reason and the remedy.
    """
    for name, why in REFUSED.items():
        value = arguments.get(name)
        if value is None or value is False or (name == "guidance_scale" and value == 1):
            continue
        raise ValueError(f"{name} can't be used while tokens are dropped: {why}; use mode='full'")
    if arguments.get("cache_implementation") == "paged":
        raise ValueError("a paged cache can't be used while tokens are dropped; use mode='full' or no paging")
    chunk, installed = arguments.get("prefill_chunk_size"), Version(transformers.__version__)
    if chunk is not None and installed < CHUNKED_PREFILL:
        raise ValueError(
            f"prefill_chunk_size {chunk} is wrong with images in transformers {installed}, tokens dropped or "
            f"not; install transformers >= {CHUNKED_PREFILL}, or leave it out"
        )


# ---- the call --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Generated:
    """The result of `generate(..., return_allocation=True)`.

    Attributes:
        sequences: long [B * num_return_sequences, S + new], the whole prompts and the new tokens.
        allocations: one per image, in order of appearance; empty in mode "full".
        fallback: whether the allocation failed and all tokens were used.
        mode: the name of the mode that ran.
        note: what of the call was not followed to the letter, and why; None where all was.
        details: the base model's own output where `return_dict_in_generate=True`, else None.
    """

    sequences: Tensor
    allocations: list[Allocation]
    fallback: bool
    mode: str = "full"
    note: str | None = None
    details: Any = None


@torch.no_grad()
def generate_whole(base: Any, inputs: Mapping[str, Any], compacted: Compacted, **more: Any) -> Any:
    """Generate from a compacted prompt and return sequences that begin with the whole one.

    Args:
        base: the model that generates.
        inputs: the caller's own inputs, with the whole `input_ids` [B, S].
        compacted: the prompt with tokens dropped, for the base model.
        more: further arguments of `generate`.

    Returns:
        The output of `base.generate`, with sequences [B * num_return_sequences, S + new] that begin with the
        whole prompts. A cache in it is marked where tokens were dropped (`mark_caches`).
    """
    kwargs, ids = compacted.kwargs | more, inputs["input_ids"]
    length = compacted.columns.shape[1]
    for limit, count in (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")):
        value = setting(base, kwargs, limit)  # counts the prompt's tokens, so it is lowered by those dropped
        if value and setting(base, kwargs, count) is None:
            shorter = max(value - (ids.shape[1] - length), 0)
            if kwargs.get("generation_config") is not None:
                kwargs["generation_config"] = copy.deepcopy(kwargs["generation_config"])
                setattr(kwargs["generation_config"], limit, shorter)
            else:
                kwargs[limit] = shorter
    beams = setting(base, kwargs, "num_beams") or 1
    apart = beams == 1 and Version(transformers.__version__) < NUMBERED_BY_PROMPT
    copies = (setting(base, kwargs, "num_return_sequences") or 1) if apart else 1
    show_whole_prompt(kwargs, ids, length, copies)
    heeding = base if kwargs.get("position_ids") is None else heeding_positions(base)
    output = heeding.generate(**kwargs)
    mark_caches(output, cache_of(kwargs), compacted.columns, ids.shape[1])
    sequences = output if isinstance(output, Tensor) else output.sequences
    prompts = ids.repeat_interleave(len(sequences) // len(ids), dim=0)
    whole = torch.cat([prompts, sequences[:, length:]], dim=1)
    if isinstance(output, Tensor):
        return whole
    output.sequences = whole
    return output
