"""Published tables, and how to run beside them: `arr-coc eval --like NAME`.

    find_table("idpruner").set_of("textvqa")    its split, prompt, longest answer and column
    beside(summary)                             published rows beside the run's own, as markdown

A table is a file of `tables/`: rows as published, each with its source and date, and the settings that they
were made with as far as these are published. What could not be read stands in its `absent`, not in its rows.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from arr_coc.choose.budget import parse_budget
from arr_coc.files.validation import nearest, short, validated
from arr_coc_lab.results.kinds import DOWNSAMPLE, FULL, OURS, SPARSE, kind, split_method
from arr_coc_lab.results.summary import Summary
from arr_coc_lab.results.table import markdown, plain

TABLES = Path(__file__).parent / "tables"
MARK = "†"  # of a row that was published, not measured here
TURN, TURN_FULL, TURN_KEPT = f"{OURS} turn 2", f"{FULL} turn 2", f"{OURS} turn 2 kept"
NULLS = ("random", "even grid", DOWNSAMPLE)
ALWAYS = (FULL, OURS, SPARSE, TURN, TURN_KEPT, TURN_FULL, *NULLS)
"""Methods of every run beside a table."""
AVERAGE = "average"

Share = Annotated[float, Field(gt=0, le=1)]
Tokens = Annotated[int, Field(gt=1, le=2**20)]
Keep = Tokens | Share  # a count of visual tokens, or a share of them


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PublishedRow(_Part):
    """One row: a method with a budget, and its scores by column, in the unit of the table."""

    method: str
    keep: Keep
    scores: list[float]


class PublishedPart(_Part):
    """Rows about one model from one source."""

    model: str
    source: str
    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d(-\d\d)?$")]
    columns: list[str]
    rows: list[PublishedRow]

    @model_validator(mode="after")
    def _as_wide(self) -> PublishedPart:
        for row in self.rows:
            if len(row.scores) != len(self.columns):
                raise ValueError(f"{row.method} has {len(row.scores)} scores of {len(self.columns)} columns")
        return self


class PublishedSet(_Part):
    """One data set of a table that a reader here reads."""

    data: str  # the NAME of NAME:DIR
    split: str
    column: str
    prompt: str | None = None  # with {question} in it; None: the data set's own
    answer_tokens: Annotated[int, Field(ge=1)] | None = None  # the longest answer; None: the run's own


class PublishedTable(_Part):
    """A published table and the settings of a run beside it."""

    title: str
    harness: str
    model: str  # of the run
    budgets: list[Keep]
    rivals: list[str]  # of its methods, those that this harness has
    limits: tuple[Tokens, Tokens] | None = Field(None, strict=False)  # visual tokens of a picture, least and
    # most, counted on the model's own grid; None: the processor's
    notes: list[str] = []
    absent: str
    sets: list[PublishedSet]
    parts: list[PublishedPart]

    def set_of(self, name: str, split: str | None = None) -> PublishedSet:
        """Return the set of a data set's name; of several splits the first, unless `split` names one.

        Raises:
            ValueError: the table has no such set or split, or no reader here has it.
        """
        sets = [one for one in self.sets if one.data == name]
        if not sets:
            names = ", ".join(dict.fromkeys(f"{one.data}:DIR" for one in self.sets))
            raise ValueError(f"data {short(name)} is not of the table {self.title}: give --data with {names}")
        chosen = [one for one in sets if split in (None, one.split)]
        if not chosen:
            splits = ", ".join(one.split for one in sets)
            raise ValueError(
                f"the table has no split {short(split)} of {name}: leave it out, or use {splits}"
            )
        return chosen[0]


def table_names() -> list[str]:
    """Return the names of the tables."""
    return sorted(path.stem for path in TABLES.glob("*.toml"))


@cache
def find_table(name: str) -> PublishedTable:
    """Return the table of a name; ValueError if there is none."""
    if name not in table_names():
        raise ValueError(
            f"there is no table {short(name)}: use one of {', '.join(table_names())}"
            + nearest(name, table_names())
        )
    with (TABLES / f"{name}.toml").open("rb") as file:
        return validated(PublishedTable, tomllib.load(file), f"table {name}")


def beside(summary: Summary) -> str | None:
    """Return the published rows beside the run's own as a markdown table, with their sources.

    None where the run is like no table that this release has. Rows stand by budget, most first; published
    ones have a mark, the model's name and, where the table has one, its average.
    """
    header = summary["header"]
    name, data = header.get("like"), str(header.get("data")).partition(":")[0].strip().lower()
    if name not in table_names():
        return None
    table = find_table(name)
    column = table.set_of(data, header.get("split")).column
    lines: list[tuple[str, str, str, str]] = []
    for budget in (1.0, *table.budgets):
        label, own = _label(budget), "" if budget == 1 else str(parse_budget(budget))
        for method, row in summary["methods"].items():
            if split_method(method)[1] != own:
                continue
            ours = f"**{method}**" if kind(method, header) == "ours" else method
            lines.append((ours, _tokens(row["tokens"], label), f"{100 * row['score']:.1f}", "-"))
        for number, part in enumerate(table.parts, 1):
            for row in part.rows:
                if row.keep == budget:
                    scores = dict(zip(part.columns, row.scores, strict=True))
                    cells = (_score(scores.get(column)), _score(scores.get(AVERAGE)))
                    title = f"{row.method}, {part.model} {MARK}{number}"
                    lines.append((title, f"{label} as published", *cells))
    head = ["method", "visual tokens", f"{column}, {plain(summary['metric'])}, %", f"{AVERAGE}, as published"]
    sources = [
        f"{MARK}{number} {part.source}, {part.date}; harness: {table.harness}"
        for number, part in enumerate(table.parts, 1)
    ]
    model, split = plain(str(header.get("model"))), plain(str(header.get("split")))
    ran = f"Ours: {model}, split {split}; the table is of {table.model}."
    return "\n\n".join(
        [
            f"Beside {table.title}:",
            markdown(head, lines),
            ran,
            *sources,
            *table.notes,
            f"Not here: {table.absent}",
        ]
    )


def _label(budget: float | int) -> str:
    return f"{budget} tokens" if isinstance(budget, int) else f"{100 * budget:.3g} %"


def _tokens(tokens: float | None, label: str) -> str:
    return label if tokens is None else f"{tokens:,.0f}"


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def published_rows(summary: Summary) -> list[dict[str, Any]]:
    """Return the published rows of a run's table as JSON-safe records; [] where it is like none."""
    name = summary["header"].get("like")
    if name not in table_names():
        return []
    return [
        {
            "method": row.method,
            "model": part.model,
            "keep": row.keep,
            "scores": dict(zip(part.columns, row.scores, strict=True)),
            "source": part.source,
            "date": part.date,
        }
        for part in find_table(name).parts
        for row in part.rows
    ]
