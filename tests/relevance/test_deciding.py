"""Scoring and deciding from cues, the records of undecided images, the stopwatch; torch alone."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch

from arr_coc.choose.allocation import Reason
from arr_coc.choose.attending import NonFiniteScores
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.rarity import rarity
from arr_coc.choose.stopwatch import STAGES, Stopwatch
from arr_coc.choose.texture import generate_texture_array
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.guide import picture_inputs
from arr_coc.relevance.deciding import (
    Cues,
    LookedAt,
    _on_cpu,
    best_kept,
    decide,
    everything_kept,
    score_cells,
    share_most_confident_frame,
    weigh,
)

DIM = 32
GRIDS = [(1, 6, 6)] * 3


def set_up(**config: object) -> tuple[ARRCOCLayer, list[Cues]]:
    """A layer and the cues of three images; the first and the last are one picture with two questions."""
    generator = torch.Generator().manual_seed(5)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    with torch.random.fork_rng():
        torch.manual_seed(5)
        layer = ARRCOCLayer(ARRCOCConfig(**{"dim": DIM} | config)).eval()
    pictures = torch.rand(2, 3, 48, 48, generator=generator)
    textures = generate_texture_array(pictures, (6, 6), layer.config.channels)
    questions, cells = [drawn(1, 4, DIM), drawn(1, 9, DIM)], [drawn(1, 36, DIM), drawn(1, 36, DIM)]
    cues = []
    for image, question in ((0, 0), (1, 0), (0, 1)):
        query = questions[question]
        words = torch.ones(query.shape[:2], dtype=torch.bool)
        cues.append(Cues(textures[image][None], query, words, cells[image]))
    return layer, cues


def watch() -> Stopwatch:
    return Stopwatch(torch.device("cpu"))


def test_frames_of_a_clip_share_what_the_guide_says_but_for_maps_and_print() -> None:
    _, cues = set_up()
    says = [
        Coupling(torch.full((6, 6), float(i)), confidence, 0.0, 0.0, printed=printed)
        for i, (confidence, printed) in enumerate(((0.3, True), (0.9, False)))
    ]
    frames = [one._replace(guided=coupling) for one, coupling in zip(cues[:2], says, strict=True)]
    together = [one.guided for one in share_most_confident_frame(frames, (2,))]
    assert [one.confidence for one in together] == [0.9, 0.9]
    assert [one.printed for one in together] == [True, False]
    assert [float(one.logits.mean()) for one in together] == [0.0, 1.0]


class TestLookedAt:
    """The record of a picture: each part is made once, and no pixels are kept."""

    layer = ARRCOCLayer(ARRCOCConfig(dim=DIM)).eval()
    pixels = torch.rand(3, 48, 64, generator=torch.Generator().manual_seed(3))

    def test_cues_are_what_stands_for_the_picture_and_the_question(self) -> None:
        cells, mean, query = torch.randn(24, DIM), torch.randn(DIM), torch.randn(5, DIM)
        cues = LookedAt().cues(
            self.layer, (4, 6), lambda: self.pixels, query, cells=cells.double(), gestalt=mean
        )
        assert torch.equal(cues.texture, generate_texture_array(self.pixels[None], (4, 6)))
        assert torch.equal(cues.query[0], query)
        assert cues.query_mask.tolist() == [[True] * 5]
        assert torch.equal(cues.vision, cells[None])
        assert torch.equal(cues.gestalt, mean[None])
        assert (cues.coupling, cues.guided, cues.rarity) == (None, None, None)

    @pytest.mark.parametrize(("unusual", "rare"), [(0.0, None), (0.9, None), (0.0, True), (0.9, False)])
    def test_what_the_guide_says_comes_with_its_logits_and_rarity_if_asked_for(
        self, unusual: float, rare: bool | None
    ) -> None:
        says = Coupling(torch.randn(4, 6), 0.5, 0.0, unusual)
        cues = LookedAt().cues(self.layer, (4, 6), lambda: self.pixels, guided=says, rare=rare)
        assert cues.guided is says
        assert torch.equal(cues.coupling, says.logits[None])
        assert cues.query.shape == (1, 1, DIM)
        wanted = unusual > 0.5 if rare is None else rare
        assert (cues.rarity is not None) == wanted
        assert not wanted or torch.equal(cues.rarity, rarity(self.pixels[None], (4, 6)))
        blended = LookedAt().cues(
            self.layer, (4, 6), lambda: self.pixels, coupling=says.logits + 1, guided=says, rare=False
        )
        assert torch.equal(blended.coupling, says.logits[None] + 1)

    def test_a_picture_is_asked_for_once_for_each_grid(self) -> None:
        looked, asked = LookedAt(), []

        def picture() -> torch.Tensor:
            asked.append(1)
            return self.pixels

        says = Coupling(torch.zeros(4, 6), 0.5, 0.0, 0.9)
        first = looked.cues(self.layer, (4, 6), picture, guided=says)
        assert len(asked) == 2, "for texture and rarity"
        again = looked.cues(self.layer, (4, 6), guided=says)
        assert again.texture is first.texture
        assert again.rarity is first.rarity
        other = looked.cues(self.layer, (2, 3), picture)
        assert other.texture.shape[-2:] == (2, 3)
        assert len(asked) == 3
        with pytest.raises(AssertionError, match="gone"):
            looked.texture(self.layer, (5, 5))
        with pytest.raises(AssertionError, match="gone"):
            looked.rarity((5, 5))

    def test_other_channels_are_made_beside_and_with_the_print_that_they_read(self) -> None:
        looked, plain = LookedAt(), self.layer
        reads = ARRCOCLayer(ARRCOCConfig(dim=DIM, channels=("rgb", "sobel", "text_mask")))
        textures = [looked.texture(one, (4, 6), lambda: self.pixels) for one in (plain, reads, plain)]
        assert textures[0] is textures[2]
        own = picture_inputs(reads.config.channels, self.pixels)
        expected = generate_texture_array(self.pixels[None], (4, 6), reads.config.channels, **own)
        assert torch.equal(textures[1], expected)

    def test_channels_of_a_question_are_made_for_each(self) -> None:
        looked = LookedAt()
        layer = ARRCOCLayer(ARRCOCConfig(dim=DIM, channels=("rgb", "attention_memory")))
        maps = torch.rand(2, 1, 1, 4, 6)
        made = [
            looked.texture(layer, (4, 6), lambda: self.pixels, lambda own=own: {"attention_history": own})
            for own in maps
        ]
        assert torch.equal(made[0][:, :3], made[1][:, :3])
        assert not torch.equal(made[0], made[1])
        assert looked.cache.computed == {"rgb": 1, "attention_memory": 2}

    def test_another_lora_shares_all_but_what_tokens_made(self) -> None:
        looked = LookedAt(object(), stems={None: torch.zeros(1)}, coarse=torch.zeros(1))
        looked.cues(self.layer, (4, 6), lambda: self.pixels, rare=True)
        other = looked.without_tokens()
        assert other.view is looked.view
        assert other.rarities is looked.rarities
        assert (other.textures, other.coarse, other.stems) == ({}, None, {})
        assert looked.stems


@pytest.mark.slow
def test_no_transformers_model_is_needed() -> None:
    code = "import sys, arr_coc.relevance.deciding; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestEverythingKept:
    def test_feature(self) -> None:
        allocation = everything_kept((1, 2, 3))
        assert allocation.keep.tolist() == [0, 1, 2, 3, 4, 5]
        assert (allocation.reasons == Reason.ALL).all()
        assert (allocation.balanced == 1).all()
        assert allocation.reason_text(0) == "all 6 tokens kept"

    def test_with_relevance_the_maps_are_recorded(self) -> None:
        layer, cues = set_up()
        maps = score_cells(layer, cues)
        allocation = everything_kept(GRIDS[0], maps[0])
        assert torch.equal(allocation.balanced, maps[0].balanced.detach())
        values = allocation.balanced.flatten()[allocation.order]
        assert (values[:-1] >= values[1:]).all()


class TestBestKept:
    SCORES = torch.tensor([[[3.0, -1.0, 0.0], [1.0, 3.0, 2.0]]])  # of a grid of (1, 2, 3)

    def test_feature(self) -> None:
        allocation = best_kept((1, 2, 3), self.SCORES, 3)
        assert allocation.order.tolist() == [0, 4, 5]  # of equals the earlier one first
        assert allocation.keep.tolist() == [0, 4, 5]
        assert torch.allclose(allocation.balanced, (self.SCORES + 1) / 4)
        assert allocation.reason_text(2) == "rank 3 <= K 3"
        assert (allocation.budget, allocation.void) == (3, False)
        assert not allocation.information.any()
        assert not allocation.weights.any()

    def test_budgets(self) -> None:
        def kept(budget: object, scores: torch.Tensor = self.SCORES) -> int:
            return best_kept((1, 1, scores.numel()), scores, budget).kept  # type: ignore[arg-type]

        assert [kept(budget) for budget in (1, 6, 0.5, None)] == [1, 6, 3, 6]
        few, many = torch.zeros(900), torch.zeros(900)
        few[:100], many[:300] = 1, 1
        assert 64 <= kept("auto", few) < kept("auto", many) <= 400
        assert best_kept((1, 30, 30), few).budget == 273

    def test_scores_without_a_difference(self) -> None:
        allocation = best_kept((1, 2, 3), torch.full((6,), 7.0), 2)
        assert allocation.keep.tolist() == [0, 1]
        assert allocation.balanced.isfinite().all()

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match=r"5 scores don't fit a grid of \(1, 2, 3\)"):
            best_kept((1, 2, 3), torch.zeros(5), 2)
        with pytest.raises(ValueError, match="budget 7 exceeds the 6"):
            best_kept((1, 2, 3), self.SCORES, 7)
        with pytest.raises(NonFiniteScores):
            best_kept((1, 2, 3), self.SCORES.log(), 2)


class TestStopwatch:
    def test_feature(self) -> None:
        stopwatch = watch()
        for _ in range(2):
            with stopwatch("scoring"):
                time.sleep(0.01)
        assert stopwatch.ms["scoring"] >= 20
        assert stopwatch.ms["encode"] == 0

    def test_it_waits_for_any_accelerator(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A stand-in for MPS or XPU: torch says which accelerator there is, and waits for it by one name."""
        waits: list[torch.device] = []
        monkeypatch.setattr(torch.accelerator, "synchronize", waits.append)
        for present, own, waited in (
            ("mps", "mps", 2),
            ("xpu", "xpu:0", 2),
            ("cuda", "cpu", 0),
            (None, "cpu", 0),
        ):
            there = None if present is None else torch.device(present)
            monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda there=there: there)
            with Stopwatch(torch.device(own))("encode"):
                pass
            assert waits == [torch.device(own)] * waited, own
            waits.clear()

    def test_stages(self) -> None:
        stages = [
            "prompt",
            "texture",
            "scoring",
            "gestalt",
            "encode",
            "prefill",
            "decode",
            "other",
            "total",
        ]
        assert list(watch().ms) == list(STAGES) == stages

    def test_what_no_stage_has_is_other(self) -> None:
        stopwatch = watch()
        stopwatch.ms |= {"scoring": 10.0, "encode": 20.0, "other": 7.0, "total": 35.0}
        stopwatch.settle()
        assert stopwatch.ms["other"] == 5.0
        assert sum(stopwatch.ms.values()) == 2 * stopwatch.ms["total"]

    def test_counts_a_block_that_fails(self) -> None:
        stopwatch = watch()
        with pytest.raises(KeyError), stopwatch("total"):
            raise KeyError("inside")
        assert stopwatch.ms["total"] > 0


