"""The laws of the seam, on tiny random models of every family. Keep lists are given; nothing is scored
here.
"""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from torch import Tensor
from transformers import MistralConfig

import tiny as tiny_module
from arr_coc.families import adapter_for
from arr_coc.seam import FamilyAdapter, VisualFeatures
from arr_coc.seam.decoding import use_given_positions
from each import each
from near import KERNELS, apart, near
from tiny import (
    EVERY,
    KINDS,
    MASKABLE,
    POSITIONLESS,
    Tiny,
    in_bfloat16,
    picture,
    prompts,
    some_cells,
    tiny,
    with_next_kinds,
)

LOOSE = 5e-4  # padding moves the chunks of a recurrent layer, those of the stock model, too
BF16 = 0.1  # of the logits' standard deviation; measured 0.06
ROWS = [
    ("What is the number on the door?", [picture(1, (48, 40))]),
    ("Where?", [picture(2, (40, 72))]),
]


def setup(family: str, rows: list = ROWS) -> tuple[Tiny, FamilyAdapter, dict, VisualFeatures]:
    built, adapter, inputs, features = usual(family) if rows is ROWS else encoded(family, rows)
    return built, adapter, dict(inputs), features


def encoded(family: str, rows: list) -> tuple[Tiny, FamilyAdapter, dict, VisualFeatures]:
    built = tiny(family)
    inputs = prompts(built, rows)
    adapter = adapter_for(built.model, built.processor)
    with torch.no_grad():
        return built, adapter, inputs, adapter.features(inputs)


@cache
def usual(family: str) -> tuple[Tiny, FamilyAdapter, dict, VisualFeatures]:
    """Of `ROWS`, once a family: no call changes them (`test_features_survive_beams`)."""
    return encoded(family, ROWS)


def ragged(features: VisualFeatures) -> list[Tensor]:
    """Another number of kept cells for each image."""
    return [some_cells(len(cells), 5 + 4 * i, seed=i) for i, cells in enumerate(features.cells)]


def tolerance(family: str) -> float:
    return KERNELS if family in MASKABLE else LOOSE


def everything_of(features: VisualFeatures) -> list[Tensor]:
    return [torch.arange(len(cells)) for cells in features.cells]


def masked(adapter: FamilyAdapter, inputs: dict, columns: Tensor) -> dict:
    """The stock model's inputs for the whole prompt with the dropped columns masked out."""
    mask = torch.zeros_like(inputs["input_ids"])
    for row, kept in enumerate(columns):
        mask[row, kept[kept >= 0]] = 1
    return inputs | {"attention_mask": mask, "position_ids": adapter.positions(inputs)}


@pytest.mark.parametrize("family", MASKABLE)  # no mask hides a token from the running state of the others
@torch.no_grad()
def test_drop_equals_mask(family: str) -> None:
    built, adapter, inputs, features = setup(family)
    compacted = adapter.compact(inputs, features, ragged(features), use_cache=False)
    dropped = built.model(**compacted.kwargs, use_cache=False).logits
    reference = built.model(**masked(adapter, inputs, compacted.columns)).logits
    for row, columns in enumerate(compacted.columns):
        real = columns >= 0
        assert near(dropped[row, real], reference[row, columns[real]])


