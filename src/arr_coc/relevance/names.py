"""Names of sources of relevance and sums of names, read before what they stand for is imported.

parse_relevance("guide+ocr:FOLDER")     (("guide", ""), ("ocr", "FOLDER"))
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from arr_coc.files.plugins import load_point, plugins
from arr_coc.guide import GUIDE

if TYPE_CHECKING:
    from arr_coc.relevance.source import RelevanceSource

OF_MODELS = ("auto", "trained", "gaze")  # relevances of a wrapped model, which can't be part of a sum
BUILT_IN = ("ocr", "ppocr", "boxes", "page", "ground", "docqa", "layout", "retriever", "dense", "index")
PLUS = r"\+(?=\s*[a-z0-9_-]+\s*(?:[:+]|$))"  # before a name: another one may be part of a file's name
_registered: dict[str, Callable[[str], RelevanceSource]] = {}


def register_relevance(name: str, opener: Callable[[str], RelevanceSource]) -> None:
    """Register a source of your own under a name for `relevance=`: "NAME" or "NAME:ARGUMENT".

    `opener` makes the source from the argument, "" if there is none. It is called once per argument, and
    again when a file of that name has changed. Entry points of group "arr_coc.relevance" are such openers.

    Raises:
        ValueError: the name is taken, or can't be one.
    """
    if not re.fullmatch("[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"relevance {name!r} is no name: use lower-case letters, digits and hyphens")
    if name in (*OF_MODELS, GUIDE, *BUILT_IN, *_registered):
        raise ValueError(f"relevance {name!r} is taken: choose another name")
    _registered[name] = opener


def relevance_names() -> tuple[str, ...]:
    """Return the names of all sources that can be part of a sum."""
    return tuple(dict.fromkeys((GUIDE, *BUILT_IN, *_registered, *plugins("relevance"))))


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


def added_opener(name: str) -> Callable[[str], RelevanceSource]:
    """Return what opens the source of a name that isn't built in: registered, or of another distribution."""
    return _registered.get(name) or load_point(plugins("relevance")[name])
