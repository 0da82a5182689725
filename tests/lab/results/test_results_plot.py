"""The plot: what is drawn, and that names keep apart."""

from __future__ import annotations

import importlib
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from arr_coc_lab.evaluate.methods import METHODS
from arr_coc_lab.results.plot import plot, spread
from arr_coc_lab.results.summary import summarise

module = importlib.import_module("arr_coc_lab.results.plot")  # whatever the package exports by that name
RIVALS = ("fastv", "visionzip", "divprune", "mmtok", "scope", "nobody knows")

DEAR = {"fastv:2": (450, 0.63), "fastv:3": (643, 0.89), "fastv:4": (822, 0.88)}
"""Methods with a cost of their own: tokens and score."""


def results(names, budgets=(64, 273), timed=True, count=40):
    """A summary in which everything costs what its budget says; ours is best, then as named."""
    found = []
    for i in range(count):
        score, tokens, ms = {"full": float(i % 10 > 0)}, {"full": 1024.0}, {"full": {"prefill": 300.0}}
        for place, name in enumerate(names):
            for budget in budgets:
                method, cost = f"{name}@{budget}", 70 if budget == "auto" else budget
                score[method] = float(i % 10 > place + (cost < 100))
                tokens[method] = float(cost)
                ms[method] = {"prefill": 100.0 + cost / 10 + place}
        more = {"ms": ms} if timed else {}
        found.append({"id": f"{i}", "image": "a", "total": 1024, "score": score, "tokens": tokens} | more)
    return summarise({}, found)


