"""Selector: choose the cells of a picture or clip that a question needs, without a language model.

    selector = Selector.from_pretrained()
    selector("page.png", "What is the total?", budget=64)           Allocation on a grid (1, H, W)
    selector.many(pictures, questions, budget=64)                   an Allocation each, chosen at once
    selector.decide_clip(frames, "When does the light turn red?")   Decision on a grid (steps, H, W)

It keeps its encodings of the last pictures: a second question about one runs only the guide's head.
Threads may share it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from PIL.Image import Image
from safetensors import SafetensorError, safe_open
from torch import Tensor

from arr_coc.choose.allocation import MAX_CELLS, Allocation, is_transposed
from arr_coc.choose.budget import (
    DEFAULT_BUDGET,
    Budget,
    budget_of,
    coverage_budget,
    coverage_share,
    parse_budget,
)
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, read_layer
from arr_coc.choose.rarity import rarity
from arr_coc.choose.stem import FILE as STEM_FILE
from arr_coc.choose.stem import GUIDED, Stem, load_stem
from arr_coc.files.atomic import one_line
from arr_coc.files.images import TURNED, ImageSource, open_image, picture_digest
from arr_coc.files.paths import local_path, locate_base
from arr_coc.files.pixels import image_pixels
from arr_coc.files.question import check_question, kind_of
from arr_coc.files.saved import BUNDLED, read_settings, reading
from arr_coc.files.sizing import Sizing
from arr_coc.guide.coupling import SCOPE, Coupling, GuideSource, fitted_pixels, scope, seen_pixels
from arr_coc.guide.guide import (
    GUIDE_FILE,
    GUIDE_FOLDER,
    Guide,
    check_channels,
    load_guide,
)
from arr_coc.guide.trust import GENERAL, is_general, verdict_of, wants_rarity
from arr_coc.relevance.coverage import CoverageRule, coverage_rule
from arr_coc.relevance.deciding import Cues, Decision, LookedAt, decide
from arr_coc.relevance.source import RelevanceSource, couple_all, view_all
from arr_coc.relevance.sums import default_source, open_relevance
from arr_coc.video.temporal import Change, Changes, Tracker, event_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer  # the guide alone needs none

# Where the size doesn't tell: `Allocation.boxes` refuses that of a picture that lies on its side.
TURNED_NOTE = "its EXIF data turned the picture: boxes are of the upright one, as by open_image"
MAX_PICTURES = 8  # whose encodings are kept
MAX_TOGETHER = 32 * 1024**2  # px of pictures that are encoded at once
MAX_KEPT_BYTES = 64 * 1024**2  # of them together; that of a phone's photograph takes 25 MB; the last is kept
MAX_QUESTIONS = 8  # of a picture whose couplings are kept: comparing questions, then deciding, asks twice
FRAMES_PER_STEP = 2  # of a clip, that a model reads as one step, as the Qwen families do
BOOKS = Lock()  # of what selectors keep; nothing is computed under it
T = TypeVar("T", bound="Sized")
EMBEDDINGS = "embed_tokens.weight"  # the end of the name of the word embeddings in a model's safetensors


class StemScorer:
    """The trained part for one model: scores cells by a stem's features and the question's word embeddings.

    A stem is a small convolutional net that gives a vector per cell, in the place of the vision encoder.
    `embeddings` [V, D] are the model's word embeddings. Parts of different widths, or channels that need more
    than a picture, raise ValueError.
    """

    def __init__(
        self, layer: ARRCOCLayer, stem: Stem, tokenizer: Tokenizer, embeddings: Tensor, sizing: Sizing
    ) -> None:
        widths = {"layer": layer.config.dim, "stem": stem.dim, "embeddings": embeddings.shape[1]}
        if len(set(widths.values())) > 1:
            raise ValueError(f"the parts of a selector are of different widths ({widths}); use one model's")
        check_channels(layer.config.channels)
        self.layer, self.stem = layer.eval(), stem.eval()
        self.tokenizer, self.embeddings, self.sizing = tokenizer, embeddings, sizing
        added = tokenizer.get_added_tokens_decoder().items()
        self._special = torch.tensor([i for i, token in added if token.special], dtype=torch.long)
        self.device = torch.device("cpu")

    def to(self, device: torch.device) -> StemScorer:
        """Move the scorer to a device, in place, and return it; the word embeddings stay on the CPU."""
        self.layer.to(device)
        self.stem.to(device)
        self.device = device
        return self

    @classmethod
    def load(cls, folder: Path, base: str | Path | None = None) -> StemScorer:
        """Load an allocator, and only the words and sizes of its base model (None: the one that it names).

        A missing part, or one that doesn't fit, raises ValueError.
        """
        from tokenizers import Tokenizer  # the guide alone needs none

        layer = read_layer(folder)
        stem = load_stem(folder, layer.config.dim)
        if stem is None or not layer.trained:
            lacks = "a trained layer" if stem is not None else f"a stem ({STEM_FILE})"
            raise ValueError(
                f"the allocator {str(folder)!r} has not {lacks}, so it can't choose without its model: train "
                "one with `arr-coc train stem`, or use ARRCOCModel"
            )
        settings = read_settings(folder)
        name = (settings["base_model"] and locate_base(settings, folder)) if base is None else str(base)
        model = BUNDLED / "model" if name == BUNDLED.name else local_path(name or "")
        words = model / "tokenizer.json"
        if not words.is_file():
            raise ValueError(
                f"the base model {name!r} of the allocator is no folder here with a tokenizer.json: give the "
                "folder of its files as `base`"
            )
        with reading(f"{str(words)!r} can't be read", "copy it again"):
            tokenizer = Tokenizer.from_file(str(words))
        return cls(layer, stem, tokenizer, _read_embeddings(model), Sizing.read(model))

    def pixels(
        self, picture: ImageSource, grid: tuple[int, int] | None = None
    ) -> tuple[Tensor, tuple[int, int]]:
        """Return a picture as the model would see it, float [1, 3, h, w] in [0, 1], and its grid (H, W)."""
        image = torch.from_numpy(np.asarray(open_image(picture)).copy()).permute(2, 0, 1)[None]
        image = image.to(self.device)
        grid = self.sizing.grid(*image.shape[-2:]) if grid is None else checked_grid(grid)
        size = (grid[0] * self.sizing.cell, grid[1] * self.sizing.cell)
        if image.shape[-2:] != size:  # on bytes, as image processors do
            image = F.interpolate(image, size, mode="bicubic", antialias=True, align_corners=False)
        normal = (image.float() / 255 - 0.5) / 0.5  # and back: what a normalised picture is recovered to
        return normal.mul(0.5).add(0.5).clamp(0.0, 1.0), grid

    def cues(self, pixels: Tensor, question: str, grid: tuple[int, int]) -> Cues:
        """Return what a picture [1, 3, h, w] is scored by (`Cues`): texture, word embeddings, stem cells."""
        cells = self.stem(pixels, grid)[0]
        return LookedAt().cues(self.layer, grid, lambda: pixels[0], self._query(question), cells=cells)

    def is_foreign(self, cells: Tensor) -> bool:
        """Return whether a picture is unlike those that the stem was trained on, by its features [N, D]."""
        familiarity = self.stem.familiarity
        return familiarity is not None and bool(familiarity(cells) > 0)

    def _query(self, question: str) -> Tensor:
        """Return word embeddings of a question's content tokens, float [L, D]."""
        encoding = self.tokenizer.encode(question, add_special_tokens=False)
        ids = torch.tensor(encoding.ids, dtype=torch.long)
        words = torch.tensor([not question[a:b].isspace() for a, b in encoding.offsets], dtype=torch.bool)
        content = words & ~torch.isin(ids, self._special)
        if not bool(content.any()):
            raise ValueError(f"the question {question!r} has no words that the tokenizer knows; rephrase it")
        return self.embeddings[ids[content]].float().to(self.device)


