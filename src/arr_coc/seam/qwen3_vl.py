"""Qwen3-VL: Qwen2.5-VL's route with deepstack levels, which `FamilyAdapter.features` carries along."""

from __future__ import annotations

from arr_coc.seam.qwen2_5_vl import Qwen2_5VLAdapter


class Qwen3VLAdapter(Qwen2_5VLAdapter):
    """Qwen3-VL. Its image processor normalises to [-1, 1]."""

    model_types = ("qwen3_vl",)
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)
