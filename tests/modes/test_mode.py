"""The table of modes: one definition each, in order; a mode of one's own is one more."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from arr_coc.modes import COMPRESS, FULL, MODES, PRUNE, SACCADE, SPARSE, WEIGHT, Mode, find_mode
from arr_coc.trace.observe import observe, word_heat
from eyes import IMAGES, build, inputs_of, patches_seen
from tiny import FAMILIES, tiny

CODE = """
import sys
from arr_coc.modes import MODES
assert [mode.help for mode in MODES.values()]
heavy = {"torch", "numpy", "PIL", "transformers", "peft"} & set(sys.modules)
sys.exit(f"imported {sorted(heavy)}" if heavy else 0)
"""


def test_the_modes_in_order() -> None:
    assert list(MODES) == ["full", "prune", "sparse", "saccade", "compress", "weight"]
    assert list(MODES.values()) == [FULL, PRUNE, SPARSE, SACCADE, COMPRESS, WEIGHT]
    assert all(mode.name == name for name, mode in MODES.items())
    assert all(find_mode(name) is mode for name, mode in MODES.items())


def test_the_table_costs_nothing_to_import() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["dense", "PRUNE", "", " prune", None, 3, ["prune"]])
def test_what_is_no_mode_is_refused_with_those_there_are(name: object) -> None:
    names = "full, prune, sparse, saccade, compress, weight"
    with pytest.raises(ValueError, match=r"is unknown; use one of") as caught:
        find_mode(name)  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"mode {name!r} is unknown; use one of {names}, or import the module")


def test_what_each_does() -> None:
    def those(attribute: str) -> list[str]:
        return [mode.name for mode in MODES.values() if getattr(mode, attribute)]

    assert those("stock") == ["full"]
    assert those("chooses") == ["prune", "sparse", "saccade"]
    assert those("scores") == ["prune", "sparse", "saccade", "weight"]
    assert those("before_encoder") == ["sparse", "saccade"]
    assert those("gestalt") == ["saccade", "compress"]
    assert those("coarse") == ["compress"]
    assert all(mode.help and mode.encodes for mode in MODES.values())
    assert len({mode.help for mode in MODES.values()}) == len(MODES)
    assert all(
        MODES[mode.instead].chooses and not MODES[mode.instead].before_encoder for mode in MODES.values()
    )


def test_a_mode_is_a_value() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FULL.help = "something else"  # type: ignore[misc]


def test_a_mode_that_chooses_without_scoring_is_not_stock() -> None:
    """Else it would run as "full" and say nothing."""
    assert not EVEN.stock
    assert not dataclasses.replace(EVEN, chooses=False, scores=PRUNE.scores).stock
    assert not dataclasses.replace(EVEN, chooses=False, gestalt=True).stock


class TestKinds:
    EVERY = ("own", "partial", "coarse")

    def test_of_all_there_are(self) -> None:
        assert {mode.name: mode.kinds(self.EVERY) for mode in MODES.values()} == {
            "full": (),
            "prune": ("own",),
            "sparse": ("partial", "own"),
            "saccade": ("partial", "coarse"),
            "compress": ("own",),
            "weight": ("own",),
        }

    def test_the_first_that_there_is_of_some_alternatives(self) -> None:
        assert SACCADE.kinds(("own",)) == ("own",)
        assert SACCADE.kinds(("own", "partial")) == ("partial", "own")
        assert SACCADE.kinds(("coarse",)) == ("coarse",)
        assert SPARSE.kinds(("coarse", "partial")) == ("partial",)

    def test_none_where_there_are_none(self) -> None:
        assert all(mode.kinds(()) == () for mode in MODES.values())


# ---- a mode of one's own ----------------------------------------------------------------------------------


def even_scores(pictures: list[torch.Tensor], question: str, grid: tuple[int, int, int]) -> torch.Tensor:
    """Scores by the bits of a cell's index from the lowest, whatever the question: nearly even."""
    assert len(pictures) == grid[0]
    assert pictures[0].shape[0] == 3
    assert isinstance(question, str)
    bits = (math.prod(grid) - 1).bit_length()
    order = [-int(f"{i:0{bits}b}"[::-1], 2) for i in range(math.prod(grid))]
    return torch.tensor(order, dtype=torch.float32).view(grid)


EVEN = Mode("even", help="an even grid", encodes="all, then K are gathered", score=even_scores, chooses=True)


@pytest.fixture
def even() -> Iterator[Mode]:
    MODES[EVEN.name] = EVEN  # the one line
    yield EVEN
    del MODES[EVEN.name]


@pytest.mark.usefixtures("even")
class TestOnesOwn:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_it_works_as_any_other(self, family: str) -> None:
        model, inputs = build(family, "gaze"), inputs_of(family)
        out = model.generate(**inputs, mode="even", do_sample=False, max_new_tokens=4, return_allocation=True)
        assert (out.mode, out.fallback, out.note) == ("even", False, None)
        assert [allocation.kept for allocation in out.allocations] == [7, 7]
        for allocation in out.allocations:
            best = even_scores([torch.zeros(3, 1, 1)], "", allocation.grid).flatten().topk(7).indices
            assert torch.equal(allocation.keep, best.sort().values)
        compacted = model.adapter.compact(
            inputs, model.adapter.features(inputs), [allocation.keep for allocation in out.allocations]
        )
        expected = tiny(family).model.generate(**compacted.kwargs, do_sample=False, max_new_tokens=4)
        assert torch.equal(out.sequences[:, -4:], expected[:, -4:])
        assert model(**inputs, mode="even").logits.isfinite().all()

    def test_in_a_session(self) -> None:
        model = build(kind="gaze", mode="even")
        session = model.session(IMAGES[1])
        with patches_seen(model) as patches:
            answers = [session.ask(question, max_new_tokens=2) for question in ("What?", "Where?")]
        assert patches == [4 * 45]  # encoded once
        assert [(answer.mode, answer.kept, answer.read) for answer in answers] == [("even", 7, 7)] * 2
        assert torch.equal(answers[0].allocation.keep, answers[1].allocation.keep)
        assert torch.equal(session.look("What?").keep, answers[0].allocation.keep)
        assert session.ask("What?", budget=0.2, max_new_tokens=1).kept == 9
        assert model.ask(IMAGES[1], "What?", max_new_tokens=2).text == answers[0].text
        with model.full():
            assert session.ask("What?", max_new_tokens=1).mode == "full"

    def test_it_is_traced_without_heat_of_words(self) -> None:
        session = build(kind="gaze", mode="even").session(IMAGES[1])
        trace = observe(session, "Where is it?", max_new_tokens=2)
        assert (trace.mode, trace.kept) == ("even", 7)
        assert all(word.heat is None for word in trace.words)
        with pytest.raises(ValueError, match="mode 'even' scores nothing of this image"):
            word_heat(session, "Where is it?", "even", kept=7)

    def test_it_is_named_where_modes_are(self) -> None:
        with pytest.raises(ValueError, match=r"use one of full, .*, weight, even, or import"):
            find_mode("odd")


def test_without_the_line_there_is_none() -> None:
    with pytest.raises(ValueError, match="mode 'even' is unknown"):
        build(kind="gaze", mode="even")
