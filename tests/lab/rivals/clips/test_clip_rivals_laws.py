"""Laws of every method for clips: exact budgets, edge cases, named errors, and their table."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from arr_coc_lab.results.kinds import KINDS
from arr_coc_lab.rivals.clips import (
    CLIP_METHODS,
    ClipMethod,
    ClipView,
    CoarseFrames,
    aks,
    evs,
    fewer_pixels,
    find_clip_method,
    flashvid,
    random_cells,
    random_per_frame,
    register_clip_method,
    uniform_frames,
    vcast,
    vidcom2,
)
from arr_coc_lab.rivals.method import METHODS
from each import each

GRIDS = [(1, 1, 1), (1, 3, 4), (2, 3, 3), (5, 1, 3), (9, 4, 4), (20, 2, 3)]
OF_CELLS = [name for name in CLIP_METHODS if name != "fewer pixels"]
OF_FEATURES = {"evs": evs, "vidcom2": vidcom2, "v-cast": vcast, "flashvid": lambda x, k: flashvid(x, None, k)}


def view(grid: tuple[int, int, int], seed: int = 0, width: int = 6) -> ClipView:
    t, h, w = grid
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(t, h * w, width, generator=g) + torch.randn(width, generator=g)
    return ClipView(
        grid, features, torch.rand(t, h * w, generator=g), torch.rand(t, generator=g), f"clip {seed}"
    )


def constant(grid: tuple[int, int, int]) -> ClipView:
    t, h, w = grid
    return ClipView(grid, torch.ones(t, h * w, 4), torch.ones(t, h * w), torch.ones(t))


def budgets(grid: tuple[int, int, int]) -> list[int]:
    t, n = grid[0], grid[1] * grid[2]
    return sorted({1, 2, t - 1 or 1, t, t + 1, n, n + 1, t * n // 3 or 1, t * n - 1 or 1, t * n, t * n + 9})


@each("made", [view, constant])
@each("grid", GRIDS)
@each("name", OF_CELLS)
def test_exactly_the_budget(name, grid, made):
    clip, total = made(grid), grid[0] * grid[1] * grid[2]
    for budget in budgets(grid):
        keep = CLIP_METHODS[name].choose(clip, budget)
        assert keep.dtype == torch.bool
        assert keep.shape == (grid[0], grid[1] * grid[2])
        assert int(keep.sum()) == min(budget, total)


@each("name", OF_CELLS)
def test_the_same_again(name):
    grid = (9, 4, 4)
    for budget in (5, 40):
        first, second = (CLIP_METHODS[name].choose(view(grid), budget) for _ in range(2))
        assert torch.equal(first, second)


@each("name", OF_FEATURES)
def test_half_precision_and_scale_do_not_matter_much(name):
    """Cosines and counts ignore a factor of two; bfloat16 of what it can hold is the same clip."""
    features = view((6, 3, 3)).features.bfloat16()
    rule = OF_FEATURES[name]
    want = rule(features.float(), 17)
    assert torch.equal(rule(features, 17), want)
    if name != "flashvid":  # its densities have a scale
        assert torch.equal(rule(2 * features, 17), want)


@each("name", OF_FEATURES)
@each("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_named(name, value):
    features = view((4, 2, 2)).features.clone()
    features[2, 1, 3] = value
    with pytest.raises(ValueError, match=r"features has 1 NaN or infinite values of 96, .* at \[2, 1, 3\]"):
        OF_FEATURES[name](features, 5)


@each("name", OF_FEATURES)
@each("shape", [(4, 6), (0, 4, 6), (4, 0, 6), (4, 4, 0)])
def test_a_shape_is_named_with_its_remedy(name, shape):
    with pytest.raises(ValueError, match=r"features have shape .*; pass"):
        OF_FEATURES[name](torch.zeros(shape), 5)


@each("name", CLIP_METHODS)
@each("budget", [0, -1, 0.25, 12.0, True])
def test_a_budget_is_named_with_its_remedy(name, budget):
    with pytest.raises(ValueError, match=f"cannot keep {budget} tokens of a clip; use a count of at least 1"):
        CLIP_METHODS[name].choose(view((3, 2, 2)), budget)


@each("grid", [(0, 2, 2), (2, 0, 2), (2, 2)])
def test_a_grid_without_cells_is_refused(grid):
    g = torch.Generator()
    for rule in (
        lambda: uniform_frames(grid, 1),
        lambda: fewer_pixels(grid, 1),
        lambda: random_cells(grid, 1, g),
        lambda: random_per_frame(grid, 1, g),
        lambda: aks(torch.ones(2), grid, 1),
    ):
        with pytest.raises(ValueError, match="has no cells; pass"):
            rule()


class TestTable:
    def test_everything_is_of_video_and_states_what_it_reads(self):
        rivals = {"evs", "vidcom2", "v-cast", "aks", "flashvid"}
        nulls = {"uniform frames", "fewer pixels", "random cells", "random per frame"}
        assert set(CLIP_METHODS) == rivals | nulls
        assert {name for name, method in CLIP_METHODS.items() if method.kind == "null"} == nulls
        kinds = [method.kind for method in CLIP_METHODS.values()]
        assert kinds == sorted(kinds, key=KINDS.index)
        for name, method in CLIP_METHODS.items():
            assert method.name == name
            assert method.label
            assert (method.kind == "rival") == bool(method.paper and method.title and method.needs)
            assert (method.stage == "after") == ("features" in method.needs)
        by_question = {name for name, method in CLIP_METHODS.items() if method.by_question}
        assert by_question == {"aks", "random cells", "random per frame"}

    def test_it_is_not_that_of_images(self):
        assert not set(CLIP_METHODS) & set(METHODS)

    def test_a_method_of_ones_own(self):
        mine = ClipMethod(
            "mine", "null", lambda view, k: torch.ones(view.grid[0], 1, dtype=torch.bool), "before"
        )
        try:
            register_clip_method(mine)
            assert find_clip_method("mine") is mine
            with pytest.raises(ValueError, match="'mine' is registered already"):
                register_clip_method(mine)
        finally:
            CLIP_METHODS.pop("mine")

    @each(
        ("values", "message"),
        [
            ({"name": ""}, "name '' is empty"),
            ({"name": "a@b"}, "comma or @"),
            ({"kind": "video"}, "kind 'video' of 'evs' is unknown: use one of full, ours"),
            ({"title": ""}, "rival 'evs' names no publication"),
        ],
    )
    def test_what_is_no_method_is_refused(self, values, message):
        with pytest.raises(ValueError, match=message):
            replace(CLIP_METHODS["evs"], **values)

    def test_a_name_that_is_none(self):
        with pytest.raises(ValueError, match="'evz' is unknown; did you mean 'evs'"):
            find_clip_method("evz")


class TestView:
    def test_what_is_missing_is_named(self):
        bare = ClipView((2, 2, 2))
        with pytest.raises(ValueError, match="'flashvid' needs attention and features of a clip: pass them"):
            CLIP_METHODS["flashvid"].choose(bare, 3)
        with pytest.raises(ValueError, match="this clip has no scores"):
            bare.read("scores")
        assert int(CLIP_METHODS["uniform frames"].choose(bare, 3).sum()) == 3

    @each(
        "values",
        [
            {"features": torch.ones(2, 5, 6)},
            {"attention": torch.ones(3, 4)},
            {"scores": torch.ones(3)},
        ],
    )
    def test_what_is_not_of_the_grid_is_refused(self, values):
        clip = replace(view((2, 2, 2)), **values)
        with pytest.raises(ValueError, match=r"have shape .*, the clip's grid is \(2, 2, 2\)"):
            CLIP_METHODS["uniform frames"].choose(clip, 3)

    def test_chance_depends_on_clip_question_seed_and_method(self):
        clip = view((9, 4, 4))
        draws = [
            CLIP_METHODS["random cells"].choose(other, 40)
            for other in (clip, replace(clip, key="another"), replace(clip, seed=1))
        ]
        assert not torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[2])
        assert clip.generator("a").initial_seed() != clip.generator("b").initial_seed()

    def test_frames_at_fewer_pixels_cost_at_most_the_budget(self):
        for grid in GRIDS:
            for budget in budgets(grid):
                frames = CLIP_METHODS["fewer pixels"].choose(view(grid), budget)
                assert isinstance(frames, CoarseFrames)
                assert 1 <= frames.tokens <= budget
