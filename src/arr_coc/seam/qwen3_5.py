"""Qwen3.5: Qwen3-VL's route without deepstack, on a language model with recurrent layers.

A recurrent state has no mask: dropping a token is not the same as hiding it. So the laws that hold here
are identity and greedy text, not "drop equals mask".
"""

from __future__ import annotations

from arr_coc.seam.qwen3_vl import Qwen3VLAdapter


class Qwen3_5Adapter(Qwen3VLAdapter):
    """Qwen3.5."""

    model_types = ("qwen3_5",)
    recurrent = True
