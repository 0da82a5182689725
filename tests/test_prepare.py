"""Before the base model: what is encoded, what decides, what the language model is handed, in every mode.

Run: pytest tests/test_prepare.py
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from arr_coc import gestalt, prepare
from arr_coc.allocation import Reason
from arr_coc.attending import NonFiniteScores
from arr_coc.model import ARRCOCModel
from arr_coc.prepare import gated, runs_as, saccades, stretch, without
from arr_coc.realize import EncodedImages, Prepared
from arr_coc.seam import GESTALT, Compacted, VisualFeatures
from eyes import COARSE, IMAGES, KINDS, ROWS, TOTAL, build, inputs_of, patches_seen, set_constants, wrapped
from tiny import LLAVA_FAMILIES, QWEN_FAMILIES, picture, tiny

every_kind = pytest.mark.parametrize("kind", KINDS)
sparse_families = pytest.mark.parametrize("family", QWEN_FAMILIES)
llava_families = pytest.mark.parametrize("family", LLAVA_FAMILIES)


@pytest.fixture(autouse=True)
def small_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    set_constants(monkeypatch)


@torch.no_grad()
def prepared_for(model: ARRCOCModel, inputs: dict, mode: str, **more: Any) -> Prepared:
    return model.prepare(inputs, mode=mode, **more)


def assert_same(found: Compacted, expected: Compacted) -> None:
    """The same call of the base model, to the last bit."""
    assert torch.equal(found.columns, expected.columns)
    one, other = dict(found.kwargs), dict(expected.kwargs)
    seen = [kwargs.pop("mm_encoder_outputs")["image"] for kwargs in (one, other)]
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert same(seen[0].pooler_output, seen[1].pooler_output)
    levels = [getattr(output, "deepstack_features", None) or [] for output in seen]
    assert len(levels[0]) == len(levels[1])
    assert all(same(*pair) for pair in zip(*levels, strict=True))


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


class TestSparse:
    @torch.no_grad()
    @every_kind
    @sparse_families
    def test_only_the_kept_cells_are_encoded(self, family: str, kind: str) -> None:
        model, inputs = wrapped(family, kind), inputs_of(family)
        with patches_seen(model) as seen:
            prepared = prepared_for(model, inputs, "sparse")
        coarse = [] if kind == "stem" else [4 * (2 * 3 + 4 * 2)]  # the gestalts' own cells
        assert seen == [*coarse, 4 * (7 + 7)]
        assert (prepared.mode, prepared.note, prepared.fallback) == ("sparse", None, False)
        assert prepared.read == [7, 7]
        keep = [allocation.keep for allocation in prepared.allocations]
        fine = model.adapter.encode_cells(inputs, keep)
        expected = model.adapter.assemble(inputs, model.adapter.layout(inputs), keep, fine, None)
        assert_same(prepared.compacted, expected)

    @every_kind
    def test_another_question_moves_the_relevance(self, kind: str) -> None:
        model, maps = wrapped(kind=kind), []
        for question in ("Where is the red ball?", "What?"):
            found = prepared_for(model, inputs_of(rows=[(question, [picture(3, (96, 96))])]), "sparse")
            maps.append(found.allocations[0].balanced)
        assert (maps[0] - maps[1]).abs().max() > 1e-3

    def test_nothing_but_pixels_and_question_decides_with_a_stem(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = wrapped()
        for name in ("coarse", "features"):
            monkeypatch.setattr(model.adapter, name, None)
        monkeypatch.setattr(prepare, "gaze", None)
        assert prepared_for(model, inputs_of(), "sparse").read == [7, 7]

    def test_what_the_stem_sees(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The exact pictures, and the gestalt under them where there is one."""
        model, inputs, calls = wrapped(), inputs_of(), []
        look = model.stem.forward

        def noted(*given: Any) -> Tensor:
            calls.append(given)
            return look(*given)

        monkeypatch.setattr(model.stem, "forward", noted)
        encoded = EncodedImages()
        prepared_for(model, inputs, "sparse", encoded=encoded)
        prepared_for(model, inputs, "saccade", encoded=encoded)
        assert [given[1] for given in calls] == [(5, 6), (9, 5)] * 2
        for i, given in enumerate(calls):
            assert torch.equal(given[0][0], model.adapter.images(inputs)[i % 2])
        coarse = model.adapter.features(model.adapter.coarse(inputs, COARSE))
        assert [given[2] is None for given in calls] == [True, True, False, False]
        for i, (_, _, under) in enumerate(calls[2:]):
            assert torch.equal(under[0].flatten(1).T, coarse.tokens[i])
            assert under.shape[-2:] == coarse.grids[i][1:]

    def test_auto_and_fractions(self) -> None:
        model, inputs = wrapped(), inputs_of()
        assert prepared_for(model, inputs, "sparse", budget=0.4).read == [12, 18]
        auto = prepared_for(model, inputs, "sparse", budget="auto")
        assert auto.read == [allocation.kept for allocation in auto.allocations]
        assert all(allocation.budget == "auto" for allocation in auto.allocations)