def _read_embeddings(model: Path) -> Tensor:
    for path in sorted(model.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                names = [name for name in file.keys() if name.endswith(EMBEDDINGS)]
                if names:
                    return file.get_tensor(names[0])
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{str(path)!r} can't be read ({one_line(error)}); copy it again") from error
    raise ValueError(f"{str(model)!r} has no word embeddings (*.{EMBEDDINGS} in its *.safetensors)")


class Sized(Protocol):
    """Anything that says how many bytes of memory it takes."""

    @property
    def nbytes(self) -> int: ...


class KnownPicture(NamedTuple):
    """An opened picture, with the digest under which a selector finds its record."""

    image: Image
    key: bytes


class Selector:
    """Chooses the cells of a picture or clip that a question needs, before any encoder runs.

    Args:
        guide: From `load_guide`; None: the bundled one.
        sizing: How a picture becomes cells if a call doesn't say; None: as in the model that `trained`
            belongs to, else cells of 32 px.
        trained: An allocator that was trained for one model; None: the guide decides.
        relevance: A source of relevance, or the name of one or of a sum such as "guide+ocr"
            (`relevance.sums`). "auto": the trained allocator if there is one, except on pictures unlike
            those it was trained on and for questions about no single place; else the guide, and the OCR
            beside it where one is installed. Of a clip the guide alone. "trained": always the allocator.

    Raises:
        ValueError: an unknown relevance, or "trained" without an allocator.
    """

    def __init__(
        self,
        guide: Guide | None = None,
        sizing: Sizing | None = None,
        trained: StemScorer | None = None,
        relevance: str | RelevanceSource = "auto",
    ) -> None:
        if relevance == "trained" and trained is None:
            raise ValueError("relevance 'trained' is of a trained allocator: name its folder, or use 'auto'")
        self.guide = load_guide() if guide is None else guide
        self.sizing = sizing or (Sizing() if trained is None else trained.sizing)
        named = relevance not in ("auto", "trained")
        self.source = open_relevance(relevance, self.guide) if named else default_source(self.guide)
        # For what can't wait some seconds for an OCR: frames of clips, pictures of a server.
        self.quick_source = self.source if named else GuideSource(self.guide)
        self.trained, self.relevance = None if named else trained, relevance
        trained = self.trained
        # The guide's coupling needs no word embeddings, so that a layer for it is of any width.
        self.layer = ARRCOCLayer(ARRCOCConfig(dim=1)).eval() if trained is None else trained.layer
        self._records: OrderedDict[bytes, LookedAt] = OrderedDict()
        self._beside: OrderedDict[tuple[bytes, Callable[[Image], Any]], Any] = OrderedDict()

    def for_serving(self) -> Selector:
        """Leave out the OCR that "auto" brings, in place, and return the selector.

        It takes seconds for each new picture, which a server's other requests would wait for.
        """
        self.source = self.quick_source
        return self

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path | None = None,
        base: str | Path | None = None,
        relevance: str | RelevanceSource = "auto",
        device: str | torch.device | None = "cpu",
        dtype: str | torch.dtype | None = "auto",
    ) -> Selector:
        """Load a selector from the folder of a guide or allocator; raise ValueError if a part is missing.

        Args:
            folder: Of a guide (`arr-coc train guide`) or an allocator ("bundled": the bundled one); None: the
                bundled guide.
            base: Folder of the allocator's base model, for its words and sizes; None: the one that it names.
            relevance: As in the class.
            device: Where pictures are encoded: "cpu", "cuda", "cuda:1", "mps", ...; None: the accelerator, if
                there is one. Allocations are on the CPU.
            dtype: Of the guide: "float32", "bfloat16", "float16", or "auto": bfloat16 where it is fast.
        """
        guide = partial(load_guide, dtype=dtype, device=device)
        if folder is None and base is None:
            return cls(guide(), relevance=relevance)
        bundled = folder is None or folder == BUNDLED.name
        place = BUNDLED / "allocator" if bundled else local_path(folder)
        if base is None and not bundled:
            if (place / GUIDE_FILE).is_file():
                return cls(guide(place), relevance=relevance)
            if (place / GUIDE_FOLDER / GUIDE_FILE).is_file() and not (place / STEM_FILE).is_file():
                return cls(guide(place / GUIDE_FOLDER), relevance=relevance)
        own = guide()
        trained = StemScorer.load(place, base).to(own.threshold.device)
        return cls(own, trained=trained, relevance=relevance)

    @property
    def device(self) -> torch.device:
        """Where pictures are encoded."""
        return self.guide.threshold.device

    def __call__(
        self,
        picture: ImageSource,
        question: str,
        budget: Budget | None = None,
        grid: tuple[int, int] | None = None,
        coverage: float | None = None,
    ) -> Allocation:
        """Choose the cells that matter to a question; return them as an Allocation on a grid (1, H, W).

        Args:
            picture: Whatever `open_image` takes: a path, bytes, a file object, pixels, a PIL image.
            question: Any text.
            budget: Cells to keep: a count (at most all are kept), a fraction or "auto"; None: 273.
            grid: (H, W) cells; None: as `sizing` says.
            coverage: In place of a budget: keep as many cells as hold all evidence for at least this share of
                questions, in (0, 1); a note says if that can't be promised (`relevance.coverage`). The guide
                or the named source chooses then, even if there is a trained allocator.

        Raises:
            ValueError: a picture that can't be read, a question without words, a bad budget, or a coverage
                that isn't calibrated.
        """
        return self.decide(picture, question, budget, grid, coverage).allocations[0]

    @torch.no_grad()
    def many(
        self,
        pictures: Iterable[ImageSource],
        questions: str | Iterable[str],
        budget: Budget | None = None,
        coverage: float | None = None,
    ) -> list[Allocation]:
        """Choose the cells of several pictures, each for its own question, in one batch.

        Pictures of one size are encoded together, and their questions scored together, which is what a GPU is
        fast at; cells are chosen on the CPU. Decisions equal those of single calls, but for the order in
        which a device adds.

        Args:
            pictures: Any iterable, of any sizes; one picture may come again.
            questions: An iterable with one per picture, or one text for all of them.
            budget: As in a call, for each of them.
            coverage: As in a call, for each of them.

        Raises:
            ValueError: as in a call, or if the numbers of questions and pictures differ.
        """
        every = list(_several(pictures, "pictures"))
        texts = (
            [questions] * len(every) if isinstance(questions, str) else list(_several(questions, "questions"))
        )
        if len(texts) != len(every):
            raise ValueError(f"{len(every)} pictures and {len(texts)} questions: give a question each")
        _made_each(check_question, texts, "questions")
        if coverage is not None:
            budget = coverage_budget(budget, coverage)
        allowed = DEFAULT_BUDGET if budget is None else parse_budget(budget)
        share = coverage_share(allowed)
        if self.trained is not None and share is None:
            pairs = list(zip(every, texts, strict=True))
            return _made_each(lambda one: self(*one, budget=allowed), pairs, "pictures")
        if not texts:
            return []
        own = self if share is None else self.guided
        rule = None if share is None else coverage_rule(self.source, share)
        cues = own._cues_of(_made_each(self.known, every, "pictures"), texts)
        grids = [(1, one.texture.shape[-2], one.texture.shape[-1]) for one in cues]
        budgets = [budget_of(allowed, None, math.prod(grid)) for grid in grids]
        return decide(own.layer, cues, grids, budgets, (), rule).allocations

    def known(self, picture: ImageSource | KnownPicture) -> KnownPicture:
        """Open a picture for use in several calls, so that its pixels are read and compared once."""
        if isinstance(picture, KnownPicture):
            return picture
        image = open_image(picture)
        return KnownPicture(image, picture_digest(image))

    def beside(self, picture: KnownPicture, make: Callable[[Image], T]) -> T:
        """Return what a function makes of a picture; it is made once and kept if there is room."""
        key = picture.key, make
        with BOOKS:
            made = self._beside.pop(key, None)
        is_new = made is None
        made = make(picture.image) if made is None else made
        with BOOKS:
            self._beside[key] = made
            sizes = [one.nbytes for one in self._beside.values()] if is_new else []
            while len(sizes) > MAX_PICTURES or (len(sizes) > 1 and sum(sizes) > MAX_KEPT_BYTES):
                self._beside.popitem(last=False)  # the oldest
                sizes.pop(0)
        return made

    @torch.no_grad()
    def decide(
        self,
        picture: ImageSource | KnownPicture,
        question: str,
        budget: Budget | None = None,
        grid: tuple[int, int] | None = None,
        coverage: float | None = None,
    ) -> Decision:
        """Choose cells as a call does, and return the `Decision`, with what the guide found in `couplings`.

        If the guide took over from a trained allocator, a note says so.
        """
        check_question(question)
        if coverage is not None:
            budget = coverage_budget(budget, coverage)
        allowed = DEFAULT_BUDGET if budget is None else parse_budget(budget)
        if (share := coverage_share(allowed)) is not None:
            return self.guided._covered(picture, question, allowed, share, grid)
        cues, foreign = self._cues(picture, question, grid)
        decision = self._decide([cues], allowed, ())
        (allocation,) = decision.allocations
        if not foreign or not allocation.selective:
            return decision
        note = GUIDED if allocation.note is None else f"{GUIDED}; {allocation.note}"
        return replace(decision, allocations=[replace(allocation, note=note)])

    @cached_property
    def guided(self) -> Selector:
        """The same selector without its trained allocator; ValueError with relevance "trained"."""
        if self.relevance == "trained":
            raise ValueError("coverage isn't calibrated for relevance 'trained': use 'auto', or a budget")
        return self if self.trained is None else Selector(self.guide, self.sizing, relevance=self.source)

    def _covered(
        self,
        picture: ImageSource | KnownPicture,
        question: str,
        budget: Budget,
        share: float,
        grid: tuple[int, int] | None,
    ) -> Decision:
        """Choose as many cells as a coverage promises for a share of questions."""
        rule = coverage_rule(self.source, share)
        cues, _ = self._cues(picture, question, grid)
        return self._decide([cues], budget, (), rule)

    def _decide(
        self,
        cues: Sequence[Cues],
        budget: Budget,
        changes: Sequence[Changes],
        rule: CoverageRule | None = None,
    ) -> Decision:
        height, width = cues[0].texture.shape[-2:]
        allowed = budget_of(budget, None, len(cues) * height * width)
        return decide(self.layer, cues, [(1, height, width)] * len(cues), [allowed], changes, rule)

    def cues(
        self, picture: ImageSource | KnownPicture, question: str, grid: tuple[int, int] | None = None
    ) -> Cues:
        """Return what cells are scored by (`Cues`: texture, question, coupling); arguments as in a call."""
        return self._cues(picture, question, grid)[0]

    def _cues(
        self, picture: ImageSource | KnownPicture, question: str, grid: tuple[int, int] | None
    ) -> tuple[Cues, bool]:
        """Return `cues`, and whether the guide decides because the picture is foreign to the stem."""
        if self.trained is None:
            return self._cues_of([picture], [question], grid)[0], False
        image = picture.image if isinstance(picture, KnownPicture) else open_image(picture)
        grid = self._grid(image.height, image.width, grid)
        pixels, _ = self.trained.pixels(image, grid)
        cues = self.trained.cues(pixels, question, grid)
        if self.relevance == "trained" or cues.vision is None:
            return cues, False
        foreign = self.trained.is_foreign(cues.vision[0])
        if not foreign and not is_general(self.guide, question):
            return cues, False
        view = self.source.view(seen_pixels(self.source, image, self.device))
        coupling = self.source.couple(view, question, grid)
        if not foreign and verdict_of(coupling) not in GENERAL:  # it names print, which boxes train
            return cues, False
        rare = rarity(fitted_pixels(image, self.device)[None], grid) if wants_rarity(coupling) else None
        logits = coupling.logits[None].to(self.device)
        return cues._replace(coupling=logits, guided=coupling, rarity=rare), foreign

    def _cues_of(
        self,
        pictures: Sequence[ImageSource | KnownPicture],
        questions: Sequence[str],
        grid: tuple[int, int] | None = None,
    ) -> list[Cues]:
        """Return the `Cues` of pictures and their questions, by the source of relevance, on the CPU."""
        opened = [self.known(picture) for picture in pictures]
        images = [one.image for one in opened]
        grids = [self._grid(image.height, image.width, grid) for image in images]
        records = self._recorded(opened)
        couplings = self._couplings(records, questions, grids)
        cues = []
        for image, one, record, coupling in zip(images, grids, records, couplings, strict=True):
            if TURNED in image.info and not is_transposed((1, *one), _stored_size(image)):
                coupling = replace(coupling, note="; ".join(filter(None, (coupling.note, TURNED_NOTE))))
            picture = partial(fitted_pixels, image, self.device)
            cues.append(record.cues(self.layer, one, picture, guided=coupling))
        return cues

    def encode(self, picture: ImageSource | KnownPicture, grid: tuple[int, int] | None = None) -> LookedAt:
        """Encode a picture before any question, with its texture; the last pictures' records are kept."""
        if self.trained is not None:
            raise ValueError(
                "a selector that was trained for one model keeps nothing of a picture: use "
                "Selector.from_pretrained() to encode one ahead of its questions"
            )
        image = (opened := self.known(picture)).image
        (record,) = self._recorded([opened])
        grid = self._grid(image.height, image.width, grid)
        record.texture(self.layer, grid, partial(fitted_pixels, image, self.device))
        return record

    def _recorded(self, opened: Sequence[KnownPicture]) -> list[LookedAt]:
        """Return pictures' records, each with its view; keep those of the last pictures."""
        keys = [one.key for one in opened]
        # Taken out of what is kept, so that another thread's pictures don't push them out.
        with BOOKS:
            records = {key: record for key in keys if (record := self._records.pop(key, None)) is not None}
        missing = {one.key: one.image for one in opened if one.key not in records}
        for part in _together(missing):
            pixels = [seen_pixels(self.source, image, self.device) for image in part.values()]
            views = view_all(self.source, pixels)
            records |= {key: LookedAt(view) for key, view in zip(part, views, strict=True)}
        with BOOKS:
            self._records.update((key, records[key]) for key in keys)
            sizes = [_kept_bytes(one) for one in self._records.values()] if missing else []
            while len(sizes) > MAX_PICTURES or (len(sizes) > 1 and sum(sizes) > MAX_KEPT_BYTES):
                self._records.popitem(last=False)  # the oldest
                sizes.pop(0)
        return [records[key] for key in keys]

    def _couplings(
        self,
        records: Sequence[LookedAt],
        questions: Sequence[str],
        grids: Sequence[tuple[int, int]],
    ) -> list[Coupling]:
        """Return the source's findings about each picture and question, on its grid; keep the last ones."""
        keys = list(zip(questions, grids, strict=True))
        done = [record.couplings.pop(key, None) for record, key in zip(records, keys, strict=True)]
        new = [i for i, coupling in enumerate(done) if coupling is None]
        views = [view for i in new if (view := records[i].view) is not None]
        wanted = (views, [questions[i] for i in new], [grids[i] for i in new])
        made = couple_all(self.source, *wanted) if new else []
        every = dict(zip(new, made, strict=True))
        couplings = [every[i] if one is None else one for i, one in enumerate(done)]
        with BOOKS:
            for record, key, coupling in zip(records, keys, couplings, strict=True):
                record.couplings[key] = coupling
                if len(record.couplings) > MAX_QUESTIONS:
                    record.couplings.pop(next(iter(record.couplings)), None)
        return couplings

    def _grid(self, height: int, width: int, grid: tuple[int, int] | None) -> tuple[int, int]:
        return self.sizing.grid(height, width) if grid is None else checked_grid(grid)

    @torch.no_grad()
    def decide_clip(
        self,
        frames: Iterable[ImageSource],
        question: str,
        budget: Budget = 0.1,
        grid: tuple[int, int] | None = None,
        frames_per_step: int = FRAMES_PER_STEP,
        times: Sequence[float] | None = None,
    ) -> Decision:
        """Choose the cells of a clip that matter to a question, in memory that doesn't grow with its length.

        Args:
            frames: The clip's pictures in order, all of one size; whatever `open_image` takes.
            question: Any text.
            budget: Cells to keep of the whole clip: a count (at most all are kept), a fraction or "auto".
            grid: (H, W) cells of a picture; None: as `sizing` says.
            frames_per_step: Frames in a row that a model reads as one step; of these only the one with most
                change is encoded.
            times: Seconds of each frame, for questions that name some; None: those of a `FrameSource`.

        Returns:
            One allocation, on a grid of (steps, H, W), and what the guide found in its most confident step.

        Raises:
            ValueError: no picture, one that can't be read or is of another size, a question without words, a
                bad budget or grid, or a selector with a trained allocator.
        """
        check_question(question)
        allowed = clip_budget(budget)
        rare = scope(self.guide, question)[1] > SCOPE[0]
        steps = self._clip_steps(frames, grid, frames_per_step, rare)
        cues, changes = self._clip_cues(steps, question, _step_times(frames, times, frames_per_step))
        return self._decide(cues, allowed, [changes])

    def _clip_steps(
        self,
        frames: Iterable[ImageSource],
        grid: tuple[int, int] | None,
        frames_per_step: int,
        rare: bool = True,
    ) -> Iterator[tuple[LookedAt | None, Change]]:
        """Yield what is new in each step of a clip, and its record; None if it repeats the step before.

        `rare` adds a map of what is rare in each step, for questions about what is unusual.
        """
        if self.trained is not None:
            raise ValueError(
                "clips are decided by the guide, and this selector has a trained allocator: use "
                "Selector.from_pretrained()"
            )
        tracker: Tracker | None = None
        named = None if grid is None else checked_grid(grid)
        for picture in _step_pictures(frames, frames_per_step):
            tracker = tracker or Tracker(named or self.sizing.grid(*picture.shape[-2:]))
            change = tracker(picture[0])
            if change.repeated:
                yield None, change
                continue
            pixels = picture[0].to(self.device)
            record = LookedAt(self.quick_source.view(pixels))
            record.texture(self.layer, change.grid, lambda pixels=pixels: pixels)
            if rare:
                record.rarity(change.grid, lambda pixels=pixels: pixels)
            yield record, change
        if tracker is None:
            raise ValueError("the clip has no pictures: give at least one")

    def _clip_cues(
        self,
        steps: Iterable[tuple[LookedAt | None, Change]],
        question: str,
        times: Sequence[float] | None,
    ) -> tuple[list[Cues], Changes]:
        """Return what a clip's cells are scored by, and what is new in it; its steps' records aren't kept."""
        event = event_of(question)
        cues: list[Cues] = []
        shows: list[Tensor] = []  # logits of the event in each step
        changes: list[Change] = []
        surest: tuple[int, Coupling] | None = None
        for record, change in steps:
            changes.append(change)
            if record is None:
                cues.append(cues[-1])
                shows += shows[-1:]
                continue
            coupling = self.quick_source.couple(record.seen, question, change.grid)
            if surest is None or coupling.confidence > surest[1].confidence:
                surest = len(cues), coupling
            # The matches are most of what would be kept of a step, and only those of the surest are told.
            coupled, unusual = replace(coupling, matches=()), coupling.unusual > SCOPE[0]
            rare = unusual and change.grid in record.rarities
            cues.append(record.cues(self.layer, change.grid, guided=coupled, rare=rare))
            if event is not None:
                shows.append(self.quick_source.couple(record.seen, event, change.grid).logits)
        if surest is not None:
            step, coupling = surest
            cues[step] = cues[step]._replace(guided=coupling)
        if times is not None and len(times) != len(changes):
            raise ValueError(
                f"times are of {len(times)} steps and the clip has {len(changes)}: give the seconds of each "
                "frame, or None"
            )
        event_logits = torch.stack(shows) if shows else None
        return cues, Changes.joined(changes).at(question, times, event_logits)


