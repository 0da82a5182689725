"""InternVL: square tiles of a picture, then a view of the whole, between one start and one end token."""

from __future__ import annotations

from torch import Tensor

from arr_coc.families.tiled import TiledAdapter
from arr_coc.families.tiles import placeholder_runs


class InternVLAdapter(TiledAdapter):
    """InternVL 2.5, 3 and 3.5 in transformers' own format, and Qianfan-OCR."""

    model_types = ("internvl", "qianfan_ocr")
    title = "InternVL"
    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)

    @property
    def cell_px(self) -> int:
        """Px along each side of a cell."""
        return int(self.model.config.vision_config.patch_size[0] / self.model.config.downsample_ratio)

    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        """As the lengths of the prompt's runs of placeholders: the tiles of an image follow each other."""
        counts = placeholder_runs(input_ids == self.image_token_id)
        length = sum(counts) // len(views)  # tokens of a tile
        return [count // length for count in counts]
