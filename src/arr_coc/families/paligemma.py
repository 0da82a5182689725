"""PaliGemma: a square of cells for each picture, read together with the question, each seeing the other."""

from __future__ import annotations

from functools import cached_property

from arr_coc.families.gemma3 import Gemma3Adapter
from arr_coc.seam.question import TemplateMarkers


class PaliGemmaAdapter(Gemma3Adapter):
    """PaliGemma and PaliGemma 2. Released checkpoints have no chat template: write the prompt yourself."""

    model_types = ("paligemma",)
    title = "PaliGemma"
    remark = "without a chat template of its own `generate` alone; the image is read anew for each question"
    prefix = True

    @cached_property
    def markers(self) -> TemplateMarkers | None:
        """What its processor, not a template, writes around a user's words."""
        tokenizer = getattr(self.processor, "tokenizer", None)
        return None if tokenizer is None else TemplateMarkers(tokenizer.bos_token, "\n")
