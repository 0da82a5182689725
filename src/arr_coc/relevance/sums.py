"""Open sources of relevance by name: "guide", "ocr", "boxes:FILE", ..., and sums of them such as "guide+ocr".

    source = open_relevance("guide+ocr")
    register_relevance("mine", lambda argument: MySource())     or an entry point of group "arr_coc.relevance"

`relevance.conformance` checks a source of your own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from arr_coc.guide import GUIDE
from arr_coc.guide.coupling import GuideSource
from arr_coc.guide.guide import Guide, load_guide
from arr_coc.relevance.boxes import open_boxes
from arr_coc.relevance.docqa import open_docqa
from arr_coc.relevance.ground import open_ground
from arr_coc.relevance.layout import open_layout
from arr_coc.relevance.names import (
    OF_MODELS,
    added_opener,
    parse_relevance,
    register_relevance,
    relevance_names,
)
from arr_coc.relevance.ocr import ocr_installed, open_ocr
from arr_coc.relevance.page import open_page_texts
from arr_coc.relevance.patches import open_dense, open_index, open_retriever
from arr_coc.relevance.ppocr import open_ppocr
from arr_coc.relevance.source import RelevanceSource, SumSource

__all__ = ["default_source", "open_relevance", "parse_relevance", "register_relevance", "relevance_names"]

_OPENERS: dict[str, Callable[[str], RelevanceSource]] = {
    "ocr": open_ocr,
    "ppocr": open_ppocr,
    "boxes": open_boxes,
    "page": open_page_texts,
    "ground": open_ground,
    "docqa": open_docqa,
    "layout": open_layout,
    "retriever": open_retriever,
    "dense": open_dense,
    "index": open_index,
}


@lru_cache(maxsize=4)
def _opened(
    opener: Callable[[str], RelevanceSource], argument: str, written: tuple[int, int] | None
) -> RelevanceSource:
    """Return what an opener makes of an argument, once: a model asks for it with every question.

    `written` is the time and size of the file that the argument names; None if it names no file.
    """
    return opener(argument)


def _written(argument: str) -> tuple[int, int] | None:
    try:
        stat = Path(argument).expanduser().stat()
    except (OSError, ValueError, RuntimeError):  # of a home that isn't known
        return None
    return stat.st_mtime_ns, stat.st_size


def default_source(guide: Guide) -> RelevanceSource:
    """Return the source of relevance "auto": the guide, and the OCR beside it where one is installed.

    On real pictures both keep all evidence of more questions than the guide alone (docs/results.md), and
    reading a new picture takes the OCR some seconds: two for a page of one megapixel.
    """
    return open_relevance("guide+ocr" if ocr_installed() else GUIDE, guide)


def open_relevance(relevance: str | RelevanceSource, guide: Guide | None = None) -> RelevanceSource:
    """Open a source by its name or a sum of names; a source is returned as it is.

    `guide` is the one in use (None: the bundled one). An unknown name, one that only wrapped models know, or
    a source that can't be opened raises ValueError.
    """
    if not isinstance(relevance, str):
        if not isinstance(relevance, RelevanceSource):
            raise ValueError(
                f"relevance {relevance!r:.60} is no source: it needs name, version, calibration, view and "
                "couple (arr_coc.relevance.conformance checks one), or give a name"
            )
        return relevance
    sources = []
    for name, argument in parse_relevance(relevance):
        if name in OF_MODELS:
            raise ValueError(
                f"relevance {name!r} is of a wrapped model: use ARRCOCModel, or one of "
                f"{', '.join(relevance_names())}"
            )
        if name == GUIDE:
            sources.append(GuideSource(load_guide(argument) if argument else guide))
            continue
        opener = _OPENERS.get(name) or added_opener(name)
        sources.append(_opened(opener, argument, _written(argument)))
    alone = len(sources) == 1 and isinstance(sources[0], GuideSource)
    return sources[0] if alone else SumSource(sources, guide)
