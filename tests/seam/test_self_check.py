"""Families that nobody registered: the generic adapter, and the check that decides whether it fits."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling
from transformers.models.timm_wrapper.modeling_timm_wrapper import TimmWrapperModelOutput

from arr_coc import ARRCOCModel
from arr_coc.families import GenericAdapter, adapter_for, registry
from arr_coc.families.generic import nearest_grid
from arr_coc.families.tiles import arrangement, joined_tiles, placeholder_runs, raster
from arr_coc.seam.assembly import handing_back
from arr_coc.seam.self_check import self_check
from near import near
from tiny import picture, prompts, some_cells, tiny
from tiny_families import BUILDERS, REFUSED, UNREGISTERED

unregistered = pytest.mark.parametrize("family", ["lighton_ocr", *UNREGISTERED])


@pytest.fixture(autouse=True)
def one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """LightOnOCR as if it had no adapter: the generic one fits it, too."""
    others = {kind: row for kind, row in registry.FAMILIES.items() if kind != "lighton_ocr"}
    monkeypatch.setattr(registry, "FAMILIES", others)


@pytest.mark.slow
@unregistered
def test_a_family_without_an_adapter_is_served(family: str) -> None:
    built = tiny(family)
    model = ARRCOCModel.wrap(built.model, built.processor, strict=True, budget=9)
    assert type(model.adapter) is GenericAdapter
    session = model.session(picture(1, (64, 48)))
    inputs = session.inputs("What is it?")
    assert torch.equal(model(**inputs, budget=1.0).logits, built.model(**inputs).logits)
    answer = session.ask("What is it?", mode="prune", max_new_tokens=3)
    assert (answer.kept, answer.fallback) == (9, False)
    rows = [("What?", [picture(1, (48, 48))]), ("And where is it?", [picture(2, (48, 48))])]
    out = model.generate(**prompts(built, rows), max_new_tokens=3, num_beams=2, return_allocation=True)
    assert [allocation.kept for allocation in out.allocations] == [9, 9]


@torch.no_grad()
@unregistered
def test_a_batch_equals_its_rows(family: str) -> None:
    built = tiny(family)
    adapter = adapter_for(built.model, built.processor)
    rows = [("What?", [picture(1, (48, 40))]), ("And where?", [picture(2, (40, 72))])]
    inputs = prompts(built, rows)
    features = adapter.features(inputs)
    keep = [some_cells(len(cells), 5 + i) for i, cells in enumerate(features.cells)]
    batch = adapter.compact(inputs, features, keep, use_cache=False)
    logits = built.model(**batch.kwargs, use_cache=False).logits
    for row, prompt in enumerate(rows):
        alone = prompts(built, [prompt])
        single = adapter.compact(alone, adapter.features(alone), [keep[row]], use_cache=False)
        expected = built.model(**single.kwargs, use_cache=False).logits[0]
        real = int((single.columns >= 0).sum())
        assert near(logits[row, -real:], expected[-real:])


def test_an_output_that_is_not_made_of_tokens_alone_is_handed_back_as_the_usual_one() -> None:
    """As that of timm's towers, which FastVLM and PerceptionLM have."""
    tokens = torch.zeros(1, 4, 8)
    assert handing_back(BaseModelOutput(last_hidden_state=tokens)) is BaseModelOutput
    assert handing_back(TimmWrapperModelOutput(last_hidden_state=tokens)) is BaseModelOutputWithPooling


