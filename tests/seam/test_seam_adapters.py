"""What each family says about itself: registry, layout, recovered pictures, the question's tokens."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from arr_coc.families import FAMILIES, adapter_for
from arr_coc.seam import FamilyAdapter
from each import each
from near import near
from tiny import EVERY, LLAVA_FAMILIES, QWEN_FAMILIES, Tiny, picture, prompts, tiny
from tiny_families import is_served
from tiny_kinds import ABSENT


def pixels(image: object) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


SIZES = {
    "llava": (24, 24),
    "gemma3": (48, 48),
    "gemma4": (96, 96),
    "paligemma": (24, 24),
    "ovis2": (48, 48),
    "gemma4_unified": (96, 96),
    "internvl": (72, 24),
    "idefics3": (72, 72),
    "granite_docling": (72, 24),
    "smolvlm": (72, 72),
    "qianfan_ocr": (72, 24),
    "aya_vision": (72, 24),
    "cohere2_vision": (72, 24),
    "minicpmv4_6": (96, 48),
    "minicpmv4_7": (96, 48),
    "molmo2": (40, 40),
    "step3p7": (64, 32),
    "fast_vlm": (384, 384),
}
"""Pictures that a processor doesn't scale, (width, height), where it scales those of 48x40 px."""
TILED = (
    "internvl",
    "idefics3",
    "smolvlm",
    "granite_docling",
    "qianfan_ocr",
    "aya_vision",
    "cohere2_vision",
    "molmo2",
    "ovis2",
)
TILED = dict.fromkeys(TILED, 9)
"""Tokens of the view of the whole, which are no cells."""
CUT = ("llava_next", "llava_onevision", "minicpmv4_6", "minicpmv4_7", "step3p7", *TILED)
CUT = tuple(family for family in CUT if family in EVERY)
"""Families whose processors cut a picture into smaller ones."""


class TestRegistry:
    def test_every_family_has_an_adapter(self) -> None:
        assert {family for family in FAMILIES if is_served(family)} - set(ABSENT) == set(EVERY)
        for family in EVERY:
            built = tiny(family)
            assert built.model.config.model_type == family
            assert type(adapter_for(built.model)) is FAMILIES[family].adapter

    def test_unknown_model_type_is_named(self) -> None:
        model = SimpleNamespace(config=SimpleNamespace(model_type="gpt2"))
        line = (
            r"'gpt2' is not supported; supported are .* and \d+ others that `arr-coc info --families` lists"
        )
        with pytest.raises(ValueError, match=line):
            adapter_for(model)  # type: ignore[arg-type]

    def test_the_nearest_types_are_named(self) -> None:
        model = SimpleNamespace(config=SimpleNamespace(model_type="internvl3"))
        with pytest.raises(
            ValueError, match=r"'internvl3' is not supported; supported are internvl(,| and) "
        ):
            adapter_for(model)  # type: ignore[arg-type]

    def test_missing_seam_is_named(self) -> None:
        def forward(input_ids: torch.Tensor) -> None: ...

        model = SimpleNamespace(config=SimpleNamespace(model_type="qwen3_vl"), forward=forward)
        with pytest.raises(ImportError, match=r"mm_encoder_outputs.*install a newer one.*from 5\.18 on"):
            adapter_for(model)  # type: ignore[arg-type]

    @each("family", EVERY)
    def test_a_model_without_a_head_is_refused(self, family: str) -> None:
        headless = tiny(family).model.model
        with pytest.raises(ValueError, match=r"has no generation head.*AutoModelForImageTextToText"):
            adapter_for(headless)


def described(family: str, images: list, with_processor: bool = True) -> tuple[Tiny, FamilyAdapter, dict]:
    built = tiny(family)
    adapter = adapter_for(built.model, built.processor if with_processor else None)
    return built, adapter, prompts(built, [("What?", images)])


@torch.no_grad()
@each("with_processor", [True, False])
@each("family", EVERY)
def test_pictures_are_recovered(family: str, with_processor: bool) -> None:
    """A picture the processor needn't resize comes back as it was, to the rounding of the
    normalisation."""
    size = SIZES.get(family, (48, 40))
    original = picture(3, size)
    _, adapter, inputs = described(family, [original], with_processor)
    features = adapter.features(inputs)
    (recovered,) = adapter.images(inputs, features)
    assert recovered.dtype == torch.float32
    assert near(recovered, pixels(original))


@torch.no_grad()
@each("family", EVERY)
def test_pictures_of_a_call_without_normalisation_are_recovered(family: str) -> None:
    size = SIZES.get(family, (48, 40))
    built, original = tiny(family), picture(3, size)
    text = prompts(built, [("What?", [original])])["input_ids"]
    usual = prompts(built, [("What?", [original])])
    plain = dict(built.processor.image_processor(images=[original], do_normalize=False, return_tensors="pt"))
    if built.processor.image_processor.do_normalize:
        assert not torch.equal(plain["pixel_values"], usual["pixel_values"])
    adapter = adapter_for(built.model, built.processor)
    (recovered,) = adapter.images({"input_ids": text} | plain)
    (expected,) = adapter.images(usual)
    assert near(recovered, expected)


