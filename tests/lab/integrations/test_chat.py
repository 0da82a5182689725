"""A harness's chat: the reply is the model's own answer, its counts are what the language model was given."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from arr_coc.model import ARRCOCModel
from arr_coc.seam.gaze import NEUTRAL
from arr_coc_lab.integrations.chat import Decoding, Responder
from each import each
from tiny import FAMILIES, picture, prompts, tiny
from tool_templates import TOOLS

SHORT = Decoding(max_new_tokens=4)
IMAGES = [picture(1, (48, 40)), picture(2, (40, 72))]


@cache
def wrapped(family: str = "qwen3_vl") -> ARRCOCModel:
    built = tiny(family)
    return ARRCOCModel.wrap(built.model, built.processor, budget=0.3, strict=True)


def user(*parts: Any) -> dict[str, Any]:
    """A user's message of texts and pictures."""
    kinds = ("text" if isinstance(part, str) else "image" for part in parts)
    return {"role": "user", "content": [{"type": k, k: p} for k, p in zip(kinds, parts, strict=True)]}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", ["full", "prune", "sparse", "saccade"])
def test_the_reply_is_the_models_answer(family: str, mode: str) -> None:
    model = wrapped(family)
    reply = Responder(model, mode=mode).reply([user(IMAGES[0], "Which?")], SHORT)
    answer = model.ask(IMAGES[0], "Which?", mode=mode, max_new_tokens=4)
    assert (reply.text, reply.read, reply.total) == (answer.text, answer.read, answer.total)
    assert reply.output_tokens == 4
    whole = prompts(tiny(family), [("Which?", IMAGES[:1])])["input_ids"].shape[1]
    if mode in ("full", "prune"):  # a coarse view brings placeholders of its own
        dropped = answer.total - len(answer.allocation.keep) if mode == "prune" else 0
        assert reply.input_tokens == whole - dropped
    assert not reply.fallback
    assert reply.seconds > 0


def test_a_call_says_another_budget_than_the_model() -> None:
    few = Responder(wrapped(), mode="prune", budget=2).reply([user(IMAGES[0], "Which?")], SHORT)
    assert few.read == 2 < few.total
    assert Responder(wrapped(), mode="prune").reply([user(IMAGES[0], "Which?")], SHORT).read > 2


