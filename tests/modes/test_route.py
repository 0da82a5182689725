"""A call before the encoder: what each of sparse, saccade and compress reads, and what fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from arr_coc.guide.trust import guide_remark, shares
from arr_coc.model import ARRCOCModel
from arr_coc.modes import route, scoring
from arr_coc.modes.call import EncodedImages, Prepared
from arr_coc.modes.notes import joined
from arr_coc.modes.route import gated, saccades, without
from arr_coc.seam import GESTALT, Layout, VisualFeatures, gestalt
from each import each
from eyes import (
    COARSE,
    IMAGES,
    KINDS,
    ROWS,
    TOTAL,
    assert_same,
    build,
    inputs_of,
    llava_families,
    patches_seen,
    prepared_for,
    same,
    sparse_families,
    wrapped,
)
from near import near
from tiny import EVERY, picture

pytestmark = pytest.mark.usefixtures("small_constants")

TWO_AND_ONE = [("What is it?", [picture(3, (72, 40)), IMAGES[0]]), ("Where?", IMAGES[1:])]
ENDS = {"hunyuan_vl": 2, "hy_v4_vl": 0}
"""The tokens that begin and end a picture."""
with_newlines = pytest.mark.parametrize("family", [family for family in ENDS if family in EVERY])
each_mode = pytest.mark.parametrize("mode", ["sparse", "saccade"])

every_way = pytest.mark.parametrize(
    ("family", "kind"),
    [("qwen3_vl", kind) for kind in KINDS]
    + [("qwen2_5_vl", "covering"), ("qwen3_5", "stem"), ("qwen2_vl", "gaze")],
)
"""Each kind of eyes, and each family with one of them."""


class TestSparse:
    @torch.no_grad()
    @every_way
    def test_only_the_kept_cells_are_encoded(self, family: str, kind: str) -> None:
        model, inputs = wrapped(family, kind), inputs_of(family)
        with patches_seen(model) as seen:
            prepared = prepared_for(model, inputs, "sparse")
        # Of pictures of noise the guide may be lost, so that the model looks, too.
        unread = kind == "guide" and any(shares(one).not_found for one in prepared.couplings)
        coarse = (
            [4 * (2 * 3 + 4 * 2)] if unread or kind in ("gaze", "covering") else []
        )  # gestalts' own cells
        assert seen == [*coarse, 4 * (7 + 7)]
        notes = dict.fromkeys(map(guide_remark, prepared.couplings)) if kind == "guide" else ()
        assert (prepared.mode, prepared.note, prepared.fallback) == ("sparse", joined(*notes), False)
        assert prepared.read == [7, 7]
        keep = [allocation.keep for allocation in prepared.allocations]
        fine = model.adapter.encode_cells(inputs, keep)
        expected = model.adapter.assemble(inputs, model.adapter.layout(inputs), keep, fine, None)
        assert_same(prepared.compacted, expected)

    @each("kind", KINDS)
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
        monkeypatch.setattr(scoring, "gaze", None)
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
        views = [given[2] if len(given) > 2 else None for given in calls]
        assert [under is None for under in views] == [True, True, False, False]
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
    @every_way
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

    @each("kind", ["guide", "stem"])
    def test_budget_is_the_number_of_saccades(self, kind: str) -> None:
        model, inputs = wrapped(kind=kind), inputs_of()
        for budget, kept in ((3, [30, 3]), (0.2, [30, 9]), (1.0, [30, 45])):
            prepared = prepared_for(model, inputs, "saccade", budget=budget)
            assert [allocation.kept for allocation in prepared.allocations] == kept
            assert prepared.read == [kept[0], 8 + kept[1]]

    @pytest.mark.parametrize(
        ("family", "kind"), [("qwen3_vl", "guide"), ("qwen3_vl", "stem"), ("qwen3_5", "covering")]
    )
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

    @each("kind", ["gaze", "stem"])
    def test_small_images_are_neither_scored_nor_looked_at_coarsely(
        self, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, inputs = wrapped(kind=kind), inputs_of(rows=ROWS[:1])
        monkeypatch.setattr(model.layer, "scores", None)
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
        monkeypatch.setattr(route, "SACCADE_TOKENS", 36)
        assert prepared_for(model, inputs, "saccade", gestalt="pool16").read == [36]
        with pytest.raises(ValueError, match=r"makes 36 tokens of an image of 144 cells"):
            prepared_for(model, inputs, "saccade", gestalt="pool4")
        assert prepared_for(model, inputs, "saccade", gestalt="pool4", budget=5).read == [36 + 5]

    def test_other_gestalts(self) -> None:
        model, inputs = wrapped(), inputs_of()
        for name, coarse in (("pool4", 15), ("pool16", 6)):
            prepared = prepared_for(model, inputs, "saccade", gestalt=name, budget=5)
            assert prepared.read == [30, coarse + 5]


def test_saccades() -> None:
    assert saccades(1000, 0, None) is None
    assert saccades(1000, 9, None) == TOTAL - 9
    assert saccades(1000, 9, lambda cells: cells // 100) == 10
    assert saccades(30, 0, lambda _: 5) is None


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
        monkeypatch.setattr(model.layer, "scores", None)
        assert prepared_for(model, inputs_of(), "compress").read == [6, 8]


class TestParts:
    """Gestalts without some images, gated tokens."""

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
        keep = [torch.arange(6), torch.tensor([1, 3])]
        fine = gated(whole.select(keep), whole.layout, keep, gates)
        expected = torch.tensor([[11.0], [39.0]])
        assert same(fine.tokens, [whole.tokens[0], expected])
        assert same(fine.levels[0], [whole.levels[0][0], torch.tensor([[111.0], [339.0]])])

    def test_tokens_that_are_no_cell_are_not_gated(self) -> None:
        """Of five tokens the cells are those in the middle, in another order."""
        layout = Layout([5], [(1, 1, 3)], [torch.tensor([3, 1, 2])])
        keep, gates = [torch.tensor([0, 2])], [torch.tensor([0.5, 7.0, 0.25])]
        (indices,) = layout.tokens_to_keep(keep)
        fine = VisualFeatures([torch.ones(5, 1)[indices]], [], layout.grids, [], dict)
        (tokens,) = gated(fine, layout, keep, gates).tokens
        assert indices.tolist() == [0, 2, 3, 4]
        assert tokens.flatten().tolist() == [1.0, 0.25, 0.5, 1.0]


@contextmanager
def patches_embedded(model: ARRCOCModel) -> Iterator[list[int]]:
    """How many patches each call of the vision tower begins with."""
    counts: list[int] = []
    layer = model.base.model.vision_tower.embeddings.patch_embedding
    hook = layer.register_forward_pre_hook(lambda _, given: counts.append(len(given[0])))
    try:
        yield counts
    finally:
        hook.remove()


def handed(prepared: Prepared) -> list[Tensor]:
    """The encoded tokens of each image; some releases of transformers take those of all in one."""
    tokens = prepared.compacted.kwargs["mm_encoder_outputs"]["image"].pooler_output
    return list(tokens) if isinstance(tokens, list) else list(tokens.flatten(0, 1).split(prepared.read))


@with_newlines
def test_only_the_kept_cells_are_encoded_and_all_newlines_stay(family: str) -> None:
    model, inputs = build(family), inputs_of(family, TWO_AND_ONE)
    with patches_embedded(model) as counts:
        prepared = prepared_for(model, inputs, "sparse")
    assert counts == [4 * 3 * 7]
    assert (prepared.mode, prepared.note, prepared.fallback) == ("sparse", None, False)
    rows = [5, 5, 9]
    assert prepared.read == [7 + height + ENDS[family] for height in rows]
    keep = [allocation.keep for allocation in prepared.allocations]
    with torch.no_grad():
        fine = model.adapter.encode_cells(inputs, keep)
    expected = model.adapter.assemble(inputs, model.adapter.layout(inputs), keep, fine, None)
    assert_same(prepared.compacted, expected)


@with_newlines
def test_a_coarse_view_is_of_cells_alone(family: str) -> None:
    model, inputs = build(family), inputs_of(family, [("Where?", IMAGES[1:])])
    with patches_embedded(model) as counts:
        prepared = prepared_for(model, inputs, "saccade")
    assert counts == [4 * 8, 4 * 7]
    assert prepared.read == [8 + 7 + 9 + ENDS[family]]
    assert (prepared.compacted.columns == GESTALT).sum() == 8
    with torch.no_grad():
        view = model.adapter.features(model.adapter.coarse(inputs, COARSE))
    assert same([handed(prepared)[0][:8]], [view.cell_tokens(0)])


@with_newlines
@each_mode
@torch.no_grad()
def test_with_every_cell_kept_it_is_the_stock_model(family: str, mode: str) -> None:
    model, inputs = build(family), inputs_of(family, [("Where?", IMAGES[:1])])
    prepared = prepared_for(model, inputs, mode, budget=1.0)
    assert prepared.mode == mode
    assert torch.equal(model.base(**prepared.compacted.kwargs).logits, model.base(**inputs).logits)
    text = model.base.generate(**inputs, max_new_tokens=5, do_sample=False)
    ours = model.generate(**inputs, mode=mode, budget=1.0, max_new_tokens=5, do_sample=False)
    assert torch.equal(ours, text)


@with_newlines
@torch.no_grad()
def test_dropping_is_masking(family: str) -> None:
    """On the whole prompt with the dropped columns masked, whatever stands in them."""
    model, inputs = build(family), inputs_of(family, TWO_AND_ONE)
    adapter, prepared = model.adapter, prepared_for(model, inputs, "sparse")
    columns = prepared.compacted.columns
    logits = model.base(**prepared.compacted.kwargs).logits
    layout, tokens = adapter.layout(inputs), []
    keep = layout.tokens_to_keep([allocation.keep for allocation in prepared.allocations])
    for count, kept, encoded in zip(layout.counts, keep, handed(prepared), strict=True):
        tokens.append(torch.randn(count, encoded.shape[1]).index_copy(0, kept, encoded))
    whole: VisualFeatures = replace(adapter.features(inputs), tokens=tokens)
    mask = torch.zeros_like(inputs["attention_mask"])
    for row, own in enumerate(columns):
        mask[row, own[own >= 0]] = 1
    text = {name: value for name, value in inputs.items() if name not in adapter.visual_names}
    expected = model.base(
        **text
        | {
            "attention_mask": mask,
            "position_ids": adapter.positions(inputs),
            "mm_encoder_outputs": whole.as_encoder_outputs(),
        }
    ).logits
    for row, own in enumerate(columns):
        there = own >= 0
        assert near(logits[row, there], expected[row, own[there]])


@with_newlines
@each_mode
@torch.no_grad()
def test_a_batch_is_its_rows_alone(family: str, mode: str) -> None:
    """Of unequal numbers of pictures and lengths, padded on the left."""
    model, rows = build(family), TWO_AND_ONE
    together = prepared_for(model, inputs_of(family, rows), mode)
    logits = model.base(**together.compacted.kwargs).logits
    for row, one in enumerate(rows):
        alone = prepared_for(model, inputs_of(family, [one]), mode)
        own = model.base(**alone.compacted.kwargs).logits[0]
        assert near(logits[row, -len(own) :], own)
    assert len(together.allocations) == 3
