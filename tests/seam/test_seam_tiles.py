"""Families in tiles: some tiles encoded alone, the view of the whole as the coarse view, tiles in order."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from arr_coc import ARRCOCModel
from arr_coc.families import FAMILIES, adapter_for, tiled
from arr_coc.guide.trust import PHOTOGRAPH, SENTENCES
from arr_coc.seam import FamilyAdapter
from arr_coc.seam.gestalt import compress
from arr_coc.trace.observe import observe
from eyes import build
from near import near
from tiny import KINDS, Tiny, in_bfloat16, picture, prompts, some_cells, tiny

TILED = tuple(family for family in KINDS if FAMILIES[family].encodes == "tiles")
families = pytest.mark.parametrize("family", TILED)
QUESTION = "Where is the red ball?"
LARGE = (144, 96)
"""Px of a picture that is cut into tiles."""


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def setup(family: str, rows: list | None = None) -> tuple[Tiny, FamilyAdapter, dict[str, Any]]:
    built = tiny(family)
    rows = [(QUESTION, [picture(1, LARGE)])] if rows is None else rows
    return built, adapter_for(built.model, built.processor), prompts(built, rows)


def tile_model(family: str, kind: str, budget: int) -> ARRCOCModel:
    """A model whose relevance is one source's: a guide that is unsure of noise would ask the gaze, too."""
    more = {} if kind == "covering" else {"relevance": kind}
    return build(family, kind, budget=budget, **more)


def in_one_tile(adapter: FamilyAdapter, inputs: dict[str, Any], count: int = 5) -> Tensor:
    """Some cells at the top left, all of the first tile."""
    (_, _, width), side = adapter.layout(inputs).grids[0], adapter.side(inputs)  # type: ignore[attr-defined]
    places = torch.cartesian_prod(torch.arange(side), torch.arange(side))[:count]
    return (places[:, 0] * width + places[:, 1]).sort().values


def masked(adapter: FamilyAdapter, inputs: dict[str, Any], columns: Tensor) -> dict[str, Any]:
    """The whole prompt with all but some columns masked."""
    mask = torch.zeros_like(inputs["input_ids"])
    mask[0, columns] = 1
    return inputs | {"attention_mask": mask, "position_ids": adapter.positions(inputs)}


def test_there_are_families_in_tiles() -> None:
    assert {"internvl", "idefics3"} <= set(TILED)  # SmolVLM where the release serves it


