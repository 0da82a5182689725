"""Selector: from a picture and a question to the cells that matter, with no vision-language model anywhere.

    selector = Selector.from_pretrained()
    selector("page.png", "What is the total?", budget=64) -> Allocation

What a server's front end calls, before any encoder: it needs torch and the guide's ten megabytes, neither
transformers nor a tokenizer. The pages of the last pictures are kept, so that a second question about one
costs the guide's head alone.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.attending import DEFAULT_BUDGET, Budget, budget_of, parse_budget
from arr_coc.choose.config import ARRCOCConfig
from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.stem import FILE as STEM
from arr_coc.choose.texture import generate_texture_array
from arr_coc.files.atomic import one_line
from arr_coc.files.images import ImageSource, open_image, picture_digest
from arr_coc.files.paths import local_path
from arr_coc.files.question import check_question
from arr_coc.guide.coupling import Coupling, couple, view
from arr_coc.guide.guide import Guide, Page
from arr_coc.guide.realizing import Cues, Decision, Stopwatch, decide
from arr_coc.guide.store import FILE, PLACE, load_guide

MOST_PAGES = 8
"""Pictures whose pages are kept."""
MOST_PIXELS = 8 * 1024**2
"""Pixels of all of them together, at some five bytes each; the last picture is kept whatever its size."""
MOST_QUESTIONS = 8
"""Questions about a picture whose couplings are kept: who compares questions, then decides, asks twice."""


class Sizing:
    """How a picture becomes cells: the size in px that the model's image processor gives it.

    Qwen-VL's rule: each side a whole number of cells, the shape kept as far as that allows, and the number of
    pixels within bounds.

    Args:
        cell: px along each side of a cell.
        least: fewest pixels of a picture.
        most: most pixels.
    """

    def __init__(self, cell: int = 32, least: int = 64 * 64, most: int = 2048 * 2048) -> None:
        self.cell, self.least, self.most = cell, least, most

    @classmethod
    def read(cls, folder: Path) -> Sizing:
        """Of the `processor_config.json` or `preprocessor_config.json` of a model folder.

        Raises:
            ValueError: neither is there, or neither says how large cells are and pictures may be.
        """
        paths = [folder / name for name in ("processor_config.json", "preprocessor_config.json")]
        paths = [path for path in paths if path.is_file()]
        if not paths:
            raise ValueError(f"{str(folder)!r} has no processor_config.json: give the folder of a model")
        reason: Exception = ValueError("nothing there")
        for path in paths:
            try:
                settings = json.loads(path.read_text(encoding="utf-8"))
                settings = settings.get("image_processor", settings)
                cell = int(settings["patch_size"]) * int(settings["merge_size"])
                return cls(cell, *_pixel_bounds(settings))
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                reason = error  # a processor_config.json of long ago says nothing of images
        raise ValueError(
            f"{str(paths[-1])!r} doesn't say how large cells are and pictures may be ({one_line(reason)}): "
            "put the model's own preprocessor_config.json there"
        ) from reason

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """(H, W) cells of a picture of height x width px."""
        sides = [round(side / self.cell) for side in (height, width)]  # 0 counts as too few pixels
        pixels = sides[0] * sides[1] * self.cell**2
        if self.least <= pixels <= self.most:
            return sides[0], sides[1]
        # Written as the processors write it: another order of the same steps rounds some squares otherwise.
        if pixels > self.most:
            shrink = math.sqrt((height * width) / self.most)
            h, w = (math.floor(side / shrink / self.cell) for side in (height, width))
        else:
            grow = math.sqrt(self.least / (height * width))
            h, w = (math.ceil(side * grow / self.cell) for side in (height, width))
        return max(1, h), max(1, w)


def _pixel_bounds(settings: Mapping[str, Any]) -> tuple[int, int]:
    """The fewest and the most pixels of a picture by an image processor's settings, old names before new."""
    size = settings.get("size") or {}
    bounds = []
    for old, new in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        value = settings.get(old) or size.get(old)
        bounds.append(int(size[new] if value is None else value))
    return bounds[0], bounds[1]


class Sight(NamedTuple):
    """What is kept of a picture between questions: the guide's page, textures by grid, and the couplings of
    the last questions by question and grid.
    """

    page: Page
    textures: dict[tuple[int, int], Tensor]
    couplings: dict[tuple[str, tuple[int, int]], Coupling]


