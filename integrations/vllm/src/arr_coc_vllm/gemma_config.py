"""What vLLM is told of Gemma 4 before the model is built: that the model gives the positions of its tokens.

vLLM counts positions itself unless a configuration has M-RoPE. That of the whole model is given an entry that
says so; the rotary settings of its layers stay as they are, and all three rows of positions are the same.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.models.config import Gemma4Config


class Gemma4Positions(Gemma4Config):
    """As vLLM's own settings for Gemma 4, and positions that come from the model."""

    @staticmethod
    def verify_and_update_model_config(model_config: Any) -> None:
        """Write the entry."""
        model_config.hf_config.mrope_section = [1, 1, 1]
