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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.budget import DEFAULT_BUDGET, Budget, budget_of, parse_budget
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, read_layer
from arr_coc.choose.stem import FILE as STEM
from arr_coc.choose.stem import GUIDED, Stem, load_stem
from arr_coc.choose.texture import generate_texture_array
from arr_coc.files.atomic import one_line
from arr_coc.files.images import ImageSource, open_image, picture_digest
from arr_coc.files.paths import local_path, located
from arr_coc.files.question import check_question
from arr_coc.files.saved import BUNDLED, read_settings, reading
from arr_coc.guide.coupling import Coupling, couple, view
from arr_coc.guide.guide import FILE, PLACE, Guide, Page, check_channels, load_guide, picture_inputs
from arr_coc.guide.realizing import Cues, Decision, Stopwatch, decide
from arr_coc.guide.trust import is_general
from arr_coc.video.temporal import Change, Changes, Tracker, event_of

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


# The selector of an allocator that was trained for one model: the cells of mode "sparse", without the model.
#
#     StemSelector.load("bundled")("page.png", "What is the total?", budget=64) -> Allocation
#
# It decides by what a stem sees in the pixels and by the word embeddings of the question, and needs the
# model's
# tokenizer and embeddings, nothing else of it. Of a picture that is foreign to the stem the guide chooses,
# as
# in mode "sparse".

EMBEDDINGS = "embed_tokens.weight"
"""How the name of the word embeddings ends in a model's safetensors."""


