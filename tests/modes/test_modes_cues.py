"""Gathering: what each image of a call is scored by, from whatever is at hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.families import adapter_for
from arr_coc.guide.guide import load_guide, text_evidence
from arr_coc.modes import MODES
from arr_coc.modes.call import EncodedImages
from arr_coc.modes.request import new_call, resolve
from arr_coc.modes.route import cues_for
from arr_coc.modes.scoring import gather, question_embeddings, stretch
from arr_coc.relevance.deciding import Cues, score_cells
from arr_coc.seam import FamilyAdapter
from eyes import KINDS, build, inputs_of, set_constants, wrapped
from near import near
from tiny import WIDTH, picture, prompts, tiny

ROWS = [("One?", [picture(1), picture(2)]), ("Another one, longer?", [picture(1)])]


def watch() -> Stopwatch:
    return Stopwatch(torch.device("cpu"))


def set_up(rows: list = ROWS) -> tuple[FamilyAdapter, ARRCOCLayer, dict[str, Any], EncodedImages]:
    built = tiny("qwen3_vl")
    adapter = adapter_for(built.model, built.processor)
    inputs = prompts(built, rows)
    with torch.no_grad():
        encoded = EncodedImages(adapter.features(inputs))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return adapter, ARRCOCLayer(ARRCOCConfig(dim=WIDTH)).eval(), inputs, encoded


@torch.no_grad()
def gathered(rows: list = ROWS, **more: Any) -> list[Cues]:
    """Cues with every cell encoded."""
    adapter, layer, inputs, encoded = set_up(rows)
    features = encoded.features
    cells = [features.cell_tokens(image) for image in range(len(features.grids))]
    return gather(adapter, layer, inputs, encoded, features.layout, watch(), cells=cells, **more)


def same(one: Cues, other: Cues, atol: float = 0.0) -> bool:
    return all(
        (a is None and b is None) or torch.allclose(a.float(), b.float(), rtol=0, atol=atol)
        for a, b in zip(one, other, strict=True)
    )


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


class TestGather:
    def test_each_image_has_the_question_of_its_row(self) -> None:
        cues = gathered()
        assert torch.equal(cues[0].query, cues[1].query)
        assert cues[0].query.shape != cues[2].query.shape
        assert torch.equal(cues[0].texture, cues[2].texture)  # same picture, another question
        assert all(bool(one.query_mask.all()) for one in cues)
        for row, images in ((0, cues[:2]), (1, cues[2:])):
            for one, other in zip(gathered([ROWS[row]]), images, strict=True):
                assert same(one, other, atol=1e-5)

    def test_scores_are_those_of_each_row_alone(self) -> None:
        layer = set_up()[1]
        maps = score_cells(layer, gathered())
        assert [relevance.balanced.shape for relevance in maps] == [(1, 6, 6)] * 3
        assert not torch.equal(maps[0].participatory, maps[2].participatory)
        for row, picked in ((0, maps[:2]), (1, maps[2:])):
            alone = score_cells(layer, gathered([ROWS[row]]))
            for one, other in zip(alone, picked, strict=True):
                assert near(one.balanced, other.balanced)

    def test_nothing_needs_to_be_encoded(self) -> None:
        adapter, layer, inputs, _ = set_up()
        layout, unknown = adapter.layout(inputs), EncodedImages()
        with torch.no_grad():
            blind = gather(adapter, layer, inputs, unknown, layout, watch())
        assert unknown.features is None
        assert all(map(torch.equal, unknown.pictures, adapter.images(inputs)))
        assert [(one.vision, one.gestalt, one.coupling) for one in blind] == [(None, None, None)] * 3
        for one, other in zip(score_cells(layer, blind), score_cells(layer, gathered()), strict=True):
            assert torch.equal(one.information, other.information)
            assert (one.participatory - other.participatory).abs().max() > 1e-3

    def test_textures_are_kept_for_the_next_question_by_their_channels(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        layout, stopwatch = adapter.layout(inputs), watch()
        first = gather(adapter, layer, inputs, encoded, layout, stopwatch)
        made = [dict(cache.computed) for cache in encoded.caches]
        assert [max(each.values()) for each in made] == [1, 1, 1]
        again = gather(adapter, layer, inputs, encoded, layout, stopwatch)
        assert [dict(cache.computed) for cache in encoded.caches] == made
        assert all(torch.equal(a.texture, b.texture) for a, b in zip(first, again, strict=True))
        assert all(torch.equal(a.texture, b) for a, b in zip(again, encoded.textures, strict=True))
        assert [stage for stage, ms in stopwatch.ms.items() if ms] == ["texture"]
        other = ARRCOCLayer(ARRCOCConfig(dim=WIDTH, channels="fast13"))
        (fewer, *_) = gather(adapter, other, inputs, encoded, layout, stopwatch)
        assert not torch.equal(fewer.texture, first[0].texture)
        assert torch.equal(encoded.textures[0], fewer.texture)

    def test_channels_of_print_have_the_guides_evidence_of_each_picture(self) -> None:
        adapter, _, inputs, encoded = set_up()
        layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH, channels=("rgb", "sobel", "text_mask")))
        cues = gather(adapter, layer, inputs, encoded, adapter.layout(inputs), watch())
        for one, own in zip(cues, adapter.images(inputs), strict=True):
            evidence = text_evidence(load_guide(), own)[None, None]
            assert torch.equal(one.texture[:, -1:], F.adaptive_max_pool2d(evidence, one.texture.shape[-2:]))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_each_image_has_its_own_in_the_layers_dtype(self, dtype: torch.dtype) -> None:
        adapter, layer, inputs, _ = set_up()
        layer = layer.to(dtype)
        own = {
            "cells": [torch.full((36, WIDTH), float(i)) for i in range(3)],
            "gestalt": [torch.full((WIDTH,), 10.0 + i) for i in range(3)],
            "coupling": [torch.full((6, 6), 20.0 + i) for i in range(3)],
        }
        cues = gather(adapter, layer, inputs, EncodedImages(), adapter.layout(inputs), watch(), **own)
        for i, one in enumerate(cues):
            assert (one.vision == i).all()
            assert one.vision.shape == (1, 36, WIDTH)
            assert (one.gestalt == 10 + i).all()
            assert one.gestalt.shape == (1, WIDTH)
            assert (one.coupling == 20 + i).all()
            assert one.coupling.shape == (1, 6, 6)
            tensors = (one.texture, one.query, one.vision, one.gestalt, one.coupling)
            assert {tensor.dtype for tensor in tensors} == {next(layer.parameters()).dtype}


class TestEveryMode:
    """The cues of a mode are all that decides: whoever scores them keeps the cells that the mode keeps."""

    @torch.no_grad()
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("mode", ["prune", "sparse", "saccade"])
    def test_cues_decide(self, mode: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        set_constants(monkeypatch)
        model = wrapped(kind=kind)
        inputs = inputs_of(rows=[("What?", [picture(2, (96, 96))])])  # more cells than stay without a choice
        call = new_call(model.chooser, inputs, MODES[mode], 7, gestalt="resize")
        (cues,) = cues_for(model.chooser, resolve(model.chooser, call)[0])
        (expected,) = model.prepare(inputs, mode=mode, budget=7).allocations
        (record,) = model.layer.allocate(cues.relevance(model.layer), 7)
        assert expected.kept == 7 < expected.total
        assert torch.equal(record.keep, expected.keep)

    @pytest.mark.slow
    def test_what_is_known_of_cells(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An untrained layer has a coupling, a trained one cells; a gestalt is made only where it is read."""
        set_constants(monkeypatch)
        kinds = {}
        for kind in KINDS:
            for mode in ("prune", "sparse", "saccade"):
                chooser = build("qwen3_vl", kind).chooser
                call = new_call(chooser, inputs_of(), MODES[mode], 7, gestalt="resize")
                with torch.no_grad():
                    cues = cues_for(chooser, resolve(chooser, call)[0])[0]
                kinds[kind, mode] = tuple(
                    part is not None for part in (cues.vision, cues.gestalt, cues.coupling)
                )
        assert kinds == {
            ("guide", "prune"): (True, False, True),
            ("guide", "sparse"): (False, False, True),
            ("guide", "saccade"): (False, True, True),
            ("gaze", "prune"): (True, False, True),
            ("gaze", "sparse"): (False, False, True),
            ("gaze", "saccade"): (False, True, True),
            ("covering", "prune"): (True, False, False),
            ("covering", "sparse"): (True, True, False),
            ("covering", "saccade"): (True, True, False),
            ("stem", "prune"): (True, False, False),
            ("stem", "sparse"): (True, False, False),
            ("stem", "saccade"): (True, True, False),
        }


def test_stretch_is_linear_between_the_middles() -> None:
    coarse = torch.arange(4.0).view(1, 1, 4).expand(2, 3, 4)
    assert torch.allclose(stretch(coarse, (3, 4)), coarse)
    fine = stretch(coarse, (6, 8))
    assert fine.shape == (2, 6, 8)
    assert fine[0, 0].tolist() == [0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0]