class TestRefusals:
    """What the check says where the generic adapter doesn't fit; each is a line that names the model type."""

    def refused(self, model: Any, processor: Any, what: str) -> None:
        with pytest.raises(ValueError, match=f"'lighton_ocr' has no adapter of its own.*{what}") as caught:
            ARRCOCModel.wrap(model, processor)
        assert "\n" not in str(caught.value)

    def test_tokens_in_another_order_than_their_places(self) -> None:
        model = copy.deepcopy(tiny("lighton_ocr").model)
        stock = model.model.get_image_features

        def turned(pixel_values: Tensor, image_sizes: Any, **more: Any) -> Any:
            output = stock(pixel_values=pixel_values, image_sizes=image_sizes, **more)
            output.pooler_output = [tokens.flip(0) for tokens in output.pooler_output]
            return output

        model.model.get_image_features = turned
        self.refused(model, tiny("lighton_ocr").processor, "don't stand for places")

    def test_without_a_processor(self) -> None:
        self.refused(tiny("lighton_ocr").model, None, "pass its processor")

    def test_features_that_depend_on_each_call(self) -> None:
        model = copy.deepcopy(tiny("lighton_ocr").model)
        stock = model.model.get_image_features

        def noisy(pixel_values: Tensor, image_sizes: Any, **more: Any) -> Any:
            output = stock(pixel_values=pixel_values, image_sizes=image_sizes, **more)
            output.pooler_output = [tokens + torch.rand_like(tokens) for tokens in output.pooler_output]
            return output

        model.model.get_image_features = noisy
        self.refused(model, tiny("lighton_ocr").processor, "logits are not the stock model's")

    def test_a_processor_that_writes_other_numbers_of_placeholders(self) -> None:
        processor = copy.copy(tiny("lighton_ocr").processor)
        processor.effective_patch_size = 16
        self.refused(tiny("lighton_ocr").model, processor, "generic one doesn't fit it")

    def test_positions_that_the_model_does_not_heed(self) -> None:
        model = copy.deepcopy(tiny("lighton_ocr").model)
        stock = model.forward

        def forward(*args: Any, mm_encoder_outputs: Any = None, position_ids: Any = None, **more: Any) -> Any:
            return stock(*args, mm_encoder_outputs=mm_encoder_outputs, **more)

        model.forward = forward
        self.refused(model, tiny("lighton_ocr").processor, "standard deviations from those")

    @pytest.mark.parametrize("family", ["internvl", "aya_vision", "cohere2_vision"])
    def test_pictures_in_tiles_are_no_images_of_their_own(self, family: str) -> None:
        """Each tile would have the whole budget, and a session as many images as tiles."""
        if family not in BUILDERS:
            pytest.skip("not in this release of transformers")
        built = tiny(family)
        with pytest.raises(ValueError, match=r"cuts a picture of 2048x1024 px into [37];") as error:
            self_check(GenericAdapter(built.model, built.processor))
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("family", REFUSED)
    def test_families_that_nobody_registered(self, family: str) -> None:
        built = tiny(family)
        line = f"^model type '{family}' has no adapter of its own.*{REFUSED[family]}"
        with pytest.raises(ValueError, match=line) as caught:
            ARRCOCModel.wrap(built.model, built.processor)
        assert "\n" not in str(caught.value)

    def test_tokens_that_the_model_projects_itself(self) -> None:
        """As Llama 4's, here without tiles."""
        built = tiny("llama4")
        processor = copy.deepcopy(built.processor)
        processor.image_processor.max_patches = 1
        with pytest.raises(ValueError, match="encoded to something other than tokens of the prompt; use"):
            ARRCOCModel.wrap(built.model, processor)

    def test_an_encoder_for_inner_layers_alone(self) -> None:
        """As that of Granite 4 Vision, here without tiles."""
        model = copy.deepcopy(tiny("lighton_ocr").model)
        stock = model.model.get_image_features

        def inner(pixel_values: Tensor, image_sizes: Any, **more: Any) -> Any:
            output = stock(pixel_values=pixel_values, image_sizes=image_sizes, **more)
            output.pooler_output = None
            return output

        model.model.get_image_features = inner
        self.refused(
            model, tiny("lighton_ocr").processor, "encoded to something other than tokens of the prompt; use"
        )

    def test_positions_that_generate_does_not_heed(self) -> None:
        model = copy.deepcopy(tiny("lighton_ocr").model)
        stock = model.prepare_inputs_for_generation

        @functools.wraps(stock)  # `generate` reads its arguments' names
        def prepare(*args: Any, **more: Any) -> dict[str, Any]:
            return stock(*args, **more) | {"position_ids": None}

        model.prepare_inputs_for_generation = prepare
        self.refused(model, tiny("lighton_ocr").processor, "`generate` gives other logits than `forward`")

    def test_pixels_that_lie_otherwise_than_it_takes_them(self) -> None:
        processor = copy.copy(tiny("lighton_ocr").processor)
        processor.image_processor = pictures = copy.copy(processor.image_processor)
        stock = pictures.preprocess

        def preprocess(*args: Any, **more: Any) -> Any:
            output = stock(*args, **more)
            output["pixel_values"] = output["pixel_values"].transpose(-1, -2)
            return output

        pictures.preprocess = preprocess
        self.refused(tiny("lighton_ocr").model, processor, "its pixels are not the picture's")

    def test_training_mode_is_as_it_was(self) -> None:
        model = copy.deepcopy(tiny("vipllava").model).train()
        adapter = GenericAdapter(model, tiny("vipllava").processor)
        self_check(adapter)
        assert model.training


class TestGrids:
    def test_the_nearest_grid(self) -> None:
        assert nearest_grid(48, 48 / 64) == (6, 8)
        assert nearest_grid(36, 1.0) == (6, 6)
        assert nearest_grid(12, 3.0) == (6, 2)
        with pytest.raises(ValueError, match="37 cells make no grid"):
            nearest_grid(37, 1.0)

    @pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (2, 3), (3, 2), (2, 2)])
    def test_tiles_are_put_back_as_they_were(self, shape: tuple[int, int]) -> None:
        rows, columns = shape
        whole = torch.nn.functional.interpolate(
            torch.rand(1, 3, 5, 7), (rows * 8, columns * 8), mode="bilinear"
        )[0]
        tiles = whole.view(3, rows, 8, columns, 8).permute(1, 3, 0, 2, 4).flatten(0, 1)
        view = torch.nn.functional.interpolate(whole[None], (8, 8), mode="area")[0]
        assert arrangement(tiles, view) == shape
        assert torch.equal(joined_tiles(tiles, *shape), whole)
        tokens = whole[0].view(rows, 8, columns, 8).transpose(1, 2).flatten()  # a cell a pixel, tile by tile
        assert torch.equal(tokens[raster(rows, columns, 8)], whole[0].flatten())

    def test_a_blank_page_has_the_squarest_arrangement(self) -> None:
        assert arrangement(torch.zeros(4, 3, 8, 8), torch.zeros(3, 8, 8)) == (2, 2)

    def test_runs_of_placeholders(self) -> None:
        mask = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 1, 0, 0]]).bool()
        assert placeholder_runs(mask) == [2, 1, 3]
        assert placeholder_runs(torch.zeros(2, 3, dtype=torch.bool)) == []
