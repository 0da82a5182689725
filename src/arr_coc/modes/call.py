"""One call on its way to the base model: who decides for it, what it asks, what it has come to.

    prepare(Chooser, Call) -> Prepared

Law: whatever fails in deciding, the answer still comes, from all tokens, and says so; unless `strict`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from torch import Tensor

from arr_coc.core.allocation import Allocation
from arr_coc.core.attending import Budget
from arr_coc.core.layer import ARRCOCLayer
from arr_coc.core.realizing import Stopwatch
from arr_coc.core.stem import Stem
from arr_coc.modes import MODES, Mode
from arr_coc.seam import Compacted, FamilyAdapter, VisualFeatures
from arr_coc.seam.lora import LoRAs

T = TypeVar("T")

logger = logging.getLogger(__name__)

Budgets = Callable[[int], Budget]
"""From the number of cells of an image to what it is allowed."""


@dataclass
class EncodedImages:
    """What is computed of a call's images whatever the question; a session keeps it for its next call.

    Everything is None, or missing, before it is needed.

    Attributes:
        features: the encoded images.
        pictures: per image what the model sees, float32 [3, h, w] in [0, 1].
        textures: by the channels, per image the texture array [1, C, H, W].
        stems: by the gestalt that lay under them, per image the cells as a stem sees them, [N, D].
        gestalts: by compressor, the coarse views.
        neutral: by compressor, per image what a neutral question attends to (see `gaze`).
    """

    features: VisualFeatures | None = None
    pictures: list[Tensor] | None = field(default=None, repr=False)
    textures: dict[Any, list[Tensor]] = field(default_factory=dict, repr=False)
    stems: dict[str | None, list[Tensor]] = field(default_factory=dict, repr=False)
    gestalts: dict[str, VisualFeatures] = field(default_factory=dict, repr=False)
    neutral: dict[str, list[Tensor]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Chooser:
    """What decides for one model.

    Attributes:
        adapter: of the base model's family, on the base model.
        layer: the scorers, the balancer and the allocator.
        loras: the LoRAs that were learned for the base model.
        stem: sees cells in pixels; None: there is none for this model.
        convs: trained compressors by name.
        strict: raise when deciding fails.
    """

    adapter: FamilyAdapter
    layer: ARRCOCLayer
    loras: LoRAs
    stem: Stem | None = None
    convs: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    _adapters: dict[str, FamilyAdapter] = field(default_factory=dict, repr=False, compare=False)

    def adapter_for(self, mode: Mode) -> FamilyAdapter:
        """The family's adapter on the model that a mode runs: the base, with the mode's LoRAs if any."""
        if mode.name not in self._adapters:
            kinds = mode.kinds(self.loras.kinds)
            self._adapters[mode.name] = self.adapter.on(self.loras.model_for(kinds))
        return self._adapters[mode.name]


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
    """

    inputs: Mapping[str, Any]
    mode: Mode
    budgets: Budgets
    gestalt: str
    watch: Stopwatch
    encoded: EncodedImages
    use_cache: bool = True
    filling: bool = False


@dataclass(frozen=True)
class Prepared:
    """A call that is ready for the base model, and what was decided for it.

    Attributes:
        model: the model to call: the base, with the LoRAs of the mode that ran if there are any.
        compacted: what it gets.
        allocations: one per image.
        fallback: deciding failed, all tokens are kept.
        mode: the name of the mode that ran.
        read: per image the visual tokens that the language model gets.
        cells: per image how many cells it has.
        note: what of the call was not followed to the letter, and why (see `notes`); None where all was.
    """

    model: Any = field(repr=False)
    compacted: Compacted
    allocations: list[Allocation]
    fallback: bool
    mode: str
    read: list[int]
    cells: list[int]
    note: str | None = None


def default_gestalt(adapter: FamilyAdapter) -> str:
    """The compressor of a call that names none: "pool4" where the vision tower takes no smaller view."""
    return "resize" if adapter.sparse else "pool4"


def runs_as(adapter: FamilyAdapter, mode: Mode) -> tuple[Mode, str | None]:
    """The mode that runs in this family when another is called for, and why, if it isn't that itself."""
    if not mode.before_encoder or adapter.sparse:
        return mode, None
    family = adapter.model.config.model_type
    return MODES[mode.instead], (
        f"{mode.name} ran as {mode.instead}: the vision tower of {family} can't encode some cells alone, so "
        "all of them were encoded"
    )


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """Encode, decide, drop: everything before the base model is called.

    Raises:
        ValueError: a bad budget, or a prompt that doesn't match its images.
    """
    mode, note = runs_as(chooser.adapter, call.mode)
    if note is not None:
        logger.warning(note)
    prepared = mode.prepare(chooser, replace(call, mode=mode))
    return replace(prepared, note=note or prepared.note)


def guarded(
    chooser: Chooser,
    work: Callable[[], T],
    failure: str = "allocation failed; all visual tokens are used",
) -> T | None:
    """What some work returns, a decision say; None where it failed, unless failures are to be raised.

    Args:
        chooser: says whether they are.
        work: what the answer doesn't depend on.
        failure: what the log says then.
    """
    try:
        return work()
    except Exception:  # whatever goes wrong in deciding, the answer must still come
        if chooser.strict:
            raise
        logger.exception(failure)
        return None
