"""Which question an image belongs to, read from the text of a prompt.

    split(text, marks)    the turns, each with its words and how many images are in it
    questions(turns)      per image the questions of the user about it

A turn is what stands between <|im_start|> and <|im_end|>, or their likes, and begins with the name of its
role; or what follows a token of a role, such as <|user|>. A prompt without them is one turn of the user.
What a chat template puts into a user's turn beside the user's words (replies of tools, labels of images) is
left out, as `arr_coc.seam.prompt` does it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from arr_coc.files.question import questions_after, standing_questions
from arr_coc.seam.prompt import TemplateMarkers, asides


class Marks(NamedTuple):
    """The texts of tokens that structure a prompt.

    Attributes:
        image: stands for one image before it is expanded.
        special: of all tokens that are no words, those here among them.
        start: opens a turn; None: the tokenizer has none.
        end: closes a turn.
        markers: what the chat template writes around words; None: it has none.
        roles: tokens that open the turn of a role, and that role.
    """

    image: str
    special: Collection[str]
    start: str | None
    end: str | None
    markers: TemplateMarkers | None = None
    roles: Mapping[str, str] = {}


class Turn(NamedTuple):
    """A turn: its role, what is said in it, and how many images are in it."""

    role: str
    text: str
    images: int = 0


def split(text: str, marks: Marks) -> list[Turn]:
    """The turns of a prompt in order, those with words or images."""
    bounds = [re.escape(mark) for mark in (marks.start, marks.end, *marks.roles) if mark is not None]
    edges = [(0, 0, ""), (len(text), len(text), "")]
    if bounds:
        edges[1:1] = [(*m.span(), m[0]) for m in re.finditer("|".join(bounds), text)]
    words, turns = _without(text, asides(text, marks.markers), marks.special), []
    for (_, begin, mark), (end, _, _) in pairwise(edges):
        role = marks.roles.get(mark, "user")
        images = text.count(marks.image, begin, end)
        if mark == marks.start:
            line, _, _ = text[begin:end].partition("\n")
            role, begin = line.strip(), begin + len(line)
        turn = Turn(role, "".join(words[begin:end]).strip(), images)
        if turn.text or turn.images:
            turns.append(turn)
    return turns


def _without(text: str, spans: Sequence[tuple[int, int]], special: Collection[str]) -> list[str]:
    """The letters of a text, each "" that lies in a span or in a special token."""
    letters = list(text)
    tokens = re.finditer("|".join(map(re.escape, sorted(special, key=len, reverse=True))) or "(?!)", text)
    for start, end in [*spans, *(match.span() for match in tokens)]:
        letters[start:end] = [""] * (end - start)
    return letters


def questions(turns: Sequence[Turn]) -> list[list[str]]:
    """Per image, in order, the words of its own turn and of every later turn of the user that has any.

    The images of a turn without words of the user, such as those that a tool returned, are asked about by the
    last turn of the user before it that has words. Without any: an empty list.
    """
    words = [turn.text if turn.role == "user" else "" for turn in turns]
    listed = []
    for place, (turn, own) in enumerate(zip(turns, standing_questions(words), strict=True)):
        if turn.images:
            every = [*([own] if own else ()), *(text for _, text in questions_after(words, place))]
            listed += [list(every) for _ in range(turn.images)]
    return listed
