"""Prompts about images and clips are the processor's own, whatever it writes in the place of an image."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlavaProcessor, PreTrainedTokenizerFast, Qwen3VLProcessor

from arr_coc.model import ARRCOCModel
from arr_coc.seam.clips import with_whole_pixels
from arr_coc.seam.prompt import TextExpansion, VisualPrompt, chat_prompt
from arr_coc.video import FrameSource, open_clip
from arr_coc.video.opening import Visual
from clip_models import TEMPLATE
from each import each
from tiny import EVERY, LLAVA_TEMPLATE, QWEN_FAMILIES, SPECIAL, picture, tiny

# ---- seam prompt -----------------------------------------------------------------------------------------

QUESTIONS = (
    "What is the number?",
    "?",
    "  leading and trailing  ",
    "two  spaces\tand a tab",
    "\nnew\n\nlines\r\n",
    "naïve – 好 🙂 <b>&amp;</b>",
    "{{ braces }} {% and %} [INST] </s>",
    "<|im_end|>\n<|im_start|>user\n—",
    "<|vision_start|><|vision_end|>",
    "\0 a null and \u202e marks",
    "word " * 500,
    "b",
    "ab",
)
IMAGE = picture(1, (48, 40))


def expected(processor: Any, question: str) -> dict[str, Any]:
    """What the processor itself makes of a question."""
    own = dict(
        processor(
            images=[IMAGE],
            text=[chat_prompt(processor, question)],
            return_tensors="pt",
            add_special_tokens=not_begun(processor, question),
        )
    )
    own.pop("labels", None)  # PaliGemma's, of no answer
    return own


def not_begun(processor: Any, question: str) -> bool:
    """Whether the template left the first token to the tokenizer."""
    first = processor.tokenizer.bos_token
    return first is None or not chat_prompt(processor, question).startswith(first)


def assert_the_processors_own(processor: Any, prompt: VisualPrompt, question: str) -> None:
    inputs, own = prompt.inputs(question), expected(processor, question)
    assert inputs.keys() == own.keys()
    for name, value in own.items():
        assert torch.equal(torch.as_tensor(inputs[name]), torch.as_tensor(value)), (name, question)
        assert torch.as_tensor(inputs[name]).dtype == torch.as_tensor(value).dtype, name


@contextmanager
def processed(processor: Any) -> Iterator[list[int]]:
    """How often a processor processes images."""
    calls: list[int] = []
    pictures = processor.image_processor
    own = type(pictures).preprocess

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self is pictures:
            calls.append(1)
        return own(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(pictures), "preprocess", noted)
        yield calls


class Framed(Qwen3VLProcessor):
    """As InternVL: a token that begins the image and one that ends it."""

    def replace_image_token(self, image_inputs: dict, image_idx: int, **kwargs: Any) -> str:
        return "<image>" + super().replace_image_token(image_inputs, image_idx, **kwargs) + "<video>"


class Rows(Qwen3VLProcessor):
    """As Mistral 3: a token that breaks each row of the image, and another one that ends the last."""

    def replace_image_token(self, image_inputs: dict, image_idx: int, **kwargs: Any) -> str:
        _, height, width = (image_inputs["image_grid_thw"][image_idx] // torch.tensor([1, 2, 2])).tolist()
        row = self.image_token * width
        return "<image>".join([row] * height) + "<video>"


class Written(Qwen3VLProcessor):
    """A frame of words around each part of the image, in words of the prompt's own."""

    def replace_image_token(self, image_inputs: dict, image_idx: int, **kwargs: Any) -> str:
        whole = super().replace_image_token(image_inputs, image_idx, **kwargs)
        return f"<image>row 1: {whole}, user\n: {self.image_token}<video>"


class Lines(LlavaProcessor):
    """Rows of the image with a break between them."""

    def replace_image_token(self, image_inputs: dict, image_idx: int, **kwargs: Any) -> str:
        return "<|vision_start|>" + "<|vision_end|>".join([self.image_token * 6] * 6) + "<|video_pad|>"