class ClipSelector:
    """Chooses cells of one clip for many questions; arguments and errors as of `Selector.decide_clip`."""

    def __init__(
        self,
        selector: Selector,
        frames: Iterable[ImageSource],
        grid: tuple[int, int] | None = None,
        frames_per_step: int = FRAMES_PER_STEP,
        times: Sequence[float] | None = None,
    ) -> None:
        self.selector = selector
        self.times = _step_times(frames, times, frames_per_step)
        with torch.no_grad():
            self.steps = list(selector._clip_steps(frames, grid, frames_per_step))
        self._last: tuple[str, list[Cues], Changes] | None = None

    @torch.no_grad()
    def decide(self, question: str, budget: Budget = 0.1) -> Decision:
        """Choose as `Selector.decide_clip`; another budget for the last question costs the ranking alone."""
        check_question(question)
        allowed = clip_budget(budget)
        if self._last is None or self._last[0] != question:
            self._last = question, *self.selector._clip_cues(self.steps, question, self.times)
        _, cues, changes = self._last
        return self.selector._decide(cues, allowed, [changes])


def clip_budget(budget: Budget) -> Budget:
    """Return a clip's parsed budget; raise ValueError for a coverage, not calibrated for clips."""
    parsed = parse_budget(budget)
    if coverage_share(parsed) is not None:
        raise ValueError("a coverage is calibrated for pictures alone: give a budget for a clip")
    return parsed