class StemSelector(Selector):
    """Chooses cells of a picture by a question, before any encoder, as an allocator learned it.

    Args:
        layer: trained scorers, balancer and allocator.
        stem: sees the cells in pixels.
        tokenizer: of the model whose word embeddings these are.
        embeddings: [V, D], word embeddings.
        sizing: how a picture becomes cells if a call doesn't say.
        relevance: "auto": the guide chooses where a picture is foreign to the stem or a question is about no
            place; "trained": the allocator always does.

    Raises:
        ValueError: parts of different widths, or another relevance.
    """

    def __init__(
        self,
        layer: ARRCOCLayer,
        stem: Stem,
        tokenizer: Tokenizer,
        embeddings: Tensor,
        sizing: Sizing,
        relevance: str = "auto",
    ) -> None:
        if relevance not in ("auto", "trained"):
            raise ValueError(f"relevance {relevance!r} is not of an allocator: use 'auto' or 'trained'")
        widths = {"layer": layer.config.dim, "stem": stem.dim, "embeddings": embeddings.shape[1]}
        if len(set(widths.values())) > 1:
            raise ValueError(f"the parts of a selector are of different widths ({widths}); use one model's")
        check_channels(layer.config.channels)
        self.layer, self.stem = layer.eval(), stem.eval()
        self.tokenizer, self.embeddings, self.sizing = tokenizer, embeddings, sizing
        self.relevance = relevance
        added = tokenizer.get_added_tokens_decoder().items()
        self._special = torch.tensor([i for i, token in added if token.special], dtype=torch.long)

    @classmethod
    def load(
        cls, folder: str | Path | None = None, base: str | Path | None = None, relevance: str = "auto"
    ) -> StemSelector:
        """Load from an allocator folder with a stem, and from its base model's folder words and sizes alone.

        Args:
            folder: of the allocator; "bundled" or None: the bundled one.
            base: folder of the base model; None: the one the allocator names.
            relevance: as of the class.

        Raises:
            ValueError: something is missing there or doesn't fit.
        """
        place = BUNDLED / "allocator" if folder in (None, BUNDLED.name) else local_path(folder)
        layer = read_layer(place)
        stem = load_stem(place, layer.config.dim)
        if stem is None or not layer.trained:
            lacks = "a trained layer" if stem is not None else "a stem (stem.safetensors)"
            raise ValueError(
                f"the allocator {str(place)!r} has not {lacks}, so it can't choose without its model: train "
                "one with `arr-coc train stem`, or use ARRCOCModel"
            )
        settings = read_settings(place)
        name = (settings["base_model"] and located(settings, place)) if base is None else str(base)
        model = BUNDLED / "model" if name == BUNDLED.name else local_path(name or "")
        if not (model / "tokenizer.json").is_file():
            raise ValueError(
                f"the base model {name!r} of the allocator is no folder here with a tokenizer.json: give the "
                "folder of its files as `base`"
            )
        with reading(f"{str(model / 'tokenizer.json')!r} can't be read", "copy it again"):
            tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        return cls(layer, stem, tokenizer, _read_embeddings(model), Sizing.read(model), relevance)

    def cues(self, picture: ImageSource, question: str, grid: tuple[int, int] | None = None) -> Cues:
        """All that the choice is made by; arguments as in a call."""
        return self._cues(picture, question, grid)[0]

    @torch.no_grad()
    def decide(
        self,
        picture: ImageSource,
        question: str,
        budget: Budget = DEFAULT_BUDGET,
        grid: tuple[int, int] | None = None,
    ) -> Decision:
        """As of `Selector`; of a foreign picture the note says that the guide chose."""
        check_question(question)
        allowed = parse_budget(budget)
        cues, foreign = self._cues(picture, question, grid)
        decision = self._decided(cues, allowed)
        (allocation,) = decision.allocations
        if not foreign or allocation.void or allocation.kept == allocation.total:
            return decision
        note = GUIDED if allocation.note is None else f"{GUIDED}; {allocation.note}"
        return replace(decision, allocations=[replace(allocation, note=note)])

    def _cues(self, picture: ImageSource, question: str, grid: tuple[int, int] | None) -> tuple[Cues, bool]:
        """`cues`, and whether they are the guide's since the picture is foreign to the stem."""
        pixels, grid = self.pixels(picture, grid)
        query = self._query(question)
        mask = torch.ones(query.shape[:2], dtype=torch.bool)
        channels = self.layer.config.channels
        texture = generate_texture_array(pixels, grid, channels, **picture_inputs(channels, pixels[0]))
        cells = self.stem(pixels, grid)
        cues = Cues(texture, query, mask, cells.float())
        if self.relevance == "trained":
            return cues, False
        guide, familiarity = load_guide(), self.stem.familiarity
        foreign = familiarity is not None and bool(familiarity(cells[0]) > 0)
        if not foreign and not is_general(guide, question):
            return cues, False
        coupling = couple(guide, view(guide, image_pixels(picture)[0]), question, grid)
        return cues._replace(coupling=coupling.logits[None], guided=coupling), foreign

    def look(self, picture: ImageSource, grid: tuple[int, int] | None = None) -> Sight:
        """Refused: a stem sees a picture and the guide doesn't, so there is nothing to keep of one.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "a selector that was trained for one model keeps nothing of a picture: use "
            "Selector.from_pretrained() to look at one ahead of its questions"
        )

    def pixels(
        self, picture: ImageSource, grid: tuple[int, int] | None = None
    ) -> tuple[Tensor, tuple[int, int]]:
        """The picture as the model would see it, float [1, 3, h, w] in [0, 1], and its grid.

        Args:
            picture: as in a call.
            grid: as in a call.
        """
        image = torch.from_numpy(np.asarray(open_image(picture)).copy()).permute(2, 0, 1)[None]
        grid = self.sizing.grid(*image.shape[-2:]) if grid is None else checked_grid(grid)
        size = (grid[0] * self.sizing.cell, grid[1] * self.sizing.cell)
        if image.shape[-2:] != size:  # on bytes, as image processors do
            image = F.interpolate(image, size, mode="bicubic", antialias=True, align_corners=False)
        normal = (image.float() / 255 - 0.5) / 0.5  # and back: what a normalised picture is recovered to
        return normal.mul(0.5).add(0.5).clamp(0.0, 1.0), grid

    def _query(self, question: str) -> Tensor:
        """Word embeddings of a question's content tokens, float [1, L, D]."""
        encoding = self.tokenizer.encode(question, add_special_tokens=False)
        ids = torch.tensor(encoding.ids, dtype=torch.long)
        words = torch.tensor([not question[a:b].isspace() for a, b in encoding.offsets], dtype=torch.bool)
        content = words & ~torch.isin(ids, self._special)
        if not bool(content.any()):
            raise ValueError(f"the question {question!r} has no words that the tokenizer knows; rephrase it")
        return self.embeddings[ids[content]][None].float()