class Selector:
    """Chooses cells of a picture by a question, before any encoder, by the guide.

    Args:
        guide: of `load_guide`; None: the bundled one.
        sizing: how a picture becomes cells if a call doesn't say; None: cells of 32 px.
    """

    def __init__(self, guide: Guide | None = None, sizing: Sizing | None = None) -> None:
        self.guide = load_guide() if guide is None else guide
        self.sizing = Sizing() if sizing is None else sizing
        self.layer = ARRCOCLayer(ARRCOCConfig(dim=1)).eval()  # the guide's coupling needs no embeddings
        self._sights: OrderedDict[bytes, Sight] = OrderedDict()

    @classmethod
    def from_pretrained(cls, folder: str | Path | None = None, base: str | Path | None = None) -> Selector:
        """The selector of a guide, or that of an allocator that was trained for one model.

        Args:
            folder: of a guide (`arr-coc train guide`), which decides for whatever model reads the cells, or
                of an allocator with a stem; None: the bundled guide.
            base: folder of the allocator's base model, for its words and sizes; None: the one that it names.

        Raises:
            ValueError: something is missing there or doesn't fit.
        """
        if folder is None and base is None:
            return cls()
        if folder is not None and base is None:
            place = local_path(folder)
            if (place / FILE).is_file():
                return cls(load_guide(place))
            if (place / PLACE / FILE).is_file() and not (place / STEM).is_file():
                return cls(load_guide(place / PLACE))  # of an allocator that goes by it
        from arr_coc.guide.stem_selector import StemSelector

        return StemSelector.load(folder, base)

    def __call__(
        self,
        picture: ImageSource,
        question: str,
        budget: Budget = DEFAULT_BUDGET,
        grid: tuple[int, int] | None = None,
    ) -> Allocation:
        """Choose the cells that matter to a question.

        Args:
            picture: whatever `open_image` takes: a path, bytes, a file object, pixels, a PIL image.
            question: any text.
            budget: cells to keep: a count (at most all are kept), a fraction or "auto".
            grid: (H, W) cells; None: as `sizing` says.

        Raises:
            ValueError: a picture that can't be read, a question without words, or a bad budget.
        """
        return self.decide(picture, question, budget, grid).allocations[0]

    @torch.no_grad()
    def decide(
        self,
        picture: ImageSource,
        question: str,
        budget: Budget = DEFAULT_BUDGET,
        grid: tuple[int, int] | None = None,
    ) -> Decision:
        """As a call, with what the guide said of the question in `couplings`."""
        check_question(question)
        allowed = parse_budget(budget)
        return self._decided(self.cues(picture, question, grid), allowed)

    def _decided(self, cues: Cues, budget: Budget) -> Decision:
        """The cells of one picture, from all that the choice is made by."""
        height, width = cues.texture.shape[-2:]
        allowed = budget_of(budget, None, height * width)
        return decide(self.layer, [cues], [(1, height, width)], [allowed], Stopwatch(cues.texture.device))

    def cues(self, picture: ImageSource, question: str, grid: tuple[int, int] | None = None) -> Cues:
        """All that the choice is made by; arguments as in a call."""
        image = open_image(picture)
        grid = self.sizing.grid(image.height, image.width) if grid is None else checked_grid(grid)
        sight = self.look(image, grid)
        coupling = self._coupling(sight, question, grid)
        query, words = torch.zeros(1, 1, self.layer.config.dim), torch.ones(1, 1, dtype=torch.bool)
        return Cues(sight.textures[grid], query, words, coupling=coupling.logits[None], guided=coupling)

    def look(self, picture: ImageSource, grid: tuple[int, int] | None = None) -> Sight:
        """What is known of a picture before any question, with its texture on a grid as of a call."""
        image = open_image(picture)
        grid = self.sizing.grid(image.height, image.width) if grid is None else checked_grid(grid)
        key = picture_digest(image)
        sight = self._sights.pop(key, None)
        if sight is None or grid not in sight.textures:
            pixels = image_pixels(image)
            sight = sight or Sight(view(self.guide, pixels[0]), {}, {})
            sight.textures[grid] = generate_texture_array(pixels, grid, self.layer.config.channels)
        self._keep(key, sight)
        return sight

    def _coupling(self, sight: Sight, question: str, grid: tuple[int, int]) -> Coupling:
        """What the guide says of a question, worked out once while it is among the last of its picture."""
        kept, key = sight.couplings, (question, grid)
        coupling = kept.pop(key, None) or couple(self.guide, sight.page, question, grid)
        kept[key] = coupling
        if len(kept) > MOST_QUESTIONS:
            kept.pop(next(iter(kept)), None)
        return coupling

    def _keep(self, key: bytes, sight: Sight) -> None:
        """Keep what is known of the last picture, and of those before it as many as there is room for."""
        self._sights[key] = sight
        sizes = [math.prod(one.page.size) for one in self._sights.values()]
        while len(sizes) > MOST_PAGES or (len(sizes) > 1 and sum(sizes) > MOST_PIXELS):
            self._sights.popitem(last=False)
            sizes.pop(0)


def image_pixels(image: ImageSource) -> Tensor:
    """Any image as float [1, 3, h, w] in [0, 1]."""
    pixels = np.moveaxis(np.asarray(open_image(image)), 2, 0).copy()  # as bytes they are soon moved
    return torch.from_numpy(pixels)[None].float().div_(255)


def checked_grid(grid: object) -> tuple[int, int]:
    """A grid of cells as a pair of whole numbers, or a ValueError that says what it has to be."""
    sides = tuple(grid) if isinstance(grid, (tuple, list)) else ()
    if len(sides) == 2 and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in sides):
        return sides
    raise ValueError(f"grid is {grid!r:.60}: give (rows, columns) of cells, such as (32, 32), or None")