@torch.no_grad()
@pytest.mark.parametrize("family", ["llava_next", "llava_onevision"])
@each("size", [(1, 3000), (3000, 1), (5, 300), (30, 2000)])
def test_an_image_too_thin_for_a_patch_has_the_cells_of_its_base_view(
    family: str, size: tuple[int, int]
) -> None:
    built, adapter, inputs = described(family, [picture(1, size)])
    features = adapter.features(inputs)
    assert features.grids == [(1, 6, 6)]
    assert features.counts == [int((inputs["input_ids"] == adapter.image_token_id).sum())]
    (recovered,) = adapter.images(inputs, features)
    assert recovered.shape == (3, 24, 24)
    keep = [torch.arange(0, 36, 2)]
    compacted = adapter.compact(inputs, features, keep)
    assert compacted.columns.shape[1] == inputs["input_ids"].shape[1] - 18
    everything = adapter.compact(inputs, features, [torch.arange(36)])
    assert torch.equal(built.model(**everything.kwargs).logits, built.model(**inputs).logits)


@torch.no_grad()
@pytest.mark.parametrize("family", QWEN_FAMILIES)
def test_resized_pictures_are_recovered(family: str) -> None:
    """The picture is the processor's own resized one, to the rounding of 8 bits."""
    original = picture(4, (61, 33))
    built, adapter, inputs = described(family, [original])
    features = adapter.features(inputs)
    (recovered,) = adapter.images(inputs, features)
    _, height, width = features.grids[0]
    assert recovered.shape == (3, height * 8, width * 8)
    resized = built.processor.image_processor.resize(
        (pixels(original) * 255).byte()[None], built.processor.image_processor.size, 3, factor=8
    )[0]
    assert (recovered - resized / 255).abs().max() <= 1 / 255


@torch.no_grad()
@each("family", CUT)
@each("size", [(48, 48), (48, 40), (30, 70), (90, 21)])
def test_tiled_pictures_lie_right(family: str, size: tuple[int, int]) -> None:
    """The recovered picture shows what the original shows: left dark, right bright, top red."""
    width, height = size
    if family == "step3p7" and height < 32:
        pytest.skip("so thin a strip is padded to a square")
    ramp = np.zeros((height, width, 3), dtype=np.uint8)
    ramp[..., 1] = np.linspace(0, 255, width)[None]
    ramp[..., 0] = np.linspace(255, 0, height)[:, None]
    from PIL import Image

    _, adapter, inputs = described(family, [Image.fromarray(ramp)])
    features = adapter.features(inputs)
    (recovered,) = adapter.images(inputs, features)
    expected = torch.nn.functional.interpolate(
        pixels(ramp)[None], size=recovered.shape[-2:], mode="bilinear", align_corners=False
    )[0]
    assert (recovered - expected).abs().mean() < 0.05


@torch.no_grad()
@each("family", EVERY)
def test_cells_and_the_tokens_that_are_none(family: str) -> None:
    built, adapter, inputs = described(family, [picture(1, (48, 40))])
    features = adapter.features(inputs)
    (t, height, width), cells = features.grids[0], features.cells[0]
    assert t == 1
    assert len(cells) == height * width == len(features.cell_tokens(0))
    others = features.counts[0] - len(cells)
    if family in ("llava_next", "llava_onevision"):
        assert others == 36 + height  # the base view and a newline after each row
        newline = built.model.model.image_newline
        after_rows = features.tokens[0][36 + width :: width + 1]
        assert len(after_rows) == height
        assert all(torch.equal(token, newline) for token in after_rows)
    elif family == "hy_v4_vl":
        newline = built.model.model.vision_tower.patch_merger.image_newline
        after_rows = features.tokens[0][width :: width + 1]
        assert others == len(after_rows) == height
        assert all(torch.equal(token, newline) for token in after_rows)
    elif family == "hunyuan_vl":  # its newlines go through the merger, so they are only all the same
        after_rows = features.tokens[0][1 + width : -1 : width + 1]
        assert others == len(after_rows) + 2 == height + 2
        assert near(after_rows, after_rows[:1].expand_as(after_rows))
    else:
        assert others == TILED.get(family, 0)
    (kept,) = features.tokens_to_keep([torch.tensor([0, height * width - 1])])
    assert len(kept) == others + 2