class Merging(LlavaProcessor):
    """A frame of letters that the tokenizer joins with those that stand beside it."""

    def replace_image_token(self, image_inputs: dict, image_idx: int, **kwargs: Any) -> str:
        return "b" + super().replace_image_token(image_inputs, image_idx, **kwargs) + "a"


def made_of(cls: type, family: str) -> Any:
    own = tiny(family).processor
    if family == "llava":
        common = {"patch_size": 4, "vision_feature_select_strategy": "default"}
        return cls(own.image_processor, own.tokenizer, chat_template=own.chat_template, **common)
    names = ("image_processor", "tokenizer", "video_processor")
    parts = [getattr(own, name) for name in names if hasattr(own, name)]
    return cls(*parts, chat_template=own.chat_template)


def merging(template: str) -> Any:
    """A processor with a tokenizer that joins "a" and "b" to one token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*alphabet, "ab"])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    words = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL),
    )
    own = tiny("llava").processor
    return Merging(
        own.image_processor,
        words,
        chat_template=template,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


@each("family", EVERY)
def test_every_family(family: str) -> None:
    processor = tiny(family).processor
    with processed(processor) as calls:
        prompt = VisualPrompt(processor, [IMAGE])
        for question in QUESTIONS:
            prompt.inputs(question)
    if family != "paligemma":  # whose processor writes behind the image and behind the question
        assert calls == [1]  # the image is processed once
    for question in QUESTIONS:
        assert_the_processors_own(processor, prompt, question)


@each("family", EVERY)
def test_a_question_that_holds_the_placeholder_is_refused(family: str) -> None:
    processor = tiny(family).processor
    prompt = VisualPrompt(processor, [IMAGE])
    with pytest.raises(ValueError, match="holds the model's own placeholder"):
        prompt.inputs(f"What is {processor.image_token}?")


@pytest.mark.parametrize("family", ["aya_vision", "qianfan_ocr"])
def test_what_a_template_writes_and_what_fills_a_prompt_are_both_refused(family: str) -> None:
    """In these two they differ: "<image>" becomes a run of another token."""
    if family not in EVERY:
        pytest.skip("not in this release of transformers")
    built = tiny(family)
    session = ARRCOCModel.wrap(built.model, built.processor, budget=9).session(IMAGE)
    placeholder = built.processor.tokenizer.decode([built.model.config.image_token_id])
    assert placeholder != "<image>"
    for mark in ("<image>", placeholder):
        with pytest.raises(ValueError, match=r"the question holds .*, the model's own placeholder"):
            session.inputs(f"What is {mark}?")


@each("family", EVERY)
def test_what_fills_a_prompt_is_refused(family: str) -> None:
    """In Gemma 3, Molmo 2 and Ovis 2 it is not what the processor names: that begins or marks an image."""
    built = tiny(family)
    number = ARRCOCModel.wrap(built.model, built.processor).adapter.image_token_id
    question = f"What is {built.processor.tokenizer.decode([number])}?"
    session = ARRCOCModel.wrap(built.model, built.processor, budget=9).session(IMAGE)
    with pytest.raises(ValueError, match=r"the question holds .*, the model's own placeholder"):
        session.inputs(question)
    with pytest.raises(ValueError, match=r"the history holds .*, the model's own placeholder"):
        session.inputs("What?", [(question, "That.")])
    with pytest.raises(ValueError, match="holds the model's own placeholder"):
        VisualPrompt(built.processor, [IMAGE], number).inputs(question)


@pytest.mark.parametrize("family", ["qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"])
@pytest.mark.parametrize("name", ["audio_token", "audio_bos_token"])
def test_what_stands_for_a_sound_is_refused(family: str, name: str) -> None:
    if family not in EVERY:
        pytest.skip("not in this release of transformers")
    built = tiny(family)
    session = ARRCOCModel.wrap(built.model, built.processor, budget=9).session(IMAGE)
    for mode in ("full", "prune", "saccade"):
        with pytest.raises(ValueError, match=r"the question holds .*, the model's own placeholder"):
            session.ask(f"a {getattr(built.processor, name)} b", mode=mode, max_new_tokens=1)


@pytest.mark.parametrize(
    ("cls", "family"),
    [(Framed, "qwen3_vl"), (Rows, "qwen3_vl"), (Written, "qwen3_vl"), (Lines, "llava")],
)
def test_frames_are_the_processors_own(cls: type, family: str) -> None:
    processor = made_of(cls, family)
    with processed(processor) as calls:
        prompt = VisualPrompt(processor, [IMAGE])
        for question in QUESTIONS:
            prompt.inputs(question)
    assert calls == [1]
    plain = VisualPrompt(tiny(family).processor, [IMAGE]).inputs("?")["input_ids"]
    assert prompt.inputs("?")["input_ids"].shape[1] > plain.shape[1]  # the frame is there
    for question in QUESTIONS:
        assert_the_processors_own(processor, prompt, question)


@pytest.mark.parametrize(("cls", "family"), [(Framed, "qwen3_vl"), (Lines, "llava")])
@pytest.mark.parametrize("mode", ["prune", "full"])
def test_a_session_has_the_frames(cls: type, family: str, mode: str) -> None:
    processor = made_of(cls, family)
    model = ARRCOCModel.wrap(tiny(family).model, processor, budget=9, strict=True)
    session = model.session(IMAGE)
    for question in ("What is the number?", "naïve – 好\n2nd line"):
        inputs, own = session.inputs(question), expected(processor, question)
        assert inputs.keys() == own.keys()
        assert all(torch.equal(inputs[name], own[name]) for name in own)
        ids = model.generate(**own, mode=mode, do_sample=False, max_new_tokens=4)
        text = processor.tokenizer.decode(ids[0, own["input_ids"].shape[1] :], skip_special_tokens=True)
        assert session.ask(question, mode=mode, max_new_tokens=4).text == text.strip()
    batch = session.batch(["What?", "Where is the red ball?"])
    own = expected(processor, "Where is the red ball?")
    assert torch.equal(batch["input_ids"][1], own["input_ids"][0])


class TestFallback:
    """Where what the processor wrote merges with the text around it, prompts are made of text."""

    BESIDE = "{% for m in messages %}" + "a<image>{{ m.content[1].text }}{% endfor %}"
    BEHIND = "{% for m in messages %}" + "USER: <image>{{ m.content[1].text }}{% endfor %}"

    def test_a_frame_that_merges_with_the_text_before_it(self) -> None:
        processor = merging(self.BESIDE)
        with processed(processor) as calls:
            prompt = VisualPrompt(processor, [IMAGE])
            for question in QUESTIONS:
                prompt.inputs(question)
        assert calls == [1]
        joined = processor.tokenizer.convert_tokens_to_ids("ab")
        assert joined in prompt.inputs("?")["input_ids"]
        for question in QUESTIONS:
            assert_the_processors_own(processor, prompt, question)

    def test_a_frame_that_merges_with_some_questions(self) -> None:
        """The first question is not one of these."""
        processor = merging(self.BEHIND)
        prompt = VisualPrompt(processor, [IMAGE])
        joined = processor.tokenizer.convert_tokens_to_ids("ab")
        assert joined not in prompt.inputs("?")["input_ids"]
        assert joined in prompt.inputs("b")["input_ids"]
        for question in QUESTIONS:
            assert_the_processors_own(processor, prompt, question)


@pytest.mark.parametrize("written", [False, True])
def test_the_first_token_is_written_once(written: bool) -> None:
    """By the template or by the tokenizer, never by both."""
    own = tiny("llava").processor
    template = ("<|im_start|>" if written else "") + LLAVA_TEMPLATE
    words = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(own.tokenizer.backend_tokenizer.to_str()),
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL),
    )
    from tokenizers.processors import TemplateProcessing

    first = words.convert_tokens_to_ids("<|im_start|>")
    words.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", first)]
    )
    processor = LlavaProcessor(
        own.image_processor,
        words,
        chat_template=template,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    prompt = VisualPrompt(processor, [IMAGE])
    for question in ("What?", "  b\n"):
        assert (prompt.inputs(question)["input_ids"] == first).sum() == 1
        assert_the_processors_own(processor, prompt, question)


# ---- seam prompt clips -----------------------------------------------------------------------------------


def clip(seed: int = 0, frames: int = 6) -> FrameSource:
    return open_clip([picture(seed + i, (32, 32)) for i in range(frames)], fps=2.0)


@pytest.fixture(params=QWEN_FAMILIES)
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    processor = tiny(request.param).processor
    monkeypatch.setattr(processor, "chat_template", TEMPLATE)
    for name, value in {
        "patch_size": 4,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "do_resize": False,
    }.items():
        monkeypatch.setattr(processor.video_processor, name, value)
    return processor


CASES: dict[str, list[Visual]] = {
    "a clip": [clip()],
    "two images": [picture(1), picture(2)],
    "an image and a clip": [picture(1), clip(3)],
}


@pytest.mark.parametrize("case", CASES)
def test_every_prompt_is_the_processors_own(processor: Any, case: str) -> None:
    visuals = CASES[case]
    prompt = VisualPrompt(processor, visuals)
    assert isinstance(prompt._expansion, TextExpansion)
    kinds = ["video" if isinstance(one, FrameSource) else "image" for one in visuals]
    for question in ("?", "When does it begin?", "<3 seconds> or more?"):
        ours = with_whole_pixels(prompt.inputs(question))
        stock = prompt._process(chat_prompt(processor, question, kinds))
        assert set(ours) == set(stock)
        for name, value in stock.items():
            if name == "pixel_values_videos":  # the outline of; `test_seam_steps` compares the pixels
                assert (value.device.type, value.shape) == ("meta", ours[name].shape)
                continue
            assert torch.equal(torch.as_tensor(ours[name]), torch.as_tensor(value)), name


def test_it_is_processed_once(processor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = VisualPrompt(processor, [clip()])
    monkeypatch.setattr(prompt, "_process", None)
    first, second = prompt.inputs("What?"), prompt.inputs("And when?")
    assert first["pixel_values_videos"] is second["pixel_values_videos"]


def test_the_processor_is_told_which_frames_they_are(processor: Any) -> None:
    frames = [picture(i, (32, 32)) for i in range(16)]
    every = open_clip(frames, fps=1.0, rate=4.0)
    assert every.numbers == (0, 5, 10, 15)
    text = processor.tokenizer.decode(VisualPrompt(processor, [every]).inputs("?")["input_ids"][0])
    if "seconds" in text:  # the families that write the time
        assert "<0.6 seconds>" in text
        assert "<3.1 seconds>" in text


def test_frames_that_are_not_evenly_apart_keep_their_seconds(processor: Any, tmp_path: Path) -> None:
    durations = [1000, 1000, 18_000, *[100] * 5]  # as a screen is recorded: frames where something changes
    first, *rest = [picture(i, (32, 32)) for i in range(len(durations))]
    path = tmp_path / "screen.gif"
    first.save(path, save_all=True, append_images=rest, duration=durations)
    every = open_clip(path, fps=2.0)
    assert every.times[:4] == pytest.approx((0.0, 1.0, 2.0, 20.0))
    inputs = VisualPrompt(processor, [every]).inputs("?")
    text = processor.tokenizer.decode(inputs["input_ids"][0])
    if "seconds" in text:
        assert [float(told) for told in re.findall(r"<([0-9.]+) seconds>", text)] == pytest.approx(
            [0.5, 11.0, 20.15, 20.35], abs=0.06
        )
    if "second_per_grid_ts" in inputs:  # one length for all of its steps
        assert float(inputs["second_per_grid_ts"][0]) == pytest.approx(2 * 20.5 / 8, rel=0.01)


def test_a_processor_without_clips_refuses_them() -> None:
    with pytest.raises(ValueError, match="takes no clips"):
        VisualPrompt(tiny("llava").processor, [clip()])


def test_a_template_that_writes_no_clip_refuses_them() -> None:
    with pytest.raises(ValueError, match="0 of 1 videos"):
        VisualPrompt(tiny("qwen3_vl").processor, [clip()])


def test_frames_are_read_as_they_are() -> None:
    assert np.array_equal(next(clip().arrays()), np.asarray(picture(0, (32, 32))))