class TestSaccade:
    @torch.no_grad()
    @every_kind
    @sparse_families
    def test_the_coarse_view_and_then_the_kept_cells(self, family: str, kind: str) -> None:
        model, inputs = wrapped(family, kind), inputs_of(family, ROWS[1:])
        with patches_seen(model) as seen:
            prepared = prepared_for(model, inputs, "saccade", budget=7)
        assert seen == [4 * 8, 4 * 7]
        assert (prepared.read, prepared.allocations[0].kept) == ([15], 7)
        adapter, keep = model.adapter, [prepared.allocations[0].keep]
        coarse = adapter.features(adapter.coarse(inputs, COARSE))
        fine = adapter.encode_cells(inputs, keep)
        assert_same(prepared.compacted, adapter.assemble(inputs, adapter.layout(inputs), keep, fine, coarse))

    @every_kind
    def test_budget_is_the_number_of_saccades(self, kind: str) -> None:
        model, inputs = wrapped(kind=kind), inputs_of()
        for budget, kept in ((3, [30, 3]), (0.2, [30, 9]), (1.0, [30, 45])):
            prepared = prepared_for(model, inputs, "saccade", budget=budget)
            assert [allocation.kept for allocation in prepared.allocations] == kept
            assert prepared.read == [kept[0], 8 + kept[1]]

    @every_kind
    @sparse_families
    def test_in_all_so_many_tokens_whatever_the_image(self, family: str, kind: str) -> None:
        """But no more than the image has; then there is no gestalt."""
        sizes = [(48, 40), (40, 72), (96, 96), (192, 16), (8, 400), (64, 40)]
        totals = [30, 45, 144, 48, 50, 40]
        model = build(family, kind, budget=None)
        rows = [("What?", [picture(i, size) for i, size in enumerate(sizes)])]
        prepared = prepared_for(model, inputs_of(family, rows), "saccade")
        assert [allocation.total for allocation in prepared.allocations] == totals
        assert prepared.read == [min(TOTAL, total) for total in totals]
        coarse = [read - a.kept for read, a in zip(prepared.read, prepared.allocations, strict=True)]
        assert [count > 0 for count in coarse] == [total > TOTAL for total in totals]
        assert max(coarse) <= COARSE

    @torch.no_grad()
    @sparse_families
    def test_a_small_image_beside_a_large_one_keeps_its_cells(self, family: str) -> None:
        model, inputs = wrapped(family), inputs_of(family)
        prepared = prepared_for(model, inputs, "saccade", budget=7)
        small, large = prepared.allocations
        assert (small.reasons == Reason.ALL).all()
        assert (large.reasons != Reason.ALL).all()
        columns = prepared.compacted.columns
        assert (columns == GESTALT).sum(1).tolist() == [0, 8]
        own = columns[0][columns[0] >= 0]
        assert own.tolist() == inputs["attention_mask"][0].nonzero().flatten().tolist()
        handed = prepared.compacted.kwargs["mm_encoder_outputs"]["image"].pooler_output
        stock = model.adapter.features(inputs).tokens
        assert torch.allclose(handed[0], stock[0], atol=1e-5)

    @every_kind
    def test_small_images_are_neither_scored_nor_looked_at_coarsely(
        self, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, inputs = wrapped(kind=kind), inputs_of(rows=ROWS[:1])
        monkeypatch.setattr(model.layer, "relevance", None)
        with patches_seen(model) as seen:
            prepared = prepared_for(model, inputs, "saccade")
        assert prepared.read == [30]
        assert seen == [4 * 30]

    def test_a_gestalt_that_leaves_no_room_for_saccades_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Never more tokens than promised, and never a silent fallback to all of them."""
        model, inputs = (
            build("qwen3_vl", "stem", budget=None),
            inputs_of(rows=[("?", [picture(1, (96, 96))])]),
        )
        monkeypatch.setattr(prepare, "SACCADE_TOKENS", 36)
        assert prepared_for(model, inputs, "saccade", gestalt="pool16").read == [36]
        with pytest.raises(ValueError, match=r"makes 36 tokens of an image of 144 cells"):
            prepared_for(model, inputs, "saccade", gestalt="pool4")
        assert prepared_for(model, inputs, "saccade", gestalt="pool4", budget=5).read == [36 + 5]

    def test_other_gestalts(self) -> None:
        model, inputs = wrapped(), inputs_of()
        for name, coarse in (("pool4", 15), ("pool16", 6)):
            prepared = prepared_for(model, inputs, "saccade", gestalt=name, budget=5)
            assert prepared.read == [30, coarse + 5]


class TestCompress:
    @torch.no_grad()
    @sparse_families
    def test_the_coarse_view_alone(self, family: str) -> None:
        model, inputs = wrapped(family), inputs_of(family)
        with patches_seen(model) as seen:
            prepared = prepared_for(model, inputs, "compress")
        assert seen == [4 * (6 + 8)]
        assert prepared.read == [6, 8]
        adapter, none = model.adapter, [torch.tensor([], dtype=torch.long)] * 2
        coarse = adapter.features(adapter.coarse(inputs, COARSE))
        expected = adapter.assemble(inputs, adapter.layout(inputs), none, None, coarse)
        assert_same(prepared.compacted, expected)

    @torch.no_grad()
    @llava_families
    def test_tokens_that_are_no_cell_stay(self, family: str) -> None:
        model, inputs = wrapped(family), inputs_of(family)
        features = model.adapter.features(inputs)
        others = [n - len(cells) for n, cells in zip(features.counts, features.cells, strict=True)]
        coarse = gestalt.pooled(features, 4)
        prepared = prepared_for(model, inputs, "compress")
        assert prepared.read == [few + more for few, more in zip(coarse.counts, others, strict=True)]
        handed = prepared.compacted.kwargs["mm_encoder_outputs"]["image"].pooler_output
        for image, tokens in enumerate(coarse.tokens):
            assert torch.equal(handed[image][: len(tokens)], tokens)

    def test_nothing_is_scored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = build("qwen3_vl", "stem")
        for part in (model.layer, model.stem):
            monkeypatch.setattr(part, "forward", None)
        monkeypatch.setattr(model.layer, "relevance", None)
        assert prepared_for(model, inputs_of(), "compress").read == [6, 8]


class TestKnownAlready:
    """A second question about the same images costs no more than it must."""

    @every_kind
    @pytest.mark.parametrize("mode", ["sparse", "saccade"])
    def test_gestalt_and_stem_are_made_once(
        self, mode: str, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, encoded, looks = wrapped(kind=kind), EncodedImages(), []
        if kind == "stem":
            monkeypatch.setattr(
                model.stem, "forward", lambda *a, see=model.stem.forward: looks.append(1) or see(*a)
            )
        with patches_seen(model) as seen:
            for question in ("What?", "Where is the red ball?", "How many?"):
                inputs = inputs_of(rows=[(question, IMAGES[1:])])
                later = prepared_for(model, inputs, mode, encoded=encoded, budget=5)
                fresh = prepared_for(model, inputs, mode, budget=5)
                assert torch.equal(later.allocations[0].keep, fresh.allocations[0].keep)
                assert_same(later.compacted, fresh.compacted)
        coarse = kind != "stem" or mode == "saccade"
        assert seen.count(4 * 8) == (1 + 3) * coarse  # once for the three, and for each fresh one
        assert seen.count(4 * 5) == 6
        assert len(looks) == (4 if kind == "stem" else 0)
        assert encoded.features is None

    def test_what_the_neutral_question_looks_at_is_found_once(self) -> None:
        model, encoded, passes = wrapped(kind="gaze"), EncodedImages(), []
        embed = model.base.model.language_model
        hook = embed.register_forward_pre_hook(lambda *_: passes.append(1))
        for question in ("What?", "Where is the red ball?"):
            prepared_for(model, inputs_of(rows=[(question, IMAGES[1:])]), "sparse", encoded=encoded)
        hook.remove()
        assert len(passes) == 2 + 1

    def test_everything_that_was_encoded_is_used_again(self) -> None:
        model, encoded, inputs = wrapped(), EncodedImages(), inputs_of()
        with patches_seen(model) as seen:
            for mode in ("prune", "full", "weight"):
                prepared_for(model, inputs, mode, encoded=encoded)
            for name in ("pool4", "pool16", "pool4"):
                prepared_for(model, inputs, "compress", gestalt=name, encoded=encoded)
        assert seen == [4 * (30 + 45)]


class TestRunsAs:
    @llava_families
    def test_families_that_encode_everything_prune(
        self, family: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        for budget in (7, None):  # also with the default one, which fills up to SACCADE_TOKENS
            model, inputs = build(family, "stem", budget=budget), inputs_of(family)
            pruned = prepared_for(model, inputs, "prune")
            assert pruned.note is None
            for mode in ("sparse", "saccade"):
                caplog.clear()
                with caplog.at_level(logging.WARNING):
                    prepared = prepared_for(model, inputs, mode)
                assert prepared.mode == "prune"
                assert f"{mode} ran as prune" in prepared.note
                assert f"of {family} can't encode some cells alone" in prepared.note
                assert prepared.note in caplog.text
                assert_same(prepared.compacted, pruned.compacted)
                assert prepared.read == pruned.read

    @sparse_families
    def test_others_run_what_was_asked(self, family: str) -> None:
        for mode in prepare.MODES:
            assert runs_as(wrapped(family).adapter, mode) == (mode, None)


class TestFailure:
    """Whatever fails in deciding, the answer still comes, from all tokens, and says so."""

    FAILURES = ("stem raises", "stem is nan", "layer raises", "allocator raises", "gaze raises")

    @staticmethod
    def broken(failure: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> ARRCOCModel:
        model = build("qwen3_vl", "gaze" if failure.startswith("gaze") else "stem", **more)

        def wrong(*_: Any, **__: Any) -> Any:
            raise RuntimeError("broken")

        if failure == "stem is nan":
            see = model.stem.forward
            monkeypatch.setattr(
                model.stem, "forward", lambda *a: see(*a).index_fill(1, torch.tensor(3), torch.nan)
            )
        else:
            place, name = {
                "stem": (model.stem, "forward"),
                "layer": (model.layer, "relevance"),
                "allocator": (model.layer, "allocate"),
                "gaze": (prepare, "gaze"),
            }[failure.split()[0]]
            monkeypatch.setattr(place, name, wrong)
        return model

    @torch.no_grad()
    @pytest.mark.parametrize("failure", FAILURES)
    @pytest.mark.parametrize("mode", ["sparse", "saccade"])
    def test_all_tokens_are_used(
        self, mode: str, failure: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        model, inputs = self.broken(failure, monkeypatch, strict=False), inputs_of()
        with caplog.at_level(logging.ERROR):
            prepared = prepared_for(model, inputs, mode)
        assert prepared.fallback
        assert prepared.read == [30, 45]
        assert all((allocation.reasons == Reason.ALL).all() for allocation in prepared.allocations)
        assert "allocation failed; all visual tokens are used" in caplog.text
        logits = model.base(**prepared.compacted.kwargs).logits
        assert torch.equal(logits, tiny("qwen3_vl").model(**inputs).logits)

    @pytest.mark.parametrize("failure", FAILURES)
    @pytest.mark.parametrize("mode", ["sparse", "saccade"])
    def test_strict_raises(self, mode: str, failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
        model = self.broken(failure, monkeypatch, strict=True)
        with pytest.raises((RuntimeError, NonFiniteScores), match=r"broken|not finite"):
            prepared_for(model, inputs_of(), mode)

    @pytest.mark.parametrize("strict", [False, True])
    @pytest.mark.parametrize(
        ("mode", "more", "match"),
        [
            ("sparse", {"budget": 46}, "46"),
            ("sparse", {"budget": "many"}, "many"),
            ("saccade", {"budget": 46}, "46"),
            ("saccade", {"gestalt": "conv4"}, "'conv4' has no trained weights for this model; use 'pool4'"),
            ("compress", {"gestalt": "conv16"}, "'conv16' has no trained weights"),
            ("compress", {"gestalt": "zip"}, "compressor 'zip' is unknown; use one of resize, pool4"),
            ("full", {"gestalt": "zip"}, "compressor 'zip' is unknown"),
            (
                "dense",
                {},
                "mode 'dense' is unknown; use one of full, prune, sparse, saccade, compress, weight",
            ),
        ],
    )
    def test_what_the_caller_got_wrong_is_an_error_not_a_fallback(
        self, mode: str, more: dict, match: str, strict: bool
    ) -> None:
        with pytest.raises(ValueError, match=match):
            prepared_for(build("qwen3_vl", "stem", strict=strict), inputs_of(), mode, **more)

    @llava_families
    def test_no_family_makes_a_gestalt_it_cannot(self, family: str) -> None:
        with pytest.raises(ValueError, match=f"'resize' needs .* '{family}' has not; use 'pool4'"):
            prepared_for(wrapped(family), inputs_of(family), "compress", gestalt="resize")


class TestParts:
    def test_saccades(self) -> None:
        assert saccades(1000, 0, None) is None
        assert saccades(1000, 9, None) == TOTAL - 9
        assert saccades(1000, 9, lambda cells: cells // 100) == 10
        assert saccades(30, 0, lambda _: 5) is None

    @staticmethod
    def features() -> VisualFeatures:
        grids = [(1, 2, 3), (1, 1, 4)]
        tokens = [torch.arange(6.0)[:, None], 10 + torch.arange(4.0)[:, None]]
        levels = [[100 + image for image in tokens]]
        return VisualFeatures(tokens, levels, grids, [torch.arange(6), torch.arange(4)], dict)

    def test_without(self) -> None:
        whole = self.features()
        assert without(whole, [False, False]) is whole
        left = without(whole, [True, False])
        assert left.counts == [0, 4]
        assert [len(image) for image in left.levels[0]] == [0, 4]
        assert torch.equal(left.cell_tokens(1), whole.tokens[1])
        assert left.cell_tokens(0).shape == (0, 1)
        assert whole.counts == [6, 4]

    def test_gated(self) -> None:
        whole, gates = self.features(), [torch.ones(6), torch.tensor([0.0, 1.0, 2.0, 3.0])]
        found = gated(whole, gates)
        assert same(found.tokens, [whole.tokens[0], whole.tokens[1] * gates[1][:, None]])
        assert same(found.levels[0], [whole.levels[0][0], whole.levels[0][1] * gates[1][:, None]])

    def test_stretch_is_linear_between_the_middles(self) -> None:
        coarse = torch.arange(4.0).view(1, 1, 4).expand(2, 3, 4)
        assert torch.allclose(stretch(coarse, (3, 4)), coarse)
        fine = stretch(coarse, (6, 8))
        assert fine.shape == (2, 6, 8)
        assert fine[0, 0].tolist() == [0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0]
