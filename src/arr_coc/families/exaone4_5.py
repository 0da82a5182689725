"""EXAONE 4.5: Qwen2.5-VL's vision tower, on a language model with plain positions and sliding windows.

Its own `generate` counts positions along the columns that it is given, whatever positions it is given, so a
view of the model without that rule generates (`seam.decoding.heeding_positions`).
"""

from __future__ import annotations

from arr_coc.families.qwen2_5_vl import Qwen2_5VLAdapter


class Exaone4_5Adapter(Qwen2_5VLAdapter):
    """EXAONE 4.5, whose tower has fewer keys than queries."""

    model_types = ("exaone4_5",)
    title = "EXAONE 4.5"
    remark = "dropping equals masking while the prompt fits the attention window"
    plain_positions = True  # it has a rule of three-row positions, which only raises
    clips = False  # frames are told from images by their kinds of tokens, which it takes no notice of