@pytest.mark.parametrize("family", EVERY)
class TestLawsOfEveryFamily:
    @torch.no_grad()
    def test_identity(self, family: str) -> None:
        built, adapter, inputs, features = setup(family)
        kwargs = adapter.compact(inputs, features, everything_of(features)).kwargs
        assert "pixel_values" not in kwargs
        stock = built.model(**inputs).logits
        assert torch.equal(built.model(**kwargs).logits, stock)
        text = built.model.generate(**inputs, max_new_tokens=6, do_sample=False)
        kwargs = adapter.compact(inputs, features, everything_of(features)).kwargs
        assert torch.equal(built.model.generate(**kwargs, max_new_tokens=6, do_sample=False), text)
        assert torch.equal(built.model(**inputs).logits, stock)  # the model was used, not changed

    @torch.no_grad()
    def test_greedy_text_is_stepwise_argmax_without_cache(self, family: str) -> None:
        """Decoding continues after the end of the undropped sequence."""
        built, adapter, inputs, features = setup(family)
        compacted = adapter.compact(inputs, features, ragged(features))
        length = compacted.columns.shape[1]
        model = use_given_positions(built.model)
        out = model.generate(**compacted.kwargs, max_new_tokens=8, do_sample=False)[:, length:]

        if family in MASKABLE:  # reference: the stock model on the whole prompt, dropped columns masked
            steps = masked(adapter, inputs, compacted.columns)
        else:
            steps = adapter.compact(inputs, features, ragged(features), use_cache=False).kwargs
            if steps["position_ids"].ndim == 3:
                steps["position_ids"] = steps["position_ids"][1:]  # the text row is only there for masks
        end = adapter.positions(inputs)[..., -1:]  # of the undropped sequence
        expected = []
        for step in range(8):
            token = built.model(**steps, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            expected.append(token)
            steps = with_next_kinds(family, steps)
            steps["input_ids"] = torch.cat([steps["input_ids"], token], dim=1)
            steps["attention_mask"] = torch.nn.functional.pad(steps["attention_mask"], (0, 1), value=1)
            if "mm_token_type_ids" in steps:
                steps["mm_token_type_ids"] = torch.nn.functional.pad(steps["mm_token_type_ids"], (0, 1))
            following = (end + 1 + step).expand(*steps["position_ids"].shape[:-1], 1)
            steps["position_ids"] = torch.cat([steps["position_ids"], following], dim=-1)
        assert torch.equal(out, torch.cat(expected, dim=1))


@pytest.mark.parametrize("family", tiny_module.apart(KINDS))
class TestLaws:
    @torch.no_grad()
    def test_text_is_never_dropped_and_what_is_kept_keeps_its_position(self, family: str) -> None:
        _, adapter, inputs, features = setup(family)
        whole = adapter.positions(inputs)
        one_cell = [torch.zeros(1, dtype=torch.long) for _ in features.cells]
        for keep in (one_cell, ragged(features)):
            compacted = adapter.compact(inputs, features, keep)
            ids, mask = compacted.kwargs["input_ids"], compacted.kwargs["attention_mask"].bool()
            kept = compacted.kwargs["position_ids"]
            kept = kept[1:] if kept.ndim == 3 and adapter.text_row else kept
            for row, columns in enumerate(compacted.columns):
                prompt = inputs["input_ids"][row]
                text = prompt[inputs["attention_mask"][row].bool() & (prompt != adapter.image_token_id)]
                assert torch.equal(ids[row][mask[row] & (ids[row] != adapter.image_token_id)], text)
                real = columns >= 0
                assert torch.equal(kept[..., row, real], whole[..., row, columns[real]])
                assert torch.equal(kept[..., row, -1], whole[..., row, -1])

    @torch.no_grad()
    def test_dropping_and_forgetting_positions_are_both_visible(self, family: str) -> None:
        """The tests of this file could fail: what they guard against moves the logits a lot."""
        built, adapter, inputs, features = setup(family)
        kwargs = adapter.compact(inputs, features, ragged(features), use_cache=False).kwargs
        last = built.model(**kwargs, use_cache=False).logits[:, -1]
        assert (last - built.model(**inputs).logits[:, -1]).abs().max() > 0.1
        kwargs["position_ids"] = None
        moved = (last - built.model(**kwargs, use_cache=False).logits[:, -1]).abs().max()
        assert moved == 0 if family in POSITIONLESS else moved > 0.01

    @torch.no_grad()
    def test_greedy_text_does_not_need_the_cache(self, family: str) -> None:
        built, adapter, inputs, features = setup(family, ROWS[:1])  # one row: no padding in the mask
        texts = []
        for use_cache in (True, False):
            compacted = adapter.compact(inputs, features, ragged(features), use_cache=use_cache)
            out = built.model.generate(
                **compacted.kwargs, max_new_tokens=5, do_sample=False, use_cache=use_cache
            )
            texts.append(out[:, compacted.columns.shape[1] :])
        assert torch.equal(*texts)

    @torch.no_grad()
    def test_batch_equals_single(self, family: str) -> None:
        built, adapter, inputs, features = setup(family)
        compacted = adapter.compact(inputs, features, ragged(features), use_cache=False)
        batch = built.model(**compacted.kwargs, use_cache=False).logits
        padding = (compacted.columns < 0).sum(dim=1)
        assert padding[0] != padding[1]  # ragged
        for row, prompt in enumerate(ROWS):
            _, _, alone, alone_features = setup(family, [prompt])
            single = adapter.compact(alone, alone_features, [ragged(features)[row]], use_cache=False)
            logits = built.model(**single.kwargs, use_cache=False).logits[0]
            real = int((single.columns >= 0).sum())
            assert real == int((compacted.columns[row] >= 0).sum())
            assert near(batch[row, -real:], logits[-real:], tolerance(family))

    @torch.no_grad()
    def test_several_images_keep_their_own(self, family: str) -> None:
        rows = [("Which?", [picture(1), picture(2)]), ("What?", [picture(3), picture(4)])]
        built, adapter, inputs, features = setup(family, rows)
        keep = [some_cells(len(cells), 3 + i, seed=i) for i, cells in enumerate(features.cells)]
        compacted = adapter.compact(inputs, features, keep)
        tokens = features.tokens_to_keep(keep)
        for image, (row, columns) in enumerate(adapter.columns(inputs["input_ids"], features.counts)):
            standing = compacted.columns[row]
            assert torch.equal(columns[tokens[image]], standing[torch.isin(standing, columns)])
        handed = compacted.kwargs["mm_encoder_outputs"]["image"].pooler_output
        if features.packed:
            handed = handed.flatten(0, 1).split([len(kept) for kept in tokens])
        for image, kept in enumerate(tokens):
            assert torch.equal(handed[image], features.tokens[image][kept])
        if family in MASKABLE:
            logits = built.model(**compacted.kwargs).logits
            reference = built.model(**masked(adapter, inputs, compacted.columns)).logits
            for row, columns in enumerate(compacted.columns):
                real = columns >= 0
                assert near(logits[row, real], reference[row, columns[real]])

    @torch.no_grad()
    def test_rows_with_and_without_images(self, family: str) -> None:
        if family == "paligemma":
            pytest.skip("its processor takes no row without an image")
        rows = [("No picture here, only words.", []), ROWS[0], ("And none here.", [])]
        built, adapter, inputs, features = setup(family, rows)
        compacted = adapter.compact(inputs, features, ragged(features), use_cache=False)
        logits = built.model(**compacted.kwargs, use_cache=False).logits
        for row in (0, 2):
            alone = {
                name: value
                for name, value in prompts(built, [rows[row]]).items()
                if name in ("input_ids", "attention_mask", "mm_token_type_ids")
            }
            text = built.model(**alone).logits[0]
            assert near(logits[row, -len(text) :], text, tolerance(family))
        _, _, alone, alone_features = setup(family, [ROWS[0]])
        single = adapter.compact(alone, alone_features, ragged(alone_features), use_cache=False)
        real = int((single.columns >= 0).sum())
        expected = built.model(**single.kwargs, use_cache=False).logits[0, -real:]
        assert near(logits[1, -real:], expected, tolerance(family))
        out = built.model.generate(
            **adapter.compact(inputs, features, ragged(features)).kwargs,
            max_new_tokens=3,
            num_beams=2,
            do_sample=False,
        )
        assert len(out) == 3

    @torch.no_grad()
    def test_beams_and_returned_sequences_equal_each_row_alone(self, family: str) -> None:
        built, adapter, inputs, features = setup(family)
        compacted = adapter.compact(inputs, features, ragged(features))
        options = {"max_new_tokens": 5, "num_beams": 3, "num_return_sequences": 2, "do_sample": False}
        both = built.model.generate(**compacted.kwargs, **options)[:, compacted.columns.shape[1] :]
        for row, prompt in enumerate(ROWS):
            _, _, alone, alone_features = setup(family, [prompt])
            single = adapter.compact(alone, alone_features, [ragged(features)[row]])
            out = built.model.generate(**single.kwargs, **options)[:, single.columns.shape[1] :]
            assert torch.equal(both[2 * row : 2 * row + 2], out)

    def test_gradient_through_a_gate(self, family: str) -> None:
        """g / g.detach() is 1 going forward and carries the gradient of every level to g."""
        built, adapter, inputs, features = setup(family)
        keep = ragged(features)
        gates = [torch.rand(len(cells), requires_grad=True) for cells in features.cells]
        gated = features.scale([gate / gate.detach() for gate in gates])
        for level, plain in zip(
            [gated.tokens, *gated.levels], [features.tokens, *features.levels], strict=True
        ):
            assert all(torch.equal(a, b) for a, b in zip(level, plain, strict=True))
            assert all(image.requires_grad for image in level)
        built.model(**adapter.compact(inputs, gated, keep).kwargs).logits[:, -1].logsumexp(
            -1
        ).sum().backward()
        for gate, kept in zip(gates, keep, strict=True):
            assert torch.isfinite(gate.grad).all()
            assert (gate.grad[kept] != 0).all()
            dropped = torch.ones(len(gate), dtype=torch.bool).index_fill(0, kept, False)
            assert (gate.grad[dropped] == 0).all()

    @torch.no_grad()
    def test_bfloat16(self, family: str) -> None:
        """In bfloat16 identity is exact, and dropping equals masking within a tenth of the logits'
        spread."""
        built, inputs = in_bfloat16(family), prompts(tiny(family), ROWS)
        adapter = adapter_for(built.model, built.processor)
        features = adapter.features(inputs)
        if not adapter.casts:  # as the stock model wants them
            inputs["pixel_values"] = inputs["pixel_values"].bfloat16()
        compacted = adapter.compact(inputs, features, ragged(features), use_cache=False)
        low = built.model(**compacted.kwargs, use_cache=False).logits.float()
        assert low.isfinite().all()
        kwargs = adapter.compact(inputs, features, everything_of(features)).kwargs
        assert torch.equal(built.model(**kwargs).logits, built.model(**inputs).logits)
        if family in MASKABLE:
            reference = built.model(**masked(adapter, inputs, compacted.columns)).logits.float()
            for row, columns in enumerate(compacted.columns):
                real = columns >= 0
                error = (low[row, real] - reference[row, columns[real]]).abs().max()
                assert error < BF16 * reference.std()


def test_deepstack_levels_keep_the_same_indices() -> None:
    _, adapter, inputs, features = setup("qwen3_vl")
    assert len(features.levels) == 2
    keep = ragged(features)
    handed = adapter.compact(inputs, features, keep).kwargs["mm_encoder_outputs"]["image"]
    for level, plain in zip(handed.deepstack_features, features.levels, strict=True):
        for image, kept in enumerate(keep):
            assert torch.equal(level[image], plain[image][kept])


@torch.no_grad()
def test_features_survive_beams() -> None:
    """`generate` expands encoder outputs in place; cached features must not notice."""
    built, adapter, inputs, features = setup("qwen3_vl")
    compacted = adapter.compact(inputs, features, ragged(features))
    built.model.generate(**compacted.kwargs, max_new_tokens=2, num_beams=2)
    assert len(features.tokens) == 2
    assert [len(level) for level in features.levels] == [2, 2]


@torch.no_grad()
def test_plain_positions_are_not_taken_for_packed_sequences() -> None:
    """Without a cache and without padding, gaps in plain positions would cut the attention; a spare
    column saves it."""
    built, adapter, inputs, features = setup("llava", ROWS[:1])
    with_spare = adapter.compact(inputs, features, ragged(features), use_cache=False)
    assert (with_spare.kwargs["attention_mask"][:, 0] == 0).all()
    without = adapter.compact(inputs, features, ragged(features), use_cache=True)
    assert without.kwargs["attention_mask"].all()
    cut = without.kwargs | {"attention_mask": None}
    good = built.model(**with_spare.kwargs, use_cache=False).logits[:, -1]
    assert (good - built.model(**cut, use_cache=False).logits[:, -1]).abs().max() > 0.01  # the trap is real


@torch.no_grad()
@each("use_cache", [True, False])
@pytest.mark.parametrize("family", tiny_module.apart([family for family in KINDS if family in MASKABLE]))
def test_the_loss_is_that_of_the_stock_model_with_the_dropped_columns_masked(
    family: str, use_cache: bool
) -> None:
    """Also where a spare column of padding stands first, which predicts nothing."""
    built, adapter, inputs, features = setup(family, ROWS[:1])
    text = inputs["input_ids"] != adapter.image_token_id
    follows = torch.nn.functional.pad(text[:, :-1], (1, 0), value=True)  # text, and predicted by text
    labels = inputs["input_ids"].masked_fill(~(text & follows), -100)
    assert labels[0, 0] >= 0 or adapter.prefix  # an image stands first there
    keep = ragged(features)
    compacted = adapter.compact(inputs | {"labels": labels}, features, keep, use_cache=use_cache)
    loss = built.model(**compacted.kwargs, use_cache=use_cache).loss
    reference = masked(adapter, inputs | {"labels": labels}, compacted.columns)
    assert near(loss, built.model(**reference).loss)


class TestWindow:
    """A window counts columns: dropping equals masking while the whole prompt fits it, and no further."""

    @staticmethod
    def windowed(width: int) -> tuple[FamilyAdapter, dict, VisualFeatures]:
        stock = tiny("llava")
        config = copy.deepcopy(stock.model.config)
        text = config.text_config.to_dict()
        del text["model_type"]
        config.text_config = MistralConfig(**text | {"sliding_window": width})
        model = type(stock.model)(config).eval()
        model.load_state_dict(stock.model.state_dict())
        adapter = adapter_for(model, stock.processor)
        inputs = prompts(stock, ROWS[:1])
        return adapter, inputs, adapter.features(inputs)

    @staticmethod
    @torch.no_grad()
    def difference(adapter: FamilyAdapter, inputs: dict, features: VisualFeatures) -> float:
        compacted = adapter.compact(inputs, features, ragged(features), use_cache=False)
        dropped = adapter.model(**compacted.kwargs, use_cache=False).logits[0]
        reference = adapter.model(**masked(adapter, inputs, compacted.columns), use_cache=False).logits[0]
        real = compacted.columns[0] >= 0
        return apart(dropped[real], reference[compacted.columns[0, real]])

    def test_a_prompt_that_fits(self, caplog: pytest.LogCaptureFixture) -> None:
        length = prompts(tiny("llava"), ROWS[:1])["input_ids"].shape[1]
        adapter, inputs, features = self.windowed(length)
        assert adapter.window == length
        assert self.difference(adapter, inputs, features) <= KERNELS
        assert not caplog.records

    def test_a_longer_one_differs_and_says_so_once(self, caplog: pytest.LogCaptureFixture) -> None:
        adapter, inputs, features = self.windowed(16)
        assert adapter.window == 16
        everything = adapter.compact(inputs, features, everything_of(features))
        assert torch.equal(adapter.model(**everything.kwargs).logits, adapter.model(**inputs).logits)
        assert not caplog.records  # nothing was dropped
        assert self.difference(adapter, inputs, features) > 0.01
        assert self.difference(adapter, inputs, features) > 0.01
        (record,) = caplog.records
        length = inputs["input_ids"].shape[1]
        assert (
            f"the prompt has {length} tokens and some layers of the language model see 16" in record.message
        )


@pytest.mark.skipif("hy_v4_vl" not in EVERY, reason="this transformers has no Hunyuan 4 VL")
@pytest.mark.parametrize(("picked", "alike"), [(2048, True), (16, False)])
def test_tokens_that_pick_what_they_read(picked: int, alike: bool) -> None:
    """Likewise: dropping equals masking while a token may pick the whole prompt, and no further."""
    stock = tiny("hy_v4_vl")
    config = copy.deepcopy(stock.model.config)
    config.text_config.index_topk = picked
    model = type(stock.model)(config).eval()
    model.load_state_dict(stock.model.state_dict())
    adapter, inputs = adapter_for(model, stock.processor), prompts(stock, ROWS[:1])
    difference = TestWindow.difference(adapter, inputs, adapter.features(inputs))
    assert adapter.window == picked
    assert (difference <= KERNELS) == alike


def test_labels_move_with_their_columns() -> None:
    _, adapter, inputs, features = setup("qwen3_vl")
    labels = torch.arange(inputs["input_ids"].numel()).view_as(inputs["input_ids"])
    compacted = adapter.compact(inputs | {"labels": labels}, features, ragged(features))
    for row, columns in enumerate(compacted.columns):
        first = int((columns >= 0).nonzero()[0])  # after padding: nothing predicts it
        assert torch.equal(compacted.kwargs["labels"][row, first + 1 :], labels[row, columns[first + 1 :]])
        assert (compacted.kwargs["labels"][row, 1 : first + 1] == -100).all()