@torch.no_grad()
@each("family", EVERY)
def test_repeated_features_are_those_of_as_many_equal_images(family: str) -> None:
    image = picture(1, (48, 40))
    built, adapter, inputs = described(family, [image])
    one = adapter.features(inputs)
    thrice = one.repeat(3)
    direct = adapter.features(prompts(built, [("What?", [image])] * 3))
    assert (thrice.counts, thrice.grids, thrice.kind) == (direct.counts, direct.grids, direct.kind)
    assert len(thrice.levels) == len(direct.levels)
    for found, expected in zip((thrice.tokens, *thrice.levels), (direct.tokens, *direct.levels), strict=True):
        assert all(near(a, b) for a, b in zip(found, expected, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(thrice.cells, direct.cells, strict=True))
    assert all(t is one.tokens[0] for t in thrice.tokens)  # nothing is copied
    assert (len(one.tokens), len(one.cells)) == (1, 1)  # and the one is as it was


@torch.no_grad()
def test_repeated_features_keep_the_order_of_several_images() -> None:
    _, adapter, inputs = described("qwen3_vl", [picture(1, (48, 40)), picture(2, (40, 72))])
    both = adapter.features(inputs)
    twice = both.repeat(2)
    assert twice.grids == [(1, 5, 6), (1, 9, 5)] * 2
    assert all(a is b for a, b in zip(twice.tokens, both.tokens * 2, strict=True))
    assert all(a is b for a, b in zip(twice.levels[1], both.levels[1] * 2, strict=True))


@torch.no_grad()
def test_onevision_gives_several_images_their_base_views() -> None:
    _, adapter, inputs = described("llava_onevision", [picture(1, (48, 40)), picture(2, (40, 72))])
    features = adapter.features(inputs)
    assert features.grids == [(1, 6, 6), (1, 6, 6)]
    assert features.counts == [37, 37]
    assert [p.shape for p in adapter.images(inputs, features)] == [(3, 24, 24), (3, 24, 24)]


@torch.no_grad()
def test_onevision_shrinks_large_pictures() -> None:
    _, adapter, inputs = described("llava_onevision", [picture(2, (40, 72))])
    assert adapter.features(inputs).grids == [(1, 16, 8)]  # 18x10 patches are over 1.1^2 * 4 tiles of 36


@torch.no_grad()
def test_llava_class_token_always_stays() -> None:
    _, adapter, inputs = described("llava", [picture(1, (24, 24))])
    features = adapter.features(inputs | {"vision_feature_select_strategy": "full"})
    assert features.counts == [37]
    assert features.cells[0].tolist() == list(range(1, 37))
    assert features.tokens_to_keep([torch.tensor([5])])[0].tolist() == [0, 6]


class TestQuestionMask:
    @staticmethod
    def read(built: Tiny, inputs: dict, with_processor: bool = True) -> list[str]:
        adapter = adapter_for(built.model, built.processor if with_processor else None)
        mask = adapter.question_mask(inputs["input_ids"], inputs["attention_mask"])
        assert mask.shape == inputs["input_ids"].shape
        assert mask.dtype == torch.bool
        pairs = zip(inputs["input_ids"], mask, strict=True)
        return [built.processor.tokenizer.decode(ids[kept]) for ids, kept in pairs]

    @each("family", EVERY)
    def test_only_the_words_of_the_question(self, family: str) -> None:
        rows = [
            ("Whatis the 1st   word?", [picture(1)]),
            ("naïve – 好?", [picture(2), picture(3)]),
            ("x", []),
        ]
        rows = rows if family not in LLAVA_FAMILIES else rows[:2]
        rows = rows if family != "paligemma" else rows[:2]
        built = tiny(family)
        assert self.read(built, prompts(built, rows)) == [r[0].replace(" ", "") for r in rows]

    @pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
    def test_only_the_last_user_turn(self, family: str) -> None:
        built = tiny(family)
        turns = [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "First?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Answer."}]},
            {"role": "user", "content": [{"type": "text", "text": "Who?"}]},
        ]
        text = built.processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        inputs = built.processor(images=[picture(1)], text=[text], return_tensors="pt")
        assert self.read(built, inputs) == ["Who?"]
        trained = built.processor(images=[picture(1)], text=[text + "An answer."], return_tensors="pt")
        assert self.read(built, trained) == ["Who?"]

    @pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
    def test_without_processor_or_template_all_text_that_is_not_special(self, family: str) -> None:
        built = tiny(family)
        (read,) = self.read(built, prompts(built, [("What?", [picture(1)])]), with_processor=False)
        assert "What?" in read
        assert "vision" not in read
        assert "image" not in read
        assert "<|im_end|>" not in read
        token = built.processor.image_token
        plain = built.processor(images=[picture(1)], text=[f"{token} Count to 3."], return_tensors="pt")
        assert self.read(built, plain)[0].replace(" ", "") == "Countto3."

    def test_a_template_that_refuses_is_survived(self, caplog: pytest.LogCaptureFixture) -> None:
        from arr_coc.seam.prompt import template_markers

        class Picky:
            chat_template = "x"

            def apply_chat_template(self, *args: object, **kwargs: object) -> str:
                raise RuntimeError("no assistant turns, please")

        assert template_markers(Picky()) is None
        assert "no assistant turns" in caplog.text


def test_a_mask_that_is_not_one_value_per_token_is_refused() -> None:
    _, adapter, inputs = described("qwen3_vl", [picture(1)])
    bad = inputs | {"attention_mask": torch.ones(1, 1, 4, 4)}
    with pytest.raises(ValueError, match="attention_mask has shape"):
        adapter.attention_mask(bad)


def test_padding_is_never_an_image_token() -> None:
    for family in EVERY:
        built = tiny(family)
        assert adapter_for(built.model).padding_id != built.model.config.image_token_id
