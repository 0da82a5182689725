"""One call on its way to the base model: who decides for it, what it asks, what it has come to.

    prepare(Chooser, Call) -> Prepared

Law: whatever fails in deciding, the answer still comes, from all tokens, and says so; unless `strict`.
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
from arr_coc.choose.budget import Budget
from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.stem import Stem
from arr_coc.choose.texture import TextureCache
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.deciding import Stopwatch, groups, whole_grids
from arr_coc.guide.guide import Guide, GuidePage, load_guide
from arr_coc.modes import MODES, SPARSE, Mode
from arr_coc.modes.crops import looks_at_crops, with_crops
from arr_coc.modes.textures import check_layer, check_mode, wanted_inputs
from arr_coc.seam import Compacted, FamilyAdapter, Layout, VisualFeatures
from arr_coc.seam.gestalt import find_compressor
from arr_coc.seam.lora import LoRAs
from arr_coc.video.temporal import Changes

T = TypeVar("T")
MOST_TURNS = 16
"""Questions of a session of which it is on record where they looked."""

logger = logging.getLogger(__name__)

RELEVANCES = ("auto", "trained", "guide", "gaze")
"""What couples cells with a question: "trained", the layer; "guide", the guide alone; "gaze", attention in
the model's own first layers; "auto", the layer if it is trained, or the guide where a picture is foreign
to it (`modes.familiar`), else the guide and, where lost, gaze."""
ORDERS = ("raster", "relevance")
"""In which the language model reads chosen cells: as they stand, or the most relevant first."""
Budgets = Callable[[int], Budget]
"""From the number of cells of an image to what it is allowed."""


@dataclass
class EncodedImages:
    """What is computed of a call's images whatever the question; a session keeps it for its next call.

    Everything is None, or missing, before it is needed.

    Attributes:
        features: the encoded images.
        sources: the pictures as the user gave them.
        crops: of a family that looks at crops, those of the pictures, as inputs.
        finer: the mode looks at crops, so that all of this is of their scale.
        pictures: per image what the model sees, float32 [3, h, w] in [0, 1].
        pages: per image what the guide sees.
        caches: per image its texture channels, each for as long as what it depends on stays the same.
        textures: per image the texture array [1, C, H, W] of the last call.
        printed: by image, where print stands in it.
        views: per image the encoder's features of a coarse view, [1, F, h, w], for channels that read them.
        looks: by question, per image where it looked, [H, W] in [0, 1].
        earlier: questions of the turns before, oldest first.
        changes: per image or clip what is new in its frames; None for an image.
        stems: by the gestalt that lay under them, per image the cells as a stem sees them, [N, D].
        gestalts: by compressor, the coarse views.
        neutral: by compressor, per image what a neutral question attends to (see `gaze`).
        foreign: per image or clip whether it is foreign to a stem (see `modes.familiar`).
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
        """The same for a call with turns before its question, on which `neutral` and `attention` depend:
        `history` are questions with their answers, oldest first; without any it is this object itself.
        """
        other = self
        if history:
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
        """Where earlier turns looked in an image, [Q, H, W]; None where none that is on record did."""
        maps = [self.looks[question][image] for question in self.earlier if question in self.looks]
        return torch.stack(maps) if maps else None

    def remember(self, question: str, allocations: Sequence[Allocation], layer: ARRCOCLayer) -> None:
        """Put on record where a question looked, for later turns of its conversation.

        Nothing where no channel of the layer reads that, and of `MOST_TURNS` questions at most, the last.
        """
        if "attention_history" not in wanted_inputs(layer.config.channels):
            return
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
        own_guide: folder of the guide; None: the bundled one.
    """

    adapter: FamilyAdapter
    layer: ARRCOCLayer
    loras: LoRAs
    stem: Stem | None = None
    relevance: str = "auto"
    convs: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    own_guide: Path | None = None
    _adapters: dict[str, FamilyAdapter] = field(default_factory=dict, repr=False, compare=False)

    @property
    def guide(self) -> Guide | None:
        """What couples cells and questions where the layer is untrained; None: the model's attention does."""
        if self.relevance == "gaze":
            return None
        device = next(self.layer.parameters()).device  # an offloaded base says "meta"
        return load_guide(self.own_guide, device=device)

    @property
    def own_look(self) -> bool:
        """Whether the model's own attention is asked where the guide is lost."""
        return self.relevance != "guide"

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
    """One call that is being prepared.

    Attributes:
        inputs: ordinary processor inputs with images.
        mode: what runs.
        budgets: what an image is allowed.
        gestalt: the compressor's name.
        watch: where to add the time of each stage.
        encoded: what is known of the images already; filled in for the next call.
        use_cache: whether the base model will use a key/value cache.
        filling: nobody said how many saccades there are to be: what the gestalt leaves of SACCADE_TOKENS.
        frames: how many images in a row each image or clip consists of; empty: all are images.
        times: per image or clip the seconds at which its frames begin, None where they are not told; empty:
            none is.
        order: one of ORDERS, in which the language model reads the cells that are chosen.
        keep: per image the cells [K] that are kept, whatever the question; empty: they are chosen.
    """

    inputs: Mapping[str, Any]
    mode: Mode
    budgets: Budgets
    gestalt: str
    watch: Stopwatch
    encoded: EncodedImages
    use_cache: bool = True
    filling: bool = False
    frames: tuple[int, ...] = ()
    times: tuple[tuple[float, ...] | None, ...] = ()
    order: str = "raster"
    keep: tuple[Tensor, ...] = ()

    def orders(self, allocations: Sequence[Allocation]) -> list[Tensor] | None:
        """The kept cells of each image as the language model is to read them; None: in raster order."""
        return [allocation.order for allocation in allocations] if self.order == "relevance" else None

    def of_visuals(self, counts: Sequence[int]) -> list[int]:
        """Counts of images, frames of clips among them, added up for each image or clip."""
        return [sum(group) for group in groups(counts, self.frames)] if self.frames else list(counts)

    def spaces(self, grids: Sequence[Grid]) -> list[Grid]:
        """The grids (T, H, W) of the images and clips, from those of images and frames."""
        return whole_grids(grids, self.frames or (1,) * len(grids))


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
        note: what of the call was not followed to the letter, and why (see `notes`); None where all was.
        couplings: per image what the guide said of it; empty where it wasn't asked.
        again: from the ids of the answer's tokens to the same call with more cells, where the model looked
            for them while it answered; None from it: nowhere. None: this mode looks once.
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


