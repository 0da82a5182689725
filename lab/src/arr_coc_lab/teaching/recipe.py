"""The recipe of the guide: the settings of `arr-coc train guide`; its values are in `guide.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from arr_coc.files.saved import nearest, validated

FILE = Path(__file__).with_name("guide.toml")


def _texts(value: Any) -> Any:
    """Texts with commas between them as a list."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _none(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() in ("", "none") else value


Whole = Annotated[int, Field(ge=0, le=10_000_000)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
Few = Annotated[int, Field(ge=1, le=1024)]
Rate = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class GuideRecipe(BaseModel):
    """All settings of a run; the text under each field says what it means."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_min_length=1)

    stage: Literal["both", "spotting", "relevance"] = "both"
    """spotting teaches to read, relevance where to look; both: one after the other"""
    init: Annotated[str | None, BeforeValidator(_none)] = None
    """guide to start from: bundled, a folder of a run or a file; none: untrained"""
    eyes: Annotated[str | None, BeforeValidator(_none)] = None
    """guide whose eyes and words are used in relevance, read anew at each checkpoint: the run that still
    learns to read beside this one; none: those it starts with"""
    peer: Annotated[str | None, BeforeValidator(_none)] = None
    """folder of a run of the same stage with another seed that goes on beside this one: at each checkpoint
    both take the mean of their weights, so that two cores teach one guide; none: alone"""
    pages: Texts = ()
    """folders of `arr-coc world`, and NAME:DIR of labelled images; twice is a double share"""
    drawn: Share = 0.2
    """share of drawn pages in relevance"""
    steps: Count = 10_000
    """steps of each stage"""
    minutes: Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(_none)] = None
    """of all sittings together, half for each of both stages; none: until the steps are done"""
    size: Annotated[int, Field(ge=64, le=2048, multiple_of=32)] = 384
    """side of a crop in px"""
    batch: Few = 4
    """crops a step"""
    easy: Whole = 2600
    """crops at the start that are of easy pages"""
    windows: Few = 2
    """windows of pages a step of relevance"""
    spotting_lr: Rate = 4e-3
    """learning rate of eyes and words; three times as much for the table of n-grams"""
    relevance_lr: Rate = 1.5e-3
    """learning rate of the head"""
    cooldown: Share = 0.4
    """share of the steps, at the end, over which the learning rate falls to nothing"""
    average: Annotated[float, Field(ge=0, lt=1)] = 0.998
    """of the running mean of the weights, which is the guide"""
    seed: Whole = 0
    """of pages, crops and windows"""
    save_every: Count = 200
    """steps between checkpoints"""
    log_every: Count = 50
    """steps between lines of the log"""
    workers: Annotated[int, Field(ge=0, le=256)] = 1
    """processes that read and cut pages"""

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages in their order."""
        return ("spotting", "relevance") if self.stage == "both" else (self.stage,)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary of all fields."""
        return self.model_dump(mode="json")


FREE = frozenset({"steps", "minutes", "cooldown", "save_every", "log_every", "workers"})
"""Settings that may change when a run goes on: nothing learned so far would be another."""


def load_guide_recipe(changes: Mapping[str, Any] | None = None) -> GuideRecipe:
    """The recipe with some settings replaced; texts are converted.

    Raises:
        ValueError: a setting is unknown or wrong, or two contradict each other; one line.
    """
    for name in changes or {}:
        if name not in GuideRecipe.model_fields:
            names = ", ".join(GuideRecipe.model_fields)
            hint = nearest(name, GuideRecipe.model_fields)
            raise ValueError(f"recipe guide: {name} is unknown: use one of {names}{hint}")
    settings = tomllib.loads(FILE.read_text(encoding="utf-8")) | dict(changes or {})
    recipe = validated(GuideRecipe, settings, "recipe guide")
    if not recipe.pages:
        raise ValueError("recipe guide: pages is missing: name a folder of `arr-coc world` with --pages")
    if recipe.stage == "relevance" and recipe.init is None:
        raise ValueError(
            "recipe guide: stage relevance needs eyes that can read: name a guide with --from, or use "
            "--stage both"
        )
    if recipe.stage != "relevance" and recipe.eyes is not None:
        raise ValueError("recipe guide: eyes of another guide are for --stage relevance alone: drop --eyes")
    return recipe