def test_pictures_and_text_stay_in_order() -> None:
    """A chat of several turns, pictures between the words, is what the processor itself makes of it."""
    model, built = wrapped(), tiny("qwen3_vl")
    chat = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        user("First", IMAGES[0], "Second", IMAGES[1], "Which?"),
        {"role": "assistant", "content": [{"type": "text", "text": "Two"}]},
        user("And now?"),
    ]
    inputs = built.processor.apply_chat_template(
        chat, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    ids = model.generate(**inputs, mode="prune", do_sample=False, max_new_tokens=4)
    new = ids[0, inputs["input_ids"].shape[1] :]
    reply = Responder(model, mode="prune").reply(chat, SHORT)
    assert reply.text == built.processor.tokenizer.decode(new, skip_special_tokens=True).strip()


@pytest.mark.parametrize("name", ["qwen3_vl", "mistral"])
def test_a_tool_may_reply_and_the_question_stays_the_users(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply is that of the same prompt, and the cells are chosen by the user's words."""
    built, questions = tiny("qwen3_vl"), []
    monkeypatch.setattr(built.processor, "chat_template", TOOLS[name])
    model = ARRCOCModel.wrap(built.model, built.processor, budget=0.3, strict=True)
    mask_of = model.adapter.question_mask

    def watched(ids: Any, mask: Any = None) -> Any:
        words = mask_of(ids, mask)
        questions.extend(
            built.processor.tokenizer.decode(row[own]) for row, own in zip(ids, words, strict=True)
        )
        return words

    monkeypatch.setattr(model.adapter, "question_mask", watched)
    crop = {"name": "crop", "arguments": {"box": [1, 2]}}
    call = {"id": "abcdefghi", "type": "function", "function": crop}
    chat = [
        {"role": "system", "content": "Be brief."},
        user(IMAGES[0], "Which?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": user("A crop:", IMAGES[1])["content"], "tool_call_id": "abcdefghi"},
    ]
    reply = Responder(model, mode="prune").reply(chat, Decoding(max_new_tokens=2))
    assert set(questions) - {NEUTRAL.replace(" ", "")} == {"Which?"}
    chat[2] |= {"content": ""}
    inputs = built.processor.apply_chat_template(
        chat, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    assert "crop" in built.processor.tokenizer.decode(inputs["input_ids"][0])
    ids = model.generate(**inputs, mode="prune", do_sample=False, max_new_tokens=2)
    new = ids[0, inputs["input_ids"].shape[1] :]
    assert reply.text == built.processor.tokenizer.decode(new, skip_special_tokens=True).strip()


def test_a_chat_without_pictures_is_the_stock_models() -> None:
    built = tiny("qwen3_vl")
    inputs = prompts(built, [("Hello there", [])])
    ids = built.model.generate(**inputs, do_sample=False, max_new_tokens=4)
    reply = Responder(wrapped()).reply([user("Hello there")], SHORT)
    new = ids[0, inputs["input_ids"].shape[1] :]
    assert reply.text == built.processor.tokenizer.decode(new, skip_special_tokens=True).strip()
    assert (reply.read, reply.total, reply.input_tokens) == (0, 0, inputs["input_ids"].shape[1])


def test_a_chat_without_pictures_is_refused_where_the_processor_wants_one() -> None:
    responder = Responder(wrapped("paligemma"))
    with pytest.raises(ValueError, match=r"no picture, and PaliGemmaProcessor .*: choose tasks of images"):
        responder.reply([user("Hello there")], SHORT)
    assert responder.reply([user(IMAGES[0], "Which?")], SHORT).output_tokens == 4


def test_a_note_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    responder = Responder(wrapped("llava"), mode="sparse")  # runs as "prune" there, and says so
    first, second = (responder.reply([user(IMAGES[0], "Which?")], SHORT) for _ in range(2))
    assert first.note
    assert first.note == second.note
    told = [record for record in caplog.records if record.name == "arr_coc_lab.integrations.chat"]
    assert [record.message for record in told] == [first.note]


@each(
    ("content", "words"),
    [
        ([{"type": "video", "video": "a.mp4"}], "type 'video'"),
        ([{"type": "audio", "audio": "a.wav"}], "type 'audio'"),
        ([{"type": "image", "image": IMAGES[0]}], "question is empty"),
        ([{"type": "text", "text": "what is <|image_pad|>?"}], "placeholder"),
        ([{"type": "image", "image": "nowhere.png"}, {"type": "text", "text": "?"}], "nowhere.png"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(content: list[Any], words: str) -> None:
    if "placeholder" in words:
        content = [{"type": "text", "text": f"what is {tiny('qwen3_vl').processor.image_token}?"}]
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        Responder(wrapped()).reply([{"role": "user", "content": content}], SHORT)


@pytest.mark.parametrize(
    ("family", "name"), [("gemma3", "image_token"), ("qwen3_omni_moe_thinker", "audio_bos_token")]
)
def test_a_placeholder_that_is_not_the_processors_image_token_is_refused(family: str, name: str) -> None:
    words = f"what is {getattr(tiny(family).processor.tokenizer, name)}?"
    with pytest.raises(ValueError, match=r"the chat's text holds .*, the model's own placeholder"):
        Responder(wrapped(family)).reply([user(IMAGES[0], words)], SHORT)


def test_a_responder_needs_a_chat_template_and_a_mode() -> None:
    built = tiny("qwen3_vl")
    with pytest.raises(ValueError, match="chat template"):
        Responder(ARRCOCModel.wrap(built.model))
    with pytest.raises(ValueError, match="prine"):
        Responder(wrapped(), mode="prine")
    with pytest.raises(ValueError, match="budget 'garbage' is not a number"):
        Responder(wrapped(), budget="garbage")


class TestDecoding:
    def test_tasks_are_greedy_unless_they_sample(self) -> None:
        assert Decoding.of_task({"temperature": 0, "do_sample": False, "top_p": 1.0}) == Decoding()
        assert Decoding.of_task({}, 16).max_new_tokens == 16
        assert Decoding.of_task({"max_new_tokens": 8}, 16).max_new_tokens == 8
        assert Decoding.of_task({"temperature": 0.7, "top_p": 0.9}) == Decoding(temperature=0.7, top_p=0.9)
        assert Decoding.of_task({"do_sample": True}).temperature == 1
        assert Decoding.of_task({"do_sample": False, "temperature": 0.7}).temperature == 0

    def test_arguments_of_generate(self) -> None:
        assert Decoding().for_generate()["do_sample"] is False
        sampled = Decoding(temperature=0.5, top_p=0.9).for_generate()
        assert (sampled["do_sample"], sampled["temperature"], sampled["top_p"]) == (True, 0.5, 0.9)

    def test_an_answer_ends_at_the_first_stop(self) -> None:
        decoding = Decoding.of_task({"until": ["\n\n", "USER:"]})
        assert decoding.cut("red USER: next\n\nblue") == "red"
        assert decoding.cut("red") == "red"
        assert Decoding.of_task({"until": "."}).cut("red. And") == "red"
        assert Decoding.of_task({"until": [""]}).cut("red") == "red"

    @each(
        ("name", "value"),
        [
            ("max_new_tokens", 0), ("max_new_tokens", "3"), ("temperature", -1), ("temperature", "0.5"),
            ("temperature", float("nan")), ("num_beams", 0), ("num_beams", 1.5), ("top_p", 0), ("top_p", "1"),
        ],
    )  # fmt: skip
    def test_numbers_out_of_range(self, name: str, value: Any) -> None:
        with pytest.raises(ValueError, match=f"{name} {value!r} is no"):
            Decoding(**{name: value})

    def test_sampling_answers(self) -> None:
        decoding = Decoding(max_new_tokens=3, temperature=0.7)
        reply = Responder(wrapped(), mode="prune").reply([user(IMAGES[0], "Which?")], decoding)
        assert reply.output_tokens == 3
