"""Marks such as [img] and [img-1] in words, by which Ollama and llama.cpp know where a picture belongs."""

from __future__ import annotations

import re
from collections.abc import Sequence

TAG = re.compile(r"\[img(?:-(\d{1,9}))?\]")

Line = tuple[str, bool]  # words in a picture's place, and whether a picture comes with them


def placed(words: str, lines: Sequence[Sequence[Line]], numbered: bool) -> str:
    """Return words that go with other pictures than those that came.

    Args:
        words: as they came.
        lines: by picture that came, what is there in its place: ("", True) if it stays as it is.
        numbered: whether [img-N] means the N-th picture that came here, from 0. It is numbered anew then.

    Returns:
        The words, each mark followed or replaced by what stands in its picture's place. Lines of pictures
        that have no mark come before all words.
    """
    firsts = [0]
    for one in lines:
        firsts.append(firsts[-1] + sum(comes for _, comes in one))
    marked: set[int] = set()
    count = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal count
        if match[1] is None:
            picture, count = count, count + 1
        elif numbered:
            picture = int(match[1])
        else:
            return match[0]
        if picture >= len(lines):
            return match[0]
        marked.add(picture)
        tags = iter(range(firsts[picture], firsts[picture + 1]))
        mark = (lambda: "[img]") if match[1] is None else (lambda: f"[img-{next(tags)}]")
        return "\n".join(
            "\n".join(filter(None, (text, mark() if comes else ""))) for text, comes in lines[picture]
        )

    made = TAG.sub(replaced, words)
    before = [text for picture, one in enumerate(lines) if picture not in marked for text, _ in one if text]
    return "\n".join([*before, made])
