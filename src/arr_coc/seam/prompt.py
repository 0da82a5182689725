"""Prompts about images and clips: written by the chat template, expanded by the processor, once per image.

    VisualPrompt(processor, [image]).inputs("What is the title?")  # as processor(images=..., text=...)

A processor replaces an image's one token by an expansion (placeholders, row breaks, times of frames). The
first prompt goes through the whole processor; its expansion is then reused for every question.
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

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import ProcessorMixin

from arr_coc.files.atomic import one_line
from arr_coc.files.question import last_turns
from arr_coc.files.worker import Worker
from arr_coc.seam.assembly import KIND_NAMES, PROMPT_NAMES
from arr_coc.seam.clips import TIME, ClipSteps, StepPixels, crowded, outline, takes_steps
from arr_coc.video import FrameSource
from arr_coc.video.opening import Visual

logger = logging.getLogger(__name__)

MAX_DRIFT = 0.02  # seconds that a frame may be off what its number and the mean rate give
Turn = tuple[str, str]  # an earlier question and its answer


class Expansion(NamedTuple):
    """The replacement of an image's one token: its id, and by name of a prompt tensor its columns [n]."""

    token: int
    columns: dict[str, Tensor]


class TextExpansion(NamedTuple):
    """The replacement of the placeholders of all images and clips: the text before and the text after."""

    before: str
    after: str


def chat_prompt(
    processor: Any, question: str, visuals: int | Sequence[str] = 1, history: Sequence[Turn] = ()
) -> str:
    """Return the chat template's text for a question after earlier turns, with a placeholder for each visual.

    `visuals`: how many images stand before the first question, or what each is, "image" or "video".
    """
    kinds = ["image"] * visuals if isinstance(visuals, int) else visuals
    turns: list[dict[str, Any]] = []
    for earlier, answer in history:
        turns.append({"role": "user", "content": _words(earlier)})
        turns.append({"role": "assistant", "content": _words(answer)})
    turns.append({"role": "user", "content": _words(question)})
    turns[0]["content"] = [{"type": kind} for kind in kinds] + turns[0]["content"]
    return render(processor, turns)


def _media(visuals: Sequence[Visual], reader: Any, outlines: bool) -> dict[str, Any]:
    """Return the processor's arguments for images and clips; of clips the outlines alone where it takes
    steps.
    """
    images, clips = [one for one in visuals if isinstance(one, Image.Image)], _clips(visuals)
    media: dict[str, Any] = {}
    if images:
        media["images"] = images if len(visuals) == 1 else [images]  # nested: all of one prompt
    if clips:
        # Sampled already: the processor is to take every frame, and to know which one it was.
        # Qwen3-VL's refuses the outline of one frame, though it repeats a last one.
        least = reader.temporal_patch_size if outlines else 1
        counts = [max(len(clip), least) for clip in clips]
        if outlines:
            media["videos"] = [outline(clip, count) for clip, count in zip(clips, counts, strict=True)]
        else:
            media["videos"] = [np.stack(list(clip.arrays())) for clip in clips]
        about = [_about(clip, count) for clip, count in zip(clips, counts, strict=True)]
        media["videos_kwargs"] = {"do_sample_frames": False, "video_metadata": about}
    return media


def _about(clip: FrameSource, count: int) -> dict[str, Any]:
    """Metadata of a clip of `count` frames, from which a processor works out the second of each."""
    numbers, rate, total = list(clip.numbers), clip.rate, clip.total
    drift = max(abs(n / rate - time) for n, time in zip(numbers, clip.times, strict=True))
    # A recording of a screen, an animation: no rate gives its seconds, milliseconds do.
    if drift > MAX_DRIFT:
        numbers = [round(1000 * time) for time in clip.times]
        rate, total = 1000.0, max(round(1000 * total / rate), numbers[-1] + 1)
    numbers += numbers[-1:] * (count - len(numbers))
    return {"fps": rate, "total_num_frames": total, "frames_indices": numbers}


def _clips(visuals: Sequence[Visual]) -> list[FrameSource]:
    return [one for one in visuals if not isinstance(one, Image.Image)]


