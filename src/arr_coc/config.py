"""What an `ARRCOCLayer` is built from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from arr_coc.attending import DEFAULT_BUDGET, Budget, TokenAllocator, parse_budget
from arr_coc.balancing import SCORERS, check_kind, check_scorers
from arr_coc.knowing import PRESETS
from arr_coc.texture import channel_groups


@dataclass(frozen=True)
class ARRCOCConfig:
    """What an `ARRCOCLayer` is built from; JSON-safe by `to_dict` and `from_dict`.

    Raises:
        ValueError: a field is out of range; the message names it and its value.
    """

    dim: int = field(metadata={"help": "D, width of the language model's word embeddings and visual tokens"})
    channels: str | tuple[str, ...] = field(
        default="mvp13", metadata={"help": "texture preset (mvp13, fast13) or a list of channel groups"}
    )
    preset: str = field(
        default="net", metadata={"help": "net, or linear: weighted sums, about a hundred parameters"}
    )
    rank: int | None = field(
        default=None,
        metadata={"help": "rank of the coupling over all heads; by default what the parameters allow"},
    )
    heads: int = field(default=4, metadata={"help": "heads of the coupling"})
    explore: float = field(default=0.0, metadata={"help": "share of the budget spent on coverage, 0 to 0.5"})
    budget: Budget = field(
        default=DEFAULT_BUDGET, metadata={"help": "tokens kept: a count, a fraction or auto"}
    )
    pooling: str = field(
        default="mean", metadata={"help": "the balancer's view of the question: mean, last, learned"}
    )
    candidates: int | None = field(
        default=None,
        metadata={"help": "cells that are coupled with the question; by default all of them"},
    )
    void: bool = field(default=True, metadata={"help": "sample images without structure by an even grid"})
    scorers: tuple[str, ...] = field(
        default=SCORERS, metadata={"help": "which scorers count; another's map is recorded, with weight 0"}
    )
    balancer: str = field(
        default="policy",
        metadata={"help": "policy; blind: its net sees nothing of the image; fixed: learnable constants"},
    )
    tokens: bool = field(
        default=True,
        metadata={"help": "score with encoded vision tokens; False: by texture and question alone"},
    )

    def __post_init__(self) -> None:
        """Check every field; lists become tuples."""
        if not isinstance(self.channels, str):
            object.__setattr__(self, "channels", tuple(self.channels))
        object.__setattr__(self, "scorers", check_scorers(self.scorers))
        check_kind(self.balancer)
        if not isinstance(self.tokens, bool):
            raise ValueError(f"tokens must be True or False, got {self.tokens!r}")
        channel_groups(self.channels)
        parse_budget(self.budget)
        TokenAllocator(self.explore)
        for name in ("dim", "heads", "rank", "candidates"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive whole number, got {value!r}")
        if self.preset not in PRESETS:
            raise ValueError(f"unknown preset {self.preset!r}; choose one of {PRESETS}")
        if self.pooling not in ("mean", "last", "learned"):
            raise ValueError(f"unknown pooling {self.pooling!r}; choose mean, last or learned")
        if self.pooling == "learned" and "participatory" not in self.scorers:
            raise ValueError("pooling 'learned' is by the participatory scorer; let it count, or choose mean")
        if self.rank is not None and self.rank % self.heads:
            raise ValueError(f"rank {self.rank} must be a multiple of heads {self.heads}")

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary."""
        data = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ARRCOCConfig:
        """Restore from `to_dict`.

        Raises:
            ValueError: a field is unknown, or `dim` is missing.
        """
        names = {f.name for f in dataclasses.fields(cls)}
        if "dim" not in data or not set(data) <= names:
            raise ValueError(f"not an ARRCOCConfig: need dim, and only {sorted(names)}; got {sorted(data)}")
        return cls(**data)
