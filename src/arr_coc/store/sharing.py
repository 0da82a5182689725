"""Sharing: what a model has learned as a folder with a card, on this disk or on the Hub."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Unpack

from arr_coc.files.hub import check_shared, upload
from arr_coc.store.allocator import save_learned
from arr_coc.store.card import SHARED, Facts, card_file, model_card
from arr_coc.store.checkpoint import BUNDLED, BUNDLED_ABOUT


class Shareable:
    """Saving and uploading for a model class: what it has learned, and never its base."""

    base: Any
    layer: Any
    stem: Any
    convs: Any
    loras: Any
    guide: Path | None
    budget: Any
    config: Any
    base_name: str

    @property
    def about(self) -> str | None:
        """What the base model can do, in a line, where this package knows it: of the bundled one alone."""
        return BUNDLED_ABOUT if self.base_name == BUNDLED else None

    def save_pretrained(self, folder: str | Path, **card: Unpack[Facts]) -> None:
        """Write what was learned (layer, stem, compressors, LoRAs, an own guide), the name and commit of the
        base model, and a model card (`card`: `results`, `data`, `license`; see `model_card`); never the base
        itself.

        Raises:
            ValueError: results that can't be read or are of other weights; nothing is written then.
        """
        text = model_card(self, **({"name": Path(folder).resolve().name} | card))
        parts = (self.layer, self.stem, dict(self.convs), self.loras)
        card_text = card_file(text, Path(folder))
        save_learned(*parts, self.base, Path(folder), self.base_name, self.guide, card_text)

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | None = None, **card: Unpack[Facts]
    ) -> str:
        """Upload what `save_pretrained` writes and nothing else; returns the address of the commit.

        Raises:
            ValueError: a base model that only this disk has, or an upload that fails.
        """
        check_shared(self.base_name)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, **({"name": repo_id} | card))
            return upload(Path(folder), repo_id, SHARED, private=private, token=token)
