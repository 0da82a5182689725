"""Callbacks of `generate`: wrappers that give them the whole prompt's ids, and a streamer of new tokens.

Stopping criteria, logits processors, `prefix_allowed_tokens_fn` and streamers are wrapped where a prompt is
compacted. Shapes: whole prompts are [B, S], compacted ones [B, S'], rows of a running generation
[R, S' + new] with R a multiple of B (beams, returned sequences), the copies of a prompt next to each other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from transformers.generation import logits_process, stopping_criteria
from transformers.generation.streamers import BaseStreamer

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