def _stored_size(image: Image) -> tuple[int, int]:
    """Return the size of an opened image before it was turned upright."""
    width, height = image.size
    return (height, width) if image.info[TURNED] >= 5 else (width, height)


def _step_times(
    frames: Iterable[ImageSource], times: Iterable[float] | None, frames_per_step: int
) -> Sequence[float] | None:
    if type(frames_per_step) is not int or frames_per_step < 1:
        raise ValueError(
            f"frames_per_step {frames_per_step!r:.40} is no count: use a whole number, 1 or more"
        )
    if times is None:
        times = getattr(frames, "times", None)
    elif isinstance(times, str | bytes) or not isinstance(times, Iterable):
        raise ValueError(f"times {times!r:.40} is {kind_of(times)}: give the seconds of each frame, or None")
    if times is None:
        return None
    listed = list(times)
    try:
        seconds = [float(time) for time in listed]
    except (TypeError, ValueError):
        seconds = [math.nan]
    if not all(map(math.isfinite, seconds)):
        raise ValueError(f"times {listed!r:.40} are not all numbers: give the seconds of each frame, or None")
    return seconds[::frames_per_step]


def _step_pictures(frames: Iterable[ImageSource], frames_per_step: int) -> Iterator[Tensor]:
    """Yield a picture [1, 3, h, w] per step: the frame that differs most from the step before."""
    before: Tensor | None = None
    rest = iter(_several(frames, "the clip's frames"))
    while group := [image_pixels(frame) for frame in islice(rest, frames_per_step)]:
        first = group[0] if before is None else before
        for picture in group:
            if picture.shape != first.shape:
                sizes = [f"{one.shape[-1]}x{one.shape[-2]}" for one in (first, picture)]
                raise ValueError(
                    f"the clip has pictures of {sizes[0]} and of {sizes[1]} px: scale them to one size"
                )
        before = max(group, key=lambda picture: float((picture - first).abs().mean()))
        yield before


