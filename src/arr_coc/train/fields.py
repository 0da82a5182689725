"""Types of a recipe's settings, with their ranges."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from arr_coc.data import data_sets
from arr_coc.files.paths import shorten
from arr_coc.files.plugins import plugins

WORLD = "world"
"""The name of the drawn pages among data sets."""
MARKS = ("boxes", "maps")
"""Targets that data sets bring: evidence cells, and relevance maps with their own values."""
PARTS = ("partial", "coarse", "compressor", "tower")
"""Stages that teach what reads an image in part, see `parts`."""


def check_data(spec: str) -> str:
    """The name of a data set, as it is.

    Raises:
        ValueError: it is neither of `plugins("rows")` nor NAME:DIR.
    """
    name, made = spec.partition(":")[0].strip().lower(), tuple(plugins("rows"))
    if spec not in made and (name not in data_sets() or ":" not in spec):
        names, forms = ", ".join(data_sets()), ", ".join(made) + " or " * bool(made) + "NAME:DIR"
        raise ValueError(f"data has {shorten(str(spec))}: use {forms}, where NAME is one of {names}")
    return spec


def immutable(value: Any) -> Any:
    """A value with tuples in place of lists."""
    return tuple(immutable(each) for each in value) if isinstance(value, (list, tuple)) else value


MOST_ITEMS = 1_000_000_000
"""The most images of a run: the seeds of drawn pages of two runs would meet beyond it."""
MOST_RANK = 4096
"""The largest rank of a layer's coupling, and the most heads."""
Whole = Annotated[int, Field(ge=0, le=10_000_000)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
Few = Annotated[int, Field(ge=1, le=1024)]
Rank = Annotated[int, Field(ge=0, le=1024)]
Weight = Annotated[float, Field(ge=0, le=1e6)]
Rate = Annotated[float, Field(gt=0, le=10)]
Side = Annotated[int, Field(ge=128, le=3072)]
DataSpec = Annotated[str, AfterValidator(check_data)]
Listed = Field(min_length=1, strict=False)  # TOML and JSON have lists where a recipe has tuples
Towers = Annotated[tuple[Literal["tower4", "tower16"], ...], Listed]
Gestalts = Annotated[
    tuple[Literal["resize", "pool4", "pool16", "conv4", "conv16", "tower4", "tower16"], ...], Listed
]
