"""The mask of a prompt's question: the user's words of the last turn that has any.

The text around a user's words comes from the chat template itself: it is rendered a few times with probe
words, and the text before and after them (the markers) is searched in the prompt. No list of template tokens
is kept here. What a template puts into a user's turn beside the user's words is left out: replies of tools,
and the labels of images ("Picture 1: ").
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, pairwise, product, takewhile
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import ProcessorMixin

from arr_coc.files.atomic import one_line
from arr_coc.files.worker import Worker

# Chat templates of a checkpoint, rendered within bounds: they are programs, and a checkpoint is untrusted.
#
#     render(processor, turns) -> the text of processor.apply_chat_template(turns,
# add_generation_prompt=True)
#
# transformers renders templates in jinja's sandbox, which keeps them from files and code, but not from
# looping
# for ever or from doubling a text forty times. Here they run in the same sandbox in a child process, which
# has
# only so much time and memory (`template_worker`).
#
# A processor with an `apply_chat_template` of its own is the user's code, and is called.

MOST_LETTERS = 100_000
"""Of a template; those of the families supported have up to about ten thousand."""
WORKER = Worker(Path(__file__).with_name("template_worker.py"), seconds=5, megabytes=512)
"""The child of this process, started with the first rendering; one of a large template takes milliseconds."""


def render(processor: Any, turns: Sequence[Mapping[str, Any]], **options: Any) -> str:
    """The text of a chat, with the beginning of the model's answer.

    Args:
        processor: has a chat template.
        turns: messages, each with "role" and "content".
        options: names that the template may read.

    Raises:
        ValueError: the template is none, fails, or needs more time or memory than any chat.
    """
    if getattr(type(processor), "apply_chat_template", None) is not ProcessorMixin.apply_chat_template:
        return processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, **options)
    source = processor.chat_template
    source = source.get("default") if isinstance(source, dict) else source
    names = {
        "messages": turns,
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
        **processor.tokenizer.special_tokens_map,
        **options,
    }
    try:
        if not isinstance(source, str) or len(source) > MOST_LETTERS:
            raise ValueError(f"it is no text of at most {MOST_LETTERS} letters")
        text = _text.__wrapped__ if "strftime_now" in source else _text  # the time is never the same
        return text(source, json.dumps(names, default=_name_of, skipkeys=True))
    except ValueError as error:
        raise ValueError(
            f"the chat template can't be rendered ({one_line(error, 200)}); "
            "load the model with another chat_template.jinja"
        ) from error


def check_template(processor: Any) -> None:
    """Render a processor's chat template once, if it has one, for a question about an image.

    Raises:
        ValueError: as in `render`.
    """
    if getattr(processor, "chat_template", None) is not None:
        content = [{"type": "image"}, {"type": "text", "text": "What?"}]
        render(processor, [{"role": "user", "content": content}])


@lru_cache(maxsize=64)
def _text(source: str, names: str) -> str:
    return WORKER.ask({"source": source, "names": names})


def _name_of(value: object) -> str:
    """What stands for a value that isn't JSON, such as an image: templates ask only whether one is there."""
    return f"<{type(value).__name__}>"


logger = logging.getLogger(__name__)

TIME = re.compile(
    r"<(?P<middle>\d+(?:\.\d+)?) seconds>(?=<\|vision_start\|>)"  # Qwen3-VL: ahead of a step
    r"|(?<=<\|end_of_image\|>)(?P<start>\d+(?:\.\d+)?)(?: seconds)?"
    r"(?=<\|begin_of_image\|>|<\|end_of_video\|>)"
)
"""The time that processors write ahead of each step of a clip, or, as GLM-4V's, behind it."""


PROBES = ("probeone", "probetwo", "probethree", "probefour", "probefive")
"""Words by which the text around a message is found."""
LABELLED = ({}, {"add_vision_id": True})
"""Options of a template under which it may write labels of images: Qwen's has one for that."""


class TemplateMarkers(NamedTuple):
    """The text that a chat template writes around the words of a chat.

    Attributes:
        opening: right before a user's words.
        closing: right after them.
        tool: right before and right after the reply of a tool; None: replies can't be told from a user's
            words, or the template refuses them.
        label: of an image or clip, ahead of it ("Picture 1: "); None: it writes none.
    """

    opening: str
    closing: str
    tool: tuple[str, str] | None = None
    label: re.Pattern[str] | None = None


def template_markers(processor: Any) -> TemplateMarkers | None:
    """The markers of a processor's chat template; None if it has none or can't be rendered."""
    if getattr(processor, "chat_template", None) is None:
        return None
    first, answer, second, *_ = PROBES
    try:
        before, after = _around(processor, [_message("user", first)])
        turns = [_message("user", first), _message("assistant", answer), _message("user", second)]
        _, between_words, between_turns, _ = _around(processor, turns)
    except Exception as error:  # a template may raise anything; all text is then taken for the question
        logger.warning("the chat template can't be rendered with plain turns (%s); using all text", error)
        return None
    opening, closing = _common_end(before, between_turns), _common_start(after, between_words)
    if not opening or not closing:
        return None
    tool = _tool_markers(processor, (before, between_turns))
    return TemplateMarkers(opening, closing, tool, _label(processor, opening))


