"""Time: what is new in a clip, and relevance that carries over."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from arr_coc.choose.motion import OLD
from arr_coc.video.temporal import NEIGHBOUR_WORTH, REPEATED_WORTH, Changes, relevance_over_time
from arr_coc_lab.world import draw_page

GRID = (7, 7)


def pixels(size: tuple[int, int] = (224, 224), seed: int = 5) -> Tensor:
    """A drawn page, float [3, h, w] in [0, 1]."""
    image = draw_page(seed, size).image
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255


@pytest.fixture(scope="module")
def page() -> Tensor:
    return pixels()


@pytest.fixture(scope="module")
def tall() -> Tensor:
    return pixels((224, 960))


def pan(tall: Tensor, step: int, frames: int = 12) -> list[Tensor]:
    """A page that scrolls by so many px a frame."""
    return [tall[:, i * step : i * step + 224] for i in range(frames)]


class TestChanges:
    def test_nothing_is_new_where_nothing_changes(self, page: Tensor) -> None:
        changes = Changes.of([page] * 5, GRID)
        assert changes.cuts.tolist() == [True, False, False, False, False]
        assert changes.new[0].all()
        assert not changes.new[1:].any()
        assert not changes.shifts.any()

    def test_noise_and_flicker_bring_nothing_new(self, page: Tensor) -> None:
        generator = torch.Generator().manual_seed(0)
        frames = [
            (page * 0.8 + 0.1 * (i % 2) + 0.05 * torch.randn(page.shape, generator=generator)).clamp(0, 1)
            for i in range(8)
        ]
        changes = Changes.of(frames, GRID)
        assert float(changes.new[1:].float().mean()) < 0.05

    def test_a_thing_that_appears_and_goes_is_new_twice_and_there_alone(self, page: Tensor) -> None:
        blink = page.clone()
        blink[:, 64:96, 96:128] = torch.tensor([1.0, 0.0, 0.0])[:, None, None]
        changes = Changes.of([page, page, blink, page, page], GRID)
        for t, new in enumerate(changes.new[1:], start=1):
            expected = torch.zeros(GRID, dtype=torch.bool)
            expected[2, 3] = t in (2, 3)
            assert torch.equal(new, expected), t

    def test_light_that_changes_by_a_factor_brings_nothing_new(self, page: Tensor) -> None:
        changes = Changes.of([page * light for light in (1.0, 0.75, 0.9, 0.8, 1.0)], GRID)
        assert not changes.new[1:].any()

    def test_a_strip_that_stands_still_over_a_page_that_scrolls_is_nothing_new(self, tall: Tensor) -> None:
        frames = [frame.clone() for frame in pan(tall, 20, 8)]
        for frame in frames:
            frame[:, -32:] = 0.1
            frame[:, -20:-12, 20:200:6] = 0.9  # letters of a sort
        changes = Changes.of(frames, GRID)
        assert torch.allclose(changes.shifts[1:, 0], torch.tensor(-20 / 32), atol=0.03)
        assert not changes.new[1:, -1].any()
        assert changes.still is not None
        assert changes.still[1:, -1].all()
        assert float(changes.new[1:, :-2].float().mean()) < 0.1

    def test_a_thing_that_moves_is_not_the_pictures_movement(self) -> None:
        frames = []
        for i in range(5):
            frame = torch.full((3, 224, 224), 0.9)
            frame[:, 96:128, 16 + 24 * i : 48 + 24 * i] = torch.tensor([0.9, 0.1, 0.1])[:, None, None]
            frames.append(frame)
        changes = Changes.of(frames, GRID)
        assert not changes.shifts.any()
        assert changes.new[1:].flatten(1).any(1).all()

    def test_a_slow_change_is_noticed_though_no_step_of_it_is(self, page: Tensor) -> None:
        frames = []
        for i in range(12):
            frame = page.clone()
            frame[:, 64:96, 96:128] = page[:, 64:96, 96:128].lerp(torch.zeros(3, 1, 1), i / 11)
            frames.append(frame)
        assert Changes.of(frames, GRID).new[1:, 2, 3].any()

    def test_a_cut_makes_everything_new(self, page: Tensor) -> None:
        changes = Changes.of([page, page, 1 - page, 1 - page], GRID)
        assert changes.cuts.tolist() == [True, False, True, False]
        assert changes.new[2].all()
        assert not changes.new[3].any()

    @pytest.mark.parametrize("step", [8, 16, 20, 37])
    def test_a_page_that_scrolls_brings_new_cells_at_its_rim_alone(self, tall: Tensor, step: int) -> None:
        changes = Changes.of(pan(tall, step), GRID)
        assert not changes.cuts[1:].any()
        assert torch.allclose(changes.shifts[1:, 0], torch.tensor(-step / 32), atol=0.02)
        assert float(changes.shifts[1:, 1].abs().max()) < 0.02
        # What comes in from below; blank paper where blank paper stood is nothing new.
        assert float(changes.new[1:, -1].float().mean()) > 0.75
        assert float(changes.new[1:, :4].float().mean()) < 0.1

    def test_frames_are_read_one_after_another(self, page: Tensor) -> None:
        held = []

        def stream():
            for i in range(5):
                held.append(i)
                yield page

        assert len(Changes.of(stream(), GRID).cuts) == len(held) == 5

    def test_a_clip_without_frames_is_refused(self) -> None:
        with pytest.raises(ValueError, match="without frames"):
            Changes.of([], GRID)


def still(frames: int = 4) -> Changes:
    """Changes of a clip in which nothing changes."""
    new = torch.zeros(frames, *GRID, dtype=torch.bool)
    new[0] = True
    return of(new)


def of(new: Tensor) -> Changes:
    """Changes of a clip that doesn't move, from the cells that are new."""
    return Changes(new.flatten(1).all(1), torch.zeros(len(new), 2), new, torch.zeros(len(new)))


