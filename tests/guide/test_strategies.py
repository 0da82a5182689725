"""Strategies: the plan's own sentences, asked of what ships, and the questions whose cells no strategy may
change."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from importlib.resources import files

import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from arr_coc.choose.allocation import Allocation, Reason
from arr_coc.choose.boxes import Box
from arr_coc.data.evidence import evidence_cells
from arr_coc.guide.coupling import OUTRIGHT, Coupling, Match, scope
from arr_coc.guide.guide import Guide, prepared
from arr_coc.guide.question import split_words, terms
from arr_coc.guide.trust import BUSY, GENERAL, SURE, dense_things, shares, verdict_of
from arr_coc.guide.wording import is_overview, is_unusual, names_print
from arr_coc.relevance import deciding
from arr_coc.relevance.deciding import Decision
from arr_coc.selector import Selector
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.browser.phrases import TEMPLATES
from arr_coc_lab.world.dense import draw_dense_page
from arr_coc_lab.world.street import draw_street
from arr_coc_lab.world.vocabulary import PARAPHRASES

UNUSUAL = "What is unusual in this image?"
SMALL_TEXT = "Read the small text in the formula."
OUTRIGHT_UNUSUAL = [
    "Are there any anomalies?", UNUSUAL, "Spot the outlier.", "Do you see any outliers?", "Find the anomaly.",
    "What sticks out?", "Which of these is different?", "Is one of them not like the others?",
    "Anything suspicious?",
    "Is something off in this picture?", "Show me what doesn't fit in.", "Are all of them the same?",
    "Is any of them abnormal?", "Which item breaks the pattern?", "Is there a weird one among these?",
    "Is anything missing?", "What doesn’t belong?", "odd one?",
    "Was ist hier ungewöhnlich?", "Gibt es Anomalien auf dem Bild?", "Was fällt auf?",
    "Was passt hier nicht?",
    "Qu'y a-t-il d'inhabituel dans cette image ?", "Y a-t-il une anomalie ?", "Quel est l’intrus ?",
    "¿Hay algo raro en esta imagen?", "¿Qué es lo inusual aquí?", "C'è qualcosa di strano?",
    "Ci sono anomalie?",
    "Há algo de incomum nesta imagem?", "Is er iets ongewoons in deze afbeelding?", "Что здесь необычного?",
    "这张图片有什么异常吗？",
]  # fmt: skip
POINTED = [
    "What is the unusual activity fee?", "Which plan is different from Pro?", "What does the exception say?",
    "What is the odd lot number?", "Is the missing field red?", "What is wrong with the total?",
    "Which ones are off?",
    "Where is the Report anomaly button?", "What is the exception?", "Which option stands out for teams?",
]  # fmt: skip


@cache
def selector() -> Selector:
    return Selector.from_pretrained()


@cache
def untaught() -> Guide:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return prepared(Guide(), torch.float32)


def ask(picture: Image.Image, question: str, budget: int = 64) -> tuple[Allocation, Coupling]:
    decision = selector().decide(picture, question, budget)
    return decision.allocations[0], decision.couplings[0]


def dots() -> Image.Image:
    """Blue discs in rows, and one red."""
    image = Image.new("RGB", (1024, 768), "white")
    draw = ImageDraw.Draw(image)
    for row in range(6):
        for column in range(8):
            x, y = 128 * column + 64, 128 * row + 64
            colour = (220, 20, 20) if (row, column) == (2, 5) else (20, 60, 220)
            draw.ellipse((x - 28, y - 28, x + 28, y + 28), fill=colour)
    return image


@pytest.mark.parametrize("question", OUTRIGHT_UNUSUAL)
def test_who_asks_outright_for_what_is_unusual_is_understood_by_any_guide(question: str) -> None:
    overview, unusual = scope(untaught(), question)
    assert unusual >= OUTRIGHT
    assert overview <= 1 - OUTRIGHT + 1e-6


@pytest.mark.parametrize("question", POINTED)
def test_a_place_is_no_oddity_for_being_called_odd(question: str) -> None:
    assert not is_unusual(terms(question).words)


def test_no_pointed_question_is_taken_for_a_general_one() -> None:
    """Of all wordings that the lab has for places, and of all questions that people put about real
    pictures."""
    blank = defaultdict(lambda: "amount due")
    pointed = [some for kind, some in TEMPLATES.items() if kind not in ("anomaly", "global")]
    texts = [text.format_map(blank) for some in (*pointed, *PARAPHRASES.values()) for text in some]
    lines = files("arr_coc_lab.pictures").joinpath("questions.jsonl").read_text(encoding="utf-8").splitlines()
    texts += [json.loads(line)["question"] for line in lines]
    words = {text: split_words(text) for text in texts}  # those of `terms`, without what may stand for them
    assert len(words) > 5000
    assert [text for text in words if is_unusual(words[text])] == []
    overviews = {text for text in words if is_overview(words[text])}
    misread = {"Can one read what's on the screen?", "How is it described?"}  # two of some 16,000
    assert all("show" in text.lower() for text in overviews - misread), overviews


def labelled(label: str, size: tuple[int, int], px: int, at: tuple[float, float]) -> tuple[Image.Image, Box]:
    """A page of labels and values with one more, "17" of some label at a place, in shares of the page."""
    image = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(px)
    for row, text in enumerate(("Invoice 2045", "Total 42.10", "Customer Anna Berg", "Terms 30 days")):
        draw.text((px, (2 * row + 1) * px), text, "black", font)
    x, y = at[0] * size[0], at[1] * size[1]
    draw.text((x, y), f"{label}   17", "black", font)
    return image, draw.textbbox((x, y), f"{label}   17", font)


LABELS = ["overview", "unusual", "odd", "everything", "all", "anomaly", "content", "caption", "unique"]


@pytest.mark.slow
@pytest.mark.parametrize("word", LABELS)
def test_what_is_printed_goes_ahead_of_a_stance(word: str) -> None:
    number = LABELS.index(word)
    size, px, at = [
        ((1024, 768), 22, (0.1, 0.6)),
        ((640, 480), 18, (0.3, 0.7)),
        ((1280, 960), 28, (0.4, 0.5)),
    ][number % 3]
    named = {
        f"{word.title()} page": f"What is the {word} page?",
        f"{word.title()} activity fee": f"How much is the {word} activity fee?",
    } | ({word.title(): f"What does the {word} say?"} if len(word) > 3 else {})
    for label, question in named.items():
        image, box = labelled(label, size, px, at)
        allocation, coupling = ask(image, question)
        assert verdict_of(coupling) not in GENERAL, question
        cells = evidence_cells([box], (allocation.grid[1], allocation.grid[2]), size)
        assert allocation.mask()[0][cells].float().mean() > 0.75, question
    other = ask(labelled("Branch", size, px, at)[0], f"What is the {word} page?")[1]
    assert (other.overview, other.unusual) == pytest.approx(
        scope(selector().guide, f"What is the {word} page?")
    )


@pytest.mark.slow
def test_a_printed_heading_takes_nothing_from_a_question_about_all_of_the_page() -> None:
    image = Image.new("RGB", (1024, 768), "white")
    lines = (
        "Overview",
        "Page 3 of 4",
        "Invoice 2045",
        "Image size",
        "Unusual activity fee 17",
        "Document no. 12",
    )
    for row, text in enumerate(lines):
        ImageDraw.Draw(image).text((40, 40 + 60 * row), text, "black", ImageFont.load_default(24))
    for question in (
        "Give me an overview.", "Give me an overview of this page.", "Summarise this page.",
        "Describe the invoice.", "What is this page about?", "What is this document?", "What is shown here?",
        UNUSUAL, "What is unusual about this invoice?", "Is anything unusual on this page?", "Any anomalies?",
    ):  # fmt: skip
        assert verdict_of(ask(image, question)[1]) in GENERAL, question
    assert verdict_of(ask(image, "What is the unusual activity fee?")[1]) == "sure"


def test_a_name_holds_every_word_that_would_make_a_question_general() -> None:
    def named(question: str, *printed: str) -> bool:
        words = terms(question).words
        lines = [line.lower().split() for line in printed]
        return names_print(
            words,
            lambda i: any(words[i] in line for line in lines),
            lambda i, j: any(words[i] in line and words[j] in line for line in lines),
        )

    assert named("What is the overview page?", "Overview page 17")
    assert named("How much is the fee for unusual activity?", "Unusual activity fee")
    assert named("What is the overview?", "Overview 17")
    assert named("How large are all rooms?", "All rooms 40")
    assert not named("What is the overview page?", "Overview", "Page 17")
    assert not named("Give me an overview of the page.", "Page overview")
    assert not named("Describe the Acme report.", "Acme report")
    assert not named("What is the page about?", "Page 17")
    assert not named("What is unusual?", "Unusual activity")
    assert not named("What is the content of this page?", "Content", "Page 17")


def test_a_red_dot_is_found_and_its_map_leads_almost_alone() -> None:
    allocation, coupling = ask(dots(), UNUSUAL, 16)
    assert coupling.unusual >= OUTRIGHT
    assert allocation.mask()[0, 9:11, 21:23].all()
    assert allocation.weights[1] > 0.95
    assert max(allocation.weights[0], allocation.weights[2]) < 0.1
    assert allocation.tensions["exploit"] > 0.9
    assert allocation.note is None


@pytest.mark.parametrize("seed", [0, 1])
def test_on_a_busy_street_the_same_question_covers_more(seed: int) -> None:
    street, (dot, _) = ask(draw_street(seed).image, UNUSUAL)[0], ask(dots(), UNUSUAL)
    assert int(street.weights.argmax()) == 1
    assert street.weights[0] > 0.5 > dot.weights[0], "information counts where everything is rare"
    explored = [int((one.reasons == Reason.EXPLORED).sum()) for one in (dot, street)]
    assert explored[1] > 16 > 4 >= explored[0]
    assert street.note == BUSY
    assert street.tensions["exploit"] < 0.4 < dot.tensions["exploit"]


def test_the_small_text_in_a_formula_is_kept() -> None:
    kept = []
    for seed in range(4):
        page = draw_dense_page(seed, (1024, 1024), "test", "formula")
        allocation, coupling = ask(page.image, SMALL_TEXT, 128)
        assert verdict_of(coupling) == "dense"
        assert allocation.weights[1] > 0.4, "the formula is what is rare on a page of text"
        evidence = evidence_cells(page.questions[0].evidence, (32, 32), page.image.size)
        kept.append(float(allocation.mask()[0][evidence].float().mean()))
    assert sum(kept) / 4 > 0.6, "of 8 % of the page's cells"


def test_how_to_read_a_formula_is_no_word_of_it() -> None:
    assert dense_things(("small", "text", "formula")) == ("formula",)
    assert dense_things(("read", "code", "snippet")) == ("code", "snippet")
    assert dense_things(("text",)) == ("text",)
    assert dense_things(("small", "text")) == (), "a drawn page's small print, which the guide was taught"
    assert dense_things(("invoice", "code")) == ()
    assert dense_things(()) == ()


def test_a_printed_word_counts_as_far_as_the_guide_finds_there_what_is_asked_for() -> None:
    number = Match("code", "number", 0.8, (0.5, 0.5))
    cells = torch.zeros(4, 4)
    dense = [shares(Coupling(cells, c, matches=(number,))).dense for c in (0.0, SURE / 2, SURE, 1.0)]
    assert dense == pytest.approx([1.0, 0.6, 0.2, 0.2])


@cache
def sure_of_a_page() -> tuple[Image.Image, tuple[str, ...]]:
    """A drawn page, and its questions that the guide is sure of."""
    page = draw_page(2, (1024, 1024), "test", void=False)
    texts = dict.fromkeys(q.text for q in page.questions)
    couplings = ((text, selector().decide(page.image, text).couplings[0]) for text in texts)
    sure = [text for text, one in couplings if one.confidence >= SURE and verdict_of(one) == "sure"]
    return page.image, tuple(sure)


def test_a_pointed_question_spends_nothing_on_other_maps() -> None:
    """The participatory map leads almost alone where the guide is sure, and every cell is kept for it."""
    image, questions = sure_of_a_page()
    assert len(questions) >= 10
    for question in questions[::2]:
        for budget in (64, 273):
            allocation = selector()(image, question, budget)
            assert allocation.weights[2] > 0.6 > 0.3 > allocation.weights[:2].max(), question
            assert (allocation.reasons == Reason.RELEVANT).all(), question


def test_rarity_is_mapped_only_where_it_says_something(monkeypatch: pytest.MonkeyPatch) -> None:
    image, questions = sure_of_a_page()
    own = Selector()
    calls = []

    def counted(*arguments: object) -> torch.Tensor:
        calls.append(arguments)
        return rarity(*arguments)

    rarity = deciding.rarity
    monkeypatch.setattr(deciding, "rarity", counted)
    for question in (*questions[:3], "Describe the image."):
        own(image, question)
    assert not calls
    for _ in range(2):
        own(image, UNUSUAL)
        own(image, SMALL_TEXT)
    assert len(calls) == 1, "and once of a picture"


def test_a_blank_picture_is_void_and_sampled_by_an_even_grid() -> None:
    blank = Image.new("RGB", (1024, 1024), "white")
    for question in (UNUSUAL, "What is the total?", "Describe the image."):
        decision: Decision = selector().decide(blank, question, 64)
        (allocation,) = decision.allocations
        assert allocation.void
        assert (allocation.reasons == Reason.VOID).all()
        parts = allocation.mask()[0].unflatten(1, (4, 8)).unflatten(0, (4, 8)).sum((1, 3))
        assert (parts == 4).all()
