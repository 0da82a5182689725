"""The records of one call on its way to the base model.

Chooser          who decides: adapter, layer, stem, LoRAs, guide
EncodedImages    what is computed of the images whatever the question; a session keeps it
Call             one question about images: inputs, mode, budget
Prepared         what the base model gets, and what was decided
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from PIL.Image import Image
from torch import Tensor

from arr_coc.choose.allocation import Allocation, Grid
from arr_coc.choose.budget import DEFAULT_BUDGET, Budget
from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.stem import Stem
from arr_coc.choose.texture import TextureCache
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.deciding import Stopwatch, groups, whole_grids
from arr_coc.guide.guide import Guide, GuidePage, load_guide
from arr_coc.modes import Mode
from arr_coc.seam import Compacted, FamilyAdapter, VisualFeatures
from arr_coc.seam.lora import LoRAs
from arr_coc.video.temporal import Changes

T = TypeVar("T")

MOST_TURNS = 16
"""Questions of a session of which it is on record where they attended."""
RELEVANCES = ("auto", "trained", "guide", "gaze")
"""What couples cells with a question: "trained", the layer; "guide", the guide alone; "gaze", attention in
the model's own first layers; "auto", the layer if it is trained, or the guide where a picture is foreign
to it (`scoring.foreign_visuals`), else the guide and, where it finds nothing, the model's attention."""

logger = logging.getLogger(__name__)


@dataclass
class EncodedImages:
    """What is computed of a call's images whatever the question; a session keeps it for its next call.

    Everything is None, or missing, before it is needed.

    Attributes:
        features: the encoded images.
        sources: the pictures as the user gave them.
        crops: of a family that reads crops, those of the pictures, as inputs.
        finer: the mode reads crops, so that all of this is of their scale.
        pictures: per image what the model sees, float32 [3, h, w] in [0, 1].
        pages: per image what the guide sees.
        caches: per image its texture channels, each for as long as what it depends on stays the same.
        textures: per image the texture array [1, C, H, W] of the last call.
        printed: by image, where print stands in it.
        views: per image the encoder's features of a coarse view, [1, F, h, w], for channels that read them.
        looks: by question, per image where it attended, [H, W] in [0, 1].
        earlier: questions of the turns before, oldest first.
        changes: per image or clip what is new in its frames; None for an image.
        stems: by the gestalt that lay under them, per image the cells as a stem sees them, [N, D].
        gestalts: by compressor, the coarse views.
        neutral: by compressor, per image what a neutral question attends to (see `gaze`).
        foreign: per image or clip whether it is unlike all that the stem was trained on.
    """

    features: VisualFeatures | None = None
    sources: Sequence[Image] | None = field(default=None, repr=False)
    crops: dict[str, Tensor] | None = field(default=None, repr=False)
    finer: bool = False
    pictures: Sequence[Tensor] | None = field(default=None, repr=False)
    pages: list[GuidePage] | None = field(default=None, repr=False)
    caches: list[TextureCache] = field(default_factory=list, repr=False)
    textures: list[Tensor] = field(default_factory=list, repr=False)
    printed: dict[int, Tensor] = field(default_factory=dict, repr=False)
    views: list[Tensor] = field(default_factory=list, repr=False)
    looks: dict[str, list[Tensor]] = field(default_factory=dict, repr=False)
    earlier: tuple[str, ...] = ()
    changes: list[Changes | None] | None = field(default=None, repr=False)
    stems: dict[str | None, list[Tensor]] = field(default_factory=dict, repr=False)
    gestalts: dict[str, VisualFeatures] = field(default_factory=dict, repr=False)
    neutral: dict[str, list[Tensor]] = field(default_factory=dict, repr=False)
    foreign: list[bool] | None = None

    @contextmanager
    def in_conversation(self, history: Sequence[tuple[str, str]] = ()) -> Generator[EncodedImages]:
        """A copy for a prompt with earlier turns, on which `neutral` and `attention` depend.

        Args:
            history: questions with their answers, oldest first; without any it is this object itself.
        """
        if not history:
            yield self
            return
        other = replace(self, neutral={}, earlier=tuple(question for question, _ in history))
        yield other
        self.features = self.features or other.features
        self.pictures, self.pages = self.pictures or other.pictures, self.pages or other.pages
        self.foreign = self.foreign or other.foreign

    def share(self, other: EncodedImages) -> None:
        """Take over what doesn't depend on the LoRAs at work, of pixels of the same scale."""
        if self.finer != other.finer:
            return
        self.pictures, self.pages = self.pictures or other.pictures, self.pages or other.pages
        self.caches, self.printed = self.caches or other.caches, self.printed or other.printed
        self.looks = self.looks or other.looks
        self.foreign = self.foreign or other.foreign

    def attention(self, image: int) -> Tensor | None:
        """Where earlier turns attended in an image, [Q, H, W]; None where none is on record."""
        maps = [self.looks[question][image] for question in self.earlier if question in self.looks]
        return torch.stack(maps) if maps else None

    def remember(self, question: str, allocations: Sequence[Allocation]) -> None:
        """Put on record where a question attended, for later turns; the last `MOST_TURNS` are kept."""
        self.looks.pop(question, None)
        while len(self.looks) >= MOST_TURNS:
            del self.looks[next(iter(self.looks))]
        maps = [one for allocation in allocations for one in allocation.balanced.detach().float().cpu()]
        self.looks[question] = maps


