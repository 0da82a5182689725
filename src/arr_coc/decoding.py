"""Generating from a compacted prompt so that a caller sees an ordinary `generate`.

The original prompt comes back whole, limits that count the prompt count the whole one, and what can't be
honoured while tokens are dropped is refused by name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.generation.streamers import BaseStreamer

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
    "inputs": "pass input_ids by name",
    "mm_encoder_outputs": "images are encoded here, pass pixel_values",
    "pixel_values_videos": "videos are not pruned yet",
    "video_grid_thw": "videos are not pruned yet",
}
"""Arguments that dropping tokens can't honour, and why; all of them work with mode="full"."""
VIDEO_NAMES = ("pixel_values_videos", "video_grid_thw")
"""Those that come with a video."""


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
    refuse_arguments({name: setting(base, kwargs, name) for name in (*REFUSED, "cache_implementation")})


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


class WholePrompt(BaseStreamer):
    """Hands a streamer the original prompt in place of the compacted one, then every new token."""

    def __init__(self, streamer: Any, prompt: Tensor) -> None:
        self._streamer = streamer
        self._prompt: Tensor | None = prompt

    def put(self, value: Tensor) -> None:
        """Called by `generate` with the prompt, then with each new token."""
        value, self._prompt = value if self._prompt is None else self._prompt, None
        self._streamer.put(value)

    def end(self) -> None:
        """Called by `generate` at the end."""
        self._streamer.end()


class NewTokens(BaseStreamer):
    """A streamer that notes when the first new token arrives, and hands on the answer so far.

    Args:
        now: seconds of the clock that counts.
        decode: token ids to text.
        on_text: told the whole answer so far after each new token; None: nobody.
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
        """When the first new token came, in seconds of that clock."""
        return self._arrivals[-1]


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
        the original prompts.
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
    if kwargs.get("streamer") is not None:
        kwargs["streamer"] = WholePrompt(kwargs["streamer"], ids.cpu())
    output = base.generate(**kwargs)
    sequences = output if isinstance(output, Tensor) else output.sequences
    prompts = ids.repeat_interleave(len(sequences) // len(ids), dim=0)
    whole = torch.cat([prompts, sequences[:, length:]], dim=1)
    if isinstance(output, Tensor):
        return whole
    output.sequences = whole
    return output
