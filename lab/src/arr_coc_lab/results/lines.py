"""Schemas of a result file's lines: models of the header, a record and a summary.

validated(Answered, {"id": "7", "image": "test:3", "score": {"full": 1.0}}, "out.jsonl, line 8")

Files may come from anyone: every value that tables, plots, cards and joins read is checked here for its type,
NaN, and control characters. Other fields may be anything.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

LARGEST = 1e12  # most milliseconds, tokens and so on: their sums stay finite

# a method's name, printable in a table
Name = Annotated[str, StringConstraints(pattern=r"^[^\p{C}\p{Zl}\p{Zp}|]{1,200}$")]
Share = Annotated[float, Field(ge=0, le=1 + 1e-9, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Change = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=int(LARGEST))]


def _take_time(stages: dict[str, float]) -> dict[str, float]:
    if sum(stages.values()) < 1e-6:
        raise ValueError("its stages should take more than 0 ms together")
    return stages


Stages = Annotated[dict[str, Amount], Field(min_length=1), AfterValidator(_take_time)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class Header(_Strict):
    """What is read of a header."""

    data: str | None = None
    split: str | None = None
    metric: str = ""
    like: str | None = None
    size: Count | None = None
    questions: Count | None = None
    part: Annotated[tuple[Count, Count], Field(strict=False)] = (1, 1)
    kinds: dict[str, str] = {}
    notes: dict[str, str] = {}
    weights: dict[str, str] = {}
    machine: dict[str, Any] = {}


class Answered(_Strict):
    """What is read of a question that was asked."""

    id: str
    image: str
    family: str = ""
    total: Annotated[int, Field(ge=1, le=int(LARGEST))] | None = None
    evidence: Count | None = None
    score: dict[Name, Share] = Field(min_length=1)
    tokens: dict[str, Amount] = {}
    recall: dict[str, Share] = {}
    hit: dict[str, Share] = {}
    swap: dict[str, Share] = {}
    peak_mb: dict[str, Amount] = {}
    ms: dict[str, Stages] = {}

    @model_validator(mode="after")
    def _evidence_is_of_cells(self) -> Answered:
        if self.evidence and not self.evidence <= (self.total or 0):
            raise ValueError(f"{self.evidence} cells of evidence are not among 'total' {self.total} cells")
        return self


class Failed(_Strict):
    """What is read of a question that was not asked, because its image could not be opened."""

    id: str
    image: str
    error: str = Field(min_length=1)
    score: None = None


class _Interval(_Strict):
    mean: Change
    interval: Annotated[tuple[Change, Change], Field(strict=False)]


class _Family(_Strict):
    score: Share
    n: Count


class _Figures(_Strict):
    n: Count
    score: Share
    interval: Annotated[tuple[Share, Share], Field(strict=False)]
    retained: Amount | None
    difference: _Interval | None
    worst_family: Annotated[tuple[str, Amount], Field(strict=False)] | None = Field(alias="worst family")
    below_ours: _Interval | None = Field(alias="below ours")
    tokens: Amount | None
    recall: Share | None
    hit: Share | None = None  # of runs before it was measured, as `realised`
    swap: Share | None = Field(alias="swap IoU")
    ttft_ms: Amount | None
    speedup: Amount | None = Field(alias="ttft ratio")
    realised: Change | None = None
    stages: dict[str, Amount]
    peak_mb: Amount | None
    families: dict[str, _Family]


class _Failures(_Strict):
    questions: Count
    images: dict[str, str] = Field(min_length=1)


class _Filter(_Strict):
    right: Share
    questions: Count
    answered: Count
    left: dict[Name, Count] = Field(min_length=1)
    left_out: list[Name] = Field(alias="left out")


class _Filtered(_Strict):
    methods: dict[Name, _Figures] = Field(min_length=1)
    filter: _Filter


class Summed(_Strict):
    """A summary, as `summarise` makes it."""

    header: Header
    metric: str
    questions: Count
    images: Count
    timed: Count
    methods: dict[Name, _Figures] = Field(min_length=1)
    failed: _Failures | None = None
    filter: _Filter | None = None
    filtered: _Filtered | None = None
