"""Magnified cells: kept cells read from the user's picture, finer than the model was given it."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.families import adapter_for, generic
from arr_coc.model import ARRCOCModel
from arr_coc.modes import magnify as magnify_module
from arr_coc.modes.call import Prepared
from arr_coc.modes.magnify import cells_at, fine_cells, finer_grid, parse_magnify
from arr_coc.relevance.deciding import best_kept
from arr_coc.seam import PAD
from arr_coc.seam.assembly import CROP, GESTALT
from each import each
from eyes import assert_same
from near import near
from tiny import KINDS, MASKABLE, TABLE, picture, prompts, tiny

REFINING = tuple(family for family in KINDS if getattr(TABLE[family].adapter, "refines", False))
QUESTION = "What is the number on the door?"
refining = pytest.mark.parametrize("family", REFINING)
FEW = ("qwen3_vl", "qwen3_5", "glm4v", "gemma4", "paddleocr_vl")
"""One of each kind: several levels, recurrent layers, windows, positions of their own."""
few = pytest.mark.parametrize("family", FEW)


@pytest.fixture(autouse=True)
def few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small stand-ins: 64 cells are more than these pictures have."""
    monkeypatch.setattr(magnify_module, "MIN_CELLS", 2)


def cell_px(family: str) -> int:
    return adapter_for(tiny(family).model, tiny(family).processor).cell_px


def pair(family: str, rows: int = 3, columns: int = 4, times: float = 2) -> tuple[Image.Image, Image.Image]:
    """A picture of so many cells, and the same one larger."""
    side = cell_px(family)
    large = picture(5, (round(columns * side * times), round(rows * side * times)))
    return large.resize((columns * side, rows * side), Image.Resampling.BICUBIC), large


def wrapped(family: str, **more: Any) -> ARRCOCModel:
    return ARRCOCModel(tiny(family).model, tiny(family).processor, **({"budget": 8, "strict": True} | more))


@torch.no_grad()
def prepared(family: str, mode: str = "sparse", times: float = 2, **more: Any) -> Prepared:
    small, large = pair(family, times=times)
    inputs = prompts(tiny(family), [(QUESTION, [small])])
    return wrapped(family).prepare(inputs, mode=mode, **({"pictures": [large]} | more))


def test_there_are_such_families() -> None:
    assert {"qwen3_vl", "qwen2_5_vl", "qwen3_5", "glm4v", "gemma4", "paddleocr_vl"} <= set(REFINING)


