"""Prompts about images and clips, as the family's own processor writes them, with each processed once.

    prompt = VisualPrompt(processor, [image])
    prompt.inputs("What is the title?") -> the outputs of processor(images=..., text=...)

A processor replaces an image's one token in the text by an expansion: one placeholder per visual token, and
in many families also frames, rows of tiles or line breaks around them, and between the frames of a clip the
time. So the first prompt goes through the whole processor, and its expansion is put in the place of that
token for every question. With several images or a clip, or where an expansion merges with the text beside it,
the text of all expansions is put in its place; where that doesn't make the processor's own prompt, every
question goes through the processor.

Of a clip the processor gets the outline alone: its frames are read one at a time, and what is made of them
is made a step at a time (`steps`). One that needs all frames for that gets them all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from arr_coc.files.question import check_question
from arr_coc.seam.assembly import KIND_NAMES, PROMPT_NAMES
from arr_coc.seam.clips import ClipSteps, StepPixels, crowded, outline, takes_steps
from arr_coc.seam.question import render
from arr_coc.video import FrameSource
from arr_coc.video.opening import Visual

DRIFT = 0.02
"""Seconds by which a frame may be off the second that its number and the clip's mean rate give."""
Turn = tuple[str, str]
"""A question that was asked, and the answer that came."""


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
    """The chat template's text for one question about some images and clips, with one placeholder for each.

    Args:
        processor: with the template.
        question: the one to answer.
        visuals: they stand before the first question; how many images, or what each is: "image" or "video".
        history: earlier questions of the conversation with their answers.

    Raises:
        ValueError: what is no question; see `check_question`.
    """
    kinds = ["image"] * visuals if isinstance(visuals, int) else visuals
    turns: list[dict[str, Any]] = []
    for earlier, answer in history:
        turns.append({"role": "user", "content": _text(check_question(earlier))})
        turns.append({"role": "assistant", "content": _text(answer)})
    turns.append({"role": "user", "content": _text(check_question(question))})
    turns[0]["content"] = [{"type": kind} for kind in kinds] + turns[0]["content"]
    return render(processor, turns)


def _media(visuals: Sequence[Visual], reader: Any, outlines: bool) -> dict[str, Any]:
    """The arguments of a processor for images and clips.

    Args:
        visuals: the images and clips.
        reader: the processor's part that reads clips.
        outlines: give the outlines of clips alone instead of all frames.
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
    """What a processor is told of a clip, from which it works out the second of each frame.

    Args:
        clip: of any times.
        count: frames that the processor gets; more than the clip's: its last one again.
    """
    numbers, rate, total = list(clip.numbers), clip.rate, clip.total
    drift = max(abs(n / rate - time) for n, time in zip(numbers, clip.times, strict=True))
    if drift > DRIFT:  # a recording of a screen, an animation: no rate gives its seconds, milliseconds do
        numbers = [round(1000 * time) for time in clip.times]
        rate, total = 1000.0, max(round(1000 * total / rate), numbers[-1] + 1)
    numbers += numbers[-1:] * (count - len(numbers))
    return {"fps": rate, "total_num_frames": total, "frames_indices": numbers}


def _clips(visuals: Sequence[Visual]) -> list[FrameSource]:
    """The clips among images and clips."""
    return [one for one in visuals if not isinstance(one, Image.Image)]


def _text(words: str) -> list[dict[str, Any]]:
    """The content of a message of words alone."""
    return [{"type": "text", "text": words}]


class VisualPrompt:
    """Processor inputs for any question about the same images and clips.

    Args:
        processor: of the model, with a chat template.
        visuals: one, or several that the question is about together.
        token: id of the model's placeholder of images, where it isn't the one that the processor names.

    Attributes:
        visual: the processor's outputs for them (`pixel_values` and what goes with it); of clips
            `StepPixels` where the processor takes steps.
        note: of clips, what their many frames cost each of them; None: nothing.

    Raises:
        ValueError: a chat template that doesn't write all of them into a prompt, or a processor that takes no
            clips.
    """

    def __init__(self, processor: Any, visuals: Sequence[Visual], token: int | None = None) -> None:
        self._processor = processor
        self._token = getattr(processor, "image_token_id", None) if token is None else token
        self._kinds = ["image" if isinstance(one, Image.Image) else "video" for one in visuals]
        self._marks = {kind: template_mark(processor, kind) for kind in set(self._kinds)}
        self._check_processor()
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
        """The processor's outputs for a question after earlier turns: tensors [1, S], and `visual`.

        Raises:
            ValueError: a text that holds the placeholder of a visual token.
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
        """The tokens of a prompt that are the placeholder of images, if it has a name."""
        return 0 if self._token is None else int((ids == self._token).sum())

    def _inputs(self, text: str) -> dict[str, Any]:
        """What `inputs` returns for the text of a prompt, unchecked."""
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

    def _check_processor(self) -> None:
        """Raise a ValueError where there is a clip and the processor takes none."""
        if "video" in self._kinds and getattr(self._processor, "video_processor", None) is None:
            raise ValueError(
                f"{type(self._processor).__name__} takes no clips: ask about images, or load a model that "
                "reads video, such as Qwen3-VL"
            )

    def _check_written(self, text: str) -> None:
        """Raise a ValueError where a chat template doesn't write all images and clips into a prompt."""
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
        """The expansions of all images and clips as text; None where prompts can't be made of it.

        They are what two texts differ in: that of the template, and that of the processor's prompt.

        Args:
            text: of the template, with a placeholder for each.
            prompt: the processor's tensors [S] for it.
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
        """The tensors [1, S] of an expanded text, by the rules that processors follow."""
        ids = torch.tensor([self._tokenize(text)])
        tensors = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        for name, kind_of_id in self._kinds_of_ids.items():
            tensors[name] = torch.zeros_like(ids)
            for token, kind in kind_of_id.items():
                tensors[name][ids == token] = kind
        return {name: tensors[name] for name in self._names if name in tensors}

    def _process(self, text: str) -> Any:
        """The processor's outputs for a text and the images and clips."""
        return self._processor(
            text=[text], return_tensors="pt", add_special_tokens=self._adds(text), **self._media
        )

    def _tokenize(self, text: str) -> list[int]:
        """The token ids of a text, in which the image is still one token."""
        return self._processor.tokenizer(text, add_special_tokens=self._adds(text))["input_ids"]

    def _adds(self, text: str) -> bool:
        """Whether to add special tokens: not where the template wrote the first one itself."""
        first = self._processor.tokenizer.bos_token
        return first is None or not text.startswith(first)


