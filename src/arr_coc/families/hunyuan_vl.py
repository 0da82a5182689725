"""Hunyuan VL and HunyuanOCR: as Hunyuan 4 VL, with a token that begins each picture and one that ends it.

Positions have as many rows as the rotary embedding has axes, three or four, and no other row above them. One
of them numbers the pictures of a prompt; the model's own rule numbers those of a batch through, so that the
second prompt would have other positions than alone. Here each prompt has those that it has alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.families.hy_v4_vl import HYV4VLAdapter
from arr_coc.families.tiles import placeholder_runs
from arr_coc.seam.base import Grid


class HunyuanVLAdapter(HYV4VLAdapter):
    """Hunyuan VL and HunyuanOCR."""

    model_types = ("hunyuan_vl",)
    title = "Hunyuan VL, HunyuanOCR"
    remark = "newlines, and the tokens that begin and end a picture, stay"
    text_row = False

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """As the grids have them: some releases of transformers divide the tokens otherwise."""
        merge = self.model.config.vision_config.spatial_merge_size
        return [t * (h // merge) * (w // merge + 1) + 2 for t, h, w in inputs["image_grid_thw"].tolist()]

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The cells between the token that begins a picture, newlines, and the token that ends it."""
        inside = super().cell_layout(inputs, [count - 2 for count in counts])
        return [(grid, cells + 1) for grid, cells in inside]

    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Position ids of the whole prompts, computed by the model itself, row by row: [axes, B, S]."""
        ids, kinds = inputs["input_ids"], inputs.get("mm_token_type_ids")
        kinds = self.token_kinds(inputs) if kinds is None else kinds
        rule, grids = self.model.model.get_rope_index, inputs.get("image_grid_thw")
        rows, first = [], 0
        for row in range(len(ids)):
            one = slice(row, row + 1)
            last = first + len(placeholder_runs(kinds[one] == 1))
            own = None if grids is None else grids[first:last]
            rows.append(rule(ids[one], kinds[one], own, attention_mask=attention_mask[one])[0])
            first = last
        return torch.cat(rows, dim=1)
