"""Rank stored pages by their patch vectors: which pages a question is about, before their cells are scored.

pages = open_pages("pages.safetensors")         name -> [rows, columns, D], as late interaction keeps them
rank_pages(pages, question)[:2]                 question [T, D]: the two best pages, with their scores
IndexSource(pages[name], encode)                scores the cells of one of them (`relevance.patches`)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from arr_coc.files.paths import input_file, shorten
from arr_coc.files.saved import reading
from arr_coc.relevance.patches import is_finite, late_interaction


class RankedPage(NamedTuple):
    """A page of a store, and how well it fits a question."""

    name: str
    score: float  # in [-1, 1]: the mean over the question's vectors of each one's best cosine with a patch


def open_pages(path: str) -> dict[str, Tensor]:
    """Open a safetensors file of pages: patch vectors [rows, columns, D] by name, rows from the top left.

    A tensor is a page. One of [n, D] has its grid in the file's metadata, {NAME: "ROWSxCOLUMNS"}. Leave
    vectors of a prompt or of a border out of the file: they are no patches.

    Raises:
        ValueError: no such file, no page in it, a tensor that is none, or vectors of several models.
    """
    remedy = 'save {"page-1": [rows, columns, D], ...}, float, as FILE.safetensors'
    file = input_file(path)
    with reading(f"pages {shorten(file)} can't be read", remedy), safe_open(file, framework="pt") as stored:
        grids = stored.metadata() or {}
        pages = {name: _on_grid(name, stored.get_tensor(name), grids.get(name)) for name in stored.keys()}
        if not pages:
            raise ValueError("it has no tensors")
        widths = {page.shape[-1] for page in pages.values()}
        if len(widths) > 1:
            raise ValueError(f"its vectors have {sorted(widths)} numbers: take all from one model")
    return pages


def _on_grid(name: str, vectors: Tensor, grid: str | None) -> Tensor:
    """Return vectors [rows, columns, D], or [n, D] with a grid "ROWSxCOLUMNS", as [rows, columns, D]."""
    if vectors.ndim == 2 and grid is not None:
        rows, sign, columns = grid.partition("x")
        sides = (int(rows), int(columns)) if sign and rows.isdecimal() and columns.isdecimal() else (0, 0)
        if sides[0] * sides[1] != len(vectors):
            raise ValueError(f"page {name!r:.60} has {len(vectors)} vectors and the grid {grid!r:.20}")
        vectors = vectors.unflatten(0, sides)
    if vectors.ndim != 3 or not vectors.numel() or not vectors.is_floating_point():
        raise ValueError(f"page {name!r:.60} is {vectors.dtype} {list(vectors.shape)}")
    return vectors


@torch.no_grad()
def rank_pages(
    pages: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]], question: Tensor
) -> list[RankedPage]:
    """Rank the pages of a store by how well they fit a question, best first; ties stay in their order.

    A page's score is the mean, over the question's vectors, of each one's best cosine with any of its patches
    (MaxSim, Khattab & Zaharia 2020, arXiv 2004.12832).

    Args:
        pages: patch vectors [rows, columns, D] by name; any mapping, such as one that reads a database, or
            pairs of a name and vectors, which are taken one by one.
        question: its vectors [T, D], from the model that made the patches', without those of a prompt.

    Raises:
        ValueError: vectors of a wrong shape, or that are not finite.
    """
    if question.ndim != 2 or not question.numel() or not is_finite(question):
        raise ValueError(f"a question has vectors {list(question.shape)}: give finite [T, D]")
    words = F.normalize(question.float().cpu(), dim=-1)
    ranked = []
    pairs: Any = pages.items() if isinstance(pages, Mapping) else pages
    for name, vectors in pairs:
        if vectors.ndim != 3 or vectors.shape[-1] != words.shape[-1] or not is_finite(vectors):
            raise ValueError(
                f"page {name!r:.60} has vectors {list(vectors.shape)}: give finite [rows, columns, "
                f"{words.shape[-1]}], by the model that made the question's"
            )
        patches = F.normalize(vectors.float().cpu(), dim=-1)
        ranked.append(RankedPage(name, late_interaction(patches @ words.T)))
    return sorted(ranked, key=lambda page: -page.score)
