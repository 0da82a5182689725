"""The records of one call on its way to the base model.

`Chooser` holds what decides, `EncodedImages` what depends on the images alone, `Call` one question with its
mode and budget, `Prepared` the base model's input and the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from PIL.Image import Image
from torch import Tensor

from arr_coc.choose.allocation import Allocation, Grid
from arr_coc.choose.budget import DEFAULT_BUDGET, Budget
from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.stem import Stem
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.guide.coupling import Coupling, GuideSource
from arr_coc.guide.guide import Guide, load_guide
from arr_coc.modes import Mode
from arr_coc.modes.magnify import Magnify
from arr_coc.relevance.coverage import CoverageRule
from arr_coc.relevance.deciding import LookedAt, groups, whole_grids
from arr_coc.relevance.source import RelevanceSource
from arr_coc.relevance.sums import default_source, open_relevance
from arr_coc.seam import Compacted, FamilyAdapter, VisualFeatures
from arr_coc.seam.assembly import Layout
from arr_coc.seam.lora import LoRAs
from arr_coc.video.temporal import Changes

T = TypeVar("T")

MAX_TURNS = 16  # questions of a session whose relevance maps are kept
OF_TURNS = frozenset({"neutral", "earlier"})
"""Fields of `EncodedImages` that depend on the turns of a conversation before a question."""
OF_LORAS = frozenset({"features", "looked", "gestalts"})
"""Those, beside, that depend on a mode's LoRAs, or partly do: see `LookedAt.without_tokens`."""
logger = logging.getLogger(__name__)


@dataclass
class EncodedImages:
    """What has been computed about a call's images, for any question; a field is filled when first used.

    A session hands it to its next call. Lists have one entry per image. What was made of one picture alone is
    in its `LookedAt`.
    """

    features: VisualFeatures | None = None  # the encoded images
    sources: Sequence[Image] | None = field(default=None, repr=False)  # as the user gave them
    crops: dict[str, Tensor] | None = field(default=None, repr=False)  # of `sources`, as inputs
    finer: bool = False  # the mode reads crops: all of this is at their scale
    pictures: Sequence[Tensor] | None = field(default=None, repr=False)  # per image [3, h, w] in [0, 1]
    looked: list[LookedAt] = field(default_factory=list, repr=False)  # see `looked_at`
    earlier: tuple[str, ...] = ()  # questions of the turns before, oldest first
    changes: list[Changes | None] | None = field(default=None, repr=False)  # what is new in frames
    gestalts: dict[str, VisualFeatures] = field(default_factory=dict, repr=False)  # by compressor
    neutral: dict[str, list[Tensor]] = field(default_factory=dict, repr=False)  # by compressor; see `gaze`
    foreign: list[bool] | None = None  # per image or clip: unlike all that the stem was trained on
    unrefined: tuple[str | None] | None = (
        None  # why cells of `sources` can't be magnified, once that is known
    )

    def looked_at(self, count: int) -> list[LookedAt]:
        """Return the records of the call's `count` images, new ones where there are none."""
        if len(self.looked) != count:
            self.looked = [LookedAt() for _ in range(count)]
        return self.looked

    @contextmanager
    def in_conversation(self, history: Sequence[tuple[str, str]]) -> Generator[EncodedImages]:
        """Lend a copy for a question after a `history`, (question, answer) oldest first.

        Afterwards all that the copy computed is kept here, except the fields in `OF_TURNS`.
        """
        other = replace(self, neutral={}, earlier=tuple(question for question, _ in history))
        yield other
        self._take(other, OF_TURNS)

    def share(self, other: EncodedImages) -> None:
        """Take over what `other` has that holds with any LoRA, if both or neither of the two have crops."""
        if self.finer != other.finer:
            return
        self._take(other, OF_TURNS | OF_LORAS)
        self.looked = self.looked or [one.without_tokens() for one in other.looked]
        for one, theirs in zip(self.looked, other.looked, strict=False):
            one.view = theirs.view if one.view is None else one.view

    def _take(self, other: EncodedImages, own: frozenset[str]) -> None:
        """Fill the empty fields of this object from `other`, except those named in `own`."""
        for one in fields(self):
            if one.name not in own:
                setattr(self, one.name, getattr(self, one.name) or getattr(other, one.name))

    def attention(self, image: int) -> Tensor | None:
        """Return relevance maps of earlier turns for an image, [Q, H, W]; None for a first question."""
        by_question = self.looked[image].maps
        maps = [by_question[question] for question in self.earlier if question in by_question]
        return torch.stack(maps) if maps else None

    def remember(self, question: str, allocations: Sequence[Allocation]) -> None:
        """Keep the relevance maps of a question for later turns; only the last `MAX_TURNS` questions stay."""
        new = [one for allocation in allocations for one in allocation.balanced.detach().float().cpu()]
        for looked, one in zip(self.looked_at(len(new)), new, strict=True):
            looked.maps.pop(question, None)
            while len(looked.maps) >= MAX_TURNS:
                del looked.maps[next(iter(looked.maps))]
            looked.maps[question] = one


