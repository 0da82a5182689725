"""Generating from a compacted prompt so that a caller sees an ordinary `generate`.

The original prompt comes back whole, limits that count the prompt count the whole one, callbacks (stopping
criteria, logits processors, `prefix_allowed_tokens_fn`, streamers) get the whole one before the new tokens,
and what can't be honoured while tokens are dropped is refused by name.

Shapes: whole prompts are [B, S], compacted ones [B, S'], rows of a running generation [R, S' + new] with R a
multiple of B (beams, returned sequences), the copies of a prompt next to each other.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import transformers
from packaging.version import Version
from torch import Tensor
from transformers import Cache, PreTrainedModel
from transformers.generation import logits_process, stopping_criteria
from transformers.generation.streamers import BaseStreamer
from transformers.utils import ModelOutput

from arr_coc.seam import Compacted

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
    "pixel_values_videos": "videos are not pruned yet",
    "video_grid_thw": "videos are not pruned yet",
}
"""Arguments that dropping tokens can't honour, and why; all of them work with mode="full"."""
VIDEO_NAMES = ("pixel_values_videos", "video_grid_thw")
"""Those that come with a video."""

CHUNKED_PREFILL = Version("5.23")
"""The first transformers whose `prefill_chunk_size` gives each chunk the features of its own placeholders.
Stock 5.18 to 5.22 fail or answer wrongly with images, whether tokens are dropped or not.
"""

LACKING = "arr_coc_lacks_tokens"
"""The attribute of a key/value cache whose call dropped tokens."""

PROMPT_COUNTS: dict[type, str] = {
    stopping_criteria.MaxLengthCriteria: "max_length",
    logits_process.MinLengthLogitsProcessor: "min_length",
    logits_process.MinNewTokensLengthLogitsProcessor: "prompt_length_to_skip",
    logits_process.ForcedEOSTokenLogitsProcessor: "max_length",
    logits_process.SuppressTokensAtBeginLogitsProcessor: "begin_index",
    logits_process.ExponentialDecayLengthPenalty: "regulation_start",
    logits_process.RepetitionPenaltyLogitsProcessor: "prompt_ignore_length",
}
"""Callbacks of transformers' own that count the prompt, and the attribute that holds the count."""


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
        ValueError: too many positional arguments, or an argument given twice.
    """
    parameters = inspect.signature(call).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(args) > len(names):
        raise ValueError(f"{len(args)} positional arguments were given but there are {len(names)}; name them")
    positional = dict(zip(names, args, strict=False))
    if twice := sorted(set(positional) & set(kwargs)):
        raise ValueError(f"{', '.join(twice)} was given twice, by position and by name; pass it once")
    named = {**positional, **kwargs}
    prompt = named.pop("inputs", None)
    if prompt is not None:
        if named.get("input_ids") is not None:
            raise ValueError("inputs and input_ids were both given, and both are the prompt; pass input_ids")
        named["input_ids"] = prompt
    return named


def with_inferred_mask(base: PreTrainedModel, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `generate` with the attention mask that stock `generate` infers where none is given.

    A padding token in the prompt is padding, unless it also ends sequences (it could then be text). With no
    padding token in the prompt nothing is added. `forward` infers nothing, neither here nor in stock.

    Args:
        base: whose generation_config says the tokens that the call doesn't.
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
    """A generation setting: the call's own, else its generation_config's, else the model's; None if
    nobody set it.
    """
    sources = (kwargs.get("generation_config"), base.generation_config)
    values = (kwargs.get(name), *(getattr(source, name, None) for source in sources))
    return next((value for value in values if value is not None), None)


def refuse_settings(base: PreTrainedModel, kwargs: Mapping[str, Any]) -> None:
    """Refuse a call of `generate` for what it, or the model's own generation_config, asks for.

    Raises:
        ValueError: names the setting, the reason and the remedy.
    """
    names = (*REFUSED, "cache_implementation", "prefill_chunk_size")
    refuse_arguments({name: setting(base, kwargs, name) for name in names})


def refuse_arguments(asked: Mapping[str, Any]) -> None:
    """Refuse what can't be honoured while tokens are dropped.

    Args:
        asked: arguments or settings by name.

    Raises:
        ValueError: names the argument, the reason and the remedy.
    """
    for name, why in REFUSED.items():
        value = asked.get(name)
        if value is None or value is False or (name == "guidance_scale" and value == 1):
            continue
        raise ValueError(f"{name} can't be used while tokens are dropped: {why}; use mode='full'")
    if asked.get("cache_implementation") == "paged":
        raise ValueError("a paged cache can't be used while tokens are dropped; use mode='full' or no paging")
    chunk, installed = asked.get("prefill_chunk_size"), Version(transformers.__version__)
    if chunk is not None and installed < CHUNKED_PREFILL:
        raise ValueError(
            f"prefill_chunk_size {chunk} is wrong with images in transformers {installed}, tokens dropped or "
            f"not; install transformers >= {CHUNKED_PREFILL}, or leave it out"
        )


def refuse_cache(past: Any) -> None:
    """Refuse to continue a filled key/value cache, with or without new images.

    Raises:
        ValueError: says why and what to do instead.
    """
    if past is not None and past.get_seq_length() > 0:
        raise ValueError(
            "past_key_values can't be continued while tokens are dropped: a cache doesn't say which "
            "tokens it lacks; pass the whole conversation with its images and no cache, or use "
            "mode='full' in every turn"
        )


def mark_caches(output: Any, past: Any, columns: Tensor, length: int) -> None:
    """Write on the key/value caches of a call that they lack tokens of the prompt, if they do.

    Args:
        output: what the base model returned; the caches in it, if any, are marked.
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
    """Refuse to continue, in mode "full", a cache of a call that dropped tokens (see `mark_caches`).

    Its columns are fewer than those of the prompt that the caller holds, so the stock model would read the
    prompt's end again or skip some of it. A cache that was emptied since is as good as new.

    Raises:
        ValueError: says why and what to do instead.
    """
    if not getattr(past, LACKING, False):
        return
    if past.get_seq_length() == 0:
        delattr(past, LACKING)
        return
    raise ValueError(
        "past_key_values come from a call that dropped visual tokens, and mode='full' can't continue them: "
        "they are shorter than the prompt; use mode='full' in every turn, or pass the whole conversation "
        "with its images and no cache"
    )


