"""Wordings: what a question asks for by its words alone, in families of words and not in single sentences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from arr_coc.choose.allocation import joined_notes
from arr_coc.files.pixels import float_pixels
from arr_coc.guide.coupling import MAX_EVEN, Coupling, GuideSource, even_share, outright
from arr_coc.guide.lexicon import STOP_WORDS
from arr_coc.guide.question import split_words
from arr_coc.guide.trust import (
    GENERAL,
    PHOTOGRAPH,
    dense_things,
    guide_remark,
    is_transcription,
    verdict_of,
)
from arr_coc.guide.wording import is_overview, is_reading, is_unusual, names_print
from arr_coc.relevance.boxes import BoxSource, GivenBox
from arr_coc.relevance.source import SumSource
from arr_coc.selector import Selector
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.street import draw_street


def content(question: str) -> list[str]:
    """The words of a question that a `Coupling` has."""
    return [word for word in dict.fromkeys(split_words(question)) if word not in STOP_WORDS]


@pytest.mark.parametrize("word", ["defect", "defects", "flaws", "damaged", "broken", "scratches", "defectiv"])
@pytest.mark.parametrize(
    "frame", ["Any {}?", "Is anything {}?", "is one of them {} here", "Find the {} one."]
)
def test_a_fault_is_odd_in_any_form_and_frame(word: str, frame: str) -> None:
    assert is_unusual(split_words(frame.format(word)))


@pytest.mark.parametrize(
    "question",
    [
        "Which one is upside down?", "Which one doesnt fit?", "Is one larger than the others?",
        "Does any of them face the wrong way?", "Where does the pattern stop?", "Do they all look alike?",
        "Are the rows complete?", "Which of these is not aligned?", "Has one another shape?",
    ],
)  # fmt: skip
def test_what_differs_from_the_others_is_odd(question: str) -> None:
    assert is_unusual(split_words(question))


@pytest.mark.parametrize(
    "question",
    [
        "Are there any errors in the log?", "Which order is missing?", "Is the order complete?",
        "Is the mirror broken?", "Where is the mirror?", "Where is the cracker?", "Which seat is empty?",
        "Which of them is right?", "How fine is the grid?", "What was removed in version 2?",
        "Which one is cheaper than the other?", "What other colours are there?", "Whose turn is it?",
        "What does the sign say?", "Copy the link.", "What does the small print say?", "Read the note.",
        "What is written on the shirt?", "What is the text colour?", "What text was recognised?",
        "What page is this?", "What type is it?", "What time is it?", "Who is this?", "What is it for?",
        "What can I do here?", "What is in the box?", "What is the content page?", "Where is the summary?",
        "What is the description of the item?", "Describe the woman's hat.", "Explain the second step.",
        "How many people are in the picture?", "What is the code value?", "What is the formula name?",
        "Which company wrote the code?", "Who proved the theorem?", "Calculate the total.",
        "Solve the second puzzle.", "What is the factor?",
    ],
)  # fmt: skip
def test_who_names_a_thing_asks_for_its_place(question: str) -> None:
    words = split_words(question)
    assert not any(asks(words) for asks in (is_unusual, is_overview, is_reading))
    assert not dense_things(content(question))


@pytest.mark.parametrize(
    "question",
    [
        "Sum this page up.", "tldr", "Describe the picture to a blind person.",
        "A summary of the page, please.",
        "What kind of document is this?", "What information does this page contain?", "desribe the image",
        "Talk me through the screenshot.", "In two sentences, what is this?",
        "What's happening in the image?",
    ],
)  # fmt: skip
def test_all_of_a_picture_is_asked_for_in_many_ways(question: str) -> None:
    assert is_overview(split_words(question))


@pytest.mark.parametrize(
    "question",
    [
        "Transcribe this.", "Type out the text.", "What does it say?", "Extract all words.",
        "transcibe the page",
        "Copy everything word for word.", "Convert the document to markdown.", "What is written here?",
    ],
)  # fmt: skip
def test_all_that_is_printed_is_asked_for_in_many_ways(question: str) -> None:
    assert is_reading(split_words(question))
    assert is_transcription(selector().guide, question)


@pytest.mark.parametrize(
    "question",
    [
        "Solve the equation.", "Transcribe the equation.", "Explain the formula to me.", "Simplify.",
        "Compute the integral.", "What is the meaning of the formula?", "Is the equation right?",
        "Turn the formula into LaTeX.", "Prove the theorem step by step.",
    ],
)  # fmt: skip
def test_what_is_done_with_a_formula_is_no_word_of_it(question: str) -> None:
    assert dense_things(content(question))


def test_a_colour_is_nothing_odd() -> None:
    assert outright((0.0, 0.9), ("is", "anything", "green"))[1] < 0.2
    assert outright((0.0, 0.9), ("is", "anything", "here"))[1] == 0.9


def test_a_printed_fault_is_looked_for() -> None:
    def named(question: str, *printed: str) -> bool:
        words = split_words(question)
        return names_print(words, lambda i: words[i] in printed, lambda _i, _j: False)

    assert named("Which one is broken?", "broken")
    assert not named("Which one is broken?", "intact")
    assert not named("Which one is odd?", "odd"), "as before: it says nothing of what is odd"


def selector() -> Selector:
    return Selector.from_pretrained()


def seen_by_a_camera() -> Image.Image:
    """A drawn street with the noise of a sensor."""
    street = np.asarray(draw_street(0).image.convert("RGB")).astype(np.int16)
    noisy = street + np.random.default_rng(0).integers(-6, 7, street.shape)
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def note_on(image: Image.Image, question: str) -> str:
    return selector()(image, question, 64).note or ""


def test_a_place_on_a_photograph_has_a_note_that_names_the_remedy() -> None:
    photograph = seen_by_a_camera()
    assert note_on(photograph, "Where is the dog?").count(PHOTOGRAPH) == 1
    assert PHOTOGRAPH not in note_on(photograph, "Describe the image.")
    assert PHOTOGRAPH not in note_on(photograph, "What is unusual here?")


def test_drawn_pages_and_print_have_no_such_note() -> None:
    for image in (draw_page(0, (1024, 1024), "test").image, draw_street(0).image):
        assert PHOTOGRAPH not in note_on(image, "Where is the dog?")
    printed = seen_by_a_camera()
    for row in range(15):
        words = "the total of all items and the date with your name and address on this page"
        ImageDraw.Draw(printed).text((40, 20 + 48 * row), words, "black", ImageFont.load_default(26))
    assert PHOTOGRAPH not in note_on(printed, "What is the total?")


def test_boxes_beside_the_guide_need_no_such_note() -> None:
    boxes = BoxSource([GivenBox((100, 100, 200, 200), "dog")])
    both = Selector(relevance=SumSource([GuideSource(), boxes]))
    assert PHOTOGRAPH not in (both(seen_by_a_camera(), "Where is the dog?", 64).note or "")


def test_the_share_of_even_px() -> None:
    assert even_share(torch.zeros(3, 40, 60)) == 1
    assert even_share(torch.rand(3, 41, 61)) < 0.1
    assert even_share(torch.zeros(3, 1, 1)) == 1
    assert even_share(float_pixels(seen_by_a_camera())[0]) < MAX_EVEN


def test_a_sentence_of_several_notes_is_said_once() -> None:
    one = selector()(seen_by_a_camera(), "Where is the dog?", 64)
    assert joined_notes([one, one]) == one.note
    assert joined_notes([]) is None


def test_a_sure_guide_says_it_of_a_photograph() -> None:
    sure = Coupling(torch.zeros(2, 2), 0.9, photograph=True)
    assert verdict_of(sure) not in GENERAL
    assert guide_remark(sure) == PHOTOGRAPH
    assert guide_remark(Coupling(torch.zeros(2, 2), 0.9)) is None