@dataclass(frozen=True)
class Chooser:
    """The parts that choose cells for one model (adapter, layer, LoRAs, stem), and their settings."""

    adapter: FamilyAdapter  # of the family, on the base model
    layer: ARRCOCLayer  # scorers, balancer and allocator
    loras: LoRAs
    stem: Stem | None = None  # encodes cells from pixels
    relevance: str | RelevanceSource = "auto"  # see `scoring.deciding_layer`
    compressors: Mapping[str, Any] = field(default_factory=dict)  # trained compressors by name
    strict: bool = False  # raise when deciding fails
    guide_folder: Path | None = None  # None: the bundled guide
    budget: Budget = DEFAULT_BUDGET  # of calls that name none
    _adapters: dict[str, FamilyAdapter] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def guide(self) -> Guide:
        """The guide: it judges each question, and scores cells unless another source of relevance is set."""
        device = next(self.layer.parameters()).device  # that of an offloaded base is "meta"
        return load_guide(self.guide_folder, device=device)

    @cached_property
    def source(self) -> RelevanceSource | None:
        """The source that scores cells if the layer is untrained; None with relevance "gaze"."""
        if self.relevance == "gaze":
            return None
        if self.relevance in ("auto", "trained"):
            return default_source(self.guide)
        return open_relevance(self.relevance, self.guide)

    def source_of(self, call: Call) -> RelevanceSource | None:
        """Return the source for a call's pictures: of clips the guide, for an OCR takes seconds a frame."""
        alone = call.frames and self.relevance in ("auto", "trained")
        return GuideSource(self.guide) if alone else self.source

    def adapter_for(self, mode: Mode) -> FamilyAdapter:
        """Return the family's adapter on the base model with the LoRAs of a mode."""
        if mode.name not in self._adapters:
            kinds = mode.kinds(self.loras.kinds)
            self._adapters[mode.name] = self.adapter.on(self.loras.model_for(kinds))
        return self._adapters[mode.name]

    def adapter_with(self, kind: str) -> FamilyAdapter:
        """Return the family's adapter on the base model with one kind of LoRA, named as in `lora.KINDS`."""
        if kind not in self._adapters:
            self._adapters[kind] = self.adapter.on(self.loras.model_for((kind,)))
        return self._adapters[kind]


@dataclass(frozen=True)
class Call:
    """One question about images, with its mode and budget; `request.new_call` makes and checks it."""

    inputs: Mapping[str, Any]  # processor inputs; frames of clips are images
    mode: Mode
    adapter: FamilyAdapter  # on the model that the mode runs
    gestalt: str  # the compressor's name
    encoded: EncodedImages  # filled in for the next call
    watch: Stopwatch  # adds up the time of each stage
    budgets: Callable[[int], Budget]  # from an image's number of cells to its budget
    budget: Budget | None = None  # as the caller named it
    question: str | None = None  # of all rows, as text; if None, decoded from the prompt's ids
    use_cache: bool = True  # the base model will use a key/value cache
    fill_to_529: bool = False  # no budget was named: fine cells fill SACCADE_TOKENS
    frames: tuple[int, ...] = ()  # images in a row of each image or clip; empty: all are images
    times: tuple[tuple[float, ...] | None, ...] = ()  # seconds at which each clip's frames begin, if known
    keep: tuple[Tensor, ...] = ()  # per image the cells [K] to keep; empty: they are chosen
    keep_grids: tuple[Grid | None, ...] = ()  # of each in `keep`, where a keep list says it
    named_gestalt: bool = False  # the caller named the compressor
    rule: CoverageRule | None = None  # counts the cells of a budget that is a coverage
    magnify: Magnify = 1.0  # how much finer kept cells are read; see `modes.magnify`

    @cached_property
    def layout(self) -> Layout:
        """Where the tokens of images stand in the prompt, before any is encoded."""
        return self.adapter.layout(self.inputs)

    @cached_property
    def sizes(self) -> list[int]:
        """The number of cells of each image or clip, before any is encoded."""
        return self.of_visuals(self.layout.sizes)

    def of_visuals(self, counts: Sequence[int]) -> list[int]:
        """Sum counts per image or frame into counts per image or clip."""
        return [sum(group) for group in groups(counts, self.frames)] if self.frames else list(counts)

    def spaces(self, grids: Sequence[Grid]) -> list[Grid]:
        """Return the grids (T, H, W) of images and clips, from the grids of images and frames."""
        return whole_grids(grids, self.frames) if self.frames else list(grids)


@dataclass(frozen=True)
class Prepared:
    """The base model's input, and the decision about its cells; lists have one entry per image or clip."""

    model: Any = field(repr=False)  # the base, with LoRAs if the mode has any
    compacted: Compacted  # the model's input
    allocations: list[Allocation]
    fallback: bool  # deciding failed: all tokens are kept
    mode: str  # that ran
    read: list[int]  # visual tokens that the language model reads
    cells: list[int]  # N of each
    note: str | None = None  # arguments that had no effect, and why
    couplings: tuple[Coupling, ...] = ()  # the guide's, where it was used
    magnified: tuple[float, ...] = ()  # how many times finer the kept cells of each were read; empty: none


def guarded(
    chooser: Chooser,
    work: Callable[[], T],
    failure: str = "allocation failed; all visual tokens are used",
) -> T | None:
    """Return the result of `work`; if it raises, log `failure` and return None (raise if `chooser.strict`).

    The work runs outside `torch.autocast`: decisions hang on single cells, and parts of them have no half
    precision.
    """
    device = next(chooser.layer.parameters()).device.type
    try:
        if not torch.is_autocast_enabled(device):
            return work()
        with torch.autocast(device, enabled=False):
            return work()
    except Exception:  # law: whatever fails in choosing, the answer still comes
        if chooser.strict:
            raise
        logger.exception(failure)
        return None
