"""Which question an image belongs to. Needs no vLLM: pytest --noconftest test_conversation.py"""

from __future__ import annotations

import copy

import pytest
from transformers import AutoProcessor

from arr_coc.files.saved import BUNDLED
from arr_coc.seam.prompt import TemplateMarkers, template_markers
from arr_coc_vllm.conversation import Marks, Turn, questions, split

START, END = "<|im_start|>", "<|im_end|>"
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
SPECIAL = (START, END, "<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
MARKS = Marks("<|image_pad|>", SPECIAL, START, END)
BRANCH = (
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\n<tool_response>\n' }}"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}IMAGE{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}"
    "{{ '\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% else %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
    "{% if c.type == 'image' %}IMAGE{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
).replace("IMAGE", "{% set n.i = n.i + 1 %}{% if add_vision_id %}Picture {{ n.i }}: {% endif %}" + IMAGE)
TEMPLATE = "{% set n = namespace(i=0) %}" + BRANCH
"""Replies of tools and labels of images as Qwen's own templates write them."""


@pytest.fixture(scope="module")
def markers() -> TemplateMarkers:
    processor = copy.copy(AutoProcessor.from_pretrained(BUNDLED / "model"))
    processor.chat_template = TEMPLATE
    markers = template_markers(processor)
    assert markers
    return markers


def turn(role: str, words: str) -> str:
    return f"{START}{role}\n{words}{END}\n"


def reply(*words: str) -> str:
    return turn("user", "\n".join(f"<tool_response>\n{each}\n</tool_response>" for each in words))


CALL, NEXT = turn("assistant", '<tool_call>\n{"name": "crop"}\n</tool_call>'), f"{START}assistant\n"


def test_turns_and_the_questions_of_images() -> None:
    chat = "".join(
        (
            turn("system", "Be brief."),
            turn("user", f"{IMAGE}What?"),
            turn("assistant", "That."),
            turn("user", f"{IMAGE}And here?"),
            NEXT,
        )
    )
    turns = split(chat, MARKS)
    said = [each for each in turns if each.text]
    assert [each.role for each in said] == ["system", "user", "assistant", "user"]
    assert [each.images for each in said] == [0, 1, 0, 1]
    assert questions(turns) == [["What?", "What? And here?"], ["What? And here?"]]


def test_turns_that_begin_with_the_token_of_a_role() -> None:
    roles = {"<|user|>": "user", "<|assistant|>": "assistant", "<|observation|>": "tool"}
    special = {"<sop>", "<|image|>", "/nothink", *roles}
    marks = Marks("<|image|>", special, None, None, roles=roles)
    chat = "<sop>\n<|user|>\n<|image|>What?/nothink\n<|assistant|>\nThat.\n<|user|>\n<|image|>And here?"
    turns = split(chat + "\n<|observation|>\nA crop: <|image|>\n<|assistant|>\n", marks)
    assert [(turn.role, turn.images) for turn in turns] == [
        ("user", 1),
        ("assistant", 0),
        ("user", 1),
        ("tool", 1),
    ]
    assert questions(turns) == [["What?", "What? And here?"], ["What? And here?"], ["What? And here?"]]


def test_prompts_without_turns_or_words() -> None:
    plain = Marks("<|image_pad|>", SPECIAL, None, None)
    assert questions(split(IMAGE + "Read it.", MARKS)) == [["Read it."]]
    assert questions(split(IMAGE + "Read it.", plain)) == [["Read it."]]
    assert questions(split(turn("user", IMAGE), MARKS)) == [[]]
    assert questions(split("no image", MARKS)) == []
    assert split("", MARKS) == []
    later = [Turn("user", "", 1), Turn("assistant", "Yes?"), Turn("user", "Now?")]
    assert questions(later) == [["Now?"]]


def test_an_image_alone_is_asked_about_by_an_earlier_turn() -> None:
    turns = [Turn("user", "What?"), Turn("assistant", "Of which?"), Turn("user", "", 2), Turn("user", "Who?")]
    assert questions(turns) == [["What?", "Who?"]] * 2
    assert questions([Turn("system", "Read images.", 1), Turn("user", "Who?")]) == [["Who?"]]


def test_an_image_of_a_tool_is_asked_about_by_the_user(markers: TemplateMarkers) -> None:
    marks = MARKS._replace(markers=markers)
    chat = turn("user", f"{IMAGE}What?") + CALL + reply(f"A crop: {IMAGE}", "The words") + NEXT
    assert questions(split(chat, marks)) == [["What?"]] * 2
    chat += (
        f"That.{END}\n" + turn("user", "And the date?") + CALL + reply(IMAGE) + CALL + reply("None") + NEXT
    )
    assert questions(split(chat, marks)) == [["What?", "What? And the date?"]] * 2 + [["What? And the date?"]]
    role = turn("user", f"{IMAGE}What?") + CALL + turn("tool", f"A crop: {IMAGE}") + NEXT  # Qwen2.5-VL's
    assert questions(split(role, marks)) == [["What?"]] * 2


def test_what_a_template_writes_beside_a_users_words_is_left_out(markers: TemplateMarkers) -> None:
    marks = MARKS._replace(markers=markers)
    labelled = turn("user", f"Picture 1: {IMAGE}Picture 12: {IMAGE}Compare Picture 1: with 12") + NEXT
    assert questions(split(labelled, marks)) == [["Compare Picture 1: with 12"]] * 2
    assert questions(split(turn("user", f"Picture 1: {IMAGE}") + NEXT, marks)) == [[]]
    shared = f"<tool_response>\nOne {IMAGE}\n</tool_response>\nWho?"
    assert questions(split(turn("user", "What?") + turn("user", shared), marks)) == [["Who?"]]