def _message(role: str, words: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": words}], **more}


def _around(processor: Any, turns: Sequence[dict[str, Any]], **options: Any) -> list[str]:
    """What a template writes before, between and after the probe words of a chat.

    Raises:
        ValueError: it doesn't write each of them once, in their order; or an error of its own.
    """
    text, written = render(processor, turns, **options), str(turns)
    if re.findall("|".join(PROBES), text) != (words := [word for word in PROBES if word in written]):
        raise ValueError("it leaves out words of a message, or repeats or reorders them")
    return re.split("|".join(words), text)


def _tool_markers(processor: Any, openings: Sequence[str]) -> tuple[str, str] | None:
    """`TemplateMarkers.tool`; the openings are what the template writes before a user's words."""
    question, reply, other, answer, thanks = PROBES
    call = {"name": "probe", "arguments": {"of": "it"}}
    calls = [{"id": f"callcall{i}", "type": "function", "function": call} for i in range(2)]
    # Some templates want a call for each reply, some a single one; some want plain text, some parts.
    for count, plain in product((2, 1), (True, False)):
        replies = [
            _message("tool", word, name="probe", tool_call_id=each["id"])
            | ({"content": word} if plain else {})
            for word, each in zip((reply, other), calls, strict=True)
        ]
        turns = [
            _message("user", question),
            {"role": "assistant", "content": "", "tool_calls": calls[:count]},
            *replies,
            _message("assistant", answer),
            _message("user", thanks),
        ]
        try:
            _, call_reply, reply_reply, reply_answer, *_ = _around(processor, turns)
        except Exception as error:  # this form of a chat is none of the template's
            logger.debug("the chat template can't be rendered with replies of tools (%s)", error)
            continue
        opening, closing = _common_end(call_reply, reply_reply), _common_start(reply_reply, reply_answer)
        as_users = any(text.endswith(opening) for text in openings)
        if opening.strip() and closing.strip() and not as_users:
            return opening, closing
    return None


def _label(processor: Any, opening: str) -> re.Pattern[str] | None:
    """`TemplateMarkers.label`, of templates that write a user's words after `opening`."""
    tokens = getattr(getattr(processor, "tokenizer", processor), "added_tokens_decoder", {})
    marks = "|".join(re.escape(str(token)) for token in tokens.values())
    if not marks:
        return None
    labels = set()
    for kind, options in product(("image", "video"), LABELLED):
        turn = _message("user", PROBES[0])
        turn["content"][:0] = [{"type": kind}] * 2  # some label none but several
        try:
            before, _ = _around(processor, [turn], **options)
        except Exception as error:  # a template without clips
            logger.debug("the chat template can't be rendered with a %s (%s)", kind, error)
            continue
        *pieces, _ = re.split(marks, before[before.rfind(opening) + len(opening) :])
        labels |= {re.sub(r"\d+", r"\\d+", re.escape(piece)) for piece in pieces if piece.strip()}
    return re.compile(f"(?:{'|'.join(sorted(labels))})(?={TIME.pattern}|{marks})") if labels else None


def _common_start(a: str, b: str) -> str:
    """The longest common prefix of two texts."""
    return "".join(x for x, _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _common_end(a: str, b: str) -> str:
    """The longest common suffix of two texts."""
    return _common_start(a[::-1], b[::-1])[::-1]


def asides(text: str, markers: TemplateMarkers | None) -> list[tuple[int, int]]:
    """Start and end of what is no user's words in the text of a prompt, also where it lies in a user's turn.

    These are replies of tools, labels of images and the times of frames.
    """
    spans = [match.span() for match in TIME.finditer(text)]
    if markers is None:
        return spans
    if markers.label is not None:
        spans += [match.span() for match in markers.label.finditer(text)]
    opening, closing = markers.tool or ("", "")
    start = text.find(opening) if opening else -1
    while start >= 0 and (end := text.find(closing, start + len(opening))) >= 0:
        spans.append((start, end + len(closing)))
        start = text.find(opening, end)  # what ends one reply may be the beginning of the next one's opening
    return spans


def _user_turns(text: str, markers: TemplateMarkers) -> list[tuple[int, int]]:
    """Start and end of what a template writes of each user's turn, in order."""
    openings = [match.span() for match in re.finditer(re.escape(markers.opening), text)]
    turns = []
    for (_, start), (limit, _) in pairwise([*openings, (len(text), 0)]):
        end = text.find(markers.closing, start)
        turns.append((start, limit if end < 0 else min(end, limit)))
    return turns


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
    """The mask of the content tokens of the last user turn that has any, of one prompt.

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
    turns = _user_turns(text, markers)
    if again["input_ids"] != [i for _, i in short] or not turns:
        return content
    spans, is_content = asides(text, markers), content.tolist()
    words = [
        (column, left, right)
        for (column, _), (left, right) in zip(short, again["offset_mapping"], strict=True)
        if is_content[column]
        and not text[left:right].isspace()
        and not any(left < end and right > start for start, end in spans)
    ]
    question = torch.zeros_like(content)
    for start, end in reversed(turns):
        if columns := [column for column, left, right in words if left < end and right > start]:
            question[columns] = True
            break
    return question


def outside(ids: Tensor, begin: int, end: int) -> Tensor:
    """The tokens that stand between no `begin` and its `end`: [B, S] -> bool [B, S]."""
    return (ids == begin).cumsum(1) == (ids == end).cumsum(1)