def _kept_bytes(record: LookedAt) -> int:
    """Return how much memory a picture's record takes, in bytes."""
    couplings = tuple(record.couplings.values())  # threads add some
    maps = (*record.textures.values(), *record.rarities.values(), *record.inputs.values(), *couplings)
    return (0 if record.view is None else record.view.nbytes) + sum(one.nbytes for one in maps)


def _several(values: object, what: str) -> Iterable[Any]:
    """Return an iterable itself; raise ValueError for a path, file or mapping, whose parts are others."""
    single = isinstance(values, str | bytes | Mapping) or hasattr(values, "readline")
    if single or not isinstance(values, Iterable):
        raise ValueError(f"{what} are {kind_of(values)}: give a list of them")
    return values


def _made_each(make: Callable[[Any], Any], values: Sequence[Any], what: str) -> list[Any]:
    """Return what a function makes of each value; its ValueError says of which of several."""
    made = []
    for number, value in enumerate(values):
        try:
            made.append(make(value))
        except ValueError as error:
            raise ValueError(f"{what}[{number}]: {error}" if len(values) > 1 else str(error)) from error
    return made


def _together(images: Mapping[bytes, Image]) -> Iterator[dict[bytes, Image]]:
    """Yield the images in groups of at most MAX_TOGETHER px, or of one image."""
    part: dict[bytes, Image] = {}
    for key, image in images.items():
        if part and sum(math.prod(one.size) for one in (*part.values(), image)) > MAX_TOGETHER:
            yield part
            part = {}
        part[key] = image
    if part:
        yield part


def checked_grid(grid: object) -> tuple[int, int]:
    """Return a grid of cells as a pair of whole numbers; raise a ValueError that says what it has to be."""
    sides = tuple(grid) if isinstance(grid, (tuple, list)) else ()
    if len(sides) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in sides):
        raise ValueError(f"grid is {grid!r:.60}: give (rows, columns) of cells, such as (32, 32), or None")
    if math.prod(sides) > MAX_CELLS:
        raise ValueError(
            f"grid is {grid!r:.60}: give (rows, columns) of at most {MAX_CELLS:,} cells together, or None"
        )
    return sides
