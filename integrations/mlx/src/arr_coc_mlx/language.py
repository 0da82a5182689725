"""The language model of a wrapped model: MLX-VLM's own, which is told where a shortened prompt's columns are.

MLX-VLM cuts a prompt into chunks, and puts several prompts into one batch. What belongs to the columns of a
prompt has to be cut and padded with them; deepstack tokens, which it hands on as one list for all prompts,
are therefore a tensor with a place for every column until here.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

OWN_STATE = ("_rope_deltas", "_position_ids")
"""What MLX-VLM's language models keep of the last prompt, and its functions set from outside."""


class Language(nn.Module):
    """Stands before a language model: all but what a shortened prompt needs is the model's own.

    Args:
        base: the language model.
        image_token: id of an image's tokens.
        remembers: the model cuts no `position_ids` of a whole prompt into chunks.
        dense: the model takes deepstack tokens with a place for every column.
    """

    def __init__(self, base: Any, image_token: int, remembers: bool = False, dense: bool = False) -> None:
        super().__init__()
        self["base"] = base
        self.image_token, self.remembers, self.dense = image_token, remembers, dense

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self["base"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN_STATE:
            setattr(self["base"], name, value)
        else:
            super().__setattr__(name, value)

    def __call__(
        self, inputs: mx.array, inputs_embeds: mx.array | None = None, cache: Any = None, **more: Any
    ) -> Any:
        """Run the model on some columns; of a shortened prompt only the ids of its last ones are at hand."""
        if inputs_embeds is not None and inputs.shape[1] != inputs_embeds.shape[1]:
            inputs = inputs[:, -inputs_embeds.shape[1] :]
        more.pop("attention_mask", None)  # Compass would pad a batch's cache by it, which is padded already
        deep = more.get("deepstack_visual_embeds")
        if isinstance(deep, mx.array) and not self.dense:
            seen, deep = (self._cut(part, inputs, cache) for part in (more["visual_pos_masks"], deep))
            more |= compact(seen, deep)
        positions = more.get("position_ids")
        if self.remembers and positions is not None and positions.shape[-1] > inputs.shape[1]:
            more["position_ids"] = mx.moveaxis(self._cut(mx.moveaxis(positions, 0, -1), inputs, cache), -1, 0)
        return self.base(inputs, inputs_embeds=inputs_embeds, cache=cache, **more)

    @staticmethod
    def _cut(values: mx.array, inputs: mx.array, cache: Any) -> mx.array:
        """Return what belongs to the columns at hand, of values [B, columns, ...] of a whole prompt."""
        count = inputs.shape[1]
        if values.shape[1] == count:
            return values
        start = int(cache[0].offset) if cache and cache[0] is not None else 0
        return values[:, start : start + count]

    def get_rope_index(
        self,
        input_ids: mx.array,
        image_grid_thw: mx.array | None = None,
        video_grid_thw: mx.array | None = None,
        attention_mask: mx.array | None = None,
    ) -> tuple[mx.array, mx.array]:
        """Return positions of a prompt of text, and by how much the next one is ahead of their number.

        MLX-VLM asks this before it continues a cached prompt.

        Raises:
            ValueError: the prompt has pictures: the cache holds the cells kept for *its* question, and this
                prompt may need others. MLX-VLM then reads the prompt from its beginning.
        """
        if image_grid_thw is not None or bool((input_ids == self.image_token).any()):
            raise ValueError(
                "arr-coc: a cached prompt holds the cells of a picture that its own question needed, so that "
                "one with pictures isn't continued; only the stock model, `unwrap()`, continues it"
            )
        videos = {} if video_grid_thw is None else {"video_grid_thw": video_grid_thw}  # Compass has none
        return self.base.get_rope_index(input_ids, attention_mask=attention_mask, **videos)


def spread(seen: mx.array, levels: Any, kept: mx.array) -> mx.array:
    """Return deepstack tokens with a place for every column: [1, L, levels, D], zero where there is text.

    Args:
        seen: bool [L], the columns of kept cells.
        levels: of each, the tokens [N, D] of all cells.
        kept: int [K], the kept ones of these.
    """
    tokens = mx.stack([level[kept] for level in levels], axis=1)
    whole = mx.zeros((seen.shape[0], *tokens.shape[1:]), dtype=tokens.dtype)
    whole[mx.array(np.flatnonzero(np.array(seen)))] = tokens
    return whole[None]


def compact(seen: mx.array, spread_levels: mx.array) -> dict[str, Any]:
    """Return the arguments that a language model takes of deepstack tokens [B, L, levels, D], its own way."""
    rows, columns = np.nonzero(np.array(seen))
    if not len(rows):
        return {"visual_pos_masks": None, "deepstack_visual_embeds": None}
    tokens = spread_levels[mx.array(rows), mx.array(columns)]
    return {
        "visual_pos_masks": seen,
        "deepstack_visual_embeds": [tokens[:, level] for level in range(tokens.shape[1])],
    }