class TestRelevanceOverTime:
    def test_the_first_frame_is_as_it_was(self) -> None:
        logits = torch.randn(4, *GRID, generator=torch.Generator().manual_seed(1))
        assert torch.allclose(relevance_over_time(logits, still())[0], logits[0], atol=1e-4)

    def test_old_and_new_are_mixed(self) -> None:
        logits = torch.full((2, *GRID), -2.0)
        logits[1, 3, 3] = 2.0
        over = relevance_over_time(logits, still(2))[1, 3, 3].sigmoid()
        before, now = torch.tensor([-2.0, 2.0]).sigmoid()
        assert float(over) == pytest.approx(
            float(REPEATED_WORTH * (OLD * before + (1 - OLD) * now)), rel=1e-3
        )

    def test_a_scene_begins_from_nothing(self) -> None:
        changes = still(2)
        changes.new[1] = True
        logits = torch.randn(2, *GRID, generator=torch.Generator().manual_seed(2))
        assert torch.allclose(relevance_over_time(logits, changes)[1], logits[1], atol=1e-4)

    def test_what_was_there_before_comes_after_all_that_is_new(self) -> None:
        logits = torch.full((3, *GRID), 1.0)
        changes = still(3)
        changes.new[2, 5, 5] = True
        over = relevance_over_time(logits, changes)
        assert over[2, 5, 5] > over[1:].flatten(1).median()
        best = over.flatten().topk(50).indices
        assert set(best.tolist()) == {*range(49), 2 * 49 + 5 * 7 + 5}

    def test_relevance_moves_with_the_page(self) -> None:
        changes = still(2)
        changes.shifts[1] = torch.tensor([-1.0, 0.0])
        logits = torch.full((2, *GRID), -6.0)
        logits[0, 4, 2] = 4.0
        over = relevance_over_time(logits, changes)[1]
        assert divmod(int(over.argmax()), 7) == (3, 2)

    def test_beside_what_is_new_more_counts_than_elsewhere(self) -> None:
        new = torch.zeros(2, *GRID, dtype=torch.bool)
        new[0] = True
        new[1, 3, 3] = True
        over_time = relevance_over_time(torch.zeros(2, *GRID), of(new))[1]
        beside, far = over_time[3, 4], over_time[0, 0]
        assert over_time[3, 3] > beside > far
        assert torch.allclose(beside.sigmoid(), torch.tensor(NEIGHBOUR_WORTH / 2), atol=1e-4)

    def test_a_question_about_a_time_wants_both_sides_of_a_change(self) -> None:
        new = torch.zeros(4, *GRID, dtype=torch.bool)
        new[0] = True
        new[1, 3, 3] = new[3, 3, 3] = True  # it comes and goes
        logits = torch.full((4, *GRID), -4.0)
        logits[1:3, 3, 3] = 3.0  # what is asked for
        changes = of(new)
        when = changes.at("When does it disappear?")
        assert when.ends
        assert changes.at("What is it?") is changes
        plain, both = (relevance_over_time(logits, one)[:, 3, 3] for one in (changes, when))
        assert plain[2] < plain[3] < plain[1]  # its last look is a repetition
        assert both[2] == pytest.approx(float(both[1]), abs=0.2)
        assert both[0] > plain[0]  # and so is what was there before it came

    def test_an_event_that_a_question_names_is_its_moment(self) -> None:
        new = torch.zeros(5, *GRID, dtype=torch.bool)
        new[0], new[3, 1:3, 1:3] = True, True
        event = torch.full((5, *GRID), -5.0)
        event[3:, 1:3, 1:3] = 4.0
        at = of(new).at("What does the sign say when the light turns red?", None, event)
        assert at.worth is not None
        assert at.worth.argmax() == 3
        assert (at.fresh[3] == 1).all()  # the sign, too, though it was there before
        assert float(at.worth[4]) < 0.2

    def test_extremes_stay_finite(self) -> None:
        logits = torch.tensor([-1e4, 1e4]).view(2, 1, 1).expand(2, *GRID)
        assert relevance_over_time(logits, still(2)).isfinite().all()


