"""The modes as a caller sees them: forward, generate, ask, sessions; and every mode of every family."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version
from torch import nn
from torch.nn import functional as F

from arr_coc.choose.allocation import Reason
from arr_coc.choose.stopwatch import STAGES
from arr_coc.model import ARRCOCModel
from arr_coc.modes import MODES
from arr_coc.seam import GESTALT, gestalt
from arr_coc.seam.decoding import CHUNKED_PREFILL
from arr_coc.seam.gestalt import COMPRESSORS
from arr_coc.seam.tower_compressor import TOWERS, TowerCompressor
from eyes import (
    IMAGES,
    KINDS,
    ROWS,
    TOTAL,
    build,
    inputs_of,
    moved,
    patches_seen,
    set_constants,
    wrapped,
)
from near import KERNELS, near
from tiny import KINDS as TYPES
from tiny import MASKABLE, QWEN_FAMILIES, Tiny, apart, picture, tiny

QUESTION = "Where is the red ball?"
NEW = 5
LOOSE = 5e-4  # padding moves the chunks of a recurrent layer
EARLY = ("sparse", "saccade", "compress")

sparse_families = pytest.mark.parametrize("family", QWEN_FAMILIES)
every_way = pytest.mark.parametrize(
    ("family", "kind"),
    [("qwen3_vl", "stem"), ("qwen3_5", "stem"), ("qwen3_vl", "gaze"), ("qwen2_5_vl", "covering")],
)
every_path = pytest.mark.parametrize(
    ("family", "kind", "mode"),
    [("qwen3_vl", "stem", mode) for mode in EARLY]
    + [("qwen3_5", "stem", "sparse"), ("qwen3_5", "stem", "saccade")]
    + [("qwen3_vl", "gaze", "sparse"), ("qwen2_5_vl", "covering", "saccade")],
)
"""Each mode before the encoder, each kind of eyes, and a family with recurrent layers."""
every_mode = pytest.mark.parametrize("mode", EARLY)


pytestmark = pytest.mark.usefixtures("small_constants")


def compressors_of(family: str) -> dict[str, nn.Module]:
    """Compressors as if they were trained."""
    if family not in QWEN_FAMILIES:
        return {}
    tower = tiny(family).model.base_model.visual
    return {name: moved(TowerCompressor.of(tower, factor)) for name, factor in TOWERS.items()}


def greedy(model: Any, inputs: dict, **more: Any) -> Any:
    """Greedy text in which no image token is ever new: without a cache a model would count it."""
    never = [model.config.image_token_id]
    return model.generate(**inputs, do_sample=False, max_new_tokens=NEW, suppress_tokens=never, **more)


class TestEverythingKept:
    """Nothing dropped, nothing added: the stock model to the last bit."""

    @torch.no_grad()
    @every_way
    def test_sparse(self, family: str, kind: str) -> None:
        model, inputs, stock = wrapped(family, kind), inputs_of(family), tiny(family).model
        logits = stock(**inputs).logits
        assert torch.equal(model(**inputs, mode="sparse", budget=1.0).logits, logits)
        assert torch.equal(greedy(model, inputs, mode="sparse", budget=1.0), greedy(stock, inputs))
        assert (model(**inputs, mode="sparse").logits[:, -1] - logits[:, -1]).abs().max() > 0.01

    @torch.no_grad()
    @every_way
    def test_saccade_on_small_images(self, family: str, kind: str) -> None:
        model, stock = build(family, kind, budget=None), tiny(family).model
        inputs = inputs_of(family, [ROWS[0], ("What?", [picture(3, (40, 64))])])  # 30 and 40 cells
        assert torch.equal(model(**inputs, mode="saccade").logits, stock(**inputs).logits)
        out = greedy(model, inputs, mode="saccade", return_allocation=True)
        assert torch.equal(out.sequences, greedy(stock, inputs))
        assert all((allocation.reasons == Reason.ALL).all() for allocation in out.allocations)

    @torch.no_grad()
    @pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl", "qwen3_5"])
    def test_a_small_image_beside_a_large_one_is_read_as_the_stock_model_reads_it(self, family: str) -> None:
        model, inputs = build(family, budget=None), inputs_of(family)
        out = model(**inputs, mode="saccade")
        assert [allocation.kept for allocation in out.allocations] == [30, TOTAL - 8]
        assert not (out.columns[0] == GESTALT).any()
        alone = inputs_of(family, ROWS[:1])
        expected = tiny(family).model(**alone).logits[0]
        assert near(out.logits[0, -len(expected) :], expected, KERNELS if family in MASKABLE else LOOSE)


class TestGenerate:
    @torch.no_grad()
    @pytest.mark.parametrize(
        ("family", "mode"),
        [("qwen3_vl", mode) for mode in EARLY]
        + [("qwen3_5", "sparse"), ("qwen3_5", "saccade"), ("qwen2_5_vl", "saccade"), ("qwen2_vl", "sparse")]
        + [("llava", "sparse"), ("llava", "compress"), ("llava_next", "compress")],
    )
    def test_greedy_text_is_stepwise_argmax_without_cache(self, family: str, mode: str) -> None:
        """Decoding continues after the end of the undropped sequence."""
        model, inputs = wrapped(family), inputs_of(family)
        out = greedy(model, inputs, mode=mode)
        length = inputs["input_ids"].shape[1]
        assert torch.equal(out[:, :length], inputs["input_ids"])
        assert out.shape == (2, length + NEW)

        prepared = model.prepare(inputs | {"use_cache": False}, mode=mode)
        steps = prepared.compacted.kwargs
        if steps["position_ids"].ndim == 3 and model.adapter.text_row:
            steps["position_ids"] = steps["position_ids"][1:]  # the text row is only there for masks
        end = model.adapter.positions(inputs)[..., -1:]  # of the undropped sequence
        steps.pop("mm_token_type_ids", None)
        for step in range(NEW):
            logits = model.base(**steps).logits[:, -1]
            logits[:, model.config.image_token_id] = -torch.inf  # as `greedy`
            token = logits.argmax(-1, keepdim=True)
            assert torch.equal(token[:, 0], out[:, length + step])
            steps["input_ids"] = torch.cat([steps["input_ids"], token], dim=1)
            steps["attention_mask"] = F.pad(steps["attention_mask"], (0, 1), value=1)
            following = (end + 1 + step).expand(*steps["position_ids"].shape[:-1], 1)
            steps["position_ids"] = torch.cat([steps["position_ids"], following], dim=-1)

    @every_path
    def test_batch_equals_single(self, family: str, kind: str, mode: str) -> None:
        model = wrapped(family, kind)
        rows = [ROWS[0], ("Only words.", []), ROWS[1], ("Why, and how much of it?", [picture(3, (96, 48))])]
        both = greedy(model, inputs_of(family, rows), mode=mode, return_allocation=True)
        assert not both.fallback
        assert [allocation.total for allocation in both.allocations] == (
            [6, 8, 8] if mode == "compress" else [30, 45, 72]
        )
        for image, row in enumerate((0, 2, 3)):
            alone = greedy(model, inputs_of(family, [rows[row]]), mode=mode, return_allocation=True)
            assert torch.equal(alone.allocations[0].keep, both.allocations[image].keep)
            if family in MASKABLE:  # a recurrent layer's rounding depends on the padding
                assert torch.equal(alone.sequences[0, -NEW:], both.sequences[row, -NEW:])

    @pytest.mark.slow
    @every_way
    def test_several_images_have_a_quota_each(self, family: str, kind: str) -> None:
        model = wrapped(family, kind)
        pictures = [picture(i, (72, 48)) for i in range(4)]
        rows = [("Which one?", pictures[:2]), ("And here?", pictures[2:])]
        inputs = inputs_of(family, rows)
        for mode, coarse in (("sparse", 0), ("saccade", 6)):
            out = greedy(model, inputs, mode=mode, return_allocation=True)
            assert [allocation.kept for allocation in out.allocations] == [7] * 4
            assert model.prepare(inputs, mode=mode).read == [7 + coarse] * 4
            if kind != "gaze":  # known open: what an untrained model sees of a neighbour
                swapped = inputs_of(family, [("Which one?", [pictures[0], pictures[3]]), rows[1]])
                again = model.prepare(swapped, mode=mode)
                assert torch.equal(out.allocations[0].keep, again.allocations[0].keep)

    @every_mode
    def test_text_alone_goes_to_the_base_model_untouched(self, mode: str) -> None:
        model, inputs = wrapped(), inputs_of(rows=[("Only words.", [])])
        out = greedy(model, inputs, mode=mode, return_allocation=True)
        assert torch.equal(out.sequences, greedy(tiny("qwen3_vl").model, inputs))
        assert out.allocations == []

    @pytest.mark.parametrize(
        ("family", "mode"),
        [("qwen3_vl", mode) for mode in EARLY] + [("qwen2_5_vl", "saccade"), ("llava", "compress")],
    )
    def test_beams_caches_and_returned_sequences(self, family: str, mode: str) -> None:
        model, inputs = wrapped(family), inputs_of(family)
        repeated = inputs["input_ids"].repeat_interleave(2, dim=0)
        beams = greedy(model, inputs, mode=mode, num_beams=3, num_return_sequences=2)
        assert torch.equal(beams[:, : repeated.shape[1]], repeated)
        best = greedy(model, inputs, mode=mode)
        ways: list[dict[str, Any]] = [{"use_cache": False}, {"cache_implementation": "static"}]
        if Version(transformers.__version__) >= CHUNKED_PREFILL:
            ways.append({"prefill_chunk_size": 16})
        for more in ways:
            assert torch.equal(greedy(model, inputs, mode=mode, **more), best), more

    @pytest.mark.slow
    @torch.no_grad()
    def test_no_part_is_idle(self) -> None:
        """The tests of this file could fail: another mode, or kind of eye, is another answer."""
        inputs, seen = inputs_of(), []
        for kind in KINDS:
            seen += [wrapped(kind=kind)(**inputs, mode=mode).logits[:, -1] for mode in EARLY]
        distinct = {tuple(logits.flatten().tolist()) for logits in seen}
        assert len(distinct) == 2 * len(KINDS) + 1  # the gestalt alone needs no eyes


class TestGestalts:
    @torch.no_grad()
    @pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl", "llava", "llava_onevision"])
    def test_every_compressor_of_a_family(self, family: str) -> None:
        model, inputs = build(family, compressors=compressors_of(family)), inputs_of(family)
        qwen = family in QWEN_FAMILIES
        names = [name for name in COMPRESSORS if qwen or not (name == "resize" or name in TOWERS)]
        found = []
        for name in names:
            prepared = model.prepare(inputs, mode="compress", gestalt=name)
            assert (prepared.mode, prepared.note, prepared.fallback) == ("compress", None, False)
            logits = model.base(**prepared.compacted.kwargs).logits
            assert logits.isfinite().all()
            found.append(logits[:, -1])
            coarse = gestalt.compress(name, model.adapter, inputs, None, model.compressors)
            assert (prepared.compacted.columns == GESTALT).sum(1).tolist() == coarse.counts
            answer = model.ask(IMAGES[0], "What?", mode="compress", gestalt=name, max_new_tokens=2)
            assert answer.read == prepared.read[0]
        distinct = {tuple(logits.flatten().tolist()) for logits in found}
        assert len(distinct) == len(names)

    @pytest.mark.slow
    def test_what_is_read_of_how_much(self) -> None:
        model = build(compressors=compressors_of("qwen3_vl"))
        for name, coarse in (("resize", 6), ("pool4", 9), ("pool16", 4), ("tower4", 9), (None, 6)):
            answer = model.ask(IMAGES[0], "What?", mode="compress", gestalt=name, max_new_tokens=1)
            assert (answer.mode, answer.read, answer.total) == ("compress", coarse, 30)
        for name, coarse in (("resize", 8), ("pool4", 15), ("tower16", 6), (None, 8)):
            answer = model.ask(IMAGES[1], "What?", mode="saccade", gestalt=name, max_new_tokens=1)
            assert (answer.mode, answer.read, answer.kept, answer.total) == ("saccade", coarse + 7, 7, 45)
        answer = model.ask(IMAGES[1], "What?", mode="sparse", max_new_tokens=1)
        assert (answer.mode, answer.read, answer.kept, answer.total) == ("sparse", 7, 7, 45)


class TestLargeImages:
    """The true constants, on images of thousands of cells."""

    @pytest.fixture
    def large(self, monkeypatch: pytest.MonkeyPatch) -> Tiny:
        set_constants(monkeypatch, 529, 256)
        built = tiny("qwen3_vl")
        processor = copy.deepcopy(built.processor)
        processor.image_processor.size = {"shortest_edge": 256, "longest_edge": 2048 * 2048}
        return Tiny(built.family, built.model, processor)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("size", "cells"),
        [((184, 184), 23 * 23), ((192, 184), 24 * 23), ((4000, 24), 1500), ((1536, 1024), 192 * 128)],
    )
    def test_529_tokens_whatever_the_size_and_shape(self, large: Tiny, size: tuple, cells: int) -> None:
        model = ARRCOCModel(
            large.model, large.processor, wrapped().layer, stem=wrapped().stem, strict=True, mode="saccade"
        )
        session = model.session(picture(1, size))
        with patches_seen(model) as seen:
            answer = session.ask("What is it?", max_new_tokens=2)
        assert (answer.read, answer.total, answer.fallback) == (529, cells, False)
        coarse = answer.read - answer.kept
        assert coarse <= 256
        assert (coarse == 0) == (cells <= 529)
        if coarse:
            assert seen == [4 * coarse, 4 * (529 - coarse)]
            assert coarse > 120 or min(size) < 32
            fewer = session.ask("What is it?", budget=100, max_new_tokens=1)
            assert (fewer.read, fewer.kept) == (coarse + 100, 100)


class TestSessions:
    QUESTIONS = ("What?", "Where is the red ball?", "How many are there?")

    @every_path
    def test_answers_are_those_of_a_fresh_session(self, family: str, kind: str, mode: str) -> None:
        model = wrapped(family, kind)
        session = model.session(IMAGES[1])
        for question in self.QUESTIONS:
            answer = session.ask(question, mode=mode, max_new_tokens=NEW)
            alone = model.ask(IMAGES[1], question, mode=mode, max_new_tokens=NEW)
            assert torch.equal(answer.allocation.keep, alone.allocation.keep)
            assert (answer.text, answer.read, answer.fallback) == (alone.text, alone.read, False)

    @pytest.mark.parametrize(
        ("family", "mode"),
        [("qwen3_vl", mode) for mode in EARLY]
        + [("qwen2_5_vl", "saccade"), ("llava", "sparse"), ("llava_next", "compress")],
    )
    def test_answers_are_those_of_generate(self, family: str, mode: str) -> None:
        model = wrapped(family)
        session = model.session(IMAGES[1])
        for question in self.QUESTIONS[:2]:
            inputs = inputs_of(family, [(question, IMAGES[1:])])
            how = {"do_sample": False, "max_new_tokens": NEW, "pictures": IMAGES[1:]}
            out = model.generate(**inputs, mode=mode, **how)
            out = out[0, inputs["input_ids"].shape[1] :]
            text = model.processor.tokenizer.decode(out, skip_special_tokens=True).strip()
            assert session.ask(question, mode=mode, max_new_tokens=NEW).text == text

    @pytest.mark.slow
    @sparse_families
    def test_the_tower_sees_the_coarse_view_once_and_then_only_kept_cells(self, family: str) -> None:
        for kind in KINDS:
            session = wrapped(family, kind).session(IMAGES[1])
            with patches_seen(session.model) as seen:
                for question in self.QUESTIONS:
                    for mode in ("saccade", "sparse", "compress"):
                        session.ask(question, mode=mode, budget=5, max_new_tokens=1)
            assert seen == [4 * 8] + [4 * 5] * 6

    @pytest.mark.slow
    def test_one_session_in_every_mode(self) -> None:
        """What one mode has found out is right for the next one."""
        model = wrapped()
        session = model.session(IMAGES[1])
        for mode in (*MODES, *reversed(MODES)):
            for name in (None, "pool4") if mode in ("saccade", "compress") else (None,):
                shared = session.ask("What?", mode=mode, gestalt=name, max_new_tokens=NEW)
                alone = model.ask(IMAGES[1], "What?", mode=mode, gestalt=name, max_new_tokens=NEW)
                assert (shared.text, shared.mode) == (alone.text, mode)
                assert torch.equal(shared.allocation.keep, alone.allocation.keep)

    def test_milliseconds(self) -> None:
        session = wrapped().session(IMAGES[1])
        first, *later = (session.ask(q, mode="saccade", max_new_tokens=2).ms for q in self.QUESTIONS * 2)
        assert list(first) == list(STAGES)
        assert all(value > 0 for value in first.values())
        assert sum(first.values()) == pytest.approx(2 * first["total"])
        assert min(ms["gestalt"] for ms in later) < 0.5 * first["gestalt"]

    def test_look(self) -> None:
        model = wrapped()
        for mode in ("sparse", "saccade"):
            looked = model.look(IMAGES[1], "What?", mode=mode)
            asked = model.ask(IMAGES[1], "What?", mode=mode, max_new_tokens=1).allocation
            assert torch.equal(looked.keep, asked.keep)
            assert looked.kept == 7
        looks = [build(mode=mode).look(IMAGES[1], "What?") for mode in ("compress", "full", None)]
        assert all(torch.equal(look.keep, looks[2].keep) for look in looks)


class TestGradient:
    @pytest.mark.parametrize(
        ("family", "kind", "mode"),
        [
            ("qwen3_vl", "stem", "sparse"),
            ("qwen3_vl", "covering", "saccade"),
            ("qwen3_5", "stem", "saccade"),
            ("qwen2_5_vl", "covering", "sparse"),
        ],
    )
    def test_the_answer_teaches_the_scorers(self, family: str, kind: str, mode: str) -> None:
        model, inputs = build(family, kind), inputs_of(family)
        labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
        model(**inputs, labels=labels, mode=mode).loss.backward()
        grads = {name: p.grad for name, p in model.layer.named_parameters() if p.grad is not None}
        assert all(grad.isfinite().all() for grad in grads.values())
        for scorer in ("information", "perspectival", "participatory", "balancer"):
            assert any((grad != 0).any() for name, grad in grads.items() if name.startswith(scorer)), scorer
        assert all(p.grad is None for part in (model.base, model.stem) if part for p in part.parameters())

    def test_gates_change_no_value(self) -> None:
        model, inputs = wrapped(), inputs_of()
        for mode in ("sparse", "saccade"):
            learning = model(**inputs, mode=mode).logits
            with torch.no_grad():
                assert torch.equal(model(**inputs, mode=mode).logits, learning)
        assert learning.requires_grad


@pytest.mark.slow
@torch.no_grad()
def test_bfloat16_base() -> None:
    built = tiny("qwen3_vl")
    base = copy.deepcopy(built.model).bfloat16()
    for kind in KINDS:
        like = wrapped(kind=kind)
        model = ARRCOCModel(
            base, built.processor, like.layer, stem=copy.deepcopy(like.stem), budget=7, strict=True
        )
        for mode in EARLY:
            out = model(**inputs_of(), mode=mode)
            assert out.logits.dtype == torch.bfloat16
            assert out.logits.isfinite().all()
            assert not out.fallback


@pytest.mark.slow
@pytest.mark.parametrize("family", TYPES)
def test_every_mode(family: str) -> None:
    built = tiny(family)
    model = ARRCOCModel.wrap(built.model, built.processor, strict=True, budget=9)
    session = model.session(picture(1, (96, 72)))
    total = sum(model.adapter.features(session.inputs(QUESTION)).counts)
    for mode, definition in MODES.items():
        answer = session.ask(QUESTION, mode=mode, max_new_tokens=2)
        adapter, early = model.adapter, definition.before_encoder
        crops = adapter.encodes == "crops" and definition.gestalt
        alone = adapter.encodes == "cells" or crops or not early
        ran = mode if alone else "sparse" if adapter.encodes == "tiles" else definition.instead
        assert (answer.mode, answer.fallback) == (ran, False)
        assert ("ran as" in (answer.note or "")) == (ran != mode)
        if ran in ("prune", "sparse"):
            assert answer.kept == 9
            assert answer.total <= total


@pytest.mark.parametrize("family", apart(TYPES))
def test_pictures_of_what_was_chosen(family: str) -> None:
    built = tiny(family)
    answer = ARRCOCModel.wrap(built.model, built.processor, strict=True).ask(
        picture(1, (96, 72)), QUESTION, budget=9, max_new_tokens=2
    )
    (allocation,) = answer.allocations
    t, height, width = allocation.grid
    assert (t, int(allocation.keep.numel())) == (1, 9)
    assert allocation.balanced.numel() == height * width
    shown_width, shown_height = answer.show().size
    assert shown_width > shown_height
    assert answer.couplings  # the guide was asked
