"""The recipe of the guide: the settings of `arr-coc train guide`; its values are in `guide.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from arr_coc.train.recipe import Count, Few, Rate, RunSettings, Whole, converted, read_toml

FILE = Path(__file__).with_name("guide.toml")

Share = Annotated[float, Field(ge=0, le=1)]


class GuideRecipe(RunSettings):
    """Settings of `arr-coc train guide`; each field's text is shown to users."""

    FREE: ClassVar[frozenset[str]] = frozenset(
        {"steps", "minutes", "cooldown", "save_every", "log_every", "workers"}
    )

    stage: Literal["both", "spotting", "relevance"] = "both"
    """spotting teaches to read, relevance where to look; both: one after the other"""
    steps: Count = 10_000
    """steps of each stage"""
    batch: Few = 4
    """crops a step"""
    save_every: Count = 200
    """steps between checkpoints"""
    log_every: Count = 50
    """steps between lines of the log"""
    init: str | None = None
    """guide to start from: bundled, a folder of a run or a file; none: untrained"""
    eyes: str | None = None
    """guide whose eyes and words are used in relevance, read anew at each checkpoint: the run that still
    learns to read beside this one; none: those it starts with"""
    peer: str | None = None
    """folder of a run of the same stage with another seed that goes on beside this one: at each checkpoint
    both take the mean of their weights, so that two cores teach one guide; none: alone"""
    pages: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """folders of `arr-coc world`, NAME:DIR of labelled images, and scenes that are drawn as they are read:
    world:odd (one thing is odd, or missing) and world:dense (a formula, code or a diagram among text); twice
    is a double share"""
    drawn: Share = 0.2
    """share of drawn pages in relevance"""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """of all starts of the run together, half for each of both stages; none: until the steps are done"""
    size: Annotated[int, Field(ge=64, le=2048, multiple_of=32)] = 384
    """side of a crop in px"""
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

    @property
    def stages(self) -> tuple[str, ...]:
        return ("spotting", "relevance") if self.stage == "both" else (self.stage,)

    @model_validator(mode="after")
    def _check_eyes(self) -> GuideRecipe:
        if self.stage == "relevance" and self.init is None:
            raise ValueError(
                "stage relevance needs eyes that can read: name a guide with --from, or use --stage both"
            )
        if self.stage != "relevance" and self.eyes is not None:
            raise ValueError("eyes of another guide are for --stage relevance alone: drop --eyes")
        return self


def load_guide_recipe(changes: Mapping[str, Any] | None = None) -> GuideRecipe:
    """Return the recipe with some settings replaced; texts are converted. ValueError if one is unknown or
    wrong.
    """
    try:
        fields = GuideRecipe.model_fields
        new = {name: converted(name, value, fields) for name, value in (changes or {}).items()}
        recipe = GuideRecipe(**read_toml(FILE, "guide") | new)
    except ValueError as error:
        raise ValueError(f"recipe guide: {error}") from error
    if not recipe.pages:
        raise ValueError("recipe guide: pages is missing: name a folder of `arr-coc world` with --pages")
    return recipe