def early(timed=True, count=40):
    """The same with what chooses before the encoder, cheap in time, and gestalts alone."""
    names = [
        "arr-coc",
        "arr-coc sparse",
        *RIVALS,
        "random",
        "shuffled question sparse",
        "oracle",
        "oracle sparse",
    ]
    summary = results(names, timed=timed, count=count)
    fixed = {
        "arr-coc saccade": (529, 40, 0.9),
        "coc resize": (256, 15, 0.35),
        "coc pool4": (256, 140, 0.36),
        "coc conv4": (256, 140, 0.7),
        "coc pool16": (64, 130, 0.2),
    }
    for name, (tokens, ms, score) in fixed.items():
        row = dict(summary["methods"]["full"], tokens=tokens, ttft_ms=ms if timed else None, score=score)
        summary["methods"][name] = row
    for method, row in summary["methods"].items():
        if timed and method.startswith("arr-coc sparse"):
            row["ttft_ms"] /= 10
    return summary


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draws, and gives the figure with it."""
    figures = []

    class Kept(module.Figure):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            figures.append(self)

    monkeypatch.setattr(module, "Figure", Kept)

    def draw(summary, title=None):
        plot(summary, tmp_path / "a.png", title)
        return figures[-1]

    return draw


def boxes(figure):
    """All texts written into the panels, each with its outline in pixels, without leaders."""
    renderer = figure.canvas.get_renderer()
    return [(t.get_text(), Text.get_window_extent(t, renderer)) for axes in figure.axes for t in axes.texts]


@pytest.mark.slow
@pytest.mark.parametrize("timed", [True, False])
def test_a_picture_with_a_panel_for_each_cost(drawn, tmp_path, timed):
    figure = drawn(results(["arr-coc", "random"], timed=timed))
    assert len(figure.axes) == 1 + timed
    with Image.open(tmp_path / "a.png") as image:
        assert image.width == (2000 if timed else 1360)
        assert np.asarray(image.convert("L")).std() > 5


@pytest.mark.slow
def test_equal_summaries_give_equal_pictures(tmp_path):
    for name in ("a.png", "b.png"):
        plot(results(["arr-coc", "scope"]), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.slow
def test_every_method_is_drawn_where_it_was_measured(drawn):
    names = ["arr-coc", *RIVALS, "random", "oracle"]
    summary = results(names)
    for axes, cost in zip(drawn(summary).axes, ("tokens", "ttft_ms"), strict=True):
        points = {tuple(p) for line in axes.lines for p in line.get_xydata()}
        assert points == {(row[cost], row["score"]) for row in summary["methods"].values()}


@pytest.mark.slow
def test_names_do_not_overlap_and_stay_inside(drawn):
    figure = drawn(results(["arr-coc", *RIVALS, "random", "even grid", "downsample", "shuffled question"]))
    left = [box for text, box in boxes(figure) if not text.startswith(("all", "auto"))]
    assert len(left) == 11
    for i, a in enumerate(left):
        assert figure.bbox.x0 <= a.x0
        assert a.x1 <= figure.bbox.x1
        for b in left[:i]:
            assert a.y0 >= b.y1 - 4 or b.y0 >= a.y1 - 4  # an extent has the room of letters like p below


@pytest.mark.slow
def test_choosing_before_the_encoder_is_drawn_where_it_was_measured(drawn):
    summary = early()
    for axes, cost in zip(drawn(summary).axes, ("tokens", "ttft_ms"), strict=True):
        points = {tuple(p) for line in axes.lines for p in line.get_xydata()}
        assert points == {(row[cost], row["score"]) for row in summary["methods"].values()}


@pytest.mark.slow
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("dear", [{}, DEAR], ids=["few", "more"])
def test_all_names_keep_apart(drawn, timed, dear):
    summary = early(timed)
    for name, (tokens, score) in dear.items():  # one is near the saccades, the others near that
        row = dict(summary["methods"]["full"], tokens=tokens, ttft_ms=200 if timed else None, score=score)
        summary["methods"][name] = row
    figure = drawn(summary)
    named = boxes(figure)
    written = [text for text, _ in named]
    for name in ("arr-coc sparse", "arr-coc saccade"):  # their time is the point of them
        assert written.count(name) == 1 + timed
    for name in ("coc resize", "coc pool16", "oracle sparse", "shuffled question sparse"):
        assert written.count(name) == 1
    names = [(text, box) for text, box in named if not text.startswith("all")]
    for i, (_, a) in enumerate(names):
        assert figure.bbox.x0 <= a.x0
        assert a.x1 <= figure.bbox.x1
        for _, b in names[:i]:
            aside = a.x1 <= b.x0 or b.x1 <= a.x0
            assert aside or a.y0 >= b.y1 - 4 or b.y0 >= a.y1 - 4


@pytest.mark.slow
def test_times_far_apart_are_on_a_logarithmic_axis(drawn):
    assert drawn(early()).axes[1].get_xscale() == "log"
    assert drawn(results(["arr-coc", "scope"])).axes[1].get_xscale() == "linear"


@pytest.mark.slow
def test_after_and_before_the_encoder_differ_at_a_glance(drawn):
    lines = drawn(early()).axes[0].lines
    thick = {line.get_color() for line in lines if line.get_linewidth() > 2}
    assert thick == {METHODS["arr-coc"].style.colour, METHODS["arr-coc sparse"].style.colour}
    assert [line.get_xdata().tolist() for line in lines if line.get_marker() == "*"] == [[529]]


@pytest.mark.slow
def test_ours_is_on_top_and_thickest(drawn):
    lines = drawn(results(["arr-coc", *RIVALS])).axes[0].lines
    thick = max(lines, key=lambda line: line.get_linewidth())
    assert thick.get_color() == METHODS["arr-coc"].style.colour
    assert thick.get_zorder() == max(line.get_zorder() for line in lines)
    others = {
        (line.get_color(), line.get_marker())
        for line in lines
        if line.get_linewidth() < 2 and line.get_ls() == "-"
    }
    assert len(others) == len(RIVALS)


@pytest.mark.slow
def test_auto_is_a_point_of_its_own(drawn):
    figure = drawn(results(["arr-coc"], budgets=(64, "auto", 273)))
    hollow = [line for line in figure.axes[0].lines if line.get_marker() == "D"]
    assert [x for line in hollow for x in line.get_xdata()] == [70.0]
    assert "auto" in [text for text, _ in boxes(figure)]


def test_one_point_and_no_full_model_will_do(drawn):
    found = [{"id": "0", "image": "a", "total": 64, "score": {"oracle@8": 1.0}, "tokens": {"oracle@8": 8}}]
    assert len(drawn(summarise({}, found), "One").axes) == 1


def test_nothing_to_draw_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no method with a budget"):
        plot(results([]), tmp_path / "a.png")


def test_the_front_is_what_beats_everything_cheaper():
    points = np.array([(64, 0.5), (64, 0.4), (128, 0.5), (128, 0.45), (200, 0.7), (300, 0.6), (1024, 0.9)])
    for seed in range(5):
        front = module._front(np.random.default_rng(seed).permutation(points))
        assert front.tolist() == [[64, 0.5], [200, 0.7], [1024, 0.9]]


class TestSpread:
    def test_what_is_apart_stays(self):
        assert spread([0, 10, 25], 10, 0, 100) == [0, 10, 25]

    def test_what_is_together_moves_evenly(self):
        assert spread([50, 50], 10, 0, 100) == [45, 55]
        assert spread([50, 50, 58, 90], 10, 0, 100) == pytest.approx([42 + 2 / 3, 52 + 2 / 3, 62 + 2 / 3, 90])

    def test_it_keeps_order_gap_and_bounds(self):
        rng = np.random.default_rng(0)
        for n in range(1, 11):
            for _ in range(20):
                wanted = np.sort(rng.normal(60, 30, n)).tolist()
                placed = spread(wanted, 10, 0, 100)
                assert all(b - a > 10 - 1e-9 for a, b in pairwise(placed))
                assert placed[0] >= -1e-9
                assert placed[-1] <= 100 + 1e-9

    def test_without_room_they_share_what_there_is(self):
        assert spread([1, 2, 3], 100, 0, 10) == [0, 5, 10]
        assert spread([], 10, 0, 10) == []
