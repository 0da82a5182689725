"""Which question an image belongs to, read from the token ids of a prompt.

    split(ids, tokens)    the turns, each with its words and the images in it
    questions(turns)      per image the questions of its own turn and of later ones of the user

A turn is what stands between <|im_start|> and <|im_end|>; a prompt without them is one turn of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Tokens(NamedTuple):
    """Ids of the tokens that structure a prompt, and how to read the others.

    Attributes:
        image: stands for one image before it is expanded.
        ignored: belong to media, not to what is said: vision start and end, video.
        start: opens a turn; None: the tokenizer has none.
        end: closes a turn.
        decode: ids to text.
    """

    image: int
    ignored: frozenset[int]
    start: int | None
    end: int | None
    decode: Callable[[list[int]], str]


class Turn(NamedTuple):
    """A turn: its role, its words without those of media, and the numbers of the images in it."""

    role: str
    text: str
    images: tuple[int, ...]


def split(ids: Sequence[int], tokens: Tokens) -> list[Turn]:
    """The turns of a prompt in order."""
    turns, words, images, count, inside = [], [], [], 0, False

    def close() -> None:
        if words or images:
            role, text = _role(tokens.decode(words)) if inside else ("user", tokens.decode(words))
            turns.append(Turn(role, text.strip(), tuple(images)))
        words.clear()
        images.clear()

    for token in ids:
        if token == tokens.image:
            images.append(count)
            count += 1
        elif token in (tokens.start, tokens.end):
            close()
            inside = token == tokens.start
        elif token not in tokens.ignored:
            words.append(token)
    close()
    return turns


def _role(text: str) -> tuple[str, str]:
    """The first line of a turn, which names its role, and the rest."""
    role, _, rest = text.partition("\n")
    return role.strip(), rest


def questions(turns: Sequence[Turn]) -> list[list[str]]:
    """Per image, in order, the words of its own turn and of every later turn of the user that has any.

    An image without words in its own turn is read by the next ones alone; none: an empty list.
    """
    listed: dict[int, list[str]] = {}
    for place, turn in enumerate(turns):
        later = [other.text for other in turns[place + 1 :] if other.role == "user" and other.text]
        for image in turn.images:
            listed[image] = [*([turn.text] if turn.text else []), *later]
    return [listed[image] for image in sorted(listed)]
