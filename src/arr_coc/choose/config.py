"""The configuration of an `ARRCOCLayer`, as a frozen record that is saved beside the weights."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from arr_coc.choose.attending import DEFAULT_BUDGET, Budget, TokenAllocator, parse_budget
from arr_coc.choose.knowing import POOLINGS, PRESETS
from arr_coc.choose.texture import channel_groups

_RETIRED: dict[str, Any] = {
    "candidates": None,
    "scorers": ["information", "perspectival", "participatory"],
    "balancer": "policy",
    "tokens": True,
}
"""Fields of earlier versions, with the one value of each that is what every layer does now."""


CELL = 32
"""Pixels per side of a cell where nobody says otherwise: Qwen3-VL's 16-px patches, merged 2x2."""


@dataclass(frozen=True)
class ARRCOCConfig:
    """The shape and the defaults of an `ARRCOCLayer`; JSON-safe by `to_dict` and `from_dict`.

    Attributes:
        dim: D, width of the language model's word embeddings and of its visual tokens.
        channels: Texture preset (mvp13, fast13, full20, full40) or a list of channel groups.
        preset: "net", or "linear": weighted sums, about a hundred parameters.
        rank: Rank of the coupling over all heads; None is what the parameters allow.
        heads: Heads of the coupling.
        explore: Share of the budget spent on coverage, 0 to 0.5.
        budget: Tokens kept unless a call says otherwise: a count, a fraction or "auto".
        pooling: How the balancer reads the question: "mean", "last" or "learned".
        void: Whether images without structure are sampled by an even grid.

    Raises:
        ValueError: a field is out of range; the message names it and its value.
    """

    dim: int
    channels: str | tuple[str, ...] = "mvp13"
    preset: str = "net"
    rank: int | None = None
    heads: int = 4
    explore: float = 0.0
    budget: Budget = DEFAULT_BUDGET
    pooling: str = "mean"
    void: bool = True

    def __post_init__(self) -> None:
        """Check every field; lists become tuples."""
        if not isinstance(self.channels, str):
            object.__setattr__(self, "channels", tuple(self.channels))
        channel_groups(self.channels)
        parse_budget(self.budget)
        TokenAllocator(self.explore)
        for name in ("dim", "heads", "rank"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive whole number, got {value!r}")
        if not isinstance(self.void, bool):
            raise ValueError(f"void must be True or False, got {self.void!r}")
        if self.preset not in PRESETS:
            raise ValueError(f"unknown preset {self.preset!r}; choose one of {PRESETS}")
        if self.pooling not in POOLINGS:
            raise ValueError(f"unknown pooling {self.pooling!r}; choose one of {POOLINGS}")
        if self.rank is not None and self.rank % self.heads:
            raise ValueError(f"rank {self.rank} must be a multiple of heads {self.heads}")

    def to_dict(self) -> dict[str, Any]:
        """The fields as a JSON-safe dictionary."""
        data = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ARRCOCConfig:
        """The configuration that `to_dict` wrote, of this version or an earlier one.

        Raises:
            ValueError: a field is unknown, `dim` is missing, or a field that is no longer one differs from
                what every layer does now.
        """
        for name, default in _RETIRED.items():
            if data.get(name, default) != default:
                raise ValueError(
                    f"{name} is {data[name]!r}, but this setting is retired and every layer does as with "
                    f"{default!r}: train this allocator again (an ablation: with runs/ablation.py), or take "
                    f"{name} out of its settings to read its weights as those of a whole layer"
                )
        data = {name: value for name, value in data.items() if name not in _RETIRED}
        names = {f.name for f in dataclasses.fields(cls)}
        if "dim" not in data or not set(data) <= names:
            raise ValueError(f"not an ARRCOCConfig: need dim, and only {sorted(names)}; got {sorted(data)}")
        return cls(**data)
