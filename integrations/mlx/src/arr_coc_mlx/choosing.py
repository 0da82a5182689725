"""Choosing the cells of a prompt's images: which question is asked, what the picture is, which cells stay.

The question and the pictures are read out of what a model gets, ids and pixels, so that MLX-VLM's own
functions need hand on nothing else. What is chosen is decided by a `Selector`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.budget import Budget
from arr_coc.guide.coupling import Coupling
from arr_coc.relevance.deciding import everything_kept
from arr_coc.seam.pixels import LEVELS, to_picture, undo_normalisation
from arr_coc.seam.prompt import question_tokens, special_tokens, template_markers
from arr_coc.selector import Selector

logger = logging.getLogger(__name__)


class Choice(NamedTuple):
    """The kept cells of one image, and why.

    Attributes:
        allocation: all cells where nothing was chosen.
        coupling: what the guide found; None where it was not asked.
        fallback: choosing failed, so all are kept.
    """

    allocation: Allocation
    coupling: Coupling | None = None
    fallback: bool = False

    @property
    def keep(self) -> np.ndarray:
        """The kept cells, int [K], rising raster indices."""
        return self.allocation.keep.long().numpy()


class Chooser:
    """Chooses for the prompts of one model; any number of threads may ask.

    Args:
        selector: decides.
        processor: the model's, for its tokenizer, its chat template and its normalisation of pictures.
        config: the model's.
        strict: raise where choosing fails, in place of keeping all cells.
    """

    def __init__(self, selector: Selector, processor: Any, config: Any, strict: bool = False) -> None:
        self.selector, self.processor, self.config, self.strict = selector, processor, config, strict
        self._lock = threading.Lock()

    @cached_property
    def _markers(self) -> Any:
        return template_markers(self.processor)

    @property
    def merge(self) -> int:
        """Patches along a side of a cell."""
        return self.config.vision_config.spatial_merge_size

    def question(self, ids: np.ndarray) -> str | None:
        """Return the question that a prompt [L] ends with; None without words."""
        tokenizer = getattr(self.processor, "tokenizer", self.processor)
        numbers = torch.from_numpy(np.asarray(ids)).long()
        names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
        media = [getattr(self.config, name, None) for name in names]
        special = {*special_tokens(tokenizer), *(one for one in media if one is not None)}
        attended = torch.ones_like(numbers, dtype=torch.bool)
        words = question_tokens(numbers, attended, media[:2], special, self.processor, self._markers)
        places = words.nonzero().flatten().tolist()
        if not places:
            return None
        listed = numbers.tolist()
        text = [
            listed[place]
            for place in range(places[0], places[-1] + 1)
            if words[place] or not tokenizer.decode([listed[place]]).strip()
        ]
        return tokenizer.decode(text, skip_special_tokens=True).strip() or None

    def picture(self, rows: np.ndarray, grid: tuple[int, int, int]) -> Tensor:
        """Return the picture that the model reads, uint8 [3, h, w], of an image's patches [h * w, values]."""
        vision = self.config.vision_config
        one = to_picture(
            torch.from_numpy(rows), grid, self.merge, vision.patch_size, vision.temporal_patch_size
        )
        processor = self.processor.image_processor
        mean, std = (torch.tensor(x).view(3, 1, 1) for x in (processor.image_mean, processor.image_std))
        usual = getattr(processor, "do_normalize", True) is not False
        (levels,) = undo_normalisation([one.float()], mean, std, usual)
        return levels.mul(LEVELS).round().to(torch.uint8)

    def choose(
        self, ids: np.ndarray, pixels: np.ndarray, grids: Sequence[tuple[int, int, int]], budget: Budget
    ) -> list[Choice]:
        """Return the choice for each image of a prompt.

        All cells stay without a question, and where choosing fails, which is logged (`strict`: raised).

        Args:
            ids: int [L], the whole prompt.
            pixels: float32 [patches of all images, values].
            grids: (1, h, w) of each image, in patches.
            budget: cells to keep of each image.

        Raises:
            ValueError: a clip, or with `strict` what failed.
        """
        if any(t != 1 for t, _, _ in grids):
            raise ValueError("arr-coc can't choose in videos with MLX yet: send images, or use mode 'full'")
        question, choices = self.question(ids), []
        parts = np.split(pixels, np.cumsum([h * w for _, h, w in grids])[:-1])
        for rows, (t, h, w) in zip(parts, grids, strict=True):
            space = (1, h // self.merge, w // self.merge)
            if question is None:
                choices.append(Choice(everything_kept(space)))
                continue
            try:
                with self._lock:  # a selector keeps its last pictures
                    decision = self.selector.decide(
                        self.picture(rows, (t, h, w)), question, budget, space[1:]
                    )
                choices.append(Choice(decision.allocations[0], decision.coupling))
            except Exception:
                if self.strict:
                    raise
                # Whatever is wrong with one picture, its question is answered from all tokens.
                logger.exception("choosing cells failed; all %d of the image are kept", space[1] * space[2])
                choices.append(Choice(everything_kept(space), fallback=True))
        return choices
