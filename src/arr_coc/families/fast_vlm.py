"""FastVLM: a square of cells for each picture, read by a tower of convolutions from timm.

The generic adapter, without its check: each cell of the last layers sees nearly all of the picture, so in a
model of random weights no cell changes the most with its own quarter.
"""

from __future__ import annotations

from arr_coc.families.generic import GenericAdapter


class FastVLMAdapter(GenericAdapter):
    """FastVLM."""

    model_types = ("fast_vlm",)
    title = "FastVLM"
    remark = "with `timm` installed"
