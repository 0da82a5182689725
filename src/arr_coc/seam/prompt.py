"""Prompts about one image, as the family's own processor writes them, with the image processed once.

    prompt = ImagePrompt(processor, image)
    prompt.inputs("What is the title?") -> what processor(images=..., text=...) returns for it

A processor decides what stands in a prompt for an image: one placeholder per visual token, and in many
families also frames, rows of tiles or line breaks around them. So the first question goes through the whole
processor; what it made of the image's one token is then put in the place of that token for every other
question. Where that can't be told apart from the text around it, every question goes through the processor.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from arr_coc.seam.features import PROMPT_NAMES


class Expansion(NamedTuple):
    """What a processor writes in place of one token: by name of a tensor over the prompt its columns [n]."""

    token: int
    columns: dict[str, Tensor]


def chat_prompt(processor: Any, question: str) -> str:
    """The chat template's text for one question about one image, with one placeholder for the image."""
    content = [{"type": "image"}, {"type": "text", "text": question}]
    return processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )


class ImagePrompt:
    """Processor inputs for any question about one image.

    Args:
        processor: of the model, with a chat template.
        image: the image.

    Attributes:
        visual: what the processor made of the image (`pixel_values` and what goes with it).
    """

    def __init__(self, processor: Any, image: Image.Image) -> None:
        self._processor, self._image = processor, image
        text = chat_prompt(processor, "?")
        whole = self._process(text)
        self.visual = {name: value for name, value in whole.items() if name not in PROMPT_NAMES}
        prompt = {name: value[0] for name, value in whole.items() if name in PROMPT_NAMES}
        self._names = tuple(prompt)
        added = processor.tokenizer.added_tokens_decoder
        self._expansion = _expansion(self._tokenize(text), prompt, added)

    def inputs(self, question: str) -> dict[str, Any]:
        """What the processor returns for a question: prompt tensors [1, S], and `visual`."""
        text = chat_prompt(self._processor, question)
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
        """Everything by the processor itself."""
        return self._processor(
            images=[self._image], text=[text], return_tensors="pt", add_special_tokens=self._adds(text)
        )

    def _tokenize(self, text: str) -> list[int]:
        """The ids of a text, the image still one token."""
        return self._processor.tokenizer(text, add_special_tokens=self._adds(text))["input_ids"]

    def _adds(self, text: str) -> bool:
        """Whether special tokens are to be added: not where the template wrote the first one itself."""
        first = self._processor.tokenizer.bos_token
        return first is None or not text.startswith(first)


def _expansion(plain: list[int], prompt: dict[str, Tensor], added: Collection[int]) -> Expansion | None:
    """Find what stands for the image, from a text as ids [S] and the processor's prompt of it, tensors [S'].

    None where it is not one token's place; where it begins or ends with an ordinary token, which might merge
    with the text beside it; or where the processor says of the text around it anything but "text" (0) and
    "attended" (1).

    Args:
        plain: the text, the image still one token.
        prompt: the same text with the image expanded.
        added: ids of the tokens that the tokenizer never merges with others.
    """
    ids = prompt["input_ids"].tolist()
    before = next((i for i, (a, b) in enumerate(zip(plain, ids, strict=False)) if a != b), len(plain))
    ends = zip(reversed(plain), reversed(ids), strict=False)
    behind = next((i for i, (a, b) in enumerate(ends) if a != b), len(plain))
    places = range(max(0, len(plain) - 1 - behind), min(before, len(plain) - 1) + 1)
    # Where the token is a part of what replaces it, its neighbours fit too; its own number is what changes.
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
