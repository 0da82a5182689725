"""Relevance "layout": a model finds tables, rows, charts, paragraphs, to which hits of others are completed.

    open_relevance("guide+layout:docling-project/docling-layout-heron")
    SumSource([GuideSource(), LayoutSource(model, processor)])

It judges nothing itself, so it is of use in a sum alone: what the other sources find in a region raises the
rest of that region, the less the larger it is.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from arr_coc.choose.boxes import Box, box_cells
from arr_coc.guide.coupling import Calibration, Coupling
from arr_coc.relevance.native import load_native, model_place, native_version, to_image
from arr_coc.relevance.source import PRIOR, PictureView

LAYOUTS = {  # by model type, the classes of transformers that find regions of fixed kinds
    "rt_detr_v2": "RTDetrV2ForObjectDetection",
    "rt_detr": "RTDetrForObjectDetection",
    "table-transformer": "TableTransformerForObjectDetection",
}
EXAMPLE = "docling-project/docling-layout-heron"  # Apache-2.0
MIN_SCORE = 0.5  # of a region that counts
MAX_REGIONS = 100  # of a picture
MAX_SHARE = 0.5  # of the cells: a larger region is the page
# A region of n cells rises to its best cell less STEP * log(n): a line by about 1 less, a table by about 2.5.
# Nobody has fitted it. Whole lines were found to be worth a rise to 0.5 less, whole rows none at 64 cells.
STEP = 0.5


class RegionView(NamedTuple):
    """The regions of one picture, such as tables and paragraphs."""

    size: tuple[int, int]  # (height, width) of the picture in px
    regions: tuple[Box, ...]

    @property
    def nbytes(self) -> int:
        return 32 * len(self.regions)


class LayoutSource:
    """Completes what the other sources of a sum find to the whole of its region.

    Args:
        model: of one of the classes in `LAYOUTS`, on any device.
        processor: its image processor.
    """

    name = "layout"
    calibration: Calibration | None = Calibration(1.0)  # it adds no logits of its own

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model.eval(), processor
        self.version = native_version(model, processor)

    @torch.no_grad()
    def view(self, picture: Tensor) -> PictureView:
        size = picture.shape[-2], picture.shape[-1]
        inputs = self.processor(images=[to_image(picture)], return_tensors="pt").to(self.model.device)
        (detected,) = self.processor.post_process_object_detection(
            self.model(**inputs), threshold=MIN_SCORE, target_sizes=[size]
        )
        best = detected["scores"].float().cpu().argsort(descending=True, stable=True)[:MAX_REGIONS].tolist()
        regions: list[Box] = []
        for i in best:
            x0, y0, x1, y1 = detected["boxes"][i].float().cpu().nan_to_num(0).tolist()
            if x0 < x1 and y0 < y1:
                regions.append((x0, y0, x1, y1))
        return RegionView(size, tuple(regions))

    def couple(self, view: PictureView, question: str, grid: tuple[int, int]) -> Coupling:
        """Return that it has nothing to judge by: a confidence of 0."""
        return Coupling(torch.full(grid, PRIOR), 0.0)

    def complete(self, view: PictureView, logits: Tensor) -> Tensor:
        """Return cells' logits [H, W], none lower, those of each region raised towards its best."""
        assert isinstance(view, RegionView)
        raised = logits.clone()
        for box in view.regions:
            cells = box_cells(box, (logits.shape[0], logits.shape[1]), (view.size[1], view.size[0]))
            count = int(cells.sum())
            if 1 < count <= MAX_SHARE * logits.numel():
                least = logits[cells.to(logits.device)].max() - STEP * math.log(count)
                raised = torch.where(cells.to(logits.device), raised.maximum(least), raised)
        return raised


def open_layout(argument: str = "") -> LayoutSource:
    """Open the source "layout:NAME", a model folder or a name on the Hub."""
    return LayoutSource(*load_native(*model_place("layout", argument, EXAMPLE), LAYOUTS))
