"""The measurement on clips, on evidence made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from arr_coc_lab.evaluate.clips import (
    ClipInquiry,
    ClipSample,
    EvidenceItem,
    budgets_of,
    measure,
    oracle,
    registered,
    with_foreign_question,
)
from arr_coc_lab.rivals.clips import CLIP_METHODS, CoarseFrames

GRID = (4, 4, 4)  # 64 tokens: 16, 6 and 3 of them at the three shares


def cells(*places: tuple[int, int, int], grid=GRID) -> torch.Tensor:
    mask = torch.zeros(grid, dtype=torch.bool)
    for place in places:
        mask[place] = True
    return mask


def sample(*questions: ClipInquiry, name: str = "clip", **more) -> ClipSample:
    return ClipSample(name, GRID, questions, **more)


def keeping(*places: tuple[int, int, int]):
    """A method that keeps the same cells whatever it may spend."""
    return lambda sample, text, budget: cells(*places)


def one(question: ClipInquiry, choose, **more):
    (scored,) = measure([sample(question, **more)], {"mine": choose}, [0.25])
    return {name: each["25 %"] for name, each in scored.kept.items()}


# Two cells at step 0 and at step 1, four at step 3.
SIGN = cells((0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1), (3, 2, 0), (3, 2, 1), (3, 3, 0), (3, 3, 1))
LAMP = cells((2, 3, 3))


class TestRecall:
    def test_the_best_step_of_an_item_counts(self):
        # Step 0: 1 of 2; step 1: none; step 3: 3 of 4. Strictly 4 of 8.
        mine = one(
            ClipInquiry("?", "value", [EvidenceItem(SIGN)]),
            keeping((0, 0, 0), (3, 2, 0), (3, 2, 1), (3, 3, 0), (2, 2, 2)),
        )["mine"]
        assert mine == (0.75, 0.0, 0.5, 5, 3)

    def test_one_whole_view_is_enough(self):
        mine = one(ClipInquiry("?", "value", [EvidenceItem(SIGN)]), keeping((1, 0, 0), (1, 0, 1)))["mine"]
        assert mine == (1.0, 1.0, 0.25, 2, 1)

    def test_an_item_that_needs_every_step(self):
        item = EvidenceItem(SIGN, every=True)
        mine = one(ClipInquiry("?", "count", [item]), keeping((1, 0, 0), (1, 0, 1)))["mine"]
        assert mine == (1 / 3, 0.0, 0.25, 2, 1)  # all of one of three steps
        places = [tuple(place) for place in SIGN.nonzero().tolist()]
        assert one(ClipInquiry("?", "count", [item]), keeping(*places))["mine"][:3] == (1.0, 1.0, 1.0)

    def test_a_question_is_the_mean_of_its_items_and_whole_if_all_are(self):
        question = ClipInquiry("?", "value", [EvidenceItem(SIGN), EvidenceItem(LAMP)])
        assert one(question, keeping((1, 0, 0), (1, 0, 1)))["mine"][:3] == (0.5, 0.0, 2 / 9)
        assert one(question, keeping((1, 0, 0), (1, 0, 1), (2, 3, 3)))["mine"][:3] == (1.0, 1.0, 3 / 9)

    def test_flat_masks_are_the_same(self):
        question = ClipInquiry("?", "value", [EvidenceItem(LAMP)])
        kept = one(question, lambda sample, text, budget: cells((2, 3, 3)).view(4, 16))
        assert kept["mine"].recall == 1.0

    def test_what_has_no_evidence_is_not_measured(self):
        (scored,) = measure([sample(ClipInquiry("?", "global"))], {"mine": keeping()})
        assert scored.kept == {}


class TestFewerPixels:
    # Steps at full size, at a half, left out, at a quarter.
    frames = CoarseFrames(GRID, ((4, 4), (2, 2), (0, 0), (1, 1)))

    def choose(self, sample, text, budget):
        return self.frames

    def test_covered_and_readable(self):
        # Print of 24 px at steps 1 and 3 alone: 12 px at the half is read, 6 px at the quarter is not.
        late = SIGN & ~cells((0, 0, 0), (0, 0, 1))
        for height, readable in ((24.0, 1.0), (23.0, 0.0), (48.0, 1.0)):
            kept = self.measured(EvidenceItem(late, height=height))
            assert kept["mine, covered"] == (1.0, 1.0, 1.0, 21, 3)
            assert kept["mine, readable"].recall == readable
            assert kept["mine, readable"].strict == {24.0: 2 / 6, 23.0: 0.0, 48.0: 1.0}[height]

    def test_what_is_not_shrunk_is_read(self):
        assert self.measured(EvidenceItem(SIGN, height=6.0))["mine, readable"][:3] == (1.0, 1.0, 0.25)

    def test_a_frame_that_is_left_out_is_not_covered(self):
        kept = self.measured(EvidenceItem(LAMP))
        assert kept["mine, covered"].recall == kept["mine, readable"].recall == 0.0

    def test_without_a_height_what_it_spans_counts(self):
        # Two rows of 32 px at step 3: 64 px, 16 at a quarter. One row at step 1: 16 at the half.
        assert EvidenceItem(SIGN).rows == [1, 1, 0, 2]
        assert self.measured(EvidenceItem(SIGN))["mine, readable"].strict == 1.0
        assert self.measured(EvidenceItem(SIGN), cell=16)["mine, readable"].strict == 0.25

    def measured(self, item: EvidenceItem, **more):
        (scored,) = measure([sample(ClipInquiry("?", "value", [item]), **more)], {"mine": self.choose}, [0.5])
        return {name: each["50 %"] for name, each in scored.kept.items()}


class TestBudgets:
    def test_shares_are_rounded(self):
        assert budgets_of(64) == {"25 %": 16, "10 %": 6, "5 %": 3}
        assert budgets_of(4, [0.125]) == {"12.5 %": 1}

    @pytest.mark.parametrize("share", [0, -0.1, 1.1])
    def test_what_is_no_share(self, share):
        with pytest.raises(ValueError, match=f"{share} is no share"):
            budgets_of(64, [share])

    def test_more_than_the_budget_is_refused(self):
        question = ClipInquiry("?", "value", [EvidenceItem(LAMP)])
        with pytest.raises(ValueError, match="'mine' spends 17 tokens of a budget of 16"):
            one(question, lambda sample, text, budget: torch.arange(64) < 17)
        with pytest.raises(ValueError, match="'mine' spends 64 tokens of a budget of 16"):
            one(question, lambda sample, text, budget: CoarseFrames(GRID, ((4, 4),) * 4))

    @pytest.mark.parametrize(
        ("choice", "message"),
        [
            (torch.zeros(64), r"'mine' returns torch.float32 of shape \(64,\)"),
            (torch.zeros(63, dtype=torch.bool), r"of shape \(63,\) for a clip of \(4, 4, 4\)"),
            (CoarseFrames((2, 4, 4), ((1, 1),) * 2), r"returns frames of \(2, 4, 4\)"),
        ],
    )
    def test_what_is_no_choice_is_refused(self, choice, message):
        with pytest.raises(ValueError, match=message):
            one(ClipInquiry("?", "value", [EvidenceItem(LAMP)]), lambda *inputs: choice)


class TestSamples:
    @pytest.mark.parametrize("mask", [torch.zeros(GRID, dtype=torch.bool), torch.ones(GRID), LAMP[0]])
    def test_what_is_no_evidence(self, mask):
        with pytest.raises(ValueError, match=r"pass booleans \[T, H, W\], at least one of them true"):
            EvidenceItem(mask)

    def test_what_is_not_of_the_grid(self):
        other = EvidenceItem(torch.ones(4, 4, 5, dtype=torch.bool))
        with pytest.raises(ValueError, match=r"evidence of '\?' in 'clip' has shape \(4, 4, 5\)"):
            sample(ClipInquiry("?", "value", [other]))
        with pytest.raises(ValueError, match=r"features of 'clip' have shape \(4, 15, 8\)"):
            sample(features=torch.ones(4, 15, 8))

    def test_two_clips_of_one_name(self):
        with pytest.raises(ValueError, match="two clips are called 'clip'"):
            list(measure([sample(), sample()], {}))


class TestRegistered:
    def inputs(self, **more) -> ClipSample:
        g = torch.Generator().manual_seed(0)
        question = ClipInquiry("?", "value", [EvidenceItem(SIGN)])
        return sample(question, features=torch.randn(4, 16, 8, generator=g), **more)

    def test_what_lacks_its_inputs_is_left_out_by_name(self):
        methods, notes = registered([self.inputs()])
        assert set(methods) | set(notes) == set(CLIP_METHODS)
        assert notes == {
            "flashvid": "it needs attention of every clip",
            "aks": "it needs scores of every clip",
        }
        methods, notes = registered([self.inputs(attention=torch.ones(4, 16))], ["aks", "evs"])
        assert list(methods) == ["evs"]
        with pytest.raises(ValueError, match="'evz' is unknown"):
            registered([], ["evz"])

    def test_all_of_them_spend_their_budget(self):
        clip = self.inputs(attention=torch.ones(4, 16))
        methods, notes = registered([clip], scores=lambda sample, text: torch.arange(4.0))
        assert notes == {}
        (scored,) = measure([clip], methods)
        assert {"fewer pixels, covered", "fewer pixels, readable"} < set(scored.kept)
        for name, by_budget in scored.kept.items():
            tokens = [each.tokens for each in by_budget.values()]
            assert tokens == [16, 6, 3] or name.startswith("fewer pixels")
        assert scored.kept["aks"]["25 %"].recall == 1.0  # the last frame, by its score
        assert scored.kept["aks"]["25 %"].steps == 1

    def test_what_ignores_the_question_chooses_once(self, monkeypatch):
        calls = []

        def select(view, budget):
            calls.append(view.key)
            return torch.zeros(4, 16, dtype=torch.bool)

        for name in ("evs", "random cells"):
            monkeypatch.setitem(CLIP_METHODS, name, replace(CLIP_METHODS[name], select=select))
        questions = [ClipInquiry(text, "value", [EvidenceItem(LAMP)]) for text in ("a", "b")]
        clips = [sample(*questions, name=name, features=torch.ones(4, 16, 8)) for name in ("one", "two")]
        methods, _ = registered(clips, ["evs", "random cells"])
        list(measure(clips, {"evs": methods["evs"]}, [0.5]))
        assert calls == ["one/a", "two/a"]
        calls.clear()
        list(measure(clips, {"random cells": methods["random cells"]}, [0.5]))
        assert calls == ["one/a", "one/b", "two/a", "two/b"]


def test_a_foreign_question_is_one_of_the_next_clip():
    texts = []

    def choose(sample, text, budget):
        texts.append((sample.name, text))
        return cells()

    def clip(name, *questions):
        return sample(*(ClipInquiry(text, "value", [EvidenceItem(LAMP)]) for text in questions), name=name)

    clips = [clip("one", "a", "b", "c"), clip("none"), clip("two", "a", "d"), clip("three", "d")]
    list(measure(clips, {"control": with_foreign_question(choose, clips)}, [0.5]))
    assert texts == [
        *(("one", "d") for _ in "abc"),  # "a" is its own
        *(("two", "d") for _ in "ad"),  # the next has no other
        ("three", "a"),
    ]
    with pytest.raises(ValueError, match="1 clips have questions: pass at least 2"):
        with_foreign_question(choose, clips[:2])


def test_the_oracle_keeps_the_smallest_view_and_then_the_rest():
    question = ClipInquiry("?", "value", [EvidenceItem(SIGN), EvidenceItem(LAMP)])
    clip = sample(question)
    for budget, strict in ((3, 3 / 9), (6, 6 / 9), (9, 1.0), (30, 1.0)):
        keep = oracle(clip, "?", budget)
        assert int(keep.sum()) == budget
        (scored,) = measure([clip], {"oracle": oracle}, [budget / 64])
        (kept,) = scored.kept["oracle"].values()
        assert (kept.recall, kept.strict) == (1.0, strict)
    every = sample(ClipInquiry("?", "count", [EvidenceItem(SIGN, every=True)]))
    assert (oracle(every, "?", 8).view(GRID) == SIGN).all()