@families
class TestEncodeCells:
    def test_the_layout_is_that_of_the_encoded_images(self, family: str) -> None:
        rows = [("a", [picture(1, LARGE), picture(2, (30, 30))]), ("b", [picture(3, (96, 144))])]
        _, adapter, inputs = setup(family, rows)
        before, after = adapter.layout(inputs), adapter.features(inputs).layout
        assert (before.counts, before.grids) == (after.counts, after.grids)
        assert all(torch.equal(a, b) for a, b in zip(before.cells, after.cells, strict=True))
        assert before.counts[0] == before.sizes[0] + adapter.side(inputs) ** 2  # of the view of the whole

    def test_all_cells_are_the_stock_features_to_the_last_bit(self, family: str) -> None:
        built, inputs = in_bfloat16(family), setup(family)[2]
        for one in (tiny(family), built):
            adapter = adapter_for(one.model, one.processor)
            stock = adapter.features(inputs)
            fine = adapter.encode_cells(inputs, [torch.arange(len(cells)) for cells in stock.cells])
            assert all(torch.equal(a, b) for a, b in zip(fine.tokens, stock.tokens, strict=True))
            assert (fine.kind, fine.packed, fine.grids, fine.cells) == (
                stock.kind,
                stock.packed,
                stock.grids,
                [],
            )

    def test_kept_cells_are_those_of_the_whole(self, family: str) -> None:
        """Tiles don't see each other: nothing changes but the batch that the tower computes."""
        rows = [("a", [picture(1, LARGE), picture(2, (30, 30))]), ("b", [picture(3, (96, 144))])]
        _, adapter, inputs = setup(family, rows)
        features = adapter.features(inputs)
        sizes = features.layout.sizes
        none = torch.zeros(0, dtype=torch.long)
        for keep in (
            [some_cells(sizes[0], 5), some_cells(sizes[1], 3), some_cells(sizes[2], 1)],
            [in_one_tile(adapter, inputs), none, none],
            [none, none, torch.tensor([sizes[2] - 1])],
        ):
            fine = adapter.encode_cells(inputs, keep)
            expected = features.select(features.tokens_to_keep(keep))
            assert fine.counts == expected.counts
            for one, other in zip(fine.tokens, expected.tokens, strict=True):
                assert near(one, other)

    def test_only_tiles_with_a_kept_cell_are_encoded(
        self, family: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, adapter, inputs = setup(family)
        keep = [in_one_tile(adapter, inputs)]
        (size,), unit = adapter.layout(inputs).counts, adapter.side(inputs) ** 2
        assert adapter.views_encoded(inputs, keep) == (2, size // unit)  # the tile and the view of the whole
        views = inputs["pixel_values"].flatten(0, -4).clone()
        views[1:-1] = torch.nan  # the other tiles
        spoiled = inputs | {"pixel_values": views.view_as(inputs["pixel_values"])}
        # How the tiles lie is read off all of them, so that is said by the clean ones.
        arrangements = adapter._arrangements(inputs)
        monkeypatch.setattr(adapter, "_arrangements", lambda _: arrangements)
        fine, clean = adapter.encode_cells(spoiled, keep), adapter.encode_cells(inputs, keep)
        assert fine.tokens[0].isfinite().all()
        assert torch.equal(fine.tokens[0], clean.tokens[0])

    def test_nothing_to_encode_is_refused(self, family: str) -> None:
        _, adapter, inputs = setup(family, [("a", [picture(2, (30, 30))])])
        if adapter.other_tokens(inputs, adapter.layout(inputs)) is None:
            with pytest.raises(ValueError, match="no cell is kept in any image"):
                adapter.encode_cells(inputs, [torch.zeros(0, dtype=torch.long)])
        with pytest.raises(ValueError, match="rising indices into grids"):
            adapter.encode_cells(inputs, [torch.tensor([3, 1])])

    def test_the_coarse_view_is_the_view_of_the_whole(self, family: str) -> None:
        _, adapter, inputs = setup(family)
        side = adapter.side(inputs)
        gestalt = compress("resize", adapter, inputs)
        assert gestalt.grids == [(1, side, side)]
        whole = adapter.features(inputs).tokens[0][-(side**2) :]
        assert near(gestalt.cell_tokens(0), whole)
        (others,) = adapter.other_tokens(inputs, adapter.layout(inputs)).tokens
        assert torch.equal(others, gestalt.tokens[0])


@families
class TestMode:
    def test_all_cells_are_the_stock_model(self, family: str) -> None:
        built, _, inputs = setup(family)
        model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
        stock = built.model(**inputs).logits
        assert torch.equal(model(**inputs, budget=1.0, mode="sparse").logits, stock)

    @pytest.mark.parametrize("kind", ["guide", "gaze", "covering"])
    def test_dropping_equals_masking(self, family: str, kind: str) -> None:
        model, inputs = tile_model(family, kind, budget=9), setup(family)[2]
        prepared = model.prepare(inputs | {"use_cache": False}, mode="sparse")
        assert (prepared.mode, prepared.fallback, prepared.allocations[0].kept) == ("sparse", False, 9)
        columns = prepared.compacted.columns[0]
        real = columns >= 0
        logits = model.base(**prepared.compacted.kwargs).logits[0, real]
        whole = model.base(**masked(model.adapter, inputs, columns[real]), use_cache=False).logits[0]
        assert near(logits, whole[columns[real]])
        assert (logits - model.base(**inputs).logits[0, columns[real]]).abs().max() > 0.01

    def test_it_reads_what_prune_reads_of_the_same_cells(self, family: str) -> None:
        """The guide sees pixels alone, so both choose alike; the logits differ by a batch of other tiles."""
        model, inputs = tile_model(family, "guide", budget=9), setup(family)[2]
        one, other = (model.prepare(inputs, mode=mode) for mode in ("sparse", "prune"))
        assert torch.equal(one.allocations[0].keep, other.allocations[0].keep)
        assert (one.read, one.cells) == (other.read, other.cells)
        logits = [model.base(**prepared.compacted.kwargs).logits for prepared in (one, other)]
        assert near(*logits)

    @pytest.mark.parametrize("kind", ["guide", "gaze", "covering"])
    def test_whole_tiles_are_spared(self, family: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        model, inputs = tile_model(family, kind, budget=5), setup(family)[2]
        adapter, counts = model.adapter, []
        stock = type(adapter).encode

        def encode(self: FamilyAdapter, inputs: dict[str, Any]) -> Any:
            output = stock(self, inputs)
            counts.append(sum(map(len, output.pooler_output)) // adapter.side(inputs) ** 2)
            return output

        monkeypatch.setattr(type(adapter), "encode", encode)
        prepared = model.prepare(inputs, mode="sparse")
        views = len(adapter.views(inputs))
        used = adapter.views_encoded(inputs, [prepared.allocations[0].keep])[0]
        looks = [] if kind == "guide" else [1] if kind == "covering" else [1, 1]
        assert counts == [
            *looks,
            used,
        ]  # a gaze takes the view of the whole twice: as its map, and as it stands
        said, *doubts = prepared.note.split("; ")
        assert said == f"cells are encoded by whole tiles: {used} of {views} were"
        assert set(doubts) <= {SENTENCES["unsure"], SENTENCES["nothing"], PHOTOGRAPH}

    def test_saccade_runs_as_sparse(self, family: str) -> None:
        model, inputs = tile_model(family, "guide", budget=9), setup(family)[2]
        one, other = (model.prepare(inputs, mode=mode) for mode in ("saccade", "sparse"))
        assert one.mode == "sparse"
        assert one.note.startswith("saccade ran as sparse: ")
        assert torch.equal(one.allocations[0].keep, other.allocations[0].keep)

    @pytest.mark.slow
    def test_several_images_and_rows(self, family: str) -> None:
        rows = [("What?", [picture(1, LARGE), picture(2, (30, 30))]), (QUESTION, [picture(3, (96, 144))])]
        for kind in ("guide", "gaze"):
            model, inputs = tile_model(family, kind, budget=4), setup(family, rows)[2]
            prepared = model.prepare(inputs, mode="sparse")
            assert [one.kept for one in prepared.allocations] == [4, 4, 4]
            ids = model.generate(**inputs, mode="sparse", max_new_tokens=2)
            assert torch.equal(ids[:, : inputs["input_ids"].shape[1]], inputs["input_ids"])

    def test_words_are_observed(self, family: str) -> None:
        built = tiny(family)
        model = ARRCOCModel.wrap(built.model, built.processor, relevance="gaze", strict=True, budget=9)
        session = model.session(picture(1, LARGE))
        trace = observe(session, QUESTION, mode="sparse", max_new_tokens=1)
        assert any(word.heat is not None for word in trace.words)


@families
class TestOrder:
    def test_tiles_are_put_in_order_once(self, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[int] = []
        stock = tiled.arrangements
        monkeypatch.setattr(tiled, "arrangements", lambda *a: calls.append(1) or stock(*a))
        for mode in ("prune", "sparse"):
            model, inputs = tile_model(family, "guide", budget=9), setup(family)[2]
            calls.clear()
            model.prepare(inputs, mode=mode)
            assert len(calls) == 1, mode

    def test_what_is_written_into_the_pixels_counts(self, family: str) -> None:
        built = tiny(family)
        adapter = adapter_for(built.model, built.processor)
        wide, tall = (prompts(built, [("?", [picture(1, size)])]) for size in (LARGE, LARGE[::-1]))
        one, other = adapter.layout(wide).grids, adapter.layout(tall).grids
        assert one != other
        wide["pixel_values"].copy_(tall["pixel_values"])
        assert adapter.layout(wide).grids == other

    @pytest.mark.slow
    def test_nothing_is_kept_of_pixels_that_are_gone(self, family: str) -> None:
        _, adapter, inputs = setup(family)
        adapter.layout(inputs)
        assert len(adapter._shapes) == 1
        del inputs
        gc.collect()
        assert len(adapter._shapes) == 0
