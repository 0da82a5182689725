"""Generate from a compacted prompt (tokens dropped) as an ordinary `generate` does from the whole one.

Returned sequences begin with the whole prompt, length limits count it and callbacks get it. Arguments that
can't be honoured while tokens are dropped raise a ValueError that names them.

Shapes: whole prompts [B, S], compacted [B, S'], running [R, S' + new], R a multiple of B, copies adjacent.
"""

from __future__ import annotations

import copy
import inspect
import numbers
import types
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
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
from arr_coc.seam.assembly import (
    GESTALT,
    KIND_NAMES,
    PAD,
    PROMPT_NAMES,
    Compacted,
    consecutive_positions,
    image_spans,
)
from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.clips import StepPixels
from arr_coc.seam.pixels import REMEDY, reading_pixels

# ---- callbacks: they get the whole prompt's ids in place of the compacted ones

# Classes of transformers that count the prompt's tokens, and the attribute that holds the count.
PROMPT_COUNTS: dict[type, str] = {
    stopping_criteria.MaxLengthCriteria: "max_length",
    logits_process.MinLengthLogitsProcessor: "min_length",
    logits_process.MinNewTokensLengthLogitsProcessor: "prompt_length_to_skip",
    logits_process.ForcedEOSTokenLogitsProcessor: "max_length",
    logits_process.SuppressTokensAtBeginLogitsProcessor: "begin_index",
    logits_process.ExponentialDecayLengthPenalty: "regulation_start",
    logits_process.RepetitionPenaltyLogitsProcessor: "prompt_ignore_length",
}