class TestScore:
    def test_each_image_is_scored_by_its_own_cues(self) -> None:
        layer, cues = set_up()
        maps = score_cells(layer, cues)
        assert [relevance.balanced.shape for relevance in maps] == [(1, 6, 6)] * 3
        assert not torch.equal(maps[0].participatory, maps[2].participatory)  # same picture, another question
        assert torch.equal(maps[0].information, maps[2].information)
        for picked in ([0, 1], [2]):
            alone = score_cells(layer, [cues[image] for image in picked])
            for one, image in zip(alone, picked, strict=True):
                assert torch.allclose(one.balanced, maps[image].balanced, atol=1e-5)

    def test_cues_are_the_arguments_of_relevance(self) -> None:
        layer, cues = set_up()
        gestalt, coupling = torch.randn(1, DIM), torch.randn(1, 6, 6)
        whole = cues[0]._replace(gestalt=gestalt, coupling=coupling)
        (relevance,) = score_cells(layer, [whole])
        expected = layer.relevance(
            whole.texture,
            whole.query,
            whole.query_mask,
            vision=whole.vision,
            gestalt=gestalt,
            coupling=coupling,
        )
        assert all(
            (a is None and b is None) or torch.equal(a, b) for a, b in zip(relevance, expected, strict=True)
        )

    def test_nothing_needs_to_be_encoded(self) -> None:
        layer, cues = set_up()
        blind = score_cells(layer, [one._replace(vision=None) for one in cues])
        for one, other in zip(blind, score_cells(layer, cues), strict=True):
            assert torch.equal(one.information, other.information)
            assert (one.participatory - other.participatory).abs().max() > 1e-3

    def test_each_image_has_its_own(self) -> None:
        layer, cues = set_up()
        couplings = [float(image) + torch.zeros(1, 6, 6) for image in range(3)]
        cues = [one._replace(vision=None, coupling=c) for one, c in zip(cues, couplings, strict=True)]
        for image, relevance in enumerate(score_cells(layer, cues)):
            assert torch.equal(relevance.participatory[0], couplings[image][0].sigmoid())
        torch.manual_seed(0)
        with torch.no_grad():
            for parameter in layer.balancer.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        gestalts = [torch.randn(1, DIM) for _ in range(3)]
        weights = [
            [
                r.weights
                for r in score_cells(layer, [c._replace(gestalt=g) for c, g in zip(cues, some, strict=True)])
            ]
            for some in (gestalts, [gestalts[0], torch.zeros(1, DIM), gestalts[2]])
        ]
        assert [torch.equal(*pair) for pair in zip(*weights, strict=True)] == [True, False, True]


