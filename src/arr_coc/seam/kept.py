"""Kept prompts: keys and values of whole prompts about the same images, for the prompts that begin alike.

    kept = KeptPrompts()
    kept.read_image(base, adapter, compacted)      once: every column up to the last visual token
    compacted = kept.continued(adapter, compacted)  later: only what the prompt doesn't share is still to read
    kept.keep(ids, compacted)                      after `generate`: the answer may begin the next prompt

What a server calls its prefix cache. Images stand first in a chat, so all questions about them share their
columns, and the turns of one conversation all but the last words. Nothing may be dropped from such a prompt:
its answers are those of the stock model, up to rounding.

P columns that are kept, S of a prompt.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.caches import CACHE
from arr_coc.seam.compaction import consecutive_positions
from arr_coc.seam.features import PROMPT_NAMES, Compacted

PER_COLUMN = (*PROMPT_NAMES, "position_ids")
"""Arguments of the base model with a value for every column of the prompt."""


@dataclass(frozen=True)
class KeptPrompt:
    """One prompt that was read.

    Attributes:
        ids: long [P], its token ids.
        cache: their keys and values; never continued itself, see `beginning`.
    """

    ids: Tensor
    cache: DynamicCache

    @property
    def divisible(self) -> bool:
        """Whether any first part of it can be continued: not where a layer keeps a window or a state."""
        return all(type(layer) is DynamicLayer for layer in self.cache.layers)

    def shared(self, ids: Tensor) -> int:
        """How many first columns of a prompt [S] needn't be read again; at least its last one must be."""
        width = min(len(self.ids), len(ids) - 1)
        differ = (self.ids[:width] != ids[:width]).nonzero()
        same = int(differ[0]) if len(differ) else width
        return same if self.divisible or same == len(self.ids) else 0

    def beginning(self, length: int) -> DynamicCache:
        """A cache of the first columns that may be continued, while this one stays as it is."""
        if not self.divisible:
            return copy.deepcopy(self.cache)  # states are written in place
        part = copy.copy(self.cache)
        part.layers = [
            copy.copy(layer) for layer in self.cache.layers
        ]  # they grow by cat: tensors are shared
        part.crop(length - len(self.ids))
        return part


class KeptPrompts:
    """The images, and the last prompt that went on from them; any number of threads may use it."""

    def __init__(self) -> None:
        self._image: KeptPrompt | None = None
        self._last: KeptPrompt | None = None

    @property
    def columns(self) -> int:
        """Columns that are kept, those that both prompts share counted once."""
        return max((len(one.ids) for one in (self._image, self._last) if one is not None), default=0)

    @torch.no_grad()
    def read_image(self, base: Any, adapter: FamilyAdapter, compacted: Compacted) -> None:
        """Read a prompt up to its last visual token, and keep that.

        Args:
            base: the model that reads.
            adapter: of its family.
            compacted: one row with every token of its images.
        """
        kwargs = _explicit(adapter, compacted.kwargs)
        ids = kwargs["input_ids"][0]
        length = int((ids == adapter.image_token_id).nonzero()[-1]) + 1
        shared = {name: kwargs[name][..., :length] for name in PER_COLUMN if kwargs.get(name) is not None}
        cache = DynamicCache(config=base.config.get_text_config())
        visual = compacted.kwargs["mm_encoder_outputs"]
        base(**shared, mm_encoder_outputs=visual, **{CACHE: cache}, use_cache=True, logits_to_keep=1)
        self._image, self._last = KeptPrompt(ids[:length], cache), None

    def continued(self, adapter: FamilyAdapter, compacted: Compacted) -> Compacted:
        """A prompt of one row and all tokens that goes on from what is kept.

        Raises:
            ValueError: no image is kept, or the prompt doesn't begin with it.
        """
        kwargs = _explicit(adapter, compacted.kwargs)
        ids = kwargs["input_ids"][0]
        image, kept = self._image, [one for one in (self._last, self._image) if one is not None]
        best = max(kept, key=lambda one: one.shared(ids), default=None)
        if image is None or best is None or best.shared(ids) < len(image.ids):
            raise ValueError("the prompt doesn't begin with images that are kept: read them first")
        return replace(compacted, kwargs=kwargs | {CACHE: best.beginning(best.shared(ids))})

    def keep(self, ids: Tensor, compacted: Compacted) -> None:
        """Keep a prompt that was continued, in place of the last one.

        Args:
            ids: long [S + new], the prompt and its answer.
            compacted: of `continued`; its cache was filled by `generate`.
        """
        cache, image = compacted.kwargs[CACHE], self._image
        last = KeptPrompt(ids[: cache.get_seq_length()], cache)
        if image is not None and last.divisible:  # its tensors hold the image's: one copy is enough
            self._image = KeptPrompt(image.ids, last.beginning(len(image.ids)))
        self._last = last


def check_keeping(count: int | None, adapter: FamilyAdapter) -> None:
    """Check after how many questions images are to be kept.

    Args:
        count: None for never.
        adapter: of the model.

    Raises:
        ValueError: it is no count, or the family's images see the question, so that there is nothing to keep.
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise ValueError(
            f"keep_image_after {count!r} is no number of questions: use 0, 1, 2, ... or None for never"
        )
    if count is not None and adapter.prefix:
        raise ValueError(
            f"{adapter.model.config.model_type} reads an image together with each question: its keys and "
            "values can't be kept for the next one"
        )


def unread(compacted: Compacted) -> dict[str, Any]:
    """Arguments of `forward` for a continued prompt: what its cache lacks; `generate` sees to that itself."""
    kwargs = dict(compacted.kwargs)
    start = kwargs[CACHE].get_seq_length()
    names = [name for name in PER_COLUMN if name != "attention_mask" and kwargs.get(name) is not None]
    return kwargs | {name: kwargs[name][..., start:] for name in names}


def _explicit(adapter: FamilyAdapter, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without images, which columns that were read don't need again, and with their positions.

    The model counts positions by the images where it does so at all; plain ones it counts right by itself.
    """
    own = {name: value for name, value in kwargs.items() if name not in adapter.visual_names}
    own.pop("mm_encoder_outputs", None)
    if not adapter.plain_positions:
        positions = adapter.positions(kwargs)
        if adapter.text_row:
            numbers = consecutive_positions(adapter.attention_mask(kwargs))
            positions = torch.cat([numbers[None].to(positions), positions])
        own["position_ids"] = positions
    return own
