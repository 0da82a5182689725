"""Finer crops beside one square view: where their cells lie, what encodes them, what the model reads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    SiglipImageProcessor,
    SiglipVisionConfig,
)

from arr_coc.families import adapter_for
from arr_coc.families.square import CroppedAdapter, times_finer
from arr_coc.seam import GESTALT, PAD
from arr_coc.seam.assembly import CROP, CROP_GRIDS, CROP_VALUES
from near import near
from tiny import LLAVA_TEMPLATE, Tiny, _text, picture, prompts, some_cells, tiny, tokenizer

NONE = torch.zeros(0, dtype=torch.long)


@cache
def with_rim() -> Tiny:
    """A LLaVA whose tower's input, 26 px, has a rim of 2 px that holds no whole patch; no class token."""
    words = tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = LlavaForConditionalGeneration(
            LlavaConfig(
                text_config=LlamaConfig(**_text()),
                vision_config=SiglipVisionConfig(
                    hidden_size=32,
                    intermediate_size=48,
                    num_hidden_layers=3,
                    num_attention_heads=2,
                    image_size=26,
                    patch_size=4,
                    initializer_range=0.2,
                    vision_use_head=False,
                ),
                image_token_index=words.convert_tokens_to_ids("<image>"),
                vision_feature_select_strategy="full",
                vision_feature_layer=-1,
            )
        )
    processor = LlavaProcessor(
        SiglipImageProcessor(size={"height": 26, "width": 26}),
        words,
        patch_size=4,
        vision_feature_select_strategy="full",
        num_additional_image_tokens=0,
        chat_template=LLAVA_TEMPLATE,
    )
    return Tiny("llava", model.eval().requires_grad_(False), processor)


KINDS = {"class token": lambda: tiny("llava"), "rim": with_rim}
kinds = pytest.mark.parametrize("kind", KINDS)
PICTURES = [picture(1, (96, 72)), picture(2, (30, 30)), picture(3, (50, 60))]
"""Of 3x3 crops, of none, and of 2x2."""


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def setup(
    kind: str = "class token", rows: list[list[Image.Image]] | None = None
) -> tuple[Any, CroppedAdapter, dict[str, Any]]:
    """A model, its adapter and inputs with crops; the first row's question is shorter."""
    built, rows = KINDS[kind](), [PICTURES[:1]] if rows is None else rows
    adapter = adapter_for(built.model, built.processor)
    inputs = prompts(built, [("where?" * (i + 1), images) for i, images in enumerate(rows)])
    pictures = [one for images in rows for one in images]
    assert isinstance(adapter, CroppedAdapter)
    assert adapter.lacks_crops(inputs, pictures) is None
    return built.model, adapter, inputs | adapter.crops(inputs, pictures)


def stock(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if name not in (CROP_VALUES, CROP_GRIDS)}


def read_by_hand(model: Any, inputs: dict[str, Any], tokens: Tensor, places: Tensor) -> Tensor:
    """Logits of the language model for one row, whose image has more tokens, at positions named by hand."""
    ids = inputs["input_ids"][0]
    image = (ids == model.config.image_token_id).nonzero().flatten()
    words = model.get_input_embeddings()(ids)
    first, end = int(image[0]), int(image[-1]) + 1
    embeds = torch.cat([words[:first], tokens, words[end:]])[None]
    positions = torch.cat([torch.arange(first), places, torch.arange(end, len(ids))])[None]
    mask = torch.ones_like(positions)
    hidden = model.model.language_model(
        inputs_embeds=torch.cat([embeds[:, :1], embeds], 1),  # a masked column: gaps are no packed sequences
        attention_mask=torch.cat([0 * mask[:, :1], mask], 1),
        position_ids=torch.cat([positions[:, :1], positions], 1),
    ).last_hidden_state
    return model.lm_head(hidden)[:, 1:]


