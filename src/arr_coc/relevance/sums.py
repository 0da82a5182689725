"""Open sources of relevance by name: "guide", "ocr", "boxes:FILE", ..., and sums of them such as "guide+ocr".

    source = open_relevance("guide+ocr")
    register_relevance("mine", lambda argument: MySource())     or an entry point of group "arr_coc.relevance"

`relevance.conformance` checks a source of your own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from arr_coc.files.plugins import load_point, plugins
from arr_coc.guide.coupling import GUIDE, GuideSource
from arr_coc.guide.guide import Guide, load_guide
from arr_coc.relevance.boxes import open_boxes
from arr_coc.relevance.docqa import open_docqa
from arr_coc.relevance.ground import open_ground
from arr_coc.relevance.layout import open_layout
from arr_coc.relevance.ocr import open_ocr
from arr_coc.relevance.page import open_page_texts
from arr_coc.relevance.patches import open_dense, open_index, open_retriever
from arr_coc.relevance.source import RelevanceSource, SumSource

OF_MODELS = ("auto", "trained", "gaze")  # relevances of a wrapped model, which can't be part of a sum
PLUS = r"\+(?=\s*[a-z0-9_-]+\s*(?:[:+]|$))"  # before a name: another one may be part of a file's name
Opener = Callable[[str], RelevanceSource]  # from the argument after ":", "" without one
_BUILT_IN: dict[str, Callable[[str], RelevanceSource]] = {
    "ocr": open_ocr,
    "boxes": open_boxes,
    "page": open_page_texts,
    "ground": open_ground,
    "docqa": open_docqa,
    "layout": open_layout,
    "retriever": open_retriever,
    "dense": open_dense,
    "index": open_index,
}
_registered: dict[str, Opener] = {}


def register_relevance(name: str, opener: Callable[[str], RelevanceSource]) -> None:
    """Register a source of your own under a name for `relevance=`: "NAME" or "NAME:ARGUMENT".

    `opener` makes the source from the argument, "" if there is none. It is called once per argument, and
    again when a file of that name has changed. Entry points of group "arr_coc.relevance" are such openers.

    Raises:
        ValueError: the name is taken, or can't be one.
    """
    if not re.fullmatch("[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"relevance {name!r} is no name: use lower-case letters, digits and hyphens")
    if name in (*OF_MODELS, GUIDE, *_BUILT_IN, *_registered):
        raise ValueError(f"relevance {name!r} is taken: choose another name")
    _registered[name] = opener


def relevance_names() -> tuple[str, ...]:
    """Return the names of all sources that can be part of a sum."""
    return tuple(dict.fromkeys((GUIDE, *_BUILT_IN, *_registered, *plugins("relevance"))))


def parse_relevance(relevance: str) -> tuple[tuple[str, str], ...]:
    """Split a sum such as "guide+ocr:FOLDER" into (name, argument) pairs; raise a ValueError that says what
    is wrong.
    """
    parts = []
    for part in re.split(PLUS, relevance):
        name, _, argument = part.strip().partition(":")
        if name in OF_MODELS and "+" in relevance:
            raise ValueError(f"relevance {name!r} can't be part of a sum: use it alone")
        if name not in OF_MODELS and name not in relevance_names():
            names = ", ".join((*OF_MODELS, *relevance_names()))
            raise ValueError(
                f"relevance {name!r:.60} is unknown; use one of {names}, or a sum such as guide+ocr; "
                "one of your own is registered by its module (arr-coc --import MODULE)"
            )
        parts.append((name, argument))
    if len({name for name, _ in parts}) < len(parts):
        raise ValueError(f"relevance {relevance!r} names a source twice")
    return tuple(parts)


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
        opener = _BUILT_IN.get(name) or _registered.get(name) or load_point(plugins("relevance")[name])
        sources.append(_opened(opener, argument, _written(argument)))
    alone = len(sources) == 1 and isinstance(sources[0], GuideSource)
    return sources[0] if alone else SumSource(sources, guide)