class TestDecide:
    def test_what_is_fetched_is_the_same_without_gradient(self) -> None:
        layer, cues = set_up()
        maps = score_cells(layer, cues)
        maps[1] = maps[1]._replace(structured=None)
        for before, after in zip(maps, _on_cpu(maps), strict=True):
            for old, new in zip(before, after, strict=True):
                assert (old is None) == (new is None)
                if old is not None:
                    assert torch.equal(old, new)
                    assert old.dtype == new.dtype
                    assert not new.requires_grad

    @pytest.mark.parametrize("value", [torch.nan, torch.inf])
    def test_a_relevance_that_is_not_finite_is_named_by_its_image(self, value: float) -> None:
        layer, cues = set_up()
        cues[1] = cues[1]._replace(vision=torch.full_like(cues[1].vision, value))
        for call in (
            lambda: decide(layer, cues, GRIDS, [4, 4, 4]),
            lambda: weigh(layer, cues, GRIDS),
        ):
            with pytest.raises(NonFiniteScores, match="image 1"):
                call()

    def test_an_image_without_a_budget_keeps_all(self) -> None:
        layer, cues = set_up()
        maps = score_cells(layer, cues)
        decision = decide(layer, cues, GRIDS, [5, None, 0.5])
        assert [allocation.kept for allocation in decision.allocations] == [5, 36, 18]
        whole = decision.allocations[1]
        assert (whole.reasons == Reason.ALL).all()
        assert torch.equal(whole.balanced, maps[1].balanced.detach())
        assert [len(gate) for gate in decision.gates] == [36, 36, 36]

    def test_choosing_and_weighing(self) -> None:
        layer, cues = set_up()
        with torch.no_grad():
            pruned = decide(layer, cues, GRIDS, [5, 6, 7])
            weighted = weigh(layer, cues, GRIDS)
        assert [a.kept for a in pruned.allocations] == [5, 6, 7]
        assert pruned.gates is None
        assert [a.kept for a in weighted.allocations] == [36, 36, 36]
        assert torch.equal(weighted.gates[0], weighted.allocations[0].balanced.flatten())
        assert not pruned.fallback
        assert not weighted.fallback

    def test_gates_are_one_and_carry_gradient(self) -> None:
        layer, cues = set_up()
        decision = decide(layer, cues, GRIDS, [5, 6, 7])
        assert all((gate == 1).all() for gate in decision.gates)
        sum(gate.sum() for gate in decision.gates).backward()
        assert any(p.grad is not None and (p.grad != 0).any() for p in layer.parameters())

    def test_a_budget_above_the_number_of_cells_is_refused(self) -> None:
        layer, cues = set_up()
        with pytest.raises(ValueError, match="37"):
            decide(layer, cues, GRIDS, [5, 37, 5])