def deciding_layer(layer: ARRCOCLayer, relevance: str) -> ARRCOCLayer:
    """The layer that decides: an untrained one where what a layer has learned is not to count.

    Raises:
        ValueError: no such relevance, "trained" with a layer that isn't, or channels that read what no mode
            can know.
    """
    check_layer(layer)
    if relevance not in RELEVANCES:
        raise ValueError(f"relevance {relevance!r} is unknown; use one of {', '.join(RELEVANCES)}")
    if relevance == "trained" and not layer.trained:
        raise ValueError("relevance is 'trained', but nobody has trained the layer: use 'auto'")
    if relevance in ("auto", "trained") or not layer.trained:
        return layer
    return layer.untrained()


def default_gestalt(adapter: FamilyAdapter, mode: Mode | None = None) -> str:
    """The compressor of a call that names none: "pool4" where the vision tower takes no smaller view.

    Args:
        adapter: of the family.
        mode: that runs; None: any that encodes all cells.
    """
    crops = mode is not None and looks_at_crops(adapter, mode)
    return "resize" if adapter.encodes == "cells" or crops else "pool4"


def named_gestalt(adapter: FamilyAdapter, mode: Mode, name: str | None) -> str:
    """The compressor that a call names, or the one of a call that names none.

    Raises:
        ValueError: there is no compressor of that name.
    """
    name = default_gestalt(adapter, mode) if name is None else name
    find_compressor(name)
    return name


def gestalt_for(adapter: FamilyAdapter, mode: Mode, name: str) -> str:
    """The compressor of a mode in this family: before an encoder of tiles or crops, the view of the whole.

    Args:
        adapter: of the family.
        mode: that runs.
        name: of the call's compressor.
    """
    whole = (mode.before_encoder and adapter.encodes == "tiles") or looks_at_crops(adapter, mode)
    return "resize" if whole else name


