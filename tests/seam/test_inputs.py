"""The check of a call's inputs: whatever doesn't fit is one ValueError with the remedy, in every family."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from arr_coc.model import ARRCOCModel
from arr_coc.seam.assembly import PROMPT_NAMES
from arr_coc.seam.decoding import BY_TOKEN, REFUSED, check_prompt
from arr_coc.seam.pixels import reading_pixels
from each import each
from near import near
from tiny import APART, KINDS, apart, picture, prompts, tiny

ROWS = [("Where is it?", [picture(1, (144, 96))])]
REMEDY = "pass|use|leave"
TRANSLATED = {"input_ids", "logits_to_keep", "position_ids", *BY_TOKEN}
"""Arguments that name columns of the prompt, and follow them where tokens are dropped."""
COLUMNLESS = {
    "cache",
    "past_key_values",
    "use_cache",
    "output_router_logits",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "router_labels",
    "pixel_values_videos",
    "video_grid_thw",
    "second_per_grid_ts",
    "video_second_per_grid",
    "image_sizes",
    "image_sizes_videos",
    "video_position_ids",
    "num_frames_per_video",
    "target_sizes_videos",
    "video_token_pooling",
    "video_grids",
    "use_audio_in_video",
    "input_features",
    "input_features_mask",
    "input_values",
    "input_values_mask",
    "chunk_sample_lengths",
    "padding_mask",
    "feature_attention_mask",
    "audio_feature_lengths",
    "image_num_crops",
    "downsample_mode",
    "vision_feature_layers",
}
"""Those that name none: of clips and sound, which stay whole, and settings."""


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@cache
def wrapped(family: str = "qwen3_vl") -> ARRCOCModel:
    built = tiny(family)
    return ARRCOCModel.wrap(built.model, built.processor, budget=0.3)


def inputs_of(family: str, rows: list = ROWS) -> dict[str, Any]:
    return prompts(tiny(family), rows)


def at_columns(inputs: dict[str, Any], columns: list[int]) -> dict[str, Any]:
    """The prompt made of some of its columns, with the same pixels."""
    return {name: value[:, columns] if name in PROMPT_NAMES else value for name, value in inputs.items()}


def refused(family: str, inputs: dict[str, Any], mode: str = "prune") -> str:
    """The message of a call that is refused."""
    with pytest.raises(ValueError, match=REMEDY) as error:
        wrapped(family)(**inputs, mode=mode)
    assert "\n" not in str(error.value)
    return str(error.value)


# ---- the prompt and its images -----------------------------------------------------------


@each("mode", ["prune", "sparse"])
@each("family", apart(KINDS))
class TestMisfits:
    def test_more_or_fewer_placeholders(self, family: str, mode: str) -> None:
        inputs, model = inputs_of(family), wrapped(family)
        columns = list(range(inputs["input_ids"].shape[1]))
        places = (inputs["input_ids"][0] == model.adapter.image_token_id).nonzero().flatten().tolist()
        for place in (places[0], places[len(places) // 2], places[-1]):
            refused(family, at_columns(inputs, [i for i in columns if i != place]), mode)
            refused(family, at_columns(inputs, sorted([*columns, place])), mode)
        refused(family, at_columns(inputs, columns[: places[len(places) // 2]]), mode)
        refused(family, at_columns(inputs, [i for i in columns if i not in places]), mode)

    def test_pixels_of_other_images(self, family: str, mode: str) -> None:
        one, two = inputs_of(family), inputs_of(family, [("?", [*ROWS[0][1], picture(2, (30, 40))])])
        for text, pixels in ((one, two), (two, one)):
            refused(family, pixels | {name: text[name] for name in PROMPT_NAMES if name in text}, mode)

    def test_what_stands_beside_the_pixels(self, family: str, mode: str) -> None:
        inputs = inputs_of(family)
        for name in wrapped(family).adapter.needed:
            assert name in refused(family, {k: v for k, v in inputs.items() if k != name}, mode)
            refused(family, inputs | {name: inputs[name][:0]}, mode)

    def test_pixels_that_are_none_or_no_pictures(self, family: str, mode: str) -> None:
        inputs = inputs_of(family)
        for empty in ([], inputs["pixel_values"][:0]):
            assert "pixel_values is empty" in refused(family, inputs | {"pixel_values": empty}, mode)
        refused(family, inputs | {"pixel_values": torch.zeros(7, 11)}, mode)
        refused(family, inputs | {"pixel_values": torch.zeros(1, 1, 24, 24)}, mode)


@pytest.mark.slow
@each("moved", [True, False], ids=["from the first", "from the second"])
@pytest.mark.parametrize("family", apart(KINDS))
def test_placeholders_in_the_wrong_picture(family: str, moved: bool) -> None:
    """As many as all pictures need, but one has a place too few and the next one too many."""
    model = wrapped(family)
    inputs = inputs_of(family, [("Where is it?", [picture(1, (144, 96)), picture(2, (144, 96))])])
    ids = inputs["input_ids"][0]
    places = (ids == model.adapter.image_token_id).nonzero().flatten().tolist()
    out, twice = (places[0], places[-1]) if moved else (places[-1], places[0])
    columns = sorted([column for column in range(len(ids)) if column != out] + [twice])
    message = ""
    try:
        model.generate(**at_columns(inputs, columns), mode="prune", max_new_tokens=1)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize("family", apart(KINDS))
def test_a_picture_of_one_cell_is_read(family: str) -> None:
    model, inputs = wrapped(family), inputs_of(family, [("Where?", [picture(1, (1, 1))])])
    for mode in ("prune", "sparse", "saccade"):
        output = model(**inputs, mode=mode, budget=1)
        assert output.logits.isfinite().all()
        assert not output.fallback


def test_placeholders_without_pixels() -> None:
    inputs = inputs_of("qwen3_vl")
    text = {name: inputs[name] for name in PROMPT_NAMES if name in inputs}
    assert "no pixel_values; pass all" in refused("qwen3_vl", text)
    clip = inputs["input_ids"].clone()
    clip[0, 1] = tiny("qwen3_vl").model.config.video_token_id
    assert "1 video tokens and no pixel_values_videos" in refused("qwen3_vl", inputs | {"input_ids": clip})
    stock = tiny("qwen3_vl").model(**text).logits
    assert torch.equal(wrapped()(**text, mode="full").logits, stock)  # the stock model is not checked


def test_a_call_has_a_prompt() -> None:
    check_prompt({"input_ids": torch.zeros(1, 3)})
    for inputs in ({"pixel_values": torch.zeros(3, 4)}, {"input_ids": None}):
        with pytest.raises(ValueError, match=r"input_ids is missing.* pass all that the processor makes"):
            check_prompt(inputs)
    with pytest.raises(ValueError, match=r"input_ids has shape \(3,\): pass rows of ids"):
        check_prompt({"input_ids": torch.zeros(3)})


def test_errors_of_the_machine_and_our_own_stay_what_they_are() -> None:
    adapter = wrapped().adapter
    for error in (torch.OutOfMemoryError("full"), NotImplementedError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)), reading_pixels(adapter.model.config.model_type):
            raise error
    with (
        pytest.raises(ValueError, match=r"can't read these images .*\(IndexError: 3\); pass all"),
        reading_pixels(adapter.model.config.model_type),
    ):
        raise IndexError(3)


# ---- arguments over the prompt -----------------------------------------------------------


@pytest.mark.parametrize("name", BY_TOKEN)
def test_a_value_per_token_of_another_width(name: str) -> None:
    inputs = inputs_of("qwen3_vl")
    ids = inputs["input_ids"]
    wrong: tuple[Any, ...] = (torch.cat([ids, ids], 1), ids[:, 1:], ids[None], {"full_attention": ids})
    for value in wrong:
        assert f"{name} has " in refused("qwen3_vl", inputs | {name: value})


def test_positions_of_another_prompt() -> None:
    inputs = inputs_of("qwen3_vl")
    length = inputs["input_ids"].shape[1]
    for shape in ((3, 1, length + 1), (length,), (3, 2, length)):
        assert "position_ids has shape" in refused("qwen3_vl", inputs | {"position_ids": torch.zeros(*shape)})
    assert "position_ids" in refused("llava", inputs_of("llava") | {"position_ids": torch.zeros(3, 1, 57)})


def test_positions_that_stand_for_all_rows() -> None:
    """As the stock model takes them: [1, S] for each row, [B, S] for each of three rows of positions."""
    for family in ("qwen3_vl", "llava"):
        inputs = inputs_of(family, [ROWS[0], ("Where is he?", [picture(2, (144, 96))])])
        model, length = wrapped(family), inputs["input_ids"].shape[1]
        flat = torch.arange(length)[None]
        three = model.adapter.plain_positions or flat.expand(3, 2, -1)
        whole = flat.expand(2, -1) if three is True else three
        expected = model(**inputs, position_ids=whole).logits
        assert torch.equal(model(**inputs, position_ids=flat).logits, expected)


def test_a_tensor_over_the_prompt_that_nobody_knows() -> None:
    inputs = inputs_of("qwen3_vl")
    extra = {"surprise": torch.zeros(*inputs["input_ids"].shape, 4)}
    assert "surprise has a value per token" in refused("qwen3_vl", inputs | extra)


@each("family", KINDS)
def test_every_argument_of_forward_follows_the_columns_or_names_none(family: str) -> None:
    """A new one of a later release is decided here: translated, refused, or without columns."""
    names = set(inspect.signature(tiny(family).model.forward).parameters) - {"self", "kwargs"}
    visual = {"pixel_values", *wrapped(family).adapter.visual_names}
    assert names - visual - TRANSLATED - COLUMNLESS - set(REFUSED) == set()


class TestLogitsToKeep:
    """`logits_to_keep` names columns of the whole prompt."""

    @pytest.mark.parametrize("family", APART)  # one translation for all of them
    def test_columns_are_those_of_the_whole_prompt(self, family: str) -> None:
        model, inputs = wrapped(family), inputs_of(family)
        if "logits_to_keep" not in inspect.signature(model.base.forward).parameters:
            pytest.skip("not an argument of this family")
        output = model(**inputs)
        length, (columns,) = inputs["input_ids"].shape[1], output.columns
        wanted = [length - 7, length - 1, length - 2]
        expected = torch.stack([output.logits[0, (columns == c).nonzero()[0, 0]] for c in wanted])
        for named in (torch.tensor(wanted), torch.tensor(wanted) - length):
            kept = model(**inputs, logits_to_keep=named).logits[0]
            assert near(kept, expected)

    def test_in_every_form_that_the_stock_model_takes(self) -> None:
        model, inputs = wrapped(), inputs_of("qwen3_vl")
        length = inputs["input_ids"].shape[1]
        expected = model(**inputs).logits[0, -5:]
        mask = torch.arange(length) >= length - 5
        for named in (slice(-5, None), mask, list(range(length - 5, length)), torch.arange(-5, 0)[None]):
            assert near(model(**inputs, logits_to_keep=named).logits[0], expected)
        assert near(model(**inputs, logits_to_keep=mask[None]).logits, expected)

    def test_of_rows_that_keep_different_numbers(self) -> None:
        rows = [("Where is it?", [picture(1, (48, 48))]), ("And there, where is it?", [picture(2, (96, 72))])]
        model, inputs = wrapped(), inputs_of("qwen3_vl", rows)
        output = model(**inputs)
        image = inputs["input_ids"] == model.adapter.image_token_id
        first = [int(row.nonzero()[0]) - 1 for row in image]  # the word before each image
        named = torch.tensor(first)[:, None]
        places = [int((own == c).nonzero()[0]) for own, c in zip(output.columns, first, strict=True)]
        expected = [row[place] for row, place in zip(output.logits, places, strict=True)]
        kept = model(**inputs, logits_to_keep=named).logits[:, 0]
        assert near(kept, torch.stack(expected))

    def test_dropped_columns_and_others_are_refused(self) -> None:
        model, inputs = wrapped(), inputs_of("qwen3_vl")
        length, (columns,) = inputs["input_ids"].shape[1], model(**inputs).columns
        gone = next(c for c in range(length) if c not in columns)
        mask = torch.zeros(1, length, dtype=torch.bool)
        mask[0, gone] = True
        wrong: tuple[Any, ...] = (torch.tensor([gone]), mask, torch.tensor([length]), torch.tensor(3), "last")
        for named in wrong:
            assert "logits_to_keep: " in refused("qwen3_vl", inputs | {"logits_to_keep": named})
        with pytest.raises(ValueError, match="leave it out of generate"):
            model.generate(**inputs, logits_to_keep=torch.tensor([length - 1]), max_new_tokens=1)

    def test_with_everything_kept_it_is_the_stock_models(self) -> None:
        model, inputs = wrapped(), inputs_of("qwen3_vl")
        named = torch.tensor([5, 40])
        stock: Tensor = tiny("qwen3_vl").model(**inputs, logits_to_keep=named).logits
        assert torch.equal(model(**inputs, budget=1.0, logits_to_keep=named).logits, stock)


# ---- other things in the place of ids ----------------------------------------------------


@pytest.mark.parametrize("mode", ["prune", "full"])
def test_a_picture_or_all_inputs_in_the_place_of_ids(mode: str) -> None:
    model = wrapped()
    whole = inputs_of("qwen3_vl")
    for call in (model, model.generate):
        for first in (picture(1), "page.png", [picture(1)]):
            with pytest.raises(ValueError, match=r"in place of input_ids: use ask\(image, question\)"):
                call(first, "Where is it?", mode=mode)
        with pytest.raises(ValueError, match=r"in place of input_ids: unpack it, \w+\(\*\*inputs\)"):
            call(whole, mode=mode)
    with pytest.raises(ValueError, match=r"in place of input_ids"):
        model.generate(inputs=whole, mode=mode)
    for named in (
        {"image": picture(1), "question": "Where?"},
        {"question": "Where?"},
        {"image": torch.ones(3)},
    ):
        for call in (model, model.generate):
            with pytest.raises(ValueError, match=r"in place of input_ids: use ask\(image, question\)"):
                call(**named, mode=mode)
