"""The method table: adding a rival is one file with one line of registration; what the table refuses."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arr_coc.model import ARRCOCModel
from arr_coc.session import Session
from arr_coc_lab.evaluate import METHODS, Settings, evaluate
from arr_coc_lab.evaluate.probes import contenders
from arr_coc_lab.results.kinds import KINDS, kind
from arr_coc_lab.results.styles import OF_OTHERS, STYLES
from arr_coc_lab.results.summary import by_budget
from arr_coc_lab.results.table import table
from arr_coc_lab.rivals import Method, Reduction, Style, find_method, register
from each import each
from tiny import picture

plots = importlib.import_module("arr_coc_lab.results.plot")

LONGEST = '''"""Longest tokens: the null that a long token is an important one."""

from arr_coc_lab.rivals import Method, Reduction, Style, register


def longest(tokens, k):
    """The k of `tokens` [N, D] with the largest norms."""
    return Reduction(tokens.float().norm(dim=-1).topk(k).indices.sort().values)


register(
    Method("longest", "{kind}", lambda view, i, k: longest(view.tokens, k), style=Style("#123456", "8"))
)
'''
"""The file of `docs/extending.md`."""


@pytest.fixture(params=["null", "rival"])
def added(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The kind of a method that a file of somebody's own has registered."""
    (tmp_path / "longest.py").write_text(LONGEST.replace("{kind}", request.param))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("longest")
    yield request.param
    del METHODS["longest"], sys.modules["longest"]


def drawn_lines(summary: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    figures = []

    class Recorded(plots.Figure):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            figures.append(self)

    monkeypatch.setattr(plots, "Figure", Recorded)
    plots.plot(summary, path)
    return figures[0].axes[0].lines


@pytest.mark.slow
def test_a_file_adds_a_method(added: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs, and stands in summary, table, plot and probe as what its file calls it."""
    settings = Settings(
        out=tmp_path / "run",
        methods=("full", "arr-coc", "divprune", "longest", "random"),
        questions=4,
        per_image=4,
        size=128,
        budgets=(4,),
    )
    summary = evaluate(settings, progress=False)
    assert summary["header"]["kinds"]["longest"] == added
    assert summary["methods"]["longest@4"]["tokens"] == 4
    assert summary["methods"]["longest@4"]["swap IoU"] == 1  # it never reads the question

    order = [kind(method, summary["header"]) for method in by_budget(summary)["4"]]
    assert order == sorted(order, key=KINDS.index)
    assert order.count(added) == 2
    assert "| longest@4 | 4 |" in table(summary)

    style = {"null": ("--", 4.5), "rival": ("-", 5.5)}[added]
    lines = [
        line for line in drawn_lines(summary, tmp_path / "a.png", monkeypatch) if line.get_marker() == "8"
    ]
    assert [line.get_color() for line in lines] == ["#123456"]
    assert (lines[0].get_linestyle(), lines[0].get_markersize()) == style

    with monkeypatch.context() as elsewhere:  # where its file is not imported the result file has its kind
        elsewhere.delitem(METHODS, "longest")
        assert [kind(method, summary["header"]) for method in by_budget(summary)["4"]] == order


@pytest.mark.slow
def test_the_app_can_set_it_beside_ours(added: str) -> None:
    session = Session(ARRCOCModel.from_pretrained(strict=True), picture(0, (128, 128)))
    rows = contenders(session, "What is the title?", 4, methods=["longest"])["rows"]
    assert [(row["method"], row["kind"]) for row in rows] == [("arr-coc", "ours"), ("longest", added)]
    assert len(rows[1]["keep"]) == 4


def rule(view: Any, i: int, k: int) -> Reduction:
    return Reduction(view.tokens[:k])


@each(
    ("values", "message"),
    [
        ({"name": ""}, "name '' is empty"),
        ({"name": "a@b"}, "comma or @"),
        ({"name": "a,b"}, "comma or @"),
        ({"name": " a"}, "padded"),
        ({"kind": "best"}, "kind 'best' of 'mine' is unknown: use one of full, ours, "),
        ({"select": None}, "'mine' needs exactly one of select"),
        ({"resize": lambda grid, count: grid}, "'mine' needs exactly one of select"),
        ({"kind": "full"}, 'none for kind "full"'),
    ],
)
def test_what_is_no_method_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Method(**({"name": "mine", "kind": "rival", "select": rule} | values))


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="'divprune' is registered already"):
        register(Method("divprune", "rival", rule))
    assert METHODS["divprune"].label == "DivPrune"


def test_every_method_states_what_it_is() -> None:
    for name, method in METHODS.items():
        assert method.name == name
        assert method.label
        if method.kind == "rival":
            assert method.paper
        if method.kind != "full":
            assert method.style != Style() or method.kind == "bound"
    kinds = [method.kind for method in METHODS.values()]
    assert kinds == sorted(kinds, key=KINDS.index)


def test_every_listed_style_is_of_a_method_that_is_drawn_so() -> None:
    assert {name: METHODS[name].style for name in STYLES} == STYLES
    others = {name for name, method in METHODS.items() if "other" in method.needs}
    assert others == OF_OTHERS


def test_files_of_version_0_1_have_the_kinds_of_the_table() -> None:
    """Their headers do not state them."""
    newer = ("blind oracle", "resolution by question", "ink density", "truncation", "averaged patches 4")
    newer += ("averaged patches 16", "arr-coc saccade tower4", "arr-coc saccade tower16", "crop-black")
    older = {name: method for name, method in METHODS.items() if name not in newer}
    assert {name: kind(f"{name}@64") for name in older} == {name: m.kind for name, m in older.items()}
    assert kind("arr-coc:mine@64") == "variant"
    assert kind("nobody@64") == "rival"
    assert kind("nobody@64", {"kinds": {"nobody": "null"}}) == "null"
    assert kind("random@64", {"kinds": {"random": "best"}}) == kind("random@64", {"kinds": 3}) == "null"


def test_a_variation_is_a_method_of_its_own() -> None:
    fastv, third = METHODS["fastv"], find_method("fastv:3")
    assert find_method("fastv") is fastv
    assert (third.name, third.layers, third.kind, third.paper) == ("fastv:3", 3, "rival", fastv.paper)
    assert fastv.layers == 2
    assert third.between_layers is fastv.between_layers
    assert "fastv:3" not in METHODS
    for name in ("mmtok:qwen", "prumerge+:joined"):
        assert find_method(name).name == name
        assert find_method(name).select is not METHODS[name.partition(":")[0]].select


@each(
    ("name", "message"),
    [
        ("fastv:0", "fastv:0' needs a number of layers of 1 or more, such as fastv:3"),
        ("fastv:", "needs a number of layers"),
        ("fastv:two", "needs a number of layers"),
        ("mmtok:llava", "'mmtok:llava' is unknown; use mmtok, or mmtok:qwen"),
        ("prumerge+:x", "use prumerge\\+, or prumerge\\+:joined"),
        ("divprune:3", "'divprune:3' is unknown"),
        ("scoop", "'scoop' is unknown; did you mean 'scope'"),
        ("nobody at all", "'nobody at all' is unknown; use some of full, arr-coc"),
    ],
)
def test_a_name_that_is_none_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_method(name)
