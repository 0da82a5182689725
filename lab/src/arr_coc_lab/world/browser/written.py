"""Hand-written pages with natural questions, in text files under `scenes`.

    == boarding pass                                       a scene and its HTML
    <p>[l1|Gate] [v1|{A/B/C}{1-40}]</p>                    pieces by their ids, slots with random values
    ? value | l1 v1 | Where do I board? | gate             kind | pieces (-> answer) | wordings
    ? unanswerable | | Is breakfast served on board?

`[id|text]` is a piece of text, `[[id|html]]` an element, of which @on, @off, @check, @box, @radio and @ring
are drawn; in SVG `data-id="x"` marks one. A slot is a sort of `Vocabulary.of` ("{name}"), a whole number
("{3-19}") or one of some texts ("{Visa/Cash}"); slots with equal keys ("{name:a}") have one value per sort.
"{=id}" in a question is a piece's text.
"""

from __future__ import annotations

import html
import re
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.switches import radio, switch
from arr_coc_lab.world.browser.vocabulary import ALL_SORTS

FOLDER = Path(__file__).with_name("scenes")
ELEMENT = re.compile(r"\[\[(\w+)\|(.*?)\]\]", re.DOTALL)
TEXT = re.compile(r"\[(\w+)\|([^\[\]]*)\]")
DRAWN = re.compile(r'\bdata-id="(\w+)"([^<>]*>(?!\s*<)([^<>]*))?')
SLOT = re.compile(r"\{(?! )([^{}=]+?)(?::([a-z]\w*))?\}")
NAMED = re.compile(r"\{=(\w+)\}")
RANGE = re.compile(r"(\d+)-(\d+)")


class WrittenQuestion(NamedTuple):
    """A question of a scene: its kind, ids of what answers it, the answer if it is fixed, its wordings."""

    kind: str
    pieces: tuple[str, ...]
    answer: str
    wordings: tuple[str, ...]


class WrittenScene(NamedTuple):
    """A written page: its name, its HTML with marks and slots, and its questions."""

    name: str
    html: str
    questions: tuple[WrittenQuestion, ...]

    @property
    def split(self) -> str:
        """The split it is of, and of no other: one scene in eight of "test", as many of "validation"."""
        return {0: "test", 1: "validation"}.get(zlib.crc32(f"scene:{self.name}".encode()) % 8, "train")


@lru_cache(maxsize=1)
def scenes() -> tuple[WrittenScene, ...]:
    """Return all scenes, in the order of their files."""
    return tuple(
        scene for path in sorted(FOLDER.glob("*.txt")) for scene in parse(path.read_text(encoding="utf-8"))
    )


def parse(text: str) -> list[WrittenScene]:
    """Return the scenes of a file.

    Raises:
        ValueError: a line of a question is malformed or names a piece that is not there; says which.
    """
    parsed = []
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition("\n")
        lines = rest.splitlines()
        body = "\n".join(line for line in lines if not line.startswith("? ")).strip()
        names = {match[1] for pattern in (ELEMENT, TEXT, DRAWN) for match in pattern.finditer(body)}
        questions = tuple(_question(line, name, names) for line in lines if line.startswith("? "))
        parsed.append(WrittenScene(name.strip(), body, questions))
    return parsed


def _question(line: str, scene: str, names: set[str]) -> WrittenQuestion:
    """Return a question from its line; see `parse`."""
    kind, pieces, *wordings = (part.strip() for part in f"{line[2:]}||".split("|"))
    ids, _, answer = pieces.partition("->")
    listed = tuple(ids.split())
    missing = [each for each in listed if each not in names]
    if missing or not any(wordings):
        what = f"names {missing[0]!r}, which is no piece" if missing else "has no wording"
        raise ValueError(f"scene {scene!r}: {line!r} {what}")
    return WrittenQuestion(kind, listed, answer.strip(), tuple(filter(None, wordings)))


class Slots:
    """The values of a scene's slots, the same for a sort and a key wherever they stand."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.values: dict[tuple[str, str], str] = {}

    def fill(self, text: str) -> str:
        """Return a text with its slots filled; braces around anything else stay."""
        return SLOT.sub(self._value, text)

    def fill_html(self, text: str) -> str:
        """HTML with its slots filled by escaped values."""
        return SLOT.sub(lambda match: html.escape(self._value(match), quote=False), text)

    def _value(self, match: re.Match[str]) -> str:
        kind, key = match.groups()
        if (kind, key) in self.values:
            return self.values[kind, key]
        span = RANGE.fullmatch(kind)
        if span:
            value = str(self.sheet.choose(int(span[1]), int(span[2]))).zfill(len(span[1]))
        elif "/" in kind:
            value = self.sheet.one(kind.split("/"))
        elif kind in ALL_SORTS:
            value = self.sheet.words.of(kind)
        else:
            return match[0]  # a brace of code
        if key:
            self.values[kind, key] = value
        return value


def write(sheet: Sheet, scene: WrittenScene) -> str:
    """Return the HTML of a scene with its slots filled; some of its questions are asked."""
    slots, pieces = Slots(sheet), dict[str, Piece]()
    manner = sheet.one(("pill", "pill", "square", "check", "text"))

    def element(match: re.Match[str]) -> str:
        inner = match[2].strip()
        macro = MACROS.get(inner)
        look = 'style="display:inline-block;vertical-align:middle"' if macro else ""
        tag = "span" if macro else "div"
        pieces[match[1]] = sheet.block(macro(manner) if macro else inner, tag, look)
        return pieces[match[1]]

    def text(match: re.Match[str]) -> str:
        pieces[match[1]] = sheet.rich(match[2])
        return pieces[match[1]]

    def drawn(match: re.Match[str]) -> str:
        pieces[match[1]] = sheet.mark(html.unescape(match[3] or "").strip())
        return pieces[match[1]] + (match[2] or "")

    body = ELEMENT.sub(element, slots.fill_html(scene.html))
    body = DRAWN.sub(drawn, TEXT.sub(text, body))
    for question in scene.questions:
        evidence = [pieces[name] for name in question.pieces]
        answer = question.answer or (evidence[-1].plain if evidence else "not on this page")
        for wording in sheet.rng.sample(question.wordings, min(2, len(question.wordings))):
            named = NAMED.sub(lambda match: pieces[match[1]].plain, slots.fill(wording))
            sheet.ask(question.kind, named, slots.fill(answer), *evidence)
    return body


MACROS: dict[str, Callable[[str], str]] = {
    "@on": lambda manner: switch(manner, on=True),
    "@off": lambda manner: switch(manner, on=False),
    "@check": lambda _: switch("check", on=True),
    "@box": lambda _: switch("check", on=False),
    "@radio": lambda _: radio(on=True),
    "@ring": lambda _: radio(on=False),
}
"""Elements by name: each is drawn in the manner of the page."""