def _read_embeddings(model: Path) -> Tensor:
    """The word embeddings [V, D] of a model folder."""
    for path in sorted(model.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                names = [name for name in file.keys() if name.endswith(EMBEDDINGS)]
                if names:
                    return file.get_tensor(names[0])
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{str(path)!r} can't be read ({one_line(error)}); copy it again") from error
    raise ValueError(f"{str(model)!r} has no word embeddings (*.{EMBEDDINGS} in its *.safetensors)")


# The selector on a clip: from frames and a question to the cells that matter, in memory that doesn't grow.
#
#     choose_in_clip(Selector.from_pretrained(), frames, "When does the light turn red?", budget=0.1)
#
# Frames are read one after another: what is kept of each are its scores. One that repeats the frame before
# is
# not looked at again.

PICTURES = 2
"""Pictures of a clip that a model reads as one step, as the Qwen families do."""


@torch.no_grad()
def choose_in_clip(
    selector: Selector,
    frames: Iterable[ImageSource],
    question: str,
    budget: Budget = 0.1,
    grid: tuple[int, int] | None = None,
    pictures: int = PICTURES,
    times: Sequence[float] | None = None,
) -> Decision:
    """Choose the cells of a clip that matter to a question.

    Args:
        selector: the guide, and how a picture becomes cells.
        frames: the clip's pictures in order, all of one size; whatever `open_image` takes.
        question: any text.
        budget: cells to keep of the whole clip: a count (at most all are kept), a fraction or "auto".
        grid: (H, W) cells of a picture; None: as the selector's sizing says.
        pictures: pictures in a row that a model reads as one step. Of these the one is looked at that shows
            more that is new; what is left over at the end is a step, too.
        times: seconds of each picture, for questions that name some; None: those of a `FrameSource`, else not
            known.

    Returns:
        One allocation, on a grid of (steps, H, W), and what the guide said of the step where it is surest.

    Raises:
        ValueError: no picture, one that can't be read or is of another size, a question without words, a bad
            budget or grid, or a selector that has no guide.
    """
    check_question(question)
    allowed = parse_budget(budget)
    guide = _guide_of(selector)
    event = event_of(question)
    cues: list[Cues] = []
    shows: list[Tensor] = []  # the event, in each step
    changes: list[Change] = []
    surest: tuple[int, Coupling] | None = None
    for picture, change in _compared(selector, frames, grid, pictures):
        changes.append(change)
        if change.repeated:
            cues.append(cues[-1])
            shows += shows[-1:]
            continue
        sight = _sight(selector, picture, change)
        coupling = couple(guide, sight.page, question, change.grid)
        if surest is None or coupling.confidence > surest[1].confidence:
            surest = len(cues), coupling
        # Words are told of the surest step alone, and those of a step are most of what is kept of it.
        cues.append(_cues(selector, sight, replace(coupling, matches=())))
        if event is not None:
            shows.append(couple(guide, sight.page, event, change.grid).logits)
    if surest is not None:
        step, coupling = surest
        cues[step] = cues[step]._replace(guided=coupling)
    over_time = Changes.joined(changes).at(
        question, _step_times(frames, times, pictures), torch.stack(shows) if shows else None
    )
    return _decided(selector, cues, over_time, allowed)


class ClipSight:
    """What is known of a clip before any question: for many questions about one clip, in memory that grows.

    Args:
        selector: as of `choose_in_clip`, with the other arguments.
        frames: the clip's pictures.
        grid: (H, W) cells of a picture.
        pictures: in a step.
        times: seconds of each picture.

    Raises:
        ValueError: as `choose_in_clip` of pictures.
    """

    def __init__(
        self,
        selector: Selector,
        frames: Iterable[ImageSource],
        grid: tuple[int, int] | None = None,
        pictures: int = PICTURES,
        times: Sequence[float] | None = None,
    ) -> None:
        _guide_of(selector)
        self.selector = selector
        self.times = _step_times(frames, times, pictures)
        self.changes: list[Change] = []
        self.sights: list[Sight] = []
        self._last: tuple[str, list[Cues], Changes] | None = None
        with torch.no_grad():
            for picture, change in _compared(selector, frames, grid, pictures):
                again = change.repeated
                self.sights.append(self.sights[-1] if again else _sight(selector, picture, change))
                self.changes.append(change)

    @torch.no_grad()
    def decide(self, question: str, budget: Budget = 0.1) -> Decision:
        """As `choose_in_clip`; a second budget for the last question costs the ranking alone."""
        check_question(question)
        allowed = parse_budget(budget)
        if self._last is None or self._last[0] != question:
            event = event_of(question)
            own = self._coupled(question)
            shows = None if event is None else self._coupled(event)
            cues = [_cues(self.selector, sight, own[id(sight)]) for sight in self.sights]
            logits = (
                None if shows is None else torch.stack([shows[id(sight)].logits for sight in self.sights])
            )
            self._last = question, cues, Changes.joined(self.changes).at(question, self.times, logits)
        return _decided(self.selector, *self._last[1:], allowed)

    def _coupled(self, text: str) -> dict[int, Coupling]:
        """What the guide says of a text and each sight, by its identity."""
        guide, grid = self.selector.guide, self.changes[0].grid
        return {
            id(sight): couple(guide, sight.page, text, grid)
            for sight in {id(s): s for s in self.sights}.values()
        }


def _guide_of(selector: Selector) -> Guide:
    """The guide of a selector, or a ValueError where it goes by what one model learned."""
    guide = getattr(selector, "guide", None)
    if guide is None:
        raise ValueError(
            "clips are chosen from by the guide, which this selector has not: use Selector.from_pretrained()"
        )
    return guide


def _compared(
    selector: Selector, frames: Iterable[ImageSource], grid: tuple[int, int] | None, pictures: int
) -> Iterator[tuple[Tensor, Change]]:
    """The picture [1, 3, h, w] of each step, and what is new in it."""
    tracker: Tracker | None = None
    named = None if grid is None else checked_grid(grid)
    for picture in _steps(frames, pictures):
        tracker = tracker or Tracker(named or selector.sizing.grid(*picture.shape[-2:]))
        yield picture, tracker(picture[0])
    if tracker is None:
        raise ValueError("the clip has no pictures: give at least one")


def _sight(selector: Selector, picture: Tensor, change: Change) -> Sight:
    """What is known of a step's picture before any question."""
    height, width = change.grid
    texture = generate_texture_array(picture, (height, width), selector.layer.config.channels)
    return Sight(view(selector.guide, picture[0]), {(height, width): texture}, {})


def _cues(selector: Selector, sight: Sight, coupling: Coupling) -> Cues:
    """What scoring reads of a step."""
    query, words = torch.zeros(1, 1, selector.layer.config.dim), torch.ones(1, 1, dtype=torch.bool)
    (texture,) = sight.textures.values()
    return Cues(texture, query, words, coupling=coupling.logits[None], guided=coupling)


def _decided(selector: Selector, cues: Sequence[Cues], changes: Changes, budget: Budget) -> Decision:
    """The cells of a whole clip, from what is known of its steps."""
    height, width = changes.new.shape[1:]
    allowed = budget_of(budget, None, len(cues) * height * width)
    watch = Stopwatch(cues[0].texture.device)
    grids = [(1, height, width)] * len(cues)
    return decide(selector.layer, cues, grids, [allowed], watch, [changes])


def _step_times(
    frames: Iterable[ImageSource], times: Sequence[float] | None, pictures: int
) -> Sequence[float] | None:
    """The seconds at which each step begins; None where they are not known."""
    times = getattr(frames, "times", None) if times is None else times
    return None if times is None else times[::pictures]


def _steps(frames: Iterable[ImageSource], pictures: int) -> Iterator[Tensor]:
    """One picture [1, 3, h, w] of each step: the one that differs most from the step's before.

    Raises:
        ValueError: pictures of different sizes.
    """
    before: Tensor | None = None
    rest = iter(frames)
    while group := [image_pixels(frame) for frame in islice(rest, pictures)]:
        first = group[0] if before is None else before
        for picture in group:
            if picture.shape != first.shape:
                sizes = [f"{one.shape[-1]}x{one.shape[-2]}" for one in (first, picture)]
                raise ValueError(
                    f"the clip has pictures of {sizes[0]} and of {sizes[1]} px: scale them to one size"
                )
        before = max(group, key=lambda picture: float((picture - first).abs().mean()))
        yield before
