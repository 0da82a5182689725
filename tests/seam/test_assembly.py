"""Prompts of gestalt tokens and kept cells: on tiny random models, and compaction by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from arr_coc.families import adapter_for
from arr_coc.seam import (
    GESTALT,
    PAD,
    Compacted,
    FamilyAdapter,
    Layout,
    VisualFeatures,
    compact_columns,
    gather_columns,
    kept_columns,
)
from arr_coc.seam.assembly import consecutive_positions, gestalt_columns, gestalt_positions, image_spans
from arr_coc.seam.decoding import use_given_positions
from near import KERNELS, near
from tiny import (
    KINDS,
    MASKABLE,
    POSITIONLESS,
    Tiny,
    apart,
    in_float64,
    picture,
    prompts,
    some_cells,
    tiny,
    with_next_kinds,
)

# ---- seam assemble ---------------------------------------------------------------------------------------

LOOSE = 5e-4  # padding moves the chunks of a recurrent layer
ROWS = [
    ("What is the number on the door?", [picture(1, (48, 40))]),
    ("Where?", [picture(2, (40, 72))]),
]
NOTHING = torch.tensor([], dtype=torch.long)

every_family = pytest.mark.parametrize("family", apart(KINDS))
maskable_families = pytest.mark.parametrize("family", [one for one in KINDS if one in MASKABLE])


def setup(
    family: str, rows: list = ROWS, dtype: torch.dtype = torch.float32
) -> tuple[Tiny, FamilyAdapter, dict, VisualFeatures]:
    built = in_float64(family) if dtype == torch.float64 else tiny(family)
    inputs = prompts(built, rows)
    inputs = {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}
    adapter = adapter_for(built.model, built.processor)
    return built, adapter, inputs, adapter.features(inputs)


def pooled(features: VisualFeatures) -> VisualFeatures:
    """A gestalt of any family: the cells averaged to half as many rows and columns, rounded up."""
    grids = [(1, -(-h // 2), -(-w // 2)) for _, h, w in features.grids]

    def pool(images: list[Tensor]) -> list[Tensor]:
        small = []
        for tokens, cells, (_, height, width), grid in zip(
            images, features.cells, features.grids, grids, strict=True
        ):
            lattice = tokens[cells].T.reshape(1, -1, height, width)
            small.append(F.adaptive_avg_pool2d(lattice, grid[1:])[0].flatten(1).T)
        return small

    levels = [pool(level) for level in features.levels]
    cells = [torch.arange(h * w) for _, h, w in grids]
    return replace(features, tokens=pool(features.tokens), levels=levels, grids=grids, cells=cells)


def ragged(features: VisualFeatures) -> list[Tensor]:
    return [some_cells(len(cells), 5 + 4 * i, seed=i) for i, cells in enumerate(features.cells)]


def everything(features: VisualFeatures) -> list[Tensor]:
    return [torch.arange(len(cells)) for cells in features.cells]


def assembled(
    adapter: FamilyAdapter,
    inputs: dict,
    features: VisualFeatures,
    keep: list[Tensor],
    gestalt: VisualFeatures | None,
    **more: bool,
) -> Compacted:
    fine = features.select(features.tokens_to_keep(keep))
    return adapter.assemble(inputs, features.layout, keep, fine, gestalt, **more)


class TestColumns:
    kept = torch.tensor([[1, 0, 1, 0, 1, 1], [0, 0, 1, 0, 0, 1]]).bool()
    spans = ((0, torch.tensor([1, 2, 3])), (1, torch.tensor([3, 4])))

    def test_gestalt_tokens_come_before_their_image(self) -> None:
        ahead = gestalt_columns(self.kept, self.spans, [2, 3])
        columns = compact_columns(self.kept, ahead=ahead)
        assert columns.tolist() == [[0, -2, -2, 2, 4, 5], [-1, 2, -2, -2, -2, 5]]
        longer = compact_columns(self.kept, spare=2, ahead=ahead)
        assert longer.tolist() == [[-1, -1, 0, -2, -2, 2, 4, 5], [-1, -1, -1, 2, -2, -2, -2, 5]]

    def test_gestalt_columns_get_values_of_their_own(self) -> None:
        columns = torch.tensor([[0, GESTALT, 2], [PAD, GESTALT, 1]])
        values = torch.tensor([[10, 11, 12], [20, 21, 22]])
        assert gather_columns(values, columns, fill=0).tolist() == [[10, 0, 12], [0, 0, 21]]
        assert gather_columns(values, columns, fill=0, gestalt=7).tolist() == [[10, 7, 12], [0, 7, 21]]

    def test_gestalt_positions_by_hand(self) -> None:
        """A 2x4 image from column 1 on, at position 5: its two 2x2 blocks, then one row of 3."""
        y, x = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), torch.tensor([0, 1, 2, 3] * 2)
        rows = torch.zeros(3, 1, 10, dtype=torch.long)
        rows[:, 0, 1:9] = torch.stack([torch.full_like(y, 5), y + 5, x + 5])
        spans, layout = [(0, torch.arange(1, 9))], Layout([8], [(1, 2, 4)], [torch.arange(8)])
        found = gestalt_positions(rows, spans, layout, [(1, 1, 2)])
        assert found.tolist() == [[5, 5], [5.5, 5.5], [5.5, 7.5]]
        assert found.dtype == torch.float32
        thirds = gestalt_positions(rows, spans, layout, [(1, 2, 3)])
        assert torch.allclose(thirds[2], torch.tensor([5 + 1 / 6, 6.5, 7 + 5 / 6] * 2))
        whole = gestalt_positions(rows, spans, layout, [(1, 2, 4)])
        assert torch.equal(whole, rows[:, 0, 1:9])  # whole numbers stay whole
        plain = gestalt_positions(torch.arange(10)[None], spans, layout, [(1, 1, 2)])
        assert plain.tolist() == [(1 + 2 + 5 + 6) / 4, (3 + 4 + 7 + 8) / 4]

    def test_positions_far_into_a_prompt_are_exact(self) -> None:
        layout = Layout([4], [(1, 1, 4)], [torch.arange(4)])
        positions = torch.arange(200_000)[None]
        found = gestalt_positions(positions, [(0, torch.arange(190_001, 190_005))], layout, [(1, 1, 2)])
        assert found.tolist() == [190_001.5, 190_003.5]


class TestWithoutGestalt:
    @every_family
    def test_it_is_compact_to_the_last_bit(self, family: str) -> None:
        _, adapter, inputs, features = setup(family)
        for keep in (ragged(features), everything(features)):
            one = adapter.compact(inputs, features, keep)
            other = assembled(adapter, inputs, features, keep, None)
            assert torch.equal(one.columns, other.columns)
            assert one.kwargs.keys() == other.kwargs.keys()
            outputs = [result.kwargs.pop("mm_encoder_outputs")["image"] for result in (one, other)]
            assert all(torch.equal(one.kwargs[name], other.kwargs[name]) for name in one.kwargs)
            pairs = zip(outputs[0].pooler_output, outputs[1].pooler_output, strict=True)
            assert all(torch.equal(a, b) for a, b in pairs)

    @pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl"])
    def test_cells_encoded_alone_with_all_kept_give_the_stock_model(self, family: str) -> None:
        built, adapter, inputs, features = setup(family)
        keep = everything(features)
        fine = adapter.encode_cells(inputs, keep)
        result = adapter.assemble(inputs, adapter.layout(inputs), keep, fine, None)
        assert torch.equal(built.model(**result.kwargs).logits, built.model(**inputs).logits)

    def test_what_does_not_fit_is_refused(self) -> None:
        _, adapter, inputs, features = setup("qwen3_vl")
        keep = ragged(features)
        with pytest.raises(ValueError, match=r"\[30, 45\] encoded tokens .* \[5, 9\] kept ones"):
            adapter.assemble(inputs, features.layout, keep, features, None)
        with pytest.raises(ValueError, match=r"\[0, 0\] encoded tokens .* \[5, 9\] kept ones"):
            adapter.assemble(inputs, features.layout, keep, None, pooled(features))
        with pytest.raises(ValueError, match="no gestalt; keep at least one cell"):
            adapter.assemble(inputs, features.layout, [NOTHING] * 2, None, None)
        with pytest.raises(ValueError, match=r"\(2, 0\) can't stand ahead of \(2, 2\)"):
            assembled(adapter, inputs, features, keep, replace(pooled(features), levels=[]))


class TestWithGestalt:
    @every_family
    def test_invariants(self, family: str) -> None:
        """Text is never dropped, kept tokens keep their positions, gestalt tokens come first."""
        _, adapter, inputs, features = setup(family)
        keep, gestalt = ragged(features), pooled(features)
        inputs = inputs | {"labels": torch.arange(inputs["input_ids"].numel()).view_as(inputs["input_ids"])}
        result = assembled(adapter, inputs, features, keep, gestalt)
        kwargs, ids = result.kwargs, inputs["input_ids"]
        whole = adapter.positions(inputs)
        positions = kwargs["position_ids"][int(whole.ndim == 3 and adapter.text_row) :]
        tokens, spans = features.tokens_to_keep(keep), adapter.columns(ids, features.counts)
        for row, columns in enumerate(result.columns):
            real, gestalts = columns >= 0, columns == GESTALT
            standing, image_columns = columns[real], spans[row][1]
            text = inputs["attention_mask"][row].bool() & (ids[row] != adapter.image_token_id)
            assert torch.equal(standing[text[standing]], text.nonzero().flatten())
            assert torch.equal(standing[~text[standing]], image_columns[tokens[row]])
            assert torch.equal(kwargs["input_ids"][row, real], ids[row, standing])
            assert torch.equal(positions[..., row, real], whole[..., row, standing].to(positions.dtype))
            after = kwargs["labels"][row, real]
            assert torch.equal(after[1:], inputs["labels"][row, standing][1:])
            start = int(real.nonzero()[0])
            padded = start > 0 and columns[start - 1] == PAD
            assert after[0] == (-100 if padded else inputs["labels"][row, standing][0])

            assert gestalts.sum() == gestalt.counts[row]
            first = int(gestalts.nonzero()[0])
            assert gestalts[first : first + gestalt.counts[row]].all()
            if not adapter.prefix:  # where the image stands first
                assert columns[first - 1] == image_columns[0] - 1
            assert (kwargs["input_ids"][row, gestalts] == adapter.image_token_id).all()
            assert (kwargs["labels"][row, ~real] == -100).all()
            if "mm_token_type_ids" in kwargs:
                assert (kwargs["mm_token_type_ids"][row, gestalts] == 1).all()
            assert torch.equal(kwargs["attention_mask"][row], (columns != PAD).long())
            assert positions[..., row, -1].tolist() == whole[..., row, -1].tolist()
        handed = kwargs["mm_encoder_outputs"]["image"]
        if features.packed:
            counts = [n + len(kept) for n, kept in zip(gestalt.counts, tokens, strict=True)]
            handed.pooler_output = handed.pooler_output.flatten(0, 1).split(counts)
        for image, kept in enumerate(tokens):
            expected = torch.cat([gestalt.tokens[image], features.tokens[image][kept]])
            assert torch.equal(handed.pooler_output[image], expected)
        for level, coarse, fine in zip(
            getattr(handed, "deepstack_features", None) or [], gestalt.levels, features.levels, strict=True
        ):
            assert torch.equal(level[1], torch.cat([coarse[1], fine[1][tokens[1]]]))

    @pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl", "qwen3_5"])
    def test_gestalt_tokens_stand_at_the_middle_of_their_blocks(self, family: str) -> None:
        _, adapter, inputs, _ = setup(family)
        layout, gestalt = adapter.layout(inputs), adapter.features(adapter.coarse(inputs, 12))
        assert [grid[1:] for grid in layout.grids] == [(5, 6), (9, 5)]
        assert [grid[1:] for grid in gestalt.grids] == [(3, 4), (4, 2)]
        result = adapter.assemble(inputs, layout, [NOTHING] * 2, None, gestalt)
        positions, whole = result.kwargs["position_ids"][1:], adapter.positions(inputs)
        for row, columns in adapter.columns(inputs["input_ids"], layout.counts):
            (_, height, width), (_, h, w) = layout.grids[row], gestalt.grids[row]
            y = ((torch.arange(h) + 0.5) * height / h - 0.5).repeat_interleave(w)
            x = ((torch.arange(w) + 0.5) * width / w - 0.5).repeat(h)
            expected = whole[:, row, columns[:1]] + torch.stack([torch.zeros_like(x), y, x])
            found = positions[:, row, result.columns[row] == GESTALT]
            assert near(found, expected)

    def test_plain_gestalt_positions_are_the_mean_over_the_tokens_covered(self) -> None:
        _, adapter, inputs, features = setup("llava")  # 6x6 cells, blocks of 2x2
        result = assembled(adapter, inputs, features, ragged(features), pooled(features))
        for row, columns in adapter.columns(inputs["input_ids"], features.counts):
            standing = adapter.positions(inputs)[row, columns].float().view(1, 1, 6, 6)
            found = result.kwargs["position_ids"][row, result.columns[row] == GESTALT]
            assert torch.equal(found, F.avg_pool2d(standing, 2).flatten())

    @pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl", "qwen2_vl", "qwen3_5", "llava"])
    def test_a_gestalt_as_fine_as_the_image_is_the_image(self, family: str) -> None:
        built, adapter, inputs, features = setup(family)
        result = adapter.assemble(inputs, features.layout, [NOTHING] * 2, None, features)
        assert not result.kwargs["position_ids"].is_floating_point()
        logits = built.model(**result.kwargs).logits
        stock = built.model(**inputs).logits
        attended = inputs["attention_mask"].bool()
        assert near(logits[attended], stock[attended])

    @maskable_families
    def test_drop_equals_mask(self, family: str) -> None:
        """Behind a gestalt as without one: a dropped cell is a masked one."""
        built, adapter, inputs, features = setup(family)
        keep, gestalt = ragged(features), pooled(features)
        result = assembled(adapter, inputs, features, keep, gestalt, use_cache=False)
        whole = assembled(adapter, inputs, features, everything(features), gestalt, use_cache=False)
        mask = whole.kwargs["attention_mask"].clone()
        for row, columns in enumerate(whole.columns):
            mask[row] *= torch.isin(columns, result.columns[row])
        dropped = built.model(**result.kwargs, use_cache=False).logits
        masked = built.model(**(whole.kwargs | {"attention_mask": mask}), use_cache=False).logits
        for row in range(2):
            seen = dropped[row, result.columns[row] != PAD]
            assert near(seen, masked[row, mask[row].bool()])

    @every_family
    def test_gestalt_and_its_places_are_visible(self, family: str) -> None:
        """The tests of this file could fail: what they guard against moves the logits a lot."""
        built, adapter, inputs, features = setup(family)
        keep, gestalt = ragged(features), pooled(features)
        result = assembled(adapter, inputs, features, keep, gestalt, use_cache=False)
        kwargs = result.kwargs
        last = built.model(**kwargs, use_cache=False).logits[:, -1]
        without = assembled(adapter, inputs, features, keep, None, use_cache=False).kwargs
        assert (last - built.model(**without, use_cache=False).logits[:, -1]).abs().max() > 0.05
        nudged = kwargs["position_ids"] + 0.5 * (result.columns == GESTALT)
        for wrong in (nudged, None):
            logits = built.model(**(kwargs | {"position_ids": wrong}), use_cache=False).logits
            moved = (last - logits[:, -1]).abs().max()
            assert moved == 0 if family in POSITIONLESS else moved > 1e-3

    @every_family
    def test_greedy_text_is_stepwise_argmax_without_cache(self, family: str) -> None:
        """Decoding continues after the end of the undropped sequence."""
        built, adapter, inputs, features = setup(family)
        keep, gestalt = ragged(features), pooled(features)
        result = assembled(adapter, inputs, features, keep, gestalt)
        tiled = family in ("llava_next", "llava_onevision")  # rows of even + 1 tokens: all middles are whole
        assert result.kwargs["position_ids"].is_floating_point() is not tiled
        out = use_given_positions(built.model).generate(**result.kwargs, max_new_tokens=5, do_sample=False)

        steps = dict(assembled(adapter, inputs, features, keep, gestalt, use_cache=False).kwargs)
        if steps["position_ids"].ndim == 3 and adapter.text_row:
            steps["position_ids"] = steps["position_ids"][1:]  # the text row is only there for masks
        end = adapter.positions(inputs)[..., -1:]  # of the undropped sequence
        for step in range(5):
            token = built.model(**steps, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            assert torch.equal(token[:, 0], out[:, result.columns.shape[1] + step])
            steps = with_next_kinds(family, steps)
            steps["input_ids"] = torch.cat([steps["input_ids"], token], dim=1)
            steps["attention_mask"] = F.pad(steps["attention_mask"], (0, 1), value=1)
            if "mm_token_type_ids" in steps:
                steps["mm_token_type_ids"] = F.pad(steps["mm_token_type_ids"], (0, 1))
            following = (end + 1 + step).expand(*steps["position_ids"].shape[:-1], 1)
            steps["position_ids"] = torch.cat([steps["position_ids"], following], dim=-1)

    @every_family
    def test_batch_equals_single(self, family: str) -> None:
        built, adapter, inputs, features = setup(family, dtype=torch.float64)
        keep = ragged(features)
        result = assembled(adapter, inputs, features, keep, pooled(features), use_cache=False)
        batch = built.model(**result.kwargs, use_cache=False).logits
        padding = (result.columns == PAD).sum(dim=1)
        assert padding[0] != padding[1]
        for row, prompt in enumerate(ROWS):
            _, _, alone, one = setup(family, [prompt], torch.float64)
            single = assembled(adapter, alone, one, [keep[row]], pooled(one), use_cache=False)
            logits = built.model(**single.kwargs, use_cache=False).logits[0]
            real = int((single.columns != PAD).sum())
            assert real == int((result.columns[row] != PAD).sum())
            assert near(batch[row, -real:], logits[-real:], KERNELS if family in MASKABLE else LOOSE)

    @pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
    def test_several_images_and_rows_without(self, family: str) -> None:
        rows = [("Which?", [picture(1), picture(2, (40, 72))]), ("None.", []), ("What?", [picture(3)])]
        built, adapter, inputs, features = setup(family, rows)
        gestalt = pooled(features)
        keep = [some_cells(len(features.cells[0]), 3), NOTHING, some_cells(len(features.cells[2]), 4)]
        result = assembled(adapter, inputs, features, keep, gestalt)
        spans = adapter.columns(inputs["input_ids"], features.counts)
        handed = result.kwargs["mm_encoder_outputs"]["image"].pooler_output
        assert [len(tokens) for tokens in handed] == [
            count + k for count, k in zip(gestalt.counts, (3, 0, 4), strict=True)
        ]
        first, second = (spans[i][1] for i in (0, 1))
        standing = result.columns[0][result.columns[0] != PAD].tolist()
        expected = [*range(int(first[0])), *[GESTALT] * gestalt.counts[0], *first[keep[0]].tolist()]
        expected += [*range(int(first[-1]) + 1, int(second[0])), *[GESTALT] * gestalt.counts[1]]
        padding = int((inputs["attention_mask"][0] == 0).sum())
        assert standing[: len(expected) - padding] == expected[padding:]
        assert not (result.columns[1] == GESTALT).any()
        assert built.model(**result.kwargs).logits.isfinite().all()

    def test_plain_positions_get_a_spare_column(self) -> None:
        """Gestalt positions run back and forth, which would be taken for packed sequences."""
        built, adapter, inputs, features = setup("llava", ROWS[:1])
        keep, gestalt = ragged(features), pooled(features)
        spared = assembled(adapter, inputs, features, keep, gestalt, use_cache=False)
        assert spared.columns[0].tolist().count(PAD) == 1
        assert spared.columns[0, 0] == PAD
        plain = assembled(adapter, inputs, features, keep, gestalt)
        assert PAD not in plain.columns
        texts = [
            built.model.generate(**result.kwargs, max_new_tokens=4, do_sample=False, use_cache=cached)[:, -4:]
            for result, cached in ((spared, False), (plain, True))
        ]
        assert torch.equal(*texts)

    def test_more_tokens_than_the_undropped_prompt_are_fine(self) -> None:
        built, adapter, inputs, features = setup("qwen3_vl")
        result = assembled(adapter, inputs, features, everything(features), pooled(features))
        assert result.columns.shape[1] > inputs["input_ids"].shape[1]
        assert built.model.generate(**result.kwargs, max_new_tokens=2).shape[1] == result.columns.shape[1] + 2


# ---- seam compaction -------------------------------------------------------------------------------------

I = True  # noqa: E741  an image column
o = False  # a text column


class TestImageSpans:
    def test_feature(self) -> None:
        is_image = torch.tensor(
            [[o, I, I, o, I, I, I, o], [o, o, o, o, o, o, o, o], [I, I, o, o, o, o, o, o]]
        )
        spans = image_spans(is_image, [2, 3, 2])
        assert [(row, columns.tolist()) for row, columns in spans] == [
            (0, [1, 2]),
            (0, [4, 5, 6]),
            (2, [0, 1]),
        ]

    def test_touching_images_are_told_apart_by_their_counts(self) -> None:
        spans = image_spans(torch.tensor([[I, I, I, I]]), [1, 3])
        assert [columns.tolist() for _, columns in spans] == [[0], [1, 2, 3]]

    @pytest.mark.parametrize("counts", [[2], [4], [2, 2], [3, 1], []])
    def test_exception(self, counts: list[int]) -> None:
        with pytest.raises(ValueError, match="3 image tokens"):
            image_spans(torch.tensor([[o, I, I, I]]), counts)

    def test_an_image_never_spans_two_rows(self) -> None:
        with pytest.raises(ValueError, match="image tokens"):
            image_spans(torch.tensor([[o, I, I], [I, o, o]]), [3])


class TestCompactColumns:
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
    spans = ((0, torch.tensor([1, 2, 3])), (1, torch.tensor([3, 4])))

    def test_feature(self) -> None:
        kept = kept_columns(self.mask, self.spans, [torch.tensor([1]), torch.tensor([1])])
        assert kept.int().tolist() == [[1, 0, 1, 0, 1, 1], [0, 0, 1, 0, 1, 1]]
        columns = compact_columns(kept)
        assert columns.tolist() == [[0, 2, 4, 5], [-1, 2, 4, 5]]
        assert compact_columns(kept, spare=1).tolist() == [[-1, 0, 2, 4, 5], [-1, -1, 2, 4, 5]]

    def test_everything_kept_is_the_identity(self) -> None:
        kept = kept_columns(self.mask, self.spans, [torch.arange(3), torch.arange(2)])
        assert torch.equal(kept, self.mask.bool())
        ids = torch.arange(12).view(2, 6) + 100
        columns = compact_columns(kept)
        assert torch.equal(gather_columns(ids, columns, fill=7)[0], ids[0])
        assert gather_columns(ids, columns, fill=7)[1].tolist() == [7, 7, 108, 109, 110, 111]

    def test_gather_keeps_leading_dimensions(self) -> None:
        values = torch.stack([torch.arange(12).view(2, 6), -torch.arange(12).view(2, 6)])
        columns = torch.tensor([[0, 5], [-1, 3]])
        assert gather_columns(values, columns, fill=50).tolist() == [
            [[0, 5], [50, 9]],
            [[0, -5], [50, -9]],
        ]

    def test_consecutive_positions(self) -> None:
        assert consecutive_positions(self.mask).tolist() == [[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3]]
