"""The mask of a prompt's question: the tokens of the last user turn, without template and special tokens.

The text around a user's words comes from the chat template itself: it is rendered once with probe words, and
the text before and after them (the markers) is searched in the prompt. No list of template tokens is kept
here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from itertools import groupby, takewhile
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from arr_coc.seam.template import render

logger = logging.getLogger(__name__)

TIME = re.compile(
    r"<(?P<middle>\d+(?:\.\d+)?) seconds>(?=<\|vision_start\|>)"  # Qwen3-VL: ahead of a step
    r"|(?<=<\|end_of_image\|>)(?P<start>\d+(?:\.\d+)?)(?: seconds)?"
    r"(?=<\|begin_of_image\|>|<\|end_of_video\|>)"
)
"""The time that processors write ahead of each step of a clip, or, as GLM-4V's, behind it."""


class TemplateMarkers(NamedTuple):
    """The text of a chat template right before (`opening`) and right after (`closing`) a user's words."""

    opening: str
    closing: str


def template_markers(processor: Any) -> TemplateMarkers | None:
    """The markers of a processor's chat template; None if it has none or can't be rendered."""
    if getattr(processor, "chat_template", None) is None:
        return None

    def rendered(*words: str) -> str:
        turns = [
            {"role": ("user", "assistant")[i % 2], "content": [{"type": "text", "text": word}]}
            for i, word in enumerate(words)
        ]
        return render(processor, turns)

    first, answer, second = "probeone", "probetwo", "probethree"
    try:
        single, double = rendered(first), rendered(first, answer, second)
        before, after = single.split(first)
        between_words, rest = double.split(first)[1].split(answer)
        between_turns = rest.split(second)[0]
    except Exception as error:  # a template may raise anything; all text is then taken for the question
        logger.warning("the chat template can't be rendered with plain turns (%s); using all text", error)
        return None
    opening = _common_start(before[::-1], between_turns[::-1])[::-1]
    closing = _common_start(after, between_words)
    return TemplateMarkers(opening, closing) if opening and closing else None


def _common_start(a: str, b: str) -> str:
    """The longest common prefix of two texts."""
    return "".join(x for x, _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


_SPECIAL: WeakKeyDictionary[Any, tuple[tuple[int, ...], frozenset[int]]] = WeakKeyDictionary()
"""Of tokenizers: what `special_tokens` said, and the size and ids that it was true for."""


def special_tokens(tokenizer: Any) -> frozenset[int]:
    """The ids of a tokenizer's special tokens, those that were added among them; none without a tokenizer.

    It is asked anew when it has grown: listing added tokens takes a millisecond and more, and tokenizers
    0.23.1 leaves 0.6 kB behind each time.
    """
    if tokenizer is None:
        return frozenset()
    own = getattr(tokenizer, "all_special_ids", [])
    state = (len(tokenizer), *own)
    if tokenizer not in _SPECIAL or _SPECIAL[tokenizer][0] != state:
        added = getattr(tokenizer, "added_tokens_decoder", {})
        ids = frozenset((*own, *(i for i, token in added.items() if token.special)))
        _SPECIAL[tokenizer] = state, ids
    return _SPECIAL[tokenizer][1]


def question_tokens(
    ids: Tensor,
    attended: Tensor,
    image_ids: Collection[int | None],
    special_ids: Collection[int],
    processor: Any = None,
    markers: TemplateMarkers | None = None,
) -> Tensor:
    """The mask of the content tokens of the last user turn of one prompt.

    Args:
        ids: [S].
        attended: bool [S], false for padding.
        image_ids: ids of visual placeholders.
        special_ids: ids that are never content.
        processor: holds the tokenizer, or is one.
        markers: the template's text around the user's words.

    Returns:
        bool [S]; all attended text that is not special if the turn can't be located.
    """
    tokenizer = getattr(processor, "tokenizer", processor)
    special = {*special_ids, *special_tokens(tokenizer)}
    content = attended & ~torch.isin(ids, torch.tensor(sorted(special), device=ids.device))
    if markers is None or not getattr(tokenizer, "is_fast", False):
        return content

    # One token per image keeps the text short and doesn't change the rest of it.
    columns = attended.nonzero().flatten().tolist()
    listed = ids[attended].tolist()
    short: list[tuple[int, int]] = []  # (column, id)
    for is_image, run in groupby(zip(columns, listed, strict=True), key=lambda pair: pair[1] in image_ids):
        tokens = list(run)
        short += tokens[:1] if is_image else tokens
    text = tokenizer.decode(
        [i for _, i in short], skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    again = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    start = text.rfind(markers.opening)
    if again["input_ids"] != [i for _, i in short] or start < 0:
        return content
    start += len(markers.opening)
    end = text.find(markers.closing, start)
    end = len(text) if end < 0 else end

    times = [match.span() for match in TIME.finditer(text)]
    within = [
        column
        for (column, _), (left, right) in zip(short, again["offset_mapping"], strict=True)
        if left < end
        and right > start
        and not text[left:right].isspace()
        and not any(left < last and right > first for first, last in times)
    ]
    turn = torch.zeros_like(content)
    turn[within] = True
    return content & turn


def outside(ids: Tensor, begin: int, end: int) -> Tensor:
    """The tokens that stand between no `begin` and its `end`: [B, S] -> bool [B, S]."""
    return (ids == begin).cumsum(1) == (ids == end).cumsum(1)
