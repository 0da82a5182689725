"""What other distributions add to this one, found by their entry points; `arr-coc-lab` is the first of them.

    plugins("commands")             {"eval": EntryPoint(...), ...}
    plugin("layers", "query-blind") the object itself, imported now

A kind is the group "arr_coc.KIND" of entry points: `commands` (functions of the command line), `data` (tuples
of `DataSet`), `rows` (training rows that are made, not read), `layers`, `recipes`, `teachers` and `trainers`
(what else `arr-coc train` teaches), `probes` and `cases` of the app, `cards` (figures of a model card).
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

LAB = "arr-coc-lab"
"""The distribution with readers of benchmarks, rivals, evaluation and drawn pages."""


@cache
def plugins(kind: str) -> dict[str, EntryPoint]:
    """The entry points of a kind by name, none of them imported."""
    return {point.name: point for point in entry_points(group=f"arr_coc.{kind}")}


def plugin(kind: str, name: str) -> Any:
    """Import what an entry point names.

    Raises:
        ValueError: no installed distribution has it.
    """
    if name not in plugins(kind):
        raise ValueError(missing(f"{name!r} of {kind}"))
    return plugins(kind)[name].load()


def missing(what: str) -> str:
    """The sentence about something that the lab would bring."""
    return f"{what} is a part of {LAB}, which is not installed: in a clone of arr-coc, pip install ./lab"
