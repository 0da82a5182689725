"""Choosing cells beside the model: the picture out of its patches, and one choice for positions and tower.

    in_worker(settings, model_config)                    whether this server chooses there at all
    picture_of(rows, (64, 64), vision_config)            the picture [3, h, w] that the patches were cut from
    WorkerChooser(settings, vision_config, device)       its method `keep` gives the kept cells of an image

With a fixed budget the number of placeholders is known before anybody looks, so that the API server sends all
patches and the question, and chooses nothing itself. Both ways choose from the same pixels, those that the
model reads, so that they keep the same cells.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import torch
from cachetools import LRUCache
from torch import Tensor
from vllm.config import ModelConfig, VllmConfig
from vllm.distributed import get_tp_group
from vllm.logger import init_logger
from vllm.platforms import current_platform

from arr_coc.choose.attending import even_grid
from arr_coc.seam.pixels import to_picture
from arr_coc_vllm.choosing import Chooser, Pictured, chooser_for
from arr_coc_vllm.settings import Settings

logger = init_logger(__name__)
KEEP, COUNT, NUMBER = "arr_coc_keep", "arr_coc_count", "arr_coc_number"
"""Fields beside the pixels: kept cells, none where the worker chooses; how many; number of the decision."""
QUESTION, NAME = "arr_coc_question", "arr_coc_name"
"""Fields for the worker: the question's UTF-8 bytes, none where cells were chosen; a name for its choice."""
NAME_BYTES = 32
"""Of a name: the first half says which picture it is, the other what is chosen from it."""
CHOICES = 1024
"""Choices that a worker remembers from the positions of a request to its tower, 8 bytes a cell."""


def in_worker(settings: Settings, model_config: ModelConfig) -> bool:
    """Whether a server chooses in its worker, wherever a budget allows it.

    Worker and API server both ask this, each in its own process.
    """
    if settings.choose != "auto":
        return settings.choose == "worker"
    raw = model_config.get_multimodal_config().mm_device_do_normalize
    return bool(raw) and settings.guided and (current_platform.is_cuda_alike() or current_platform.is_xpu())


def check_worker(settings: Settings, config: VllmConfig) -> None:
    """Check that a server that chooses in its worker can.

    Raises:
        ValueError: positions and tower would be in different workers, or pixels aren't sent as they are.
    """
    if not in_worker(settings, config.model_config):
        return
    remedy = 'add "choose": "front" to arr_coc in --hf-overrides'
    if config.parallel_config.pipeline_parallel_size > 1:
        raise ValueError(f"arr-coc can't choose in the workers of --pipeline-parallel-size above 1: {remedy}")
    if config.ec_transfer_config is not None:
        raise ValueError(f"arr-coc can't choose in the worker with --ec-transfer-config: {remedy}")
    if not config.model_config.get_multimodal_config().mm_device_do_normalize:
        raise ValueError(
            f"arr-coc chooses in the worker from raw pixels: drop --no-mm-device-do-normalize, or {remedy}"
        )


def picture_of(rows: Tensor, patches: tuple[int, int], vision: Any) -> Tensor:
    """The picture [3, h, w] of patches in the order of Qwen's processors; inverse of their cutting up.

    Args:
        rows: [patches, values of a patch], in any dtype, which stays.
        patches: down and across.
        vision: a vision tower's configuration.
    """
    merge, side = vision.spatial_merge_size, vision.patch_size
    frames = rows.shape[1] // (3 * side**2)  # a still is repeated in each frame
    return to_picture(rows, (1, *patches), merge, side, frames)


def name_of(picture: str, patches: tuple[int, int], question: str, count: int) -> bytes:
    """The name of a choice, NAME_BYTES; `picture` is vLLM's own for the picture."""
    parts = picture, f"{patches} {count} {question}"
    return b"".join(hashlib.blake2b(part.encode(), digest_size=NAME_BYTES // 2).digest() for part in parts)


class Item(NamedTuple):
    """What the API server says of an image whose cells are not chosen yet.

    Attributes:
        name: that the choice is remembered by, of `name_of`.
        question: by which they are chosen.
        count: how many are kept, fewer than there are.
    """

    name: bytes
    question: str
    count: int

    @classmethod
    def read(cls, name: Tensor, question: Tensor, count: Tensor) -> Item | None:
        """From an image's fields; None: its cells are among them."""
        words = bytes(question.tolist())
        return cls(bytes(name.tolist()), words.decode(), int(count)) if words else None

    @property
    def picture(self) -> str:
        """The name of the picture."""
        return self.name[: NAME_BYTES // 2].hex()


class WorkerChooser:
    """The choices of a worker, each made once while it is remembered.

    The first rank of a tensor-parallel group chooses and tells the others, so that no rounding can part them.
    All ranks are asked for the same choices in the same order, and forget the same ones.
    """

    def __init__(self, settings: Settings, vision: Any, device: torch.device) -> None:
        self.settings, self.vision, self.device = settings, vision, device
        self._kept: LRUCache[bytes, Tensor] = LRUCache(CHOICES)

    @property
    def chooser(self) -> Chooser:
        """What chooses, of this process."""
        return chooser_for(self.settings, str(self.device))

    def open(self) -> None:
        """Load what chooses, so that what is wrong with it ends the start and no request waits for it."""
        _ = self.chooser

    def keep(self, item: Item, rows: Tensor | None, patches: tuple[int, int]) -> Tensor:
        """The kept cells of an image, long [count] on the CPU, rising.

        Args:
            item: what is to be chosen.
            rows: all of its patches; None: vLLM dropped them, since the image's tokens are all in the prefix
                cache. Any cells will do then: text goes on after the whole grid, whichever are kept.
            patches: down and across.
        """
        kept = self._kept.get(item.name)
        if kept is None and rows is None:
            return torch.arange(item.count)
        if kept is None:
            group = get_tp_group()
            first = group.rank_in_group == 0
            kept = self.choose(item, rows, patches) if first else torch.empty(item.count, dtype=torch.long)
            kept = group.broadcast(kept.to(self.device)).cpu()
            self._kept[item.name] = kept
        return kept

    def choose(self, item: Item, rows: Tensor, patches: tuple[int, int]) -> Tensor:
        """The kept cells as `keep`; where choosing fails, which is logged, cells spread evenly.

        Their number is fixed by the placeholders in the prompt: all of them can't be kept any more.
        """
        merge = self.vision.spatial_merge_size
        grid = patches[0] // merge, patches[1] // merge
        try:
            picture = Pictured(item.picture, grid, lambda: picture_of(rows, patches, self.vision))
            return self.chooser.decide(picture, item.question, item.count).allocation.keep.long()
        except Exception:
            logger.exception("choosing cells failed; %d of the image are encoded, spread evenly", item.count)
            return even_grid(grid, item.count)