# ---- callbacks -------------------------------------------------------------------------------------------


class WholeIds:
    """Puts the original prompts in front of running rows, in place of the compacted ones.

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
        """The original prompt of each of R rows: [R, S]."""
        return self._prompts.repeat_interleave(rows // len(self._prompts), dim=0)


class WholeCriterion(stopping_criteria.StoppingCriteria):
    """Shows a stopping criterion the whole prompt."""

    def __init__(self, criterion: Callable[..., Any], whole: WholeIds) -> None:
        self._criterion = criterion
        self._whole = whole

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        """Called by `generate` after each new token."""
        return self._criterion(self._whole(input_ids), scores, **kwargs)


class WholeProcessor(logits_process.LogitsProcessor):
    """Shows a logits processor the whole prompt."""

    def __init__(self, processor: Callable[..., Any], whole: WholeIds) -> None:
        self._processor = processor
        self._whole = whole

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Called by `generate` before each new token."""
        return self._processor(self._whole(input_ids), scores)


def whole_callbacks(callbacks: Iterable[Any], whole: WholeIds, dropped: int, wrapper: type) -> list[Any]:
    """Callbacks of a call as `generate` on the compacted prompt has to get them.

    Transformers' own classes stay what they are, because `generate` lets one take the place of what the
    settings of the same class say: those that count the prompt (`PROMPT_COUNTS`) count the compacted one, the
    rest don't depend on what is dropped.

    Args:
        callbacks: stopping criteria or logits processors.
        whole: of the call.
        dropped: S - S'; below 0 where gestalt tokens made the prompt longer.
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
        elif type(callback).__module__ not in (stopping_criteria.__name__, logits_process.__name__):
            callback = wrapper(callback, whole)
        ready.append(callback)
    return ready


def whole_prefix(allowed: Callable[[int, Tensor], Any], prompts: Tensor, length: int, copies: int) -> Any:
    """A `prefix_allowed_tokens_fn` that hands the caller's the whole prompt.

    Args:
        allowed: the caller's, from the number of a row and its ids [S + new] to allowed tokens.
        prompts: long [B, S].
        length: S' of the compacted prompts.
        copies: rows per prompt that `generate` numbers apart (returned sequences without beams).
    """

    def compacted(row: int, ids: Tensor) -> Any:
        return allowed(row, torch.cat([prompts[row // copies].to(ids), ids[length:]]))

    return compacted


class WholePrompt(BaseStreamer):
    """Hands a streamer the original prompts in place of the compacted ones, then every new token."""

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


def _show_whole_prompt(base: Any, kwargs: dict[str, Any], ids: Tensor, length: int) -> None:
    """Make the callbacks among the arguments of `generate` see whole prompts [B, S] for compacted [B, S']."""
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
        beams, returned = (
            setting(base, kwargs, f"num_{name}") or 1 for name in ("beams", "return_sequences")
        )
        copies = 1 if beams > 1 else returned
        kwargs["prefix_allowed_tokens_fn"] = whole_prefix(allowed, ids, length, copies)


# ---- the call --------------------------------------------------------------------------------------------


@torch.no_grad()
def generate_whole(base: Any, inputs: Mapping[str, Any], compacted: Compacted, **more: Any) -> Any:
    """Generate from a compacted prompt and give the original prompt back.

    Args:
        base: the model that generates.
        inputs: the caller's own inputs, with the whole `input_ids` [B, S].
        compacted: what the base model gets.
        more: further arguments of `generate`.

    Returns:
        What `base.generate` returns, with sequences [B * num_return_sequences, S + new] that begin with
        the original prompts. A cache that it hands out is marked where tokens were dropped (`mark_caches`).
    """
    kwargs, ids = compacted.kwargs | more, inputs["input_ids"]
    length = compacted.columns.shape[1]
    for limit, count in (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")):
        value = setting(base, kwargs, limit)  # counts the prompt, so it shrinks with it
        if value and setting(base, kwargs, count) is None:
            shorter = max(value - (ids.shape[1] - length), 0)
            if kwargs.get("generation_config") is not None:
                kwargs["generation_config"] = copy.deepcopy(kwargs["generation_config"])
                setattr(kwargs["generation_config"], limit, shorter)
            else:
                kwargs[limit] = shorter
    _show_whole_prompt(base, kwargs, ids, length)
    output = base.generate(**kwargs)
    mark_caches(output, kwargs.get("past_key_values"), compacted.columns, ids.shape[1])
    sequences = output if isinstance(output, Tensor) else output.sequences
    prompts = ids.repeat_interleave(len(sequences) // len(ids), dim=0)
    whole = torch.cat([prompts, sequences[:, length:]], dim=1)
    if isinstance(output, Tensor):
        return whole
    output.sequences = whole
    return output
