"""Prompts about an image, as the family's own processor writes them, with the image processed once.

    prompt = ImagePrompt(processor, [image])
    prompt.inputs("What is the title?") -> the outputs of processor(images=..., text=...)

A processor replaces an image's one token in the text by an expansion: one placeholder per visual token, and
in many families also frames, rows of tiles or line breaks around them. So the first prompt goes through the
whole processor, and its expansion is put in the place of that token for every question. Where the expansion
can't be told apart from the text around it, every question goes through the processor, and so it does with
several images.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from arr_coc.core.question import check_question
from arr_coc.seam.features import PROMPT_NAMES
from arr_coc.seam.template import render

Turn = tuple[str, str]
"""A question that was asked, and the answer that came."""


class Expansion(NamedTuple):
    """The replacement of an image's one token: its id, and by name of a prompt tensor its columns [n]."""

    token: int
    columns: dict[str, Tensor]


def chat_prompt(processor: Any, question: str, images: int = 1, history: Sequence[Turn] = ()) -> str:
    """The chat template's text for one question about so many images, with one placeholder for each.

    Args:
        processor: with the template.
        question: the one to answer.
        images: they stand before the first question.
        history: earlier questions of the conversation with their answers.

    Raises:
        ValueError: what is no question; see `check_question`.
    """
    turns: list[dict[str, Any]] = []
    for earlier, answer in history:
        turns.append({"role": "user", "content": _text(check_question(earlier))})
        turns.append({"role": "assistant", "content": _text(answer)})
    turns.append({"role": "user", "content": _text(check_question(question))})
    turns[0]["content"] = [{"type": "image"}] * images + turns[0]["content"]
    return render(processor, turns)


def _text(words: str) -> list[dict[str, Any]]:
    """The content of a message of words alone."""
    return [{"type": "text", "text": words}]


class ImagePrompt:
    """Processor inputs for any question about the same images.

    Args:
        processor: of the model, with a chat template.
        images: one, or several that the question is about together.

    Attributes:
        visual: the processor's outputs for the images (`pixel_values` and what goes with it).

    Raises:
        ValueError: several images for a chat template that doesn't write all of them into a prompt.
    """

    def __init__(self, processor: Any, images: Sequence[Image.Image]) -> None:
        self._processor, self._images = processor, list(images)
        text = chat_prompt(processor, "?", len(images))
        written = text.count(processor.image_token)
        if len(images) > 1 and written != len(images):
            raise ValueError(
                f"the chat template of this {type(processor).__name__} writes {written} of {len(images)} "
                "images into a prompt: ask about one image at a time"
            )
        whole = self._process(text)
        self.visual = {name: value for name, value in whole.items() if name not in PROMPT_NAMES}
        prompt = {name: value[0] for name, value in whole.items() if name in PROMPT_NAMES}
        self._names = tuple(prompt)
        added = processor.tokenizer.added_tokens_decoder
        one = len(images) == 1
        self._expansion = _expansion(self._tokenize(text), prompt, added) if one else None

    def inputs(self, question: str, history: Sequence[Turn] = ()) -> dict[str, Any]:
        """The processor's outputs for a question after earlier turns: tensors [1, S], and `visual`."""
        text = chat_prompt(self._processor, question, len(self._images), history)
        ids = self._tokenize(text)
        if self._expansion is None or ids.count(self._expansion.token) != 1:
            prompt = {name: value for name, value in self._process(text).items() if name in PROMPT_NAMES}
            return prompt | self.visual
        token, columns = self._expansion
        at, plain = ids.index(token), torch.tensor(ids)
        prompt = {}
        for name in self._names:
            around = plain if name == "input_ids" else torch.full_like(plain, int(name == "attention_mask"))
            spliced = torch.cat([around[:at], columns[name], around[at + 1 :]])
            prompt[name] = spliced.to(columns[name].dtype)[None]
        return prompt | self.visual

    def _process(self, text: str) -> Any:
        """The processor's outputs for a text and the images."""
        images = self._images if len(self._images) == 1 else [self._images]  # nested: all of one prompt
        return self._processor(
            images=images, text=[text], return_tensors="pt", add_special_tokens=self._adds(text)
        )

    def _tokenize(self, text: str) -> list[int]:
        """The token ids of a text, in which the image is still one token."""
        return self._processor.tokenizer(text, add_special_tokens=self._adds(text))["input_ids"]

    def _adds(self, text: str) -> bool:
        """Whether to add special tokens: not where the template wrote the first one itself."""
        first = self._processor.tokenizer.bos_token
        return first is None or not text.startswith(first)


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