@pytest.mark.parametrize("step", [4, 8, 16])
def test_the_kept_set_of_a_scrolling_page_does_not_jump(tall: Tensor, step: int) -> None:
    """The plan's law: over 30 frames the middle of what is kept varies by less than 0.2 of the grid."""
    frames = pan(tall, step, 30)
    changes = Changes.of(frames, GRID)
    chance = torch.stack(
        [1 - torch.nn.functional.adaptive_avg_pool2d(f.mean(0)[None], GRID)[0] for f in frames]
    )
    noisy = torch.logit(chance.clamp(0.01, 0.99)) + 2 * torch.randn(
        chance.shape, generator=torch.Generator().manual_seed(step)
    )
    over = relevance_over_time(noisy, changes)
    middles = []
    for one in over:
        keep = one.flatten().topk(12).indices
        middles.append(torch.stack((keep // 7, keep % 7)).float().mean(1) / 7)
    assert float(torch.stack(middles).var(0).max()) < 0.2
    moves = [
        len(set(a.flatten().topk(12).indices.tolist()) & set(b.flatten().topk(12).indices.tolist()))
        for a, b in itertools.pairwise(noisy)
    ]
    ours = [
        len(set(a.flatten().topk(12).indices.tolist()) & set(b.flatten().topk(12).indices.tolist()))
        for a, b in itertools.pairwise(over)
    ]
    assert sum(ours) / len(ours) > sum(moves) / len(moves)


def law_clips() -> dict[str, list[Tensor]]:
    """30 frames each: a page that scrolls, three scenes, light that changes, and fresh noise."""
    tall, page = pixels((224, 960)), pixels()
    generator = torch.Generator().manual_seed(3)
    light = 0.8 + 0.1 * torch.rand(30, generator=generator)
    scenes = [pixels(seed=8), 0.3 * pixels(seed=9), pixels(seed=10)]
    return {
        "pan": pan(tall, 16, 30),
        "cuts": [scenes[i // 10] for i in range(30)],
        "flicker": [page * factor for factor in light],
        "noise": [
            (0.9 * page + 0.05 * torch.randn(page.shape, generator=generator)).clamp(0, 1) for _ in range(30)
        ],
    }


@pytest.fixture(scope="module", params=["pan", "cuts", "flicker", "noise"])
def law_clip(request: pytest.FixtureRequest) -> tuple[str, Changes, Tensor]:
    """Its name, its changes and restless logits of its frames."""
    frames = law_clips()[request.param]
    generator = torch.Generator().manual_seed(1)
    dark = torch.stack(
        [1 - torch.nn.functional.adaptive_avg_pool2d(f.mean(0)[None], GRID)[0] for f in frames]
    )
    restless = torch.logit(dark.clamp(0.01, 0.99)) + 2 * torch.randn(dark.shape, generator=generator)
    return request.param, Changes.of(frames, GRID), restless


class TestLawsOfThirtyFrames:
    def test_cuts_are_where_scenes_begin_and_nowhere_else(
        self, law_clip: tuple[str, Changes, Tensor]
    ) -> None:
        name, changes, _ = law_clip
        assert changes.cuts.nonzero().flatten().tolist() == ([0, 10, 20] if name == "cuts" else [0])

    def test_relevance_is_smoothed_and_a_cut_resets_it(self, law_clip: tuple[str, Changes, Tensor]) -> None:
        _, changes, logits = law_clip
        worth = torch.where(changes.new, 1.0, REPEATED_WORTH)
        smooth, own = relevance_over_time(logits, changes).sigmoid() / worth, logits.sigmoid()
        for t in range(1, 30):
            if changes.cuts[t]:
                assert torch.allclose(smooth[t], own[t], atol=1e-4)
            elif not changes.shifts[t].any():
                kept = ~changes.new[t]
                mixed = OLD * smooth[t - 1] + (1 - OLD) * own[t]
                assert torch.allclose(smooth[t][kept], mixed[kept], atol=1e-4)
                assert torch.allclose(smooth[t][~kept], own[t][~kept], atol=1e-4)

    def test_the_kept_set_stays_and_its_middle_hardly_moves(
        self, law_clip: tuple[str, Changes, Tensor]
    ) -> None:
        _, changes, logits = law_clip
        kept = [maps.flatten(1).topk(12).indices for maps in (relevance_over_time(logits, changes), logits)]
        middles = torch.stack((kept[0] // 7, kept[0] % 7), -1).float().mean(1) / 7
        assert float(middles.var(0).max()) < 0.2
        ours, restless = (
            sum(len(set(a.tolist()) & set(b.tolist())) for a, b in itertools.pairwise(best)) for best in kept
        )
        assert ours > 1.2 * restless
