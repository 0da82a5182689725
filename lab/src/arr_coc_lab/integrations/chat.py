"""Replies to a harness's chat messages with images, from one model with one mode and budget, and their cost.

    responder = Responder(load("bundled", mode="sparse", budget=64))
    responder.reply([{"role": "user", "content": [{"type": "image", "image": page}, {"type": "text", ...}]}])
    -> Reply(text, input_tokens, output_tokens, read, total, ...)

Laws: a reply depends on its own messages alone; text and images keep the order of the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real
from time import perf_counter
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor

from arr_coc.choose.budget import check_budget
from arr_coc.files.images import open_image
from arr_coc.files.paths import BUNDLED_NAME
from arr_coc.files.question import check_question
from arr_coc.model import ARRCOCModel
from arr_coc.modes import find_mode
from arr_coc.seam.decoding import check_length, generate_whole, refuse_settings
from arr_coc.seam.prompt import placeholders, render
from arr_coc.session import GREEDY

logger = logging.getLogger(__name__)

# As in transformers: "role" and "content", a text or a list of {"type": "text", "text": ...} and {"type":
# "image", "image": ...} with anything `open_image` reads; other keys are for the chat template.
Message = Mapping[str, Any]


def load(pretrained: str = BUNDLED_NAME, **options: Any) -> ARRCOCModel:
    """Load a model or allocator, a folder, Hub name or "bundled", with the `options` that are not None."""
    options = {name: value for name, value in options.items() if value is not None}
    return ARRCOCModel.from_pretrained(None if pretrained == BUNDLED_NAME else pretrained, **options)


@dataclass(frozen=True)
class Decoding:
    """Settings of generating an answer; ValueError for a number out of range."""

    max_new_tokens: int = 128
    temperature: float = 0.0  # 0 is greedy
    top_p: float | None = None  # None: all tokens
    num_beams: int = 1
    stop: tuple[str, ...] = ()  # texts that end an answer; they and what follows are cut off

    def __post_init__(self) -> None:
        check_length(self.max_new_tokens)
        beams, heat, share = self.num_beams, self.temperature, self.top_p
        if isinstance(beams, bool) or not isinstance(beams, Integral) or beams < 1:
            raise ValueError(f"num_beams {beams!r} is no count: use a whole number, 1 or more")
        if not isinstance(heat, Real) or not 0 <= heat < inf:
            raise ValueError(f"temperature {heat!r} is no finite number of 0 or more: 0 is greedy")
        if share is not None and not (isinstance(share, Real) and 0 < share <= 1):
            raise ValueError(f"top_p {share!r} is no share: use a number above 0, 1 at most, or None")

    @classmethod
    def of_task(cls, options: Mapping[str, Any], max_new_tokens: int = 128) -> Decoding:
        """Settings of a harness's task, under the names of transformers' `generate` and `until`."""
        stop = options.get("until") or ()
        sampled = options.get("do_sample", bool(options.get("temperature")))
        temperature = options.get("temperature")
        return cls(
            max_new_tokens=int(options.get("max_new_tokens") or max_new_tokens),
            temperature=float(1.0 if temperature is None else temperature) if sampled else 0.0,
            top_p=options.get("top_p") if sampled else None,
            num_beams=int(options.get("num_beams") or 1),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
        )

    def for_generate(self) -> dict[str, Any]:
        own: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "num_beams": self.num_beams}
        if self.temperature:
            own |= {"do_sample": True, "temperature": self.temperature, "top_k": 0}
            own |= {"top_p": 1.0 if self.top_p is None else self.top_p}
        return GREEDY | own

    def cut(self, text: str) -> str:
        ends = [place for place in (text.find(stop) for stop in self.stop if stop) if place >= 0]
        return text[: min(ends)].strip() if ends else text


@dataclass(frozen=True)
class Reply:
    """One answer and its cost."""

    text: str
    input_tokens: int  # text and visual tokens that the language model read
    output_tokens: int  # new tokens
    read: int  # visual tokens among the input
    total: int  # visual tokens of the images
    fallback: bool  # choosing failed and all tokens were read; the reason is in the log
    note: str | None  # what of the call was changed, and why
    seconds: float  # from the messages to the last token


class Responder:
    """Answers a harness's messages, one chat at a time; budget and mode None are the model's own.

    Raises ValueError for a model without processor or chat template, a bad budget, or an unknown mode.
    """

    def __init__(self, model: ARRCOCModel, *, budget: Any = None, mode: str | None = None) -> None:
        if getattr(model.processor, "chat_template", None) is None:
            raise ValueError("a harness needs a processor with a chat template: load the model with one")
        find_mode(model.mode if mode is None else mode)
        check_budget(budget)
        self.model, self.budget, self.mode = model, budget, mode
        self._notes: set[str] = set()

    @torch.no_grad()
    def reply(self, messages: Sequence[Message], decoding: Decoding | None = None) -> Reply:
        """Answer the last message of a chat, by default greedily with 128 tokens at most.

        Raises ValueError for a chat without words or with the model's own placeholder, a video or a sound, a
        broken image, or no image where the processor needs one.
        """
        start = perf_counter()
        model, options = self.model, (decoding or Decoding()).for_generate()
        inputs, pictures = self._inputs(messages)
        length = inputs["input_ids"].shape[1]
        read, total, fallback, note = 0, 0, False, None
        if model.adapter.has_images(inputs):
            if not find_mode(model.mode if self.mode is None else self.mode).stock:
                refuse_settings(model.base, options)
            prepared = model.prepare(inputs, budget=self.budget, mode=self.mode, pictures=pictures)
            ids = generate_whole(prepared.model, inputs, prepared.compacted, **options)
            shorter = prepared.compacted.columns.shape[1]  # length of the prompt with the kept tokens
            read, total, fallback, note = (
                sum(prepared.read),
                sum(prepared.cells),
                prepared.fallback,
                prepared.note,
            )
        else:
            ids, shorter = model.base.generate(**inputs, **options), length
        new = ids[0, length:]  # ids begin with the whole prompt, not the shortened one
        text = model.processor.tokenizer.decode(new.tolist(), skip_special_tokens=True).strip()
        if note is not None and note not in self._notes:  # once, not for each of ten thousand questions
            self._notes.add(note)
            logger.warning("%s", note)
        text = text if decoding is None else decoding.cut(text)
        return Reply(text, shorter, len(new), read, total, fallback, note, perf_counter() - start)

    def _inputs(self, messages: Sequence[Message]) -> tuple[dict[str, Any], list[Image]]:
        """Return the processor's outputs for a chat, on the model's device, and its images."""
        processor = self.model.processor
        turns, pictures, words = [], [], []
        for message in messages:
            content, parts = message.get("content") or "", []
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if part["type"] == "text":
                    words.append(part["text"])
                    parts.append({"type": "text", "text": part["text"]})
                elif part["type"] == "image":
                    pictures.append(open_image(part["image"]))
                    parts.append({"type": "image"})
                else:
                    raise ValueError(
                        f"the chat has a part of type {part['type']!r}, and arr-coc answers about pictures: "
                        "choose tasks of images"
                    )
            turns.append({**message, "content": content if isinstance(content, str) else parts})
            self._check(str({name: more for name, more in message.items() if name != "content"}))
        self._check(check_question("\n".join(words)))
        text = render(processor, turns)
        first = processor.tokenizer.bos_token
        more = {"images": [pictures]} if pictures else {}
        adds = first is None or not text.startswith(first)  # some templates write the token themselves
        try:
            batch = processor(text=[text], **more, return_tensors="pt", add_special_tokens=adds)
        except ValueError as error:
            if pictures:
                raise
            raise ValueError(
                f"the chat has no picture, and {type(processor).__name__} takes none without ({error}): "
                "choose tasks of images"
            ) from error
        device = self.model.device
        placed = {name: v.to(device) if isinstance(v, Tensor) else v for name, v in batch.items()}
        return placed, pictures

    def _check(self, words: str) -> None:
        for mark in placeholders(self.model.processor, self.model.adapter.image_token_id):
            if mark in words:
                raise ValueError(f"the chat's text holds {mark!r}, the model's own placeholder; leave it out")
