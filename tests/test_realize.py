"""The records of undecided images, the stopwatch, and what each image is scored by.

Run: pytest tests/test_realize.py
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
import torch

from arr_coc.allocation import Reason
from arr_coc.attending import NonFiniteScores
from arr_coc.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.realize import (
    STAGES,
    EncodedImages,
    Seen,
    Stopwatch,
    all_kept,
    decide,
    everything_kept,
    fetch,
    question_embeddings,
    score,
    seen_whole,
)
from arr_coc.seam import adapter_for
from tiny import WIDTH, picture, prompts, tiny

ROWS = [("One?", [picture(1), picture(2)]), ("Another one, longer?", [picture(1)])]


def set_up(rows: list = ROWS) -> tuple[Any, ARRCOCLayer, dict, EncodedImages]:
    built = tiny("qwen3_vl")
    adapter = adapter_for(built.model, built.processor)
    inputs = prompts(built, rows)
    with torch.no_grad():
        encoded = EncodedImages(adapter.features(inputs))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return adapter, ARRCOCLayer(ARRCOCConfig(dim=WIDTH)).eval(), inputs, encoded


def watch() -> Stopwatch:
    return Stopwatch(torch.device("cpu"))


class TestEverythingKept:
    def test_feature(self) -> None:
        allocation = everything_kept((1, 2, 3))
        assert allocation.keep.tolist() == [0, 1, 2, 3, 4, 5]
        assert (allocation.reasons == Reason.ALL).all()
        assert (allocation.balanced == 1).all()
        assert allocation.reason_text(0) == "all 6 tokens kept"

    def test_with_relevance_the_maps_are_recorded(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        maps = score(adapter, layer, inputs, encoded, watch())
        allocation = everything_kept(encoded.features.grids[0], maps[0])
        assert torch.equal(allocation.balanced, maps[0].balanced.detach())
        values = allocation.balanced.flatten()[allocation.order]
        assert (values[:-1] >= values[1:]).all()


class TestStopwatch:
    def test_feature(self) -> None:
        stopwatch = watch()
        for _ in range(2):
            with stopwatch("score"):
                time.sleep(0.01)
        assert stopwatch.ms["score"] >= 20
        assert stopwatch.ms["encode"] == 0

    def test_stages(self) -> None:
        stages = ["texture", "score", "gestalt", "encode", "prefill", "decode", "total"]
        assert list(watch().ms) == list(STAGES) == stages

    def test_counts_a_block_that_fails(self) -> None:
        stopwatch = watch()
        with pytest.raises(KeyError), stopwatch("total"):
            raise KeyError("inside")
        assert stopwatch.ms["total"] > 0


class TestQuestionEmbeddings:
    @torch.no_grad()
    def test_words_of_the_question_alone_whatever_the_padding(self) -> None:
        adapter, _, inputs, _ = set_up()
        like = torch.zeros((), dtype=torch.float64)
        embed, words = adapter.model.get_input_embeddings(), adapter.processor.tokenizer
        rows = question_embeddings(adapter, inputs, like)
        for (question, _), row in zip(ROWS, rows, strict=True):
            ids = words(question.replace(" ", ""), add_special_tokens=False, return_tensors="pt")["input_ids"]
            assert row.dtype == torch.float64
            assert torch.equal(row, embed(ids[0]).double())

    @torch.no_grad()
    def test_without_words_of_its_own_all_text_of_the_prompt_that_is_no_image(self) -> None:
        adapter, _, inputs, _ = set_up([("", [picture(1)]), ("One?", [picture(1)])])
        silent, spoken = question_embeddings(adapter, inputs, torch.zeros(()))
        ids = inputs["input_ids"][0][inputs["attention_mask"][0].bool()]
        text = ids[ids != adapter.image_token_id]
        assert torch.equal(silent, adapter.model.get_input_embeddings()(text))
        assert len(spoken) == 4


class TestScore:
    def test_each_image_is_scored_by_the_question_of_its_row(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        maps = score(adapter, layer, inputs, encoded, watch())
        assert [m.balanced.shape for m in maps] == [(1, 6, 6)] * 3
        assert not torch.equal(maps[0].participatory, maps[2].participatory)  # same picture, another question
        for row, picked in ((0, maps[:2]), (1, maps[2:])):
            alone = score(*set_up([ROWS[row]]), watch())
            for one, other in zip(alone, picked, strict=True):
                assert torch.allclose(one.balanced, other.balanced, atol=1e-5)

    def test_textures_are_kept_for_the_next_question(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        score(adapter, layer, inputs, encoded, watch())
        kept = encoded.textures
        score(adapter, layer, inputs, encoded, watch())
        assert encoded.textures is kept
        assert len(kept) == 3


class TestSeen:
    """What may be seen beside texture and question is a choice of the caller's."""

    def test_everything_encoded_if_nobody_says(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        told = score(adapter, layer, inputs, encoded, watch(), seen_whole(encoded.features))
        for one, other in zip(score(adapter, layer, inputs, encoded, watch()), told, strict=True):
            assert torch.equal(one.balanced, other.balanced)

    def test_nothing_needs_to_be_encoded(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        layout, unknown = adapter.layout(inputs), EncodedImages()
        blind = score(adapter, layer, inputs, unknown, watch(), Seen(layout.counts, layout.grids))
        assert unknown.features is None
        assert all(map(torch.equal, unknown.pictures, adapter.images(inputs)))
        for one, other in zip(blind, score(adapter, layer, inputs, encoded, watch()), strict=True):
            assert torch.equal(one.information, other.information)
            assert (one.participatory - other.participatory).abs().max() > 1e-3

    def test_each_image_has_its_own(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        layout = adapter.layout(inputs)
        couplings = [float(image) + torch.zeros(6, 6) for image in range(3)]
        seen = Seen(layout.counts, layout.grids, coupling=couplings)
        for image, relevance in enumerate(score(adapter, layer, inputs, encoded, watch(), seen)):
            assert torch.equal(relevance.participatory[0], couplings[image].sigmoid())
        torch.manual_seed(0)
        with torch.no_grad():
            for parameter in layer.balancer.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        gestalts = [torch.randn(WIDTH) for _ in range(3)]
        weights = [
            [r.weights for r in score(adapter, layer, inputs, encoded, watch(), replace(seen, gestalt=some))]
            for some in (gestalts, [gestalts[0], torch.zeros(WIDTH), gestalts[2]])
        ]
        assert [torch.equal(*pair) for pair in zip(*weights, strict=True)] == [True, False, True]


class TestDecide:
    def test_what_is_fetched_is_the_same_without_gradient(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        maps = score(adapter, layer, inputs, encoded, watch())
        maps[1] = maps[1]._replace(structured=None)
        for before, after in zip(maps, fetch(maps), strict=True):
            for old, new in zip(before, after, strict=True):
                assert (old is None) == (new is None)
                if old is not None:
                    assert torch.equal(old, new)
                    assert old.dtype == new.dtype
                    assert not new.requires_grad

    def test_a_relevance_that_is_not_finite_is_named_by_its_image(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        seen = seen_whole(encoded.features)
        seen.cells[1][:] = torch.nan
        with pytest.raises(NonFiniteScores, match="image 1"):
            decide(adapter, layer, inputs, encoded, [4, 4, 4], "prune", watch(), seen)

    def test_an_image_without_a_budget_keeps_all(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        maps = score(adapter, layer, inputs, encoded, watch())
        decision = decide(adapter, layer, inputs, encoded, [5, None, 0.5], "saccade", watch())
        assert [allocation.kept for allocation in decision.allocations] == [5, 36, 18]
        whole = decision.allocations[1]
        assert (whole.reasons == Reason.ALL).all()
        assert torch.equal(whole.balanced, maps[1].balanced.detach())
        assert [len(gate) for gate in decision.gates] == [36, 36, 36]

    def test_modes(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        with torch.no_grad():
            pruned = decide(adapter, layer, inputs, encoded, [5, 6, 7], "prune", watch())
            weighted = decide(adapter, layer, inputs, encoded, [5, 6, 7], "weight", watch())
        assert [a.kept for a in pruned.allocations] == [5, 6, 7]
        assert pruned.gates is None
        assert [a.kept for a in weighted.allocations] == [36, 36, 36]
        assert torch.equal(weighted.gates[0], weighted.allocations[0].balanced.flatten())

    def test_gates_are_one_and_carry_gradient(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        decision = decide(adapter, layer, inputs, encoded, [5, 6, 7], "prune", watch())
        assert all((gate == 1).all() for gate in decision.gates)
        sum(gate.sum() for gate in decision.gates).backward()
        assert any(p.grad is not None and (p.grad != 0).any() for p in layer.parameters())

    def test_all_kept(self) -> None:
        _, _, _, encoded = set_up()
        decision = all_kept(encoded.features, fallback=True)
        assert decision.fallback
        assert [a.kept for a in decision.allocations] == [36, 36, 36]