class TestCells:
    def test_so_many_crops_as_the_picture_has_px_for(self) -> None:
        sizes = [(24, 24), (35, 35), (36, 99), (59, 80), (60, 60), (900, 61), (5000, 5000)]
        assert [times_finer(size, 24) for size in sizes] == [1, 1, 2, 2, 3, 3, 3]

    @kinds
    def test_the_layout(self, kind: str) -> None:
        _, adapter, inputs = setup(kind, [PICTURES[:2], PICTURES[2:]])
        layout = adapter.layout(inputs)
        assert layout.grids == [(1, 18, 18), (1, 6, 6), (1, 12, 12)]
        assert layout.counts == layout.sizes == [324, 36, 144]
        assert layout.in_prompt == [36, 36, 36]
        assert inputs[CROP_GRIDS].tolist() == [[3, 3], [1, 1], [2, 2]]
        assert len(inputs[CROP_VALUES]) == 9 + 4
        plain = adapter.layout(stock(inputs))
        assert (plain.grids, plain.in_prompt) == ([(1, 6, 6)] * 3, [36] * 3)

    @kinds
    def test_crops_lie_side_by_side_in_what_the_view_shows(self, kind: str) -> None:
        """The processor's own picture at the finer scale, without the rim at its end."""
        _, adapter, inputs = setup(kind)
        side = adapter.input_px
        reader = adapter.processor.image_processor
        size = {name: 3 * px for name, px in dict(reader.size).items()}
        crop = {"crop_size": {"height": 3 * side, "width": 3 * side}} if reader.crop_size else {}
        fine = reader(images=PICTURES[0], return_tensors="pt", size=size, **crop)["pixel_values"][0]
        (joined,) = adapter.patches(inputs)
        assert torch.equal(joined, fine[:, :72, :72])
        (shown,), (view,) = adapter.images(inputs), adapter.images(stock(inputs))
        small = torch.nn.functional.interpolate(shown[None], view.shape[1:], mode="area")[0]
        assert (small - view).abs().mean() < 0.01

    def test_pixels_in_the_dtype_of_the_view(self) -> None:
        _, adapter, inputs = setup()
        half = stock(inputs) | {"pixel_values": inputs["pixel_values"].bfloat16()}
        assert adapter.crops(half, PICTURES[:1])[CROP_VALUES].dtype == torch.bfloat16