def _kinds_by_id(prompt: dict[str, Tensor], name: str) -> dict[int, int]:
    """The kinds of visual tokens by their ids, as a prompt of the processor's has them under a name."""
    kinds = prompt[name]
    visual = kinds > 0
    return dict(zip(prompt["input_ids"][visual].tolist(), kinds[visual].tolist(), strict=True))


def _expansion(plain: list[int], prompt: dict[str, Tensor], added: Collection[int]) -> Expansion | None:
    """The expansion of the image's token, by comparison of a text without it and with it.

    None where more than that one token was replaced; where the expansion begins or ends with an ordinary
    token, which might merge with the text beside it; or where the processor's other tensors have values
    around it other than 1 (attention mask) and 0.

    Args:
        plain: ids [S] of the text, in which the image is still one token.
        prompt: the processor's tensors [S'] for the same text, with the image expanded.
        added: ids of the tokens that the tokenizer never merges with others.
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
    """The text that a chat template writes for an image, or a video; None where the processor names none.

    In most families it is the placeholder of a visual token; Qianfan-OCR has a mark of its own.
    """
    return getattr(processor, f"{kind}_placeholder_token", None) or getattr(processor, f"{kind}_token", None)


def placeholders(processor: Any, token: int) -> list[str]:
    """The texts that stand for an image, clip or sound in a template's text, or a part of it in a prompt.

    Args:
        processor: of the model.
        token: id of the model's placeholder of images.
    """
    marks = [template_mark(processor, kind) for kind in ("image", "video")]
    names = ("image_token", "video_token", "audio_token", "audio_bos_token")  # the last: a sound must follow
    marks += [getattr(processor, name, None) for name in names]
    # The processor's own is a begin token in Gemma 3 and Molmo 2; in Aya it is no `image_token`.
    numbers = (token, getattr(processor, "image_token_id", None))
    marks += [processor.tokenizer.convert_ids_to_tokens(number) for number in numbers if number is not None]
    return list(dict.fromkeys(mark for mark in marks if mark))


def refuse_placeholders(processor: Any, token: int, question: str, earlier: Sequence[str]) -> None:
    """Raise a ValueError where a text holds what stands for an image, clip or sound in a prompt.

    Args:
        processor: of the model.
        token: id of the model's placeholder of images.
        question: the question.
        earlier: the texts of the turns before it.
    """
    for mark in placeholders(processor, token):
        for what, texts in (("question", [question]), ("history", earlier)):
            if any(mark in text for text in texts):
                raise ValueError(f"the {what} holds {mark!r}, the model's own placeholder; leave it out")


def too_long(question: str, turns: bool, longest: int, limit: int) -> ValueError:
    """The error of a prompt of `longest` positions for a model of `limit`.

    Args:
        question: the question.
        turns: whether there are turns before it.
        longest: positions of the prompt.
        limit: of the model.
    """
    remedy = "leave out the oldest turns, or " if turns else ""
    return ValueError(
        f"the question is too long: image and {'history, ' if turns else ''}question take "
        f"{longest} positions and the model has {limit}; {remedy}ask a shorter question "
        f"({len(question.split())} words now)"
    )
