"""Settings of the plugin: for a server in --hf-overrides, for a request in mm_processor_kwargs.

    --hf-overrides '{"architectures": ["ARRCOCQwen3VL"], "arr_coc": {"budget": 150, "choose": "worker"}}'
    extra_body={"mm_processor_kwargs": {"arr_coc": {"budget": "auto"}}}      with --trust-request-mm-kwargs

A request may change what it costs, not which files are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from arr_coc.choose.budget import DEFAULT_BUDGET, Budget, budget_count, budget_of, parse_budget
from arr_coc.guide.coupling import GUIDE
from arr_coc.relevance.sums import parse_relevance

KEY = "arr_coc"
"""Of the settings among a model's overrides and a request's keyword arguments."""
OWN = frozenset({"budget", "mode", "follow", "keep_image_after"})
"""Settings that a request may have of its own."""


class Settings(BaseModel):
    """How cells are chosen; the text under each field says what it means."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    budget: int | float | str = DEFAULT_BUDGET
    """cells of an image that are encoded: a count, a share below 1, or auto, as many as the question needs"""
    mode: Literal["sparse", "full"] = "sparse"
    """sparse: the cells that matter are encoded; full: all of them, as without the plugin"""
    follow: Literal["auto", "first", "last"] = "auto"
    """by which question an image of an earlier turn is read: auto: its own, unless a later one needs other
    cells; first: always its own, so that the prefix cache holds; last: the latest"""
    keep_image_after: Annotated[int, Field(ge=1)] | None = None
    """questions about an image in one conversation after which all of its cells are encoded, once, and found
    in the prefix cache from then on; none: never"""
    allocator: str | None = None
    """folder of an allocator with a stem that was trained for this checkpoint; none: the guide decides"""
    relevance: str = "auto"
    """what says which cells a question needs: auto: the allocator, else the guide; trained: the allocator
    always; or a source of relevance or a sum, such as guide+ocr"""
    choose: Literal["auto", "front", "worker"] = "auto"
    """where cells are chosen: front: in the API server, before a request is sent to the engine; worker: in
    the process of the model, on its device, where the budget is a count or a share; auto: worker where that
    device is a GPU, else front"""

    @field_validator("budget", mode="before")
    @classmethod
    def _budget(cls, value: Any) -> Budget:
        return parse_budget(value)

    @field_validator("relevance")
    @classmethod
    def _relevance(cls, value: str) -> str:
        if value == "gaze":
            raise ValueError("relevance 'gaze' is of a wrapped model, which a server has none of: use 'auto'")
        parse_relevance(value)
        return value

    @model_validator(mode="after")
    def _worker_has_a_guide(self) -> Settings:
        if self.choose == "worker" and not self.guided:
            raise ValueError(
                f"choose 'worker' is for the guide and allocators, not for relevance {self.relevance!r:.80}: "
                "use choose 'front'"
            )
        return self

    @property
    def guided(self) -> bool:
        """Whether the guide or an allocator decides, not another source of relevance."""
        return self.relevance in ("auto", "trained", GUIDE)

    def count(self, total: int) -> int | None:
        """How many of `total` cells the budget keeps of any image; None: that depends on the image."""
        if isinstance(self.budget, str):
            return None
        return budget_count(budget_of(self.budget, None, total), total)

    def merged(self, own: Any) -> Settings:
        """These settings with those of a request.

        Args:
            own: what the request says, any JSON value; None: nothing.

        Raises:
            ValueError: it isn't a mapping, or has a setting that is unknown, wrong or the server's alone.
        """
        if own is None:
            return self
        if not isinstance(own, Mapping):
            raise ValueError(f"{KEY} is {own!r:.80}: give an object such as {{'budget': 64}}")
        if wrong := sorted(map(str, own.keys() - OWN)):
            raise ValueError(f"{KEY} of a request has {wrong[0]!r:.80}: use {', '.join(sorted(OWN))}")
        return read_settings(self.model_dump() | dict(own))

    def print(self) -> str:
        """What the choice of cells depends on, as text: part of the name under which results are cached."""
        return json.dumps(self.model_dump(exclude={"follow", "keep_image_after", "choose"}), sort_keys=True)


def read_settings(plain: Any) -> Settings:
    """Settings from what --hf-overrides or a request says; None: the defaults.

    Raises:
        ValueError: a setting is unknown or wrong; one line.
    """
    if plain is None:
        return Settings()
    try:
        return Settings.model_validate(plain)
    except ValidationError as error:
        raise ValueError(f"{KEY}: {_reason(error.errors()[0])}") from None


def _reason(wrong: Any) -> str:
    """What is wrong with a setting, and the remedy, in a line."""
    name, value = ".".join(map(str, wrong["loc"])), wrong["input"]
    if wrong["type"] == "value_error":  # of a check of our own, which says all
        return str(wrong["ctx"]["error"])
    if wrong["type"] == "extra_forbidden":
        return f"there is no setting {name!r}: use one of {', '.join(Settings.model_fields)}"
    if wrong["type"] == "literal_error":
        return f"{name} {value!r:.80} is unknown: use {wrong['ctx']['expected']}"
    return f"{name} {value!r:.80}: {wrong['msg']}".strip()