class TestEncodeCells:
    @kinds
    def test_kept_cells_are_those_of_the_stock_tower_on_each_crop_alone(self, kind: str) -> None:
        model, adapter, inputs = setup(kind, [PICTURES[:2], PICTURES[2:]])
        keep = [some_cells(324, 20), torch.arange(36), some_cells(144, 7)]
        fine = adapter.encode_cells(inputs, keep)
        assert (fine.counts, fine.cells, fine.grids) == ([20, 36, 7], [], adapter.layout(inputs).grids)

        def alone(crop: Tensor) -> Tensor:
            return model.get_image_features(crop[None], return_dict=True).pooler_output[0]

        crops = [alone(crop) for crop in inputs[CROP_VALUES]]
        for image, start, times in ((0, 0, 3), (2, 9, 2)):
            for token, cell in zip(fine.tokens[image], keep[image].tolist(), strict=True):
                y, x = divmod(cell, 6 * times)
                own = crops[start + y // 6 * times + x // 6]
                assert near(token, own[y % 6 * 6 + x % 6])
        assert near(fine.tokens[1], alone(inputs["pixel_values"][1]))

    def test_only_crops_with_a_kept_cell_are_encoded(self) -> None:
        _, adapter, inputs = setup()
        keep = [torch.tensor([0, 1, 19, 5])[[0, 1, 3, 2]]]  # all of the first crop
        assert adapter.views_encoded(inputs, keep) == (2, 10)
        spoiled = inputs | {CROP_VALUES: inputs[CROP_VALUES].clone()}
        spoiled[CROP_VALUES][1:] = torch.nan
        fine = adapter.encode_cells(spoiled, keep).tokens[0]
        assert torch.equal(fine, adapter.encode_cells(inputs, keep).tokens[0])
        assert fine.isfinite().all()

    def test_pictures_without_crops_are_the_stock_features_to_the_last_bit(self) -> None:
        _, adapter, inputs = setup(rows=[PICTURES[1:2], [picture(5, (24, 30))]])
        assert adapter.views_encoded(inputs, [torch.arange(36)] * 2) is None
        fine, whole = adapter.encode_cells(inputs, [torch.arange(36)] * 2), adapter.features(inputs)
        assert all(torch.equal(a, b) for a, b in zip(fine.tokens, whole.tokens, strict=True))
        assert (fine.kind, fine.packed) == (whole.kind, whole.packed)

    def test_what_is_no_cell_is_refused(self) -> None:
        _, adapter, inputs = setup()
        with pytest.raises(ValueError, match="no cell is kept in any image"):
            adapter.encode_cells(inputs, [NONE])
        with pytest.raises(ValueError, match="rising indices into grids"):
            adapter.encode_cells(inputs, [torch.tensor([324])])
        with pytest.raises(NotImplementedError, match="can't encode some cells alone"):
            adapter.encode_cells(stock(inputs), [torch.tensor([3])])


class TestPrompt:
    @kinds
    def test_without_a_fine_cell_it_is_the_stock_model(self, kind: str) -> None:
        model, adapter, inputs = setup(kind, [PICTURES[:2], PICTURES[2:]])
        view = adapter.features(adapter.coarse(inputs))
        expected = model(**stock(inputs)).logits
        for fine in (None, adapter.encode_cells(inputs, [some_cells(324, 3), NONE, NONE]).select([NONE] * 3)):
            result = adapter.assemble(inputs, adapter.layout(inputs), [NONE] * 3, fine, view)
            rows = inputs["attention_mask"].bool()
            logits = model(**result.kwargs).logits
            assert near(logits[result.columns != PAD], expected[rows])
            assert (result.columns == GESTALT).sum(1).tolist() == [72, 36]

    @kinds
    def test_the_view_then_the_kept_cells_in_raster_order_each_at_its_place(self, kind: str) -> None:
        model, adapter, inputs = setup(kind)
        keep = some_cells(324, 20)
        view, fine = adapter.features(adapter.coarse(inputs)), adapter.encode_cells(inputs, [keep])
        result = adapter.assemble(inputs, adapter.layout(inputs), [keep], fine, view)
        ids = inputs["input_ids"][0]
        image = (ids == model.config.image_token_id).nonzero().flatten()
        text = [i for i in range(len(ids)) if i not in image.tolist()]
        before, after = [i for i in text if i < image[0]], [i for i in text if i > image[-1]]
        assert result.columns[0].tolist() == [*before, *[GESTALT] * 36, *[CROP] * 20, *after]
        assert (result.kwargs["input_ids"][0] == model.config.image_token_id).sum() == 56
        y, x = keep // 18 // 3, keep % 18 // 3  # of the view's cell that covers it
        covering = image[y * 6 + x]
        positions = torch.cat([torch.tensor(before), image, covering, torch.tensor(after)])
        assert torch.equal(result.kwargs["position_ids"][0], positions)
        by_hand = read_by_hand(
            model, inputs, torch.cat([view.tokens[0], fine.tokens[0]]), torch.cat([image, covering])
        )
        assert near(model(**result.kwargs).logits, by_hand)
        assert (by_hand[0, -1] - model(**stock(inputs)).logits[0, -1]).abs().max() > 0.01

    def test_batch_equals_single(self) -> None:
        rows = [[PICTURES[0]], [PICTURES[1]], [PICTURES[2], picture(7, (72, 72))]]
        model, adapter, inputs = setup(rows=rows)
        sizes = adapter.layout(inputs).sizes
        keep = [some_cells(sizes[0], 9), torch.arange(36), some_cells(sizes[2], 4), some_cells(sizes[3], 11)]
        start, ends = 0, []
        together = read(model, adapter, inputs, keep)
        for row, images in enumerate(rows):
            question = [("where?" * (row + 1), images)]
            alone = prompts(tiny("llava"), question)
            alone |= adapter.crops(alone, images)
            single = read(model, adapter, alone, keep[start : start + len(images)])
            start += len(images)
            ends.append(near(together[row, -5:], single[0, -5:]))
        assert all(ends)

    def test_another_coarse_view_has_no_place(self) -> None:
        _, adapter, inputs = setup()
        view = adapter.features(adapter.coarse(inputs)).select([torch.arange(9)])
        with pytest.raises(ValueError, match="gestalt of 9 tokens can't stand for a view of 36"):
            adapter.assemble(inputs, adapter.layout(inputs), [NONE], None, view)


def read(model: Any, adapter: CroppedAdapter, inputs: dict[str, Any], keep: list[Tensor]) -> Tensor:
    """Logits of all rows; images without crops have no gestalt."""
    view, layout = adapter.features(adapter.coarse(inputs)), adapter.layout(inputs)
    cut = [size > 36 for size in layout.sizes]
    gestalt = view.select([torch.arange(36 if one else 0) for one in cut])
    fine = adapter.encode_cells(inputs, keep)
    return model(**adapter.assemble(inputs, layout, keep, fine, gestalt).kwargs).logits


class TestRefusals:
    def test_pictures_that_are_not_those_of_the_prompt(self) -> None:
        _, adapter, inputs = setup(rows=[PICTURES[:1], PICTURES[2:]])
        with pytest.raises(ValueError, match="1 pictures are passed, and the prompt has 2 images"):
            adapter.lacks_crops(stock(inputs), PICTURES[:1])
        with pytest.raises(
            ValueError, match="picture 0 does not show what the model's view of image 0 shows"
        ):
            adapter.crops(stock(inputs), [PICTURES[2], PICTURES[0]])

    @pytest.mark.parametrize("stripes", [2, 3, 4, 7])
    def test_the_users_own_picture_is_never_refused(self, stripes: int) -> None:
        """Fine stripes look otherwise at another scale, where the crop of the centre is rounded otherwise."""
        columns = np.arange(70) // stripes % 2 * 255
        pixels = np.broadcast_to(columns[None, :, None], (61, 70, 3)).astype(np.uint8)
        one, other = Image.fromarray(pixels), Image.fromarray(255 - pixels)
        _, adapter, inputs = setup(rows=[[one]])
        assert inputs[CROP_GRIDS].tolist() == [[3, 3]]
        with pytest.raises(ValueError, match="picture 0 does not show"):
            adapter.crops(stock(inputs), [other])

    def test_what_crops_need(self) -> None:
        built, _, inputs = KINDS["class token"](), *setup()[1:]
        adapter = adapter_for(built.model, built.processor)
        assert "pass pictures=" in (adapter.lacks_crops(inputs, None) or "")
        without = adapter_for(built.model)
        assert without.lacks_crops(inputs, PICTURES[:1]) == "crops need the model's processor"
        spare = inputs | {"input_ids": torch.cat([inputs["input_ids"], inputs["input_ids"][:, :0]], 1)}
        spare["input_ids"] = torch.nn.functional.pad(
            inputs["input_ids"], (0, 1), value=built.model.config.image_token_id
        )  # as the class token of strategy "full"
        assert "has 37 tokens, and crops add cells to one of 36" in (
            adapter.lacks_crops(spare, PICTURES[:1]) or ""
        )

    @pytest.mark.parametrize("family", ["llava_next", "llava_onevision", "qwen3_vl"])
    def test_other_families_look_at_none(self, family: str) -> None:
        built = tiny(family)
        adapter = adapter_for(built.model, built.processor)
        assert adapter.encodes != "crops"

    def test_an_image_processor_that_makes_no_square(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, adapter, inputs = setup()
        monkeypatch.setattr(adapter.processor.image_processor, "do_center_crop", False)
        with pytest.raises(
            ValueError, match=r"makes \(3, 72, 96\) of a picture where crops need \(3, 72, 72\)"
        ):
            adapter.crops(stock(inputs), PICTURES[:1])