def _words(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


class VisualPrompt:
    """Processor inputs for any question about the same images and clips: call `inputs(question)`.

    For one image, the ids of its placeholders are spliced into each new prompt. With several images or a
    clip, or where its ids could fuse with neighbouring text, the expanded text is inserted and tokenized.
    Where neither gives the processor's own prompt, each question goes through the processor. Frames of a clip
    are read one at a time (`ClipSteps`). `token`: the image placeholder's id; None: the processor's.

    Attributes:
        visual: the processor's outputs for the images (`pixel_values` and what goes with it).
        note: a remark where a clip has so many frames that each is read smaller; or None.
    """

    def __init__(self, processor: Any, visuals: Sequence[Visual], token: int | None = None) -> None:
        self._processor = processor
        self._token = getattr(processor, "image_token_id", None) if token is None else token
        self._kinds = ["image" if isinstance(one, Image.Image) else "video" for one in visuals]
        self._marks = {kind: template_mark(processor, kind) for kind in set(self._kinds)}
        if "video" in self._kinds and getattr(processor, "video_processor", None) is None:
            raise ValueError(
                f"{type(processor).__name__} takes no clips: ask about images, or load a model that reads "
                "video, such as Qwen3-VL"
            )
        text = chat_prompt(processor, "?", self._kinds)
        self._check_written(text)
        self._written = {mark: text.count(mark) for mark in self._marks.values() if mark}
        clips, reader = _clips(visuals), getattr(processor, "video_processor", None)
        by_steps = bool(clips) and takes_steps(reader)
        self.note: str | None = None
        self._media = _media(visuals, reader, by_steps)
        whole = self._process(text)
        # PaliGemma's adds labels, of no answer.
        self.visual = {k: value for k, value in whole.items() if k not in (*PROMPT_NAMES, "labels")}
        if by_steps:
            grids = [(t, h, w) for t, h, w in whole["video_grid_thw"].tolist()]
            steps = [ClipSteps(reader, *each) for each in zip(clips, grids, strict=True)]
            self.visual["pixel_values_videos"] = StepPixels(steps)
            lost = [crowded(reader, *each) for each in zip(clips, grids, strict=True)]
            self.note = "; ".join(dict.fromkeys(filter(None, lost))) or None
        prompt = {name: value[0] for name, value in whole.items() if name in PROMPT_NAMES}
        self._names = tuple(prompt)
        self._count = self._count_placeholders(prompt["input_ids"])
        self._kinds_of_ids = {name: _kinds_by_id(prompt, name) for name in KIND_NAMES if name in prompt}
        self._expansion: Expansion | TextExpansion | None
        if self._kinds == ["image"]:
            added = processor.tokenizer.added_tokens_decoder
            self._expansion = _expansion(self._tokenize(text), prompt, added)
        else:
            self._expansion = None
        self._expansion = self._expansion or self._text_expansion(text, prompt)

    def inputs(self, question: str, history: Sequence[Turn] = ()) -> dict[str, Any]:
        """Return the processor's outputs for a question after earlier turns: tensors [1, S], and `visual`.

        A ValueError for a text that holds the placeholder of a visual token.
        """
        text = chat_prompt(self._processor, question, self._kinds, history)
        own = all(text.count(mark) == count for mark, count in self._written.items())
        inputs = self._inputs(text) if own else None
        if inputs is None or self._count_placeholders(inputs["input_ids"]) != self._count:
            raise ValueError(
                "the question, or an earlier turn, holds the model's own placeholder; leave it out"
            )
        return inputs

    def _count_placeholders(self, ids: Tensor) -> int:
        return 0 if self._token is None else int((ids == self._token).sum())

    def _inputs(self, text: str) -> dict[str, Any]:
        expansion = self._expansion
        if isinstance(expansion, TextExpansion) and text.count(expansion.before) == 1:
            return self._as_prompt(text.replace(*expansion)) | self.visual
        ids = self._tokenize(text)
        if not isinstance(expansion, Expansion) or ids.count(expansion.token) != 1:
            prompt = {name: value for name, value in self._process(text).items() if name in PROMPT_NAMES}
            return prompt | self.visual
        token, columns = expansion
        at, plain = ids.index(token), torch.tensor(ids)
        prompt = {}
        for name in self._names:
            around = plain if name == "input_ids" else torch.full_like(plain, int(name == "attention_mask"))
            spliced = torch.cat([around[:at], columns[name], around[at + 1 :]])
            prompt[name] = spliced.to(columns[name].dtype)[None]
        return prompt | self.visual

    def _check_written(self, text: str) -> None:
        """Raises a ValueError where a chat template doesn't write all images and clips into a prompt."""
        if self._kinds == ["image"]:
            return
        for kind, mark in self._marks.items():
            count, written = self._kinds.count(kind), 0 if mark is None else text.count(mark)
            if written != count:
                remedy = "ask about one image at a time" if kind == "image" else "give it one that does"
                raise ValueError(
                    f"the chat template of this {type(self._processor).__name__} writes {written} of {count} "
                    f"{kind}s into a prompt: {remedy}"
                )

    def _text_expansion(self, text: str, prompt: dict[str, Tensor]) -> TextExpansion | None:
        """Return the difference between the template's text and the processor's prompt; None if it isn't
        enough.
        """
        marks = [mark for mark in self._marks.values() if mark and mark in text]
        if not marks:
            return None
        first = min(text.index(mark) for mark in marks)
        last = max(text.rindex(mark) + len(mark) for mark in marks)
        whole = self._processor.tokenizer.decode(
            prompt["input_ids"], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        # The time of a frame stands ahead of its begin token: both texts agree up to there or farther.
        start = next((i for i, pair in enumerate(zip(text, whole, strict=False)) if len(set(pair)) > 1), 0)
        start, rest = min(start, first), len(text) - last
        expansion = TextExpansion(text[start:last], whole[start : len(whole) - rest])
        if text[:start] != whole[:start] or text[last:] != whole[len(whole) - rest :]:
            return None
        again = self._as_prompt(text.replace(*expansion))
        same = again.keys() == prompt.keys() and all(torch.equal(again[k][0], prompt[k]) for k in prompt)
        return expansion if same else None

    def _as_prompt(self, text: str) -> dict[str, Tensor]:
        """Return the tensors [1, S] of an expanded text, by the rules that processors follow."""
        ids = torch.tensor([self._tokenize(text)])
        tensors = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        for name, kind_of_id in self._kinds_of_ids.items():
            tensors[name] = torch.zeros_like(ids)
            for token, kind in kind_of_id.items():
                tensors[name][ids == token] = kind
        return {name: tensors[name] for name in self._names if name in tensors}

    def _process(self, text: str) -> Any:
        return self._processor(
            text=[text], return_tensors="pt", add_special_tokens=self._adds(text), **self._media
        )

    def _tokenize(self, text: str) -> list[int]:
        return self._processor.tokenizer(text, add_special_tokens=self._adds(text))["input_ids"]

    def _adds(self, text: str) -> bool:
        first = self._processor.tokenizer.bos_token
        return first is None or not text.startswith(first)


def _kinds_by_id(prompt: dict[str, Tensor], name: str) -> dict[int, int]:
    """Return the kinds of visual tokens by their ids, in the prompt tensor `name`."""
    kinds = prompt[name]
    visual = kinds > 0
    return dict(zip(prompt["input_ids"][visual].tolist(), kinds[visual].tolist(), strict=True))


def _expansion(plain: list[int], prompt: dict[str, Tensor], added: Collection[int]) -> Expansion | None:
    """Return the expansion of the image's token: what the processor's ids have where the text's ids have
    that token.

    None where more than that token was replaced, where an ordinary token at its ends might merge with
    adjacent text (`added` never do), or where other tensors aren't 1 (attention mask) or 0 around it.
    """
    ids = prompt["input_ids"].tolist()
    before = next((i for i, (a, b) in enumerate(zip(plain, ids, strict=False)) if a != b), len(plain))
    ends = zip(reversed(plain), reversed(ids), strict=False)
    behind = next((i for i, (a, b) in enumerate(ends) if a != b), len(plain))
    places = range(max(0, len(plain) - 1 - behind), min(before, len(plain) - 1) + 1)
    # Where the token is a part of its expansion, its neighbours fit too, but only its own count changes.
    fits = (i for i in places if plain.count(plain[i]) == 1 and ids.count(plain[i]) != 1)
    place = next(fits, None)
    if place is None:
        return None
    middle = slice(place, len(ids) - (len(plain) - 1 - place))
    inside = ids[middle]
    if not inside or not {plain[place], inside[0], inside[-1]} <= set(added):
        return None
    for name, value in prompt.items():
        around = torch.cat([value[: middle.start], value[middle.stop :]])
        if name != "input_ids" and not bool((around == int(name == "attention_mask")).all()):
            return None
    return Expansion(plain[place], {name: value[middle] for name, value in prompt.items()})


def template_mark(processor: Any, kind: str) -> str | None:
    """Return the text that a chat template writes for an image or a video; None where the processor names
    none.
    """
    return getattr(processor, f"{kind}_placeholder_token", None) or getattr(processor, f"{kind}_token", None)


def placeholders(processor: Any, token: int) -> list[str]:
    """Return the texts that stand for an image, clip or sound in a template's text, or a part of it in a
    prompt.
    """
    marks = [template_mark(processor, kind) for kind in ("image", "video")]
    names = ("image_token", "video_token", "audio_token", "audio_bos_token")  # the last: a sound must follow
    marks += [getattr(processor, name, None) for name in names]
    # The processor's own is a begin token in Gemma 3 and Molmo 2; in Aya it is no `image_token`.
    numbers = (token, getattr(processor, "image_token_id", None))
    marks += [processor.tokenizer.convert_ids_to_tokens(number) for number in numbers if number is not None]
    return list(dict.fromkeys(mark for mark in marks if mark))


def refuse_placeholders(processor: Any, token: int, question: str, earlier: Sequence[str]) -> None:
    """Raises a ValueError where a question or earlier turn holds a placeholder of an image, clip or sound."""
    for mark in placeholders(processor, token):
        for what, texts in (("question", [question]), ("history", earlier)):
            if any(mark in text for text in texts):
                raise ValueError(f"the {what} holds {mark!r}, the model's own placeholder; leave it out")


def too_long(question: str, turns: bool, longest: int, limit: int) -> ValueError:
    """Return the error of a prompt of `longest` positions for a model of `limit`; `turns`: with earlier
    turns.
    """
    remedy = "leave out the oldest turns, or " if turns else ""
    return ValueError(
        f"the question is too long: image and {'history, ' if turns else ''}question take "
        f"{longest} positions and the model has {limit}; {remedy}ask a shorter question "
        f"({len(question.split())} words now)"
    )


# ---- chat templates, rendered within bounds

MAX_LETTERS = 100_000  # of a template; supported families have up to about ten thousand
# child process, started with the first template
WORKER = Worker(Path(__file__).with_name("template_worker.py"), "render_chat", seconds=5, megabytes=512)


def render(processor: Any, turns: Sequence[Mapping[str, Any]], **options: Any) -> str:
    """Return the text of a chat, with the beginning of the model's answer; `options`: names for the template.

    Templates are programs of an untrusted checkpoint: they run in jinja's sandbox in a child process of
    bounded time and memory. A processor's own `apply_chat_template` is the user's code, and is called. A
    ValueError where there is no template, or it fails or exceeds the bounds.
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
        if not isinstance(source, str) or len(source) > MAX_LETTERS:
            raise ValueError(f"it is no text of at most {MAX_LETTERS} letters")
        text = _rendered.__wrapped__ if "strftime_now" in source else _rendered  # the time is never the same
        return text(source, json.dumps(names, default=_name_of, skipkeys=True))
    except ValueError as error:
        raise ValueError(
            f"the chat template can't be rendered ({one_line(error, 200)}); "
            "load the model with another chat_template.jinja"
        ) from error


def check_template(processor: Any) -> None:
    """Renders a processor's chat template once, if it has one; a ValueError as of `render`."""
    if getattr(processor, "chat_template", None) is not None:
        content = [{"type": "image"}, {"type": "text", "text": "What?"}]
        render(processor, [{"role": "user", "content": content}])


@lru_cache(maxsize=64)
def _rendered(source: str, names: str) -> str:
    return WORKER.ask({"source": source, "names": names})


def _name_of(value: object) -> str:
    """Text in place of a value that isn't JSON, such as an image: templates ask only whether one is there."""
    return f"<{type(value).__name__}>"


# ---- the question in a prompt

# words by which the text around a message is found
PROBES = ("probeone", "probetwo", "probethree", "probefour", "probefive")
LABELLED = ({}, {"add_vision_id": True})  # options that add labels of images: Qwen's has one


class TemplateMarkers(NamedTuple):
    """The text that a chat template writes around the words of a chat.

    `opening` and `closing` stand around a user's words, `tool` around the reply of a tool (None: refused, or
    the same as around a user's words); `label` ("Picture 1: ") before an image or clip.
    """

    opening: str
    closing: str
    tool: tuple[str, str] | None = None
    label: re.Pattern[str] | None = None


def template_markers(processor: Any) -> TemplateMarkers | None:
    """Return the markers of a processor's chat template, found by rendering probe words; None if that
    fails.
    """
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
    """Return a template's text before, between and after the probe words; an error if not in their order."""
    text, written = render(processor, turns, **options), str(turns)
    if re.findall("|".join(PROBES), text) != (words := [word for word in PROBES if word in written]):
        raise ValueError("it leaves out words of a message, or repeats or reorders them")
    return re.split("|".join(words), text)


def _tool_markers(processor: Any, openings: Sequence[str]) -> tuple[str, str] | None:
    """`TemplateMarkers.tool`; the openings are the template's text before a user's words."""
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
        except Exception as error:  # the template refuses this form of a chat
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
    return "".join(x for x, _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _common_end(a: str, b: str) -> str:
    return _common_start(a[::-1], b[::-1])[::-1]


def asides(text: str, markers: TemplateMarkers | None) -> list[tuple[int, int]]:
    """Start and end of replies of tools, labels of images and times of frames in the text of a prompt."""
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
    """Start and end of the template's text for each user's turn, in order."""
    openings = [match.span() for match in re.finditer(re.escape(markers.opening), text)]
    turns = []
    for (_, start), (limit, _) in pairwise([*openings, (len(text), 0)]):
        end = text.find(markers.closing, start)
        turns.append((start, limit if end < 0 else min(end, limit)))
    return turns


# by tokenizer, its size and special ids, and the answer of `special_tokens` for these
_SPECIAL: WeakKeyDictionary[Any, tuple[tuple[int, ...], frozenset[int]]] = WeakKeyDictionary()


def special_tokens(tokenizer: Any) -> frozenset[int]:
    """Return the ids of a tokenizer's special tokens, added ones among them; cached until it grows.

    Listing added tokens takes a millisecond and more, and tokenizers 0.23.1 leaks 0.6 kB each time.
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
    """Return the content tokens of the question that one prompt `ids` [S] ends with: bool [S].

    They are those of the last user turn that has any, and of earlier ones that it leans on.

    `attended` bool [S] is false for padding; `image_ids` are visual placeholders, `special_ids` never
    content; `processor` holds the tokenizer, or is one. Without `markers`, or where they aren't found: all
    content.
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
    by_turn = [[word for word in words if word[1] < end and word[2] > start] for start, end in turns]
    asking = last_turns([text[own[0][1] : own[-1][2]] if own else "" for own in by_turn])
    question[[column for number in asking for column, _, _ in by_turn[number]]] = True
    return question


def outside(ids: Tensor, begin: int, end: int) -> Tensor:
    """Return the tokens outside all spans from `begin` to `end`: [B, S] -> bool [B, S]."""
    return (ids == begin).cumsum(1) == (ids == end).cumsum(1)
