"""Descriptions of the built-in recipes: the comments at the start of their files, as paragraphs."""

from __future__ import annotations

import re
from pathlib import Path

from arr_coc.files.plugins import plugin, plugins
from arr_coc.train.recipe import built_in


def recipes() -> dict[str, Path]:
    """All that `arr-coc train` can teach: name -> file."""
    return built_in() | {name: plugin("teachers", name).FILE for name in plugins("teachers")}


def describe(name: str) -> list[str]:
    """What a built-in recipe is, costs and teaches: the paragraphs of the comment at its start.

    The lines of a paragraph are joined. One that is indented or begins with a word and two spaces, such as
    "Cost      11 minutes", begins a new one.
    """
    paragraphs: list[str] = [""]
    for line in recipes()[name].read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.removeprefix("#").removeprefix(" ")
        if not text.strip():
            paragraphs.append("")
        elif re.match(r" {2,8}\S|\w+ {2,}\S", text):
            paragraphs.append(text.strip())
        else:
            paragraphs[-1] = f"{paragraphs[-1]} {text.strip()}".strip()
    return [paragraph for paragraph in paragraphs if paragraph]


def summary(name: str) -> str:
    """What a built-in recipe teaches, in one sentence: the first of its description."""
    return re.split(r"(?<=\.)\s", describe(name)[0], maxsplit=1)[0]