def runs_as(adapter: FamilyAdapter, mode: Mode) -> tuple[Mode, str | None]:
    """The mode that runs in this family when another is called for, and why, if it isn't that itself."""
    tiles = adapter.encodes == "tiles"
    if not mode.before_encoder or adapter.encodes == "cells" or (tiles and not mode.gestalt):
        return mode, None
    if looks_at_crops(adapter, mode):
        return mode, None
    family = adapter.model.config.model_type
    if tiles:
        return SPARSE, (
            f"{mode.name} ran as {SPARSE.name}: {family} has a coarse view of its own, which always stays"
        )
    return MODES[mode.instead], (
        f"{mode.name} ran as {mode.instead}: the vision tower of {family} can't encode some cells alone, so "
        "all of them were encoded"
    )


def check_order(adapter: FamilyAdapter, call: Call) -> None:
    """Raise a ValueError where the order of a call's cells is unknown or can't be had."""
    if call.order not in ORDERS:
        raise ValueError(f"order {call.order!r} is unknown; use one of {', '.join(ORDERS)}")
    if call.order == "raster":
        return
    family = adapter.model.config.model_type
    if adapter.plain_positions:
        raise ValueError(
            f"order {call.order!r} needs positions that say where a cell is, and {family} counts its tokens "
            "instead; use order 'raster'"
        )
    if call.frames:
        raise ValueError(f"order {call.order!r} is for images, not for clips; use order 'raster'")


def layout_of(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> Layout:
    """`FamilyAdapter.layout`.

    Raises:
        ValueError: the family's cells are known only once they are encoded.
    """
    if adapter.early_layout:
        return adapter.layout(inputs)
    family = adapter.model.config.model_type
    raise ValueError(f"cells of {family} can't be named before all are encoded: ask without cells")


def check_cells(adapter: FamilyAdapter, call: Call) -> None:
    """Raise a ValueError where the cells that a call names are none of its images, or none is chosen."""
    if not call.keep:
        return
    if call.frames or not call.mode.chooses:
        what = "a clip" if call.frames else f"mode {call.mode.name!r}"
        raise ValueError(
            f"cells can't be named for {what}: name them for images, in prune, sparse or saccade"
        )
    sizes = [len(cells) for cells in layout_of(adapter, call.inputs).cells]
    if len(sizes) != len(call.keep):
        raise ValueError(f"cells of {len(call.keep)} images are named, and the prompt has {len(sizes)}")
    for cells, size in zip(call.keep, sizes, strict=True):
        if not len(cells) or int(cells.min()) < 0 or int(cells.max()) >= size:
            raise ValueError(
                f"cells {cells.tolist()} are not of an image of {size}; name some of 0 to {size - 1}"
            )


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """Encode, decide, drop: everything before the base model is called.

    Raises:
        ValueError: a bad budget, order or set of cells, or a prompt that doesn't match its images.
    """
    check_order(chooser.adapter, call)
    call, lacks = with_crops(chooser.adapter, call)
    check_cells(chooser.adapter, call)
    mode, note = runs_as(chooser.adapter, call.mode)
    if lacks is not None:
        mode, note = MODES[mode.instead], f"{mode.name} ran as {mode.instead}: {lacks}"
    if note is not None:
        logger.warning(note)
    check_mode(chooser.layer, mode)
    name = gestalt_for(chooser.adapter, mode, call.gestalt)
    prepared = mode.prepare(chooser, replace(call, mode=mode, gestalt=name))
    view = name != call.gestalt and looks_at_crops(chooser.adapter, mode)
    coarse = f"gestalt {call.gestalt} had no effect: the coarse view is the model's own" if view else None
    unordered = call.order != "raster" and not mode.chooses
    order = f"order had no effect in mode {mode.name}" if unordered else None
    return replace(prepared, note="; ".join(filter(None, (note, prepared.note, coarse, order))) or None)


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
