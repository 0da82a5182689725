"""MLX-VLM models that read only the cells of an image that the question needs.

from mlx_vlm import generate, load
from arr_coc_mlx import wrap

model, processor = load("mlx-community/Qwen3-VL-2B-Instruct-4bit")
model = wrap(model, processor, budget=64, mode="sparse")
model.ask("page.png", "What is the total?").text
generate(model, processor, prompt, image=["page.png"])       # MLX-VLM's own, as ever
"""

from __future__ import annotations

from arr_coc_mlx.families import FAMILIES
from arr_coc_mlx.wrapped import WrappedModel, wrap

__all__ = ["FAMILIES", "WrappedModel", "wrap"]