@dataclass(frozen=True)
class Chooser:
    """What decides for one model.

    Attributes:
        adapter: of the base model's family, on the base model.
        layer: the scorers, the balancer and the allocator.
        loras: the LoRAs that were learned for the base model.
        stem: sees cells in pixels; None: there is none for this model.
        relevance: one of RELEVANCES.
        convs: trained compressors by name.
        strict: raise when deciding fails.
        guide_folder: folder of the guide; None: the bundled one.
        budget: of calls that name none.
    """

    adapter: FamilyAdapter
    layer: ARRCOCLayer
    loras: LoRAs
    stem: Stem | None = None
    relevance: str = "auto"
    convs: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    guide_folder: Path | None = None
    budget: Budget = DEFAULT_BUDGET
    _adapters: dict[str, FamilyAdapter] = field(default_factory=dict, repr=False, compare=False)

    @property
    def guide(self) -> Guide | None:
        """What couples cells and questions where the layer is untrained; None: the model's attention does."""
        if self.relevance == "gaze":
            return None
        device = next(self.layer.parameters()).device  # an offloaded base says "meta"
        return load_guide(self.guide_folder, device=device)

    def adapter_for(self, mode: Mode) -> FamilyAdapter:
        """The family's adapter on the model that a mode runs: the base, with the mode's LoRAs if any."""
        if mode.name not in self._adapters:
            kinds = mode.kinds(self.loras.kinds)
            self._adapters[mode.name] = self.adapter.on(self.loras.model_for(kinds))
        return self._adapters[mode.name]

    def adapter_with(self, kind: str) -> FamilyAdapter:
        """The family's adapter on the base with one kind of LoRA, if there is one; not of a mode's name."""
        if kind not in self._adapters:
            self._adapters[kind] = self.adapter.on(self.loras.model_for((kind,)))
        return self._adapters[kind]


@dataclass(frozen=True)
class Call:
    """One call that is being prepared; `route.new_call` makes it from what a user passes.

    Attributes:
        inputs: ordinary processor inputs with images; frames of clips are images.
        mode: what runs.
        adapter: of the model's family, on the model that the mode runs.
        gestalt: the compressor's name.
        encoded: what is known of the images already; filled in for the next call.
        watch: where to add the time of each stage.
        budgets: from the number of cells of an image to what it is allowed.
        budget: as the caller named it; None: it named none.
        question: its text, the same for all rows; None: it is read off the prompt.
        use_cache: whether the base model will use a key/value cache.
        fill_to_529: nobody said how many saccades there are to be: what the gestalt leaves of SACCADE_TOKENS.
        frames: how many images in a row each image or clip consists of; empty: all are images.
        times: per image or clip the seconds at which its frames begin, None where they are not told; empty:
            none is.
        order: one of `route.ORDERS`, in which the language model reads the cells that are chosen.
        keep: per image the cells [K] that are kept, whatever the question; empty: they are chosen.
        named_gestalt: whether the caller named the compressor.
    """

    inputs: Mapping[str, Any]
    mode: Mode
    adapter: FamilyAdapter
    gestalt: str
    encoded: EncodedImages
    watch: Stopwatch
    budgets: Callable[[int], Budget]
    budget: Budget | None = None
    question: str | None = None
    use_cache: bool = True
    fill_to_529: bool = False
    frames: tuple[int, ...] = ()
    times: tuple[tuple[float, ...] | None, ...] = ()
    order: str = "raster"
    keep: tuple[Tensor, ...] = ()
    named_gestalt: bool = False

    def of_visuals(self, counts: Sequence[int]) -> list[int]:
        """Counts of images, frames of clips among them, added up for each image or clip."""
        return [sum(group) for group in groups(counts, self.frames)] if self.frames else list(counts)

    def spaces(self, grids: Sequence[Grid]) -> list[Grid]:
        """The grids (T, H, W) of the images and clips, from those of images and frames."""
        return whole_grids(grids, self.frames) if self.frames else list(grids)


@dataclass(frozen=True)
class Prepared:
    """A call that is ready for the base model, and what was decided for it.

    Attributes:
        model: the model to call: the base, with the LoRAs of the mode that ran if there are any.
        compacted: what it gets.
        allocations: one per image or clip.
        fallback: deciding failed, all tokens are kept.
        mode: the name of the mode that ran.
        read: per image or clip the visual tokens that the language model gets.
        cells: per image or clip how many cells it has.
        note: what of the call was not followed to the letter, and why; None where all was.
        couplings: per image what the guide said of it; empty where it wasn't asked.
        again: from the ids of the answer's tokens to the same call with more cells, where the model attended
            to them while it answered; None from it: nowhere. None: this mode chooses once.
    """

    model: Any = field(repr=False)
    compacted: Compacted
    allocations: list[Allocation]
    fallback: bool
    mode: str
    read: list[int]
    cells: list[int]
    note: str | None = None
    couplings: tuple[Coupling, ...] = ()
    again: Callable[[Sequence[int]], Prepared | None] | None = field(default=None, repr=False)


def guarded(
    chooser: Chooser,
    work: Callable[[], T],
    failure: str = "allocation failed; all visual tokens are used",
) -> T | None:
    """What some work returns, a decision say; None where it failed, unless failures are to be raised.

    It runs in the precision of its own weights, also under `torch.autocast`: decisions are of single cells,
    and parts of them know no half precision. What is encoded or answered stays under it.

    Args:
        chooser: says whether they are.
        work: what the answer doesn't depend on.
        failure: what the log says then.
    """
    device = next(chooser.layer.parameters()).device.type
    try:
        if not torch.is_autocast_enabled(device):
            return work()
        with torch.autocast(device, enabled=False):
            return work()
    except Exception:  # whatever goes wrong in deciding, the answer must still come
        if chooser.strict:
            raise
        logger.exception(failure)
        return None


def joined(*notes: str | None) -> str | None:
    """The notes that there are as one text; None where there is none."""
    return "; ".join(note for note in notes if note) or None