class TestLaws:
    @each(("family", "mode"), [("qwen3_vl", "sparse"), ("qwen3_vl", "saccade"), ("gemma4", "sparse")])
    def test_at_one_it_is_the_call_without(self, family: str, mode: str) -> None:
        plain = prepared(family, mode)
        assert_same(prepared(family, mode, magnify=1).compacted, plain.compacted)
        # And "auto" where the picture has no more pixels than the model was given.
        same = prepared(family, mode, times=1, magnify="auto")
        assert_same(same.compacted, prepared(family, mode, times=1).compacted)
        assert not same.magnified

    @refining
    @torch.no_grad()
    def test_a_finer_grid_is_what_the_processor_makes_of_the_larger_picture(self, family: str) -> None:
        built, adapter = tiny(family), wrapped(family).adapter
        small, large = pair(family)
        inputs, others = (prompts(built, [(QUESTION, [one])]) for one in (small, large))
        given, wanted = adapter.layout(inputs).grids, adapter.layout(others).grids
        if wanted[0][1] != 2 * given[0][1]:
            pytest.skip(f"its processor scales the larger picture to {wanted[0]}")
        finer = adapter.finer(inputs, [large], wanted)
        assert all(near(finer[k].float(), others[k].float()) for k in finer)
        unchanged = adapter.finer(inputs, [large], given)
        assert all(torch.equal(unchanged[name], inputs[name]) for name in unchanged)

    @refining
    @torch.no_grad()
    def test_drop_equals_mask(self, family: str) -> None:
        if family not in MASKABLE:
            pytest.skip("recurrent layers: no mask hides a token from a running state")
        built, adapter = tiny(family), wrapped(family).adapter
        small, large = pair(family)
        inputs = prompts(built, [(QUESTION, [small])])
        layout, grid = adapter.layout(inputs), (1, 6, 8)
        finer = {**inputs, **adapter.finer(inputs, [large], [grid])}
        every = [torch.arange(48)]
        encoded = adapter.encode_cells(finer, every)
        some = [torch.tensor([0, 1, 8, 9, 20, 47])]
        gestalt = adapter.features(inputs)
        call = (inputs, layout)
        result = adapter.assemble_finer(*call, some, [grid], encoded.select(some), gestalt, use_cache=False)
        whole = adapter.assemble_finer(*call, every, [grid], encoded, gestalt, use_cache=False)
        # Columns of crops have no number of their own: which of the whole prompt's are left is counted.
        kept = torch.isin(torch.arange(48), some[0])
        mask = whole.kwargs["attention_mask"].clone()
        mask[0, whole.columns[0] == CROP] = kept.long()
        dropped = built.model(**result.kwargs, use_cache=False).logits[0]
        masked = built.model(**(whole.kwargs | {"attention_mask": mask}), use_cache=False).logits[0]
        real = result.columns[0] != PAD
        assert near(dropped[real], masked[mask[0].bool()])

    @pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl", "glm4v"])
    def test_fine_cells_stand_at_fractions_of_their_cell(self, family: str) -> None:
        small, _ = pair(family)
        inputs = prompts(tiny(family), [(QUESTION, [small])])
        adapter = wrapped(family).adapter
        layout = adapter.layout(inputs)
        found = prepared(family, keep=(torch.tensor([0, 6, 11]),), magnify=2)
        positions = found.compacted.kwargs["position_ids"][1:, 0]
        ((_, span),) = adapter.columns(inputs["input_ids"], layout.counts)
        own = adapter.positions(inputs)[:, 0, span].float()  # (3, N)
        fine = positions[:, found.compacted.columns[0] == CROP]  # (3, 12), of three cells in raster order
        cells = fine_cells(found.allocations[0], (1, 6, 8))
        for cell in (0, 6, 11):
            inside = (cells // 8 // 2 * 4 + cells % 8 // 2) == cell
            assert near(fine[:, inside].mean(-1), own[:, cell])
            offsets = (fine[:, inside] - own[:, cell : cell + 1]).abs()
            assert near(offsets[1:], torch.full((2, 4), 0.25))

    @refining
    def test_text_keeps_its_positions_and_is_never_dropped(self, family: str) -> None:
        small, _ = pair(family)
        inputs, adapter = prompts(tiny(family), [(QUESTION, [small])]), wrapped(family).adapter
        found = prepared(family, "saccade", magnify=2)
        columns, positions = found.compacted.columns[0], found.compacted.kwargs["position_ids"]
        text = (inputs["input_ids"][0] != adapter.image_token_id).nonzero().flatten()
        assert columns[columns >= 0].tolist() == text.tolist()
        own = adapter.positions(inputs)[..., 0, text].float()
        rows = positions if positions.ndim == 2 or len(positions) != 4 else positions[1:]
        assert torch.equal(rows[..., 0, columns >= 0].float().view_as(own), own)

    @few
    @torch.no_grad()
    def test_a_batch_of_several_images_equals_single_calls(self, family: str) -> None:
        built = tiny(family)
        (small, large), (other, larger) = pair(family), pair(family, 4, 3, 3)
        rows = [(QUESTION, [small]), ("Where?", [other])]
        model = wrapped(family)
        how: dict[str, Any] = {"mode": "sparse", "magnify": "auto", "max_new_tokens": 4, "do_sample": False}
        inputs = prompts(built, rows)
        both = model.generate(**inputs, pictures=[large, larger], **how)
        for row, (one, source) in enumerate(zip(rows, (large, larger), strict=True)):
            alone = prompts(built, [one])
            text = model.generate(**alone, pictures=[source], **how)
            assert both[row, -4:].tolist() == text[0, -4:].tolist()


class TestBudget:
    @each("magnify", [1.5, 3, "auto"])
    @each("budget", [1, 8, 0.5, 1.0])
    def test_it_is_the_number_of_tokens_read(self, magnify: Any, budget: Any) -> None:
        found = prepared("qwen3_vl", times=3, magnify=magnify, budget=budget)
        tokens = budget if isinstance(budget, int) else int(budget * found.cells[0] + 0.5)
        assert 1 <= found.read[0] <= max(tokens, 1 if magnify == "auto" else float(magnify) ** 2)
        assert found.allocations[0].kept <= tokens
        assert found.allocations[0].budget == budget

    def test_a_named_scale_buys_fewer_cells(self) -> None:
        for budget, magnify, cells, read in ((8, 2, 2, 8), (12, 2, 3, 12), (9, 3, 1, 9)):
            found = prepared("qwen3_vl", times=3, magnify=magnify, budget=budget)
            assert (found.allocations[0].kept, found.read) == (cells, [read])
            assert found.magnified == (float(magnify),)

    @each(("magnify", "budget", "note"), [
        (3, 4, "magnify was lowered to 2.29: one cell at 3 takes 9 tokens"),
        (3, 1, "magnify was lowered to 1.29: one cell at 3 takes 9 tokens"),
        (3, 9, None), (2, 4, None), ("auto", 4, None), (3, 1.0, None),
    ])  # fmt: skip
    def test_a_budget_below_one_cell_lowers_the_scale_with_a_note(
        self, magnify: Any, budget: Any, note: str | None
    ) -> None:
        first = (prepared("qwen3_vl", times=3, magnify=magnify, budget=budget).note or "").split("; ")[0]
        assert (first if first.startswith("magnify") else None) == note

    def test_auto_stops_at_the_pixels_of_the_picture(self) -> None:
        most = {times: prepared("qwen3_vl", times=times, magnify="auto").magnified for times in (1.5, 2, 4)}
        assert all(0 < scale <= times + 0.35 for times, (scale,) in most.items())  # rounded to whole cells
        named = prepared("qwen3_vl", times=1, magnify=3, budget=9)  # as it is asked for, beyond its pixels
        assert named.magnified == (3.0,)

    def test_auto_keeps_cells_enough(self) -> None:
        """A budget for two cells buys them at the scale that they came in."""
        scales = {tokens: prepared("qwen3_vl", magnify="auto", budget=tokens).magnified for tokens in (2, 8)}
        assert not scales[2]
        assert scales[8][0] > 1.5

    def test_cells_are_as_many_as_the_question_needs_and_no_more_than_tokens(self) -> None:
        assert cells_at("auto", [2.0, 2.0, 1.0], [273, None, 273], [1024, 200, 1024]) == (
            ["auto", "auto", 273],
            [68, 50, None],
        )
        assert cells_at(2.0, [2.0, 2.0], [273, "auto"], [1024, 1024]) == ([68, "auto"], [68, None])

    @each("seed", range(40))
    def test_fine_cells_are_those_whose_centres_are_kept(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        height, width = torch.randint(1, 14, (2,), generator=generator).tolist()
        kept = int(torch.randint(1, height * width + 1, (1,), generator=generator))
        scores = torch.rand(1, height, width, generator=generator)
        allocation: Allocation = best_kept((1, height, width), scores, kept)
        scale = 1 + 2 * float(torch.rand(1, generator=generator))
        tokens = int(torch.randint(kept, 9 * height * width + 1, (1,), generator=generator))
        grid = finer_grid(allocation, scale, tokens)
        cells: Tensor = fine_cells(allocation, grid)
        assert len(cells) <= tokens
        _, rows, columns = grid
        assert height <= rows <= scale * height + 0.5
        assert width <= columns <= scale * width + 0.5
        mask = allocation.mask()[0]
        for cell in range(rows * columns):
            y, x = (cell // columns + 0.5) * height / rows, (cell % columns + 0.5) * width / columns
            assert bool(mask[int(y), int(x)]) == (cell in set(cells.tolist()))


class TestSaccade:
    def test_a_small_image_of_a_large_picture_is_its_own_coarse_view(self) -> None:
        """Without finer cells it would be read whole, and nothing else."""
        assert prepared("qwen3_vl", "saccade").read == [12]
        found = prepared("qwen3_vl", "saccade", magnify=2)
        columns = found.compacted.columns[0]
        assert (int((columns == GESTALT).sum()), int((columns == CROP).sum())) == (12, 8)
        assert (found.read, found.cells) == ([20], [12])
        assert "saccade kept all" not in (found.note or "")

    @pytest.mark.slow
    def test_the_counts_of_a_note_are_those_of_the_allocations(self) -> None:
        """Of a small image of a larger picture, alone and beside one of which a share buys more cells."""
        (small, large), (big, bigger) = pair("qwen2_5_vl"), pair("qwen2_5_vl", 12, 12, 1.25)
        alone, beside = ([small], [large]), ([small, big], [large, bigger])
        cases = [(alone, *how) for how in itertools.product((2, 3, 0.1, 20), (1, "auto", 2))]
        for (images, pictures), budget, magnify in [*cases, (beside, 0.2, "auto")]:
            inputs = prompts(tiny("qwen2_5_vl"), [(QUESTION, images)])
            how = {"budget": budget, "pictures": pictures, "magnify": magnify}
            found = wrapped("qwen2_5_vl").prepare(inputs, mode="saccade", **how)
            whole = [
                one.kept
                for one, scale in zip(found.allocations, found.magnified or (1, 1), strict=False)
                if scale == 1
            ]
            said = re.search(r"kept all ([\d, ]+) cells|all ([\d, ]+) cells were kept", found.note or "")
            counts = [] if said is None else [int(one) for one in (said[1] or said[2]).split(", ")]
            assert counts == whole, how

    def test_pictures_are_compared_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With what the model was given, whatever is asked of them."""
        calls: list[Any] = []
        compare = generic.same_picture
        monkeypatch.setattr(generic, "same_picture", lambda *one: calls.append(one) or compare(*one))
        session = wrapped("qwen2_5_vl").session(picture(5, (192, 192)))
        for mode in ("sparse", "saccade", "sparse"):
            answer = session.ask(QUESTION, mode=mode, magnify=2, max_new_tokens=1)
            session.ask("Why?", mode=mode, magnify=2, max_new_tokens=1, history=[("What?", "That.")])
            assert answer.magnified
        assert len(calls) == 1

    def test_named_cells_are_read_as_fine_as_named(self) -> None:
        found = prepared("qwen3_vl", "saccade", magnify=2, keep=(torch.tensor([3, 4]),))
        assert found.allocations[0].keep.tolist() == [3, 4]
        assert found.read == [12 + 8]


class TestNotes:
    @pytest.mark.parametrize(
        ("family", "more", "words"),
        [
            ("qwen3_vl", {"pictures": None}, "pass pictures"),
            ("qwen3_vl", {"mode": "prune"}, "in mode prune"),
            ("qwen3_vl", {"pictures": [Image.new("RGB", (64, 48), "white")]}, "picture 0 does not show"),
            ("mistral3", {}, "one scale"),
        ],
    )
    def test_where_it_has_no_effect(self, family: str, more: dict[str, Any], words: str) -> None:
        found = prepared(family, **({"mode": "sparse", "magnify": 2} | more))
        assert "magnify had no effect" in (found.note or "")
        assert words in (found.note or "")
        assert not found.magnified

    @each("value", [0, 0.5, 3.5, -1, True, "twice", "nan", float("nan"), None, [2]])
    def test_a_bad_one_is_refused(self, value: Any) -> None:
        with pytest.raises(ValueError, match=r"magnify .*use a number from 1 to 3, or 'auto'"):
            prepared("qwen3_vl", magnify=value)

    def test_text_will_do(self) -> None:
        assert (parse_magnify("2"), parse_magnify(" AUTO "), parse_magnify(1)) == (2.0, "auto", 1.0)