class WholeIds:
    """Replaces the compacted prompts (of length S') by the whole ones [B, S] in a generation's ids."""

    def __init__(self, prompts: Tensor, length: int) -> None:
        self._prompts = prompts
        self._length = length

    def __call__(self, ids: Tensor) -> Tensor:
        """Return ids [R, S' + new] with the whole prompts in front: [R, S + new]."""
        return torch.cat([self.prompts(len(ids)).to(ids), ids[:, self._length :]], dim=1)

    def prompts(self, rows: int) -> Tensor:
        # (R, S): copies of a prompt are adjacent
        return self._prompts.repeat_interleave(rows // len(self._prompts), dim=0)


class WholeCriterion(stopping_criteria.StoppingCriteria):
    """A stopping criterion that shows another one the whole prompt in place of the compacted one."""

    def __init__(self, criterion: Callable[..., Any], whole: WholeIds) -> None:
        self._criterion = criterion
        self._whole = whole

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        return self._criterion(self._whole(input_ids), scores, **kwargs)


class WholeProcessor(logits_process.LogitsProcessor):
    """A logits processor that shows another one the whole prompt in place of the compacted one."""

    def __init__(self, processor: Callable[..., Any], whole: WholeIds) -> None:
        self._processor = processor
        self._whole = whole

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return self._processor(self._whole(input_ids), scores)


def whole_callbacks(callbacks: Iterable[Any], whole: WholeIds, dropped: int, wrapper: type) -> list[Any]:
    """Return stopping criteria or logits processors adapted to a prompt that lacks `dropped` tokens.

    Instances of transformers' own classes are not wrapped: `generate` replaces its own of the same class by
    them. Those that count the prompt (`PROMPT_COUNTS`) are copied with the compacted prompt's count.
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
    """Return a `prefix_allowed_tokens_fn` that calls the caller's with the whole prompt."""

    def compacted(row: int, ids: Tensor) -> Any:
        return allowed(row, torch.cat([prompts[row // copies].to(ids), ids[length:]]))

    return compacted


class WholePrompt(BaseStreamer):
    """A streamer that passes on the whole prompts in place of the compacted ones, then new tokens."""

    def __init__(self, streamer: Any, whole: WholeIds) -> None:
        self._streamer = streamer
        self._whole: WholeIds | None = whole

    def put(self, value: Tensor) -> None:
        """Called with the prompts [R, S'], then with the new token of each row [R]."""
        if self._whole is not None:
            value, self._whole = self._whole.prompts(len(value)).cpu(), None
        self._streamer.put(value)

    def end(self) -> None:
        self._streamer.end()


def show_whole_prompt(kwargs: dict[str, Any], ids: Tensor, length: int, copies: int = 1) -> None:
    """Wrap the callbacks among the arguments of `generate`, in place.

    `ids` [B, S] are the whole prompts, `length` is S' of the compacted ones; `copies` are the rows per prompt
    that `generate` numbers apart (returned sequences, in some releases).
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

    With NaN among its weights a model generates the vocabulary's first token for ever.
    """

    def __init__(self) -> None:
        self._lacking: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self._lacking is None:
            self._lacking = scores.isnan().any()
        return scores

    @property
    def numbers(self) -> bool:
        """Whether none of the first logits is NaN; True before there are any."""
        # waits for the device: asked after the answer
        return self._lacking is None or not bool(self._lacking)


class NewTokens(BaseStreamer):
    """A streamer that records when the first new token came and passes on the answer so far."""

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
        if len(self._arrivals) < 2:
            self._arrivals.append(self._now())
        if self._on_text is not None and len(self._arrivals) == 2:
            self._ids += value.flatten().tolist()
            self._on_text(self._decode(self._ids))

    def end(self) -> None:
        """Do nothing; `generate` calls it at the end."""

    def arrived(self) -> float:
        """Return the time at which the first new token came, in seconds of the clock `now`."""
        return self._arrivals[-1]


# ---- key/value caches

# The argument and output that is a key/value cache: renamed in transformers 5.24.
CACHE = "cache" if "cache" in BaseModelOutputWithPast.__dataclass_fields__ else "past_key_values"

DROPPED_MARK = "arr_coc_lacks_tokens"  # attribute of a cache whose call dropped tokens


def cache_of(arguments: Mapping[str, Any]) -> Any:
    """Return the key/value cache among the arguments of a call, by its name of today or the older one; or
    None.
    """
    cache = arguments.get(CACHE)
    return arguments.get("past_key_values") if cache is None else cache


def refuse_continuation(inputs: Mapping[str, Any], stock: bool) -> None:
    """Check a call's cache: the stock model continues only caches that lack no token, other modes none."""
    check = refuse_pruned_cache if stock else refuse_cache
    check(cache_of(inputs))


def refuse_cache(past: Any) -> None:
    """Raise a ValueError for a filled cache of the caller: a call that drops tokens can't continue one."""
    if past is not None and past.get_seq_length() > 0:
        raise ValueError(
            f"{CACHE} can't be continued while tokens are dropped: a cache doesn't say which tokens it "
            "lacks; pass the whole conversation with its images and no cache, or use "
            "mode='full' in every turn"
        )


def mark_caches(output: Any, past: Any, columns: Tensor, inputs: Mapping[str, Any]) -> None:
    """Mark the caches, the caller's (`past`) and in `output`, of a call that dropped tokens, in place."""
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    if columns.shape == ids.shape:
        same = columns == torch.arange(ids.shape[1], device=columns.device)
        if bool((same if mask is None else same | (mask == 0) & (columns == PAD)).all()):
            return
    results = output.to_tuple() if isinstance(output, ModelOutput) else output
    for cache in (past, *(results if isinstance(results, tuple) else ())):
        if isinstance(cache, Cache):
            setattr(cache, DROPPED_MARK, True)


def refuse_pruned_cache(past: Any) -> None:
    """Raise a ValueError for a cache of a call that dropped tokens; unmark an emptied one."""
    if not getattr(past, DROPPED_MARK, False):
        return
    if past.get_seq_length() == 0:
        delattr(past, DROPPED_MARK)
        return
    raise ValueError(
        f"{CACHE} comes from a call that dropped visual tokens, and mode='full' can't continue it: it is "
        "shorter than the prompt; use mode='full' in every turn, or pass the whole conversation "
        "with its images and no cache"
    )


# ---- columns that were read once and begin many prompts

PER_COLUMN = (*PROMPT_NAMES, "position_ids")  # arguments with a value for every column


@dataclass(frozen=True)
class KeptPrompt:
    """The first P columns of a prompt of one row, read by the language model: ids long [P], keys and values.

    `cache` itself is never continued, see `beginning`; `gestalt` counts the gestalt tokens among the columns.
    """

    ids: Tensor
    cache: DynamicCache
    gestalt: int = 0

    @property
    def divisible(self) -> bool:
        """Whether the prompt can be continued from any column, not only from its end."""
        # Subclasses keep a window, a state or fewer bits, which no first part can be cut from.
        return all(type(layer) is DynamicLayer for layer in self.cache.layers)

    def shared(self, ids: Tensor) -> int:
        """Return how many first columns of a prompt [S] needn't be read again; at least its last one must
        be.
        """
        width = min(len(self.ids), len(ids) - 1)
        differ = (self.ids[:width] != ids[:width]).nonzero()  # (differing, 1)
        same = int(differ[0]) if len(differ) else width
        return same if self.divisible or same == len(self.ids) else 0

    def beginning(self, length: int) -> DynamicCache:
        """Return a copy of the cache of the first `length` columns, to be continued."""
        if not self.divisible:
            return copy.deepcopy(self.cache)  # states are written in place
        part = copy.copy(self.cache)
        part.layers = [copy.copy(layer) for layer in self.cache.layers]  # growing makes new tensors
        if length < len(self.ids):
            part.crop(length - len(self.ids))
        return part


def _read_columns(
    base: Any, kwargs: Mapping[str, Any], length: int, visual: dict[str, Any], gestalt: int = 0
) -> KeptPrompt:
    shared = {name: kwargs[name][..., :length] for name in PER_COLUMN if kwargs.get(name) is not None}
    cache = DynamicCache(config=base.config.get_text_config())
    base(**shared, mm_encoder_outputs=visual, **{CACHE: cache}, use_cache=True, logits_to_keep=1)
    return KeptPrompt(kwargs["input_ids"][0, :length], cache, gestalt)


class KeptPrompts:
    """A session's prefix cache: its images, and the last prompt that went on from them.

    Images stand first in a chat, so all questions about them share their columns, and the turns of a
    conversation all but the last words. Nothing is dropped: answers are the stock model's, up to rounding.
    """

    def __init__(self) -> None:
        self._image: KeptPrompt | None = None
        self._last: KeptPrompt | None = None

    @property
    def columns(self) -> int:
        """Number of kept columns, those that both prompts share counted once."""
        return max((len(one.ids) for one in (self._image, self._last) if one is not None), default=0)

    @torch.no_grad()
    def read_image(self, base: Any, adapter: FamilyAdapter, compacted: Compacted) -> None:
        """Read an undropped prompt of one row up to its last column of an image, and keep that."""
        kwargs = _without_images(adapter, compacted.kwargs)
        length = int(adapter.of_images(kwargs)[0].nonzero()[-1]) + 1
        self._image = _read_columns(base, kwargs, length, compacted.kwargs["mm_encoder_outputs"])
        self._last = None

    def continued(self, adapter: FamilyAdapter, compacted: Compacted) -> Compacted:
        """Return an undropped prompt of one row that goes on from what is kept; a ValueError if it can't."""
        kwargs = _without_images(adapter, compacted.kwargs)
        ids = kwargs["input_ids"][0]
        image, kept = self._image, [one for one in (self._last, self._image) if one is not None]
        best = max(kept, key=lambda one: one.shared(ids), default=None)
        if image is None or best is None or best.shared(ids) < len(image.ids):
            raise ValueError("the prompt doesn't begin with images that are kept: read them first")
        if bool((late := adapter.of_images(kwargs)[0, len(image.ids) :]).any()):
            word = adapter.processor.tokenizer.decode(ids[len(image.ids) :][late][:1])
            raise ValueError(
                f"the prompt holds {word!r}, which the model reads with an image, behind the kept images; "
                "leave it out"
            )
        return replace(compacted, kwargs=kwargs | {CACHE: best.beginning(best.shared(ids))})

    def keep(self, ids: Tensor, compacted: Compacted) -> None:
        """Keep a prompt with its answer [S + new] in place of the last one; `generate` filled its cache."""
        cache, image = compacted.kwargs[CACHE], self._image
        last = KeptPrompt(ids[: cache.get_seq_length()], cache)
        if image is not None and last.divisible:  # its tensors hold the image's: one copy is enough
            self._image = KeptPrompt(image.ids, last.beginning(len(image.ids)))
        self._last = last


def check_keeping(count: int | None, adapter: FamilyAdapter) -> None:
    """Raise a ValueError if images can't be kept after `count` questions; None: never kept."""
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
    """Return arguments of `forward` for a continued prompt: those columns that its cache lacks."""
    kwargs = dict(compacted.kwargs)
    start = kwargs[CACHE].get_seq_length()  # the mask stays whole: it covers the cache's columns, too
    names = [name for name in PER_COLUMN if name != "attention_mask" and kwargs.get(name) is not None]
    return kwargs | {name: kwargs[name][..., start:] for name in names}


def _without_images(adapter: FamilyAdapter, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without images, which columns that were read don't need again, and with their positions."""
    own = {name: value for name, value in kwargs.items() if name not in adapter.visual_names}
    own.pop("mm_encoder_outputs", None)
    if not adapter.plain_positions:
        positions = adapter.positions(kwargs)
        if adapter.text_row:
            numbers = consecutive_positions(adapter.attention_mask(kwargs))
            positions = torch.cat([numbers[None].to(positions), positions])
        own["position_ids"] = positions
    return own


def shared_columns(compacted: Compacted) -> int:
    """Return how many leading columns are the same for every question, in one row; 0 without coarse view."""
    columns = compacted.columns
    gestalt = (columns[0] == GESTALT).nonzero().flatten()  # they stand first in their image's place
    return int(gestalt[-1]) + 1 if len(columns) == 1 and len(gestalt) else 0


@torch.no_grad()
def read_prefix(base: Any, compacted: Compacted) -> KeptPrompt | None:
    """Run the language model on the columns that all questions share; None without a coarse view."""
    length = shared_columns(compacted)
    if not length:
        return None
    gestalt = int((compacted.columns[0] == GESTALT).sum())
    visual = _tokens(compacted.kwargs, slice(0, gestalt))
    return _read_columns(base, compacted.kwargs, length, visual, gestalt)


def after(prefix: KeptPrompt | None, compacted: Compacted) -> Compacted:
    """Return a prompt with a prefix's cache for its first columns; unchanged if they aren't the prefix's."""
    if prefix is None or shared_columns(compacted) != len(prefix.ids):
        return compacted
    if not torch.equal(compacted.kwargs["input_ids"][0, : len(prefix.ids)], prefix.ids):
        return compacted
    kwargs = {name: value for name, value in compacted.kwargs.items() if name != "mm_encoder_outputs"}
    rest = _tokens(compacted.kwargs, slice(prefix.gestalt, None))
    if len(rest["image"].pooler_output[0]):
        kwargs["mm_encoder_outputs"] = rest
    return replace(compacted, kwargs=kwargs | {CACHE: prefix.beginning(len(prefix.ids))})


def _tokens(kwargs: dict[str, Any], part: slice) -> dict[str, Any]:
    """Return a value of `mm_encoder_outputs` with a part of the image's tokens, in every level."""
    visual = kwargs["mm_encoder_outputs"]["image"]
    own = visual.pooler_output  # packed tokens are pieces of one token each
    one = own[part] if isinstance(own, Tensor) else [tokens[part] for tokens in own]
    fields: dict[str, Any] = {"pooler_output": one}
    if getattr(visual, "deepstack_features", None):
        fields["deepstack_features"] = [
            [tokens[part] for tokens in level] for level in visual.deepstack_features
        ]
    return {"image": type(visual)(**fields)}


T = TypeVar("T")

# ---- arguments: named, completed, refused

# Arguments that dropping tokens can't honour, and why; all of them work with mode="full".
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

CHUNKED_PREFILL = Version("5.23")  # first with each chunk's own images in `prefill_chunk_size`

NUMBERED_BY_PROMPT = Version("5.24")  # first whose `prefix_allowed_tokens_fn` gets the prompt's number

COLUMN_COUNTERS: set[str] = set()  # model types registered with `FamilyAdapter.ignores_positions`


def use_given_positions(model: Any) -> Any:
    """Return the model, or a view of it whose `generate` uses the positions that it is given."""
    if model.config.model_type not in COLUMN_COUNTERS:
        return model
    view: Any = copy.copy(model)  # the same modules; only the instance's dictionary is another
    prepare = GenerationMixin.prepare_inputs_for_generation
    view.__dict__["prepare_inputs_for_generation"] = types.MethodType(prepare, view)
    return view


def repeat_by_prompt(model: Any) -> Any:
    """Return a view of the model whose `generate` gives each copy of a prompt that prompt's images."""
    view: Any = copy.copy(model)
    view.__dict__["_expand_multimodal_outputs"] = partial(_repeated_by_prompt, model.config.image_token_id)
    return view


def _repeated_by_prompt(
    token: int, input_ids: Tensor, outputs: dict[str, Any], expand_size: int = 1, inputs_embeds: Any = None
) -> dict[str, Any]:
    """`mm_encoder_outputs` for `expand_size` adjacent copies of each prompt [B, S], in place.

    A copy has all images of its prompt, in their order: transformers' GLM, and before 5.20 every family,
    repeats them one by one, so that the copies of a prompt with two images read each other's.
    """
    ends = (input_ids == token).sum(1).cumsum(0).tolist()  # of the prompts, in visual tokens

    def repeated(parts: Any) -> Any:
        starts = accumulate(map(len, parts), initial=0)
        groups: list[list[int]] = [[] for _ in ends]
        for number, start in zip(range(len(parts)), starts, strict=False):
            groups[min(bisect_right(ends, start), len(ends) - 1)].append(number)
        order = [number for group in groups for number in group * expand_size]
        return parts[order] if isinstance(parts, Tensor) else [parts[number] for number in order]

    visual = outputs["image"]
    visual.pooler_output = repeated(visual.pooler_output)
    if getattr(visual, "deepstack_features", None):
        visual.deepstack_features = [repeated(level) for level in visual.deepstack_features]
    return outputs


def named_arguments(
    call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call of the base model, by name; the prompt, however it was passed, as
    `input_ids`.

    A ValueError for too many positional arguments, one given twice, or a prompt that isn't ids.
    """
    name = getattr(call, "__name__", "the call")
    if args:
        _check_ids(args[0], name)
    for other in ("image", "question", "text"):  # as of `ask` and of processors
        if kwargs.get(other) is not None:
            _check_ids(kwargs[other], name, other)
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
    """Return a decorator that adds these names to a function's signature, which transformers' Trainer
    reads.
    """

    def named(function: Callable[..., T]) -> Callable[..., T]:
        signature = inspect.signature(function)
        *own, last = signature.parameters.values()
        new = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *new, last])
        return function

    return named


def _check_ids(prompt: Any, name: str, keyword: str = "") -> None:
    if prompt is None or (isinstance(prompt, Tensor) and not keyword):
        return
    kind = f"{keyword}=" if keyword else type(prompt).__name__
    if isinstance(prompt, Mapping):
        raise ValueError(f"{name} got a {kind} in place of input_ids: unpack it, {name}(**inputs)")
    raise ValueError(
        f"{name} got a {kind} in place of input_ids: use ask(image, question), or pass all that the "
        f"processor makes of a prompt and its images, {name}(**inputs)"
    )


def check_length(count: object) -> None:
    """Raise a ValueError unless the most tokens of an answer are a whole number from 1 on."""
    if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 1:
        raise ValueError(f"max_new_tokens {count!r} is no count of tokens: use a whole number, 1 or more")


def with_inferred_mask(base: PreTrainedModel, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `generate` with the mask that stock `generate` infers where none is given."""
    ids = kwargs.get("input_ids")
    pad, eos = (setting(base, kwargs, f"{name}_token_id") for name in ("pad", "eos"))
    if kwargs.get("attention_mask") is not None or not isinstance(ids, Tensor) or pad is None:
        return dict(kwargs)
    ends = torch.as_tensor([] if eos is None else eos).flatten().tolist()
    if int(pad) in ends or not bool((ids == pad).any()):  # an end token may be text
        return dict(kwargs)
    return {**kwargs, "attention_mask": (ids != pad).long()}


def setting(base: PreTrainedModel, kwargs: Mapping[str, Any], name: str) -> Any:
    """Return a generation setting: the call's own, else its generation_config's, else the model's, else
    None.
    """
    sources = (kwargs.get("generation_config"), base.generation_config)
    values = (kwargs.get(name), *(getattr(source, name, None) for source in sources))
    return next((value for value in values if value is not None), None)


def refuse_settings(base: PreTrainedModel, kwargs: Mapping[str, Any]) -> None:
    """As `refuse_arguments`, for `generate`: the call's settings and the generation_config's."""
    if not isinstance(kwargs.get("logits_to_keep", 0), int | None):
        raise ValueError("logits_to_keep of columns is for one forward: leave it out of generate")
    names = (*REFUSED, "cache_implementation", "prefill_chunk_size")
    refuse_arguments({name: setting(base, kwargs, name) for name in names})


def refuse_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise a ValueError for arguments or settings that can't be honoured while tokens are dropped."""
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


# ---- inputs: the prompt, what stands beside it, and its images

BY_TOKEN = ("attention_mask", *KIND_NAMES, "labels")  # one value per token of the prompt: [B, S]
# a row for each of `pixel_values`
BY_PICTURE = ("image_sizes", "spatial_shapes", "image_position_ids", "pixel_attention_mask")
# grids [images, 3] of patches
PIXEL_GRIDS = {"pixel_values": "image_grid_thw", "pixel_values_videos": "video_grid_thw"}


def check_inputs(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> None:
    """Check a call's prompt, its other inputs and its images before encoding (not in mode "full").

    A ValueError names what is missing, or doesn't fit the prompt or the pixels, in one line with the remedy.
    """
    check_prompt(inputs)
    check_by_token(adapter, inputs)
    for name in ("pixel_values", "pixel_values_videos"):
        _check_pixels(adapter, inputs, name)
    _check_placeholders(adapter, inputs)


def check_without_images(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> None:
    """Raise a ValueError if a prompt that comes without images has placeholders for any."""
    if inputs.get("input_ids") is not None:
        _check_placeholders(adapter, inputs)


def check_prompt(inputs: Mapping[str, Any]) -> None:
    """Raise a ValueError unless a call has rows of `input_ids`."""
    ids = inputs.get("input_ids")
    if ids is None:
        raise ValueError(
            "input_ids is missing, by which tokens to drop are found: pass all that the processor makes of a "
            "prompt and its images"
        )
    if ids.ndim != 2 or not ids.numel():
        raise ValueError(f"input_ids has shape {tuple(ids.shape)}: pass rows of ids [B, S], as processors do")


def check_by_token(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> None:
    """Check the shape of arguments with a value per token, and that each can be shortened."""
    shape = tuple(inputs["input_ids"].shape)
    for name in BY_TOKEN:
        value = inputs.get(name)
        if value is None or (isinstance(value, Tensor) and tuple(value.shape) == shape):
            continue
        what = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"type {type(value).__name__}"
        remedy = "pass one value per token" + (
            ", the processor's two-dimensional mask," if name == "attention_mask" else ""
        )
        raise ValueError(f"{name} has {what} but input_ids have shape {shape}; {remedy} or use mode='full'")
    positions = inputs.get("position_ids")
    if positions is not None:
        _check_positions(adapter, positions, shape)
    unknown = inputs.keys() - {*inspect.signature(adapter.model.forward).parameters, *adapter.visual_names}
    for name in sorted(unknown - {*BY_TOKEN, "position_ids"}):
        value = inputs[name]
        if isinstance(value, Tensor) and value.ndim >= 2 and tuple(value.shape[:2]) == shape:
            raise ValueError(
                f"{name} has a value per token of the prompt, and nothing says what becomes of it where "
                "tokens are dropped: leave it out, or use mode='full'"
            )


def _check_positions(adapter: FamilyAdapter, positions: Any, shape: tuple[int, ...]) -> None:
    rows, length = shape
    own = tuple(positions.shape) if isinstance(positions, Tensor) else ()
    depth = 2 if adapter.plain_positions else 3
    if 2 <= len(own) <= depth and own[-1] == length and own[-2] in (1, rows):
        return
    raise ValueError(
        f"position_ids has shape {own} but input_ids have shape {shape}; pass positions of the whole prompt, "
        "or leave them out"
    )


def _check_pixels(adapter: FamilyAdapter, inputs: Mapping[str, Any], name: str) -> None:
    pixels = inputs.get(name)
    if pixels is None or isinstance(pixels, StepPixels):  # those are our own
        return
    if not len(pixels):
        raise ValueError(f"{name} is empty; leave it out of a prompt without images, or {REMEDY}")
    images = name == "pixel_values"
    for other in adapter.needed if images else (PIXEL_GRIDS[name],) if adapter.clips else ():
        if inputs.get(other) is None:
            kind = adapter.model.config.model_type
            raise ValueError(f"{other} is missing, which {kind} needs beside {name}; {REMEDY}")
    if images:
        for other in BY_PICTURE:
            value = inputs.get(other) if other in adapter.visual_names else None
            if value is not None and len(value) != len(pixels):
                raise ValueError(f"{other} has {len(value)} rows and {name} {len(pixels)}; {REMEDY}")
    grid = inputs.get(PIXEL_GRIDS[name])
    if grid is None or not isinstance(pixels, Tensor):
        return
    if grid.ndim != 2 or grid.shape[1] != 3 or int(grid.prod(1).sum()) != len(pixels):
        raise ValueError(f"{PIXEL_GRIDS[name]} {grid.tolist()} are not of {len(pixels)} patches; {REMEDY}")


def _check_placeholders(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> None:
    """Raise a ValueError where a prompt has placeholders of no image or clip, or images without any."""
    ids = inputs["input_ids"]
    image, clip = adapter.image_token_id, getattr(adapter.model.config, "video_token_id", None)
    if inputs.get("pixel_values_videos") is not None:
        return  # compared where clips become frames
    if clip is not None and clip != image and (count := int((ids == clip).sum())):
        raise ValueError(f"the prompt has {count} video tokens and no pixel_values_videos; {REMEDY}")
    count = int((ids == image).sum())
    if inputs.get("pixel_values") is None:
        if count:
            raise ValueError(f"the prompt has {count} image tokens and no pixel_values; {REMEDY}")
        return
    if not count:
        raise ValueError(f"the prompt has no image token (id {image}) for its pixel_values; {REMEDY}")
    with reading_pixels(adapter.model.config.model_type):
        counts = adapter.early_counts(inputs)
    if counts is not None:
        image_spans(ids == image, counts)


# ---- the call


@dataclass(frozen=True)
class Generated:
    """The result of `generate(..., return_allocation=True)`.

    Attributes:
        sequences: long [B * num_return_sequences, S + new], the whole prompts and the new tokens.
        allocations: one per image, in order of appearance; empty in mode "full".
        fallback: whether the allocation failed and all tokens were used.
        mode: the name of the mode that ran.
        note: what of the call was not followed to the letter, and why; or None.
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
    """Generate from a compacted prompt, and return sequences that begin with the whole one.

    `inputs` are the caller's own, with the whole `input_ids` [B, S]. Returns what `base.generate` does, with
    sequences [B * num_return_sequences, S + new]; a cache in it is marked where tokens were dropped.
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
    beams, returned = (setting(base, kwargs, f"num_{name}") or 1 for name in ("beams", "return_sequences"))
    apart = beams == 1 and Version(transformers.__version__) < NUMBERED_BY_PROMPT
    show_whole_prompt(kwargs, ids, length, returned if apart else 1)
    model = base if kwargs.get("position_ids") is None else use_given_positions(base)
    if kwargs.get("mm_encoder_outputs") is not None and max(beams, returned) > 1:
        model = repeat_by_prompt(model)
    # Invariant 3: `generate` counts on from the last position id, that of the whole prompt's end.
    output = model.generate(**kwargs)
    mark_caches(output, cache_of(kwargs), compacted.columns, inputs)
    sequences = output if isinstance(output, Tensor) else output.sequences
    prompts = ids.repeat_interleave(len(sequences) // len(ids), dim=0)  # copies of a prompt are adjacent
    whole = torch.cat([prompts, sequences[:, length:]], dim=1)
    if isinstance(output, Tensor):
        return whole
    output.sequences = whole
    return output
