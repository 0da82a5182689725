"""The registry of channel groups, and the presets made of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from torch import Tensor

from arr_coc.choose.texture.context import OPTIONAL_INPUTS, ChannelContext

Channels = str | Sequence[str]

COSTS = ("free", "cheap", "costly")
"""Cost classes: from the grid alone; a few filters; a model, or rounds of clustering."""


@dataclass(frozen=True)
class ChannelGroup:
    """A named group of texture channels.

    Attributes:
        name: Name of the group, by which presets list it.
        count: Number of channels.
        source: Formula or paper.
        cost: "free" (from the grid alone), "cheap" (a few filters) or "costly" (see COSTS).
        compute: Context -> [B, count, H, W]; the result is clamped to [0, 1].
        channels: Names of the channels; by default "name.0", "name.1", ...
        spread: Names of those which measure variation *inside* a cell (0 when the cell is uniform).
        salient: Names of those which say that a cell stands out.
        needs: Optional inputs of the context that `compute` cannot do without, of `OPTIONAL_INPUTS`;
            a name or several. `compute` is called only where they are supplied.
        reads: Optional inputs that `compute` reads where they are supplied, and does without where not.
        neutral: The documented values of the channels where what the group reads is not supplied.
        price: What a costly group costs, in words, with what makes its inputs; times are CPU times of one
            core beside that of mvp13 (`runs/results/texture-groups.json`).

    Raises:
        ValueError: the name is empty, the channels' names repeat or do not fit the count, the cost, a need
            or a reading is unknown, or `compute` does not take one argument.
    """

    name: str
    count: int
    source: str
    cost: str
    compute: Callable[[ChannelContext], Tensor]
    channels: tuple[str, ...] = ()
    spread: tuple[str, ...] = ()
    salient: tuple[str, ...] = ()
    needs: Collection[str] = frozenset()
    reads: Collection[str] = frozenset()
    neutral: str = ""
    price: str = ""

    @property
    def depends(self) -> frozenset[str]:
        """The inputs that the channels follow from beside the grid, by their names: what a cache compares.

        A "free" group depends on the grid alone; every other one on the image, too.
        """
        own = frozenset() if self.cost == "free" else frozenset({"image"})
        return own | frozenset(self.needs) | frozenset(self.reads)

    def __post_init__(self) -> None:
        """Name the channels, and check that the fields agree."""
        if not self.name:
            raise ValueError("a channel group needs a name, got ''")
        group = f"channel group {self.name!r}"
        names = tuple(self.channels) or tuple(f"{self.name}.{i}" for i in range(self.count))
        if self.count < 1 or len(names) != self.count or len(set(names)) != self.count:
            raise ValueError(f"{group}: count {self.count} does not fit its channels {names}")
        if unknown := {*self.spread, *self.salient} - set(names):
            raise ValueError(f"{group}: {sorted(unknown)} are not among its channels {names}")
        if self.cost not in COSTS:
            raise ValueError(f"{group}: cost {self.cost!r} is not one of {COSTS}")
        inputs: dict[str, frozenset[str]] = {}
        for what in ("needs", "reads"):
            names_of = getattr(self, what)
            inputs[what] = frozenset([names_of] if isinstance(names_of, str) else names_of)
            if unknown := inputs[what] - set(OPTIONAL_INPUTS):
                raise ValueError(f"{group}: {what} {sorted(unknown)} are not among {sorted(OPTIONAL_INPUTS)}")
        if not _takes_one_argument(self.compute):
            raise ValueError(
                f"{group}: compute must be a function of one argument, the ChannelContext "
                f"(the grid is `context.grid`), got {self.compute!r}"
            )
        object.__setattr__(self, "channels", names)
        for what, names_of in inputs.items():
            object.__setattr__(self, what, names_of)


def _takes_one_argument(function: object) -> bool:
    """Whether a call with one positional argument fits; True for a callable without a readable signature."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # compiled functions have no signature to read
        return True
    return True


CHANNEL_GROUPS: dict[str, ChannelGroup] = {}
"""The registered groups by name."""

_FULL = (
    "rgb", "position", "eccentricity", "edge_pair", "passes", "motion", "conspicuity", "edge_distance",
    "clusters", "text_mask", "components",
    "relevance_memory", "frame_change", "attention_memory", "change_memory",
)  # fmt: skip
_COSTLY = ("clusters", "text_mask", "components")

PRESETS: dict[str, tuple[str, ...]] = {
    "mvp13": ("rgb", "position", "sobel", "saliency", "grouping"),
    "fast13": (
        "rgb", "position", "eccentricity", "edge_pair", "passes", "motion",
        "centre_bias", "edge_distance",
    ),
    "full40": _FULL,
    "full20": tuple(name for name in _FULL if name not in _COSTLY),
}  # fmt: skip
"""Lists of group names by the name of the preset.

"full20" is "full40" without its costly groups. "full40" alone needs more than an image: `text_evidence`,
`coarse_features` and `basis`.
"""


def register_channel_group(group: ChannelGroup) -> None:
    """Make a group of channels available by its name.

    Registering an equal group again changes nothing.

    Raises:
        ValueError: the name is taken by a different group, or by a preset.
    """
    if group.name in PRESETS:
        raise ValueError(f"the channel group name {group.name!r} is taken by a preset; choose another")
    if CHANNEL_GROUPS.get(group.name, group) != group:
        raise ValueError(
            f"the channel group name {group.name!r} is taken by a different group; choose another, "
            f"or remove that one first with CHANNEL_GROUPS.pop({group.name!r})"
        )
    CHANNEL_GROUPS[group.name] = group


def channel_groups(channels: Channels = "mvp13") -> tuple[ChannelGroup, ...]:
    """The groups of a preset's name, or of a list of group names.

    Raises:
        ValueError: a name is unknown, or nothing is listed.
    """
    if isinstance(channels, str) and channels not in PRESETS:
        raise ValueError(
            f"unknown texture preset {channels!r}; use one of {sorted(PRESETS)} or list channel groups"
        )
    names = PRESETS[channels] if isinstance(channels, str) else tuple(channels)
    if not names or (unknown := [n for n in names if n not in CHANNEL_GROUPS]):
        wrong = unknown if names else "an empty list"
        raise ValueError(
            f"unknown channel groups: {wrong}; registered are {sorted(CHANNEL_GROUPS)}; import the module "
            "that registers one of your own first (arr-coc --import MODULE ...)"
        )
    return tuple(CHANNEL_GROUPS[n] for n in names)


def channel_names(channels: Channels = "mvp13") -> tuple[str, ...]:
    """Names of the C channels, in order."""
    return tuple(name for group in channel_groups(channels) for name in group.channels)


def texture_size(channels: Channels = "mvp13") -> int:
    """Number of channels C."""
    return sum(group.count for group in channel_groups(channels))
