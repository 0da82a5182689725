"""The measurement of sources of relevance on real pictures, with sources whose worth is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from arr_coc.choose.boxes import Box
from arr_coc.data.evidence import evidence_cells
from arr_coc.guide.coupling import Coupling, GuideSource
from arr_coc.relevance.lines import LineHead, PrintedLine
from arr_coc.relevance.ocr import OcrSource
from arr_coc.selector import Sizing
from arr_coc_lab.evaluate.sources import (
    BUDGETS,
    OF,
    OTHER,
    Asked,
    Chance,
    Cost,
    Ink,
    OcrSentences,
    OcrWords,
    RealSample,
    SourceRow,
    in_folder,
    labelled,
    measure,
    open_all,
    questions_elsewhere,
    sampled,
    summarise,
)
from arr_coc_lab.pictures.labels import pictures
from printed_lines import PAGE, vectors

SIZE = (640, 512)  # (width, height) in px: 20 x 16 cells
GRID = Sizing().grid(SIZE[1], SIZE[0])


def sample(name: str, *questions: tuple[str, str, tuple[Box, ...]], kind: str = "screenshot") -> RealSample:
    return RealSample(name, kind, lambda: Image.new("RGB", SIZE, "white"), questions)


SAMPLES = (
    sample(
        "a.png",
        ("Where is the left box?", "position", ((0, 0, 64, 64),)),
        ("Which two?", "object", ((0, 0, 32, 32), (600, 480, 640, 512))),
        ("Is there a dog?", "unanswerable", ()),
    ),
    sample(
        "b.png",
        ("What is the total?", "value", ((320, 256, 352, 288),)),
        ("Who was first?", "value", ((0, 448, 640, 512),)),
        kind="document",
    ),
)
NEEDED = {text: boxes for one in SAMPLES for text, _, boxes in one.questions}


class Sight(NamedTuple):
    """All that a source of the test keeps of a picture."""

    size: tuple[int, int]
    nbytes: int = 1_000_000


class Knowing:
    """Knows the evidence of every question of the test, or its opposite; remembers what it was asked."""

    version, calibration = "1", None

    def __init__(self, sign: float = 1.0, name: str = "knowing") -> None:
        self.sign, self.name, self.views = sign, name, 0
        self.questions: list[str] = []

    def view(self, picture: Tensor) -> Sight:
        self.views += 1
        return Sight((picture.shape[-2], picture.shape[-1]))

    def couple(self, view: Any, question: str, grid: tuple[int, int]) -> Coupling:
        self.questions.append(question)
        cells = evidence_cells(NEEDED.get(question, ()), grid, view.size[::-1])
        return Coupling(self.sign * cells.float(), 0.9 if NEEDED.get(question) else 0.1)


def rows_of(*sources: Any, samples: Sequence[RealSample] = SAMPLES, **more: Any) -> list[SourceRow]:
    return list(measure({source.name: source for source in sources}, samples, **more))


def test_a_perfect_source_keeps_all_that_fits_and_its_opposite_nothing() -> None:
    best, worst = Knowing(), Knowing(-1.0, "worst")
    for row in rows_of(best, worst):
        if not row.answerable:
            assert row.recall == {}
            continue
        count = int(evidence_cells(NEEDED[row.question], GRID, SIZE).sum())
        for budget in BUDGETS:
            kept = max(1, round(budget / OF * GRID[0] * GRID[1]))
            share = min(1.0, kept / count) if row.method == "knowing" else 0.0
            assert row.recall[budget] == pytest.approx(share)


def test_the_summary_is_by_group_method_and_budget() -> None:
    table = summarise(rows_of(Knowing(), Knowing(-1.0, "worst")))
    assert set(table) == {
        "all", "screenshot", "document", "ask position", "ask object", "ask value",
    }  # fmt: skip
    assert table["all"]["knowing"]["questions"] == 4
    assert table["document"]["knowing"]["questions"] == 2
    for budget in BUDGETS:
        kept = max(1, round(budget / OF * GRID[0] * GRID[1]))
        shares = [min(1.0, kept / int(evidence_cells(b, GRID, SIZE).sum())) for b in NEEDED.values() if b]
        facts = table["all"]["knowing"][str(budget)]
        assert facts["recall"] == pytest.approx(sum(shares) / 4)
        assert facts["whole"] == pytest.approx(sum(share == 1 for share in shares) / 4)
        assert table["all"]["worst"][str(budget)] == {"recall": 0.0, "whole": 0.0}
    assert table["all"]["knowing"]["auc"] == 1.0
    assert "auc" not in table["document"]["knowing"], "which has no unanswerable question"


def test_chance_keeps_the_share_of_its_budget() -> None:
    boxes = ((32.0, 64.0, 320.0, 256.0),)
    many = [
        sample(f"{n}.png", *((f"Question {n} {i}?", "value", boxes) for i in range(20))) for n in range(5)
    ]
    facts = summarise(rows_of(Chance(), samples=many))["all"]["chance"]
    for budget in BUDGETS:
        assert facts[str(budget)]["recall"] == pytest.approx(budget / OF, abs=0.02)


def test_another_question_is_one_of_the_picture_before() -> None:
    source = Knowing()
    other = Asked(source)
    assert other.name == "knowing" + OTHER
    rows = rows_of(other)
    first, second = ([text for text, *_ in one.questions] for one in SAMPLES)
    assert source.questions == ["What is this?"] * len(first) + [first[i] for i in range(len(second))]
    assert [row.question for row in rows] == [*first, *second], "whose evidence is what counts"
    assert source.views == 2


def of_packages(*packages: str, kind: str = "chart") -> list[RealSample]:
    """A picture of each package, with a question that it answers, one that it doesn't, and a common one."""
    boxes = ((0.0, 0.0, 64.0, 64.0),)
    return [
        RealSample(
            f"{kind}-{i}.png",
            kind,
            lambda: Image.new("RGB", SIZE, "white"),
            (
                (f"What is {kind} {i}?", "value", boxes),
                (f"Is there a dog on {kind} {i}?", "unanswerable", ()),
                ("What is the title?", "title", boxes),
            ),
            package=package,
        )
        for i, package in enumerate(packages)
    ]


def test_each_question_is_asked_of_another_picture_of_its_kind_and_another_package() -> None:
    charts, photos = of_packages("b", "a", "b", "a", "a"), of_packages("c", kind="photo")
    made = questions_elsewhere([*charts, *photos])
    assert made == {  # in order of packages: 1, 3, 4, 0, 2; the one two places on
        "chart-1.png": (),  # would get those of 4, of the same package
        "chart-3.png": ("What is chart 0?",),
        "chart-4.png": ("What is chart 2?",),
        "chart-0.png": ("What is chart 1?",),
        "chart-2.png": ("What is chart 3?",),
        "photo-0.png": (),  # the only one of its kind
    }
    unknown = questions_elsewhere(of_packages("", ""))
    assert unknown == {"chart-0.png": ("What is chart 1?",), "chart-1.png": ("What is chart 0?",)}


class Gullible(Knowing):
    """Is as sure of any question with a number, whatever picture it is asked about."""

    def couple(self, view: Any, question: str, grid: tuple[int, int]) -> Coupling:
        self.questions.append(question)
        return Coupling(torch.zeros(grid), 0.1 if "dog" in question else 0.9)


def test_questions_of_another_picture_show_who_goes_by_the_wording() -> None:
    samples = [*of_packages("a", "b", "c", "d"), *of_packages("e", "f", kind="photo")]
    gullible = Gullible(name="gullible")
    rows = rows_of(gullible, Asked(gullible), samples=samples)
    foreign = [row for row in rows if row.elsewhere]
    assert len(foreign) == 6
    assert {row.method for row in foreign} == {"gullible"}
    assert not any(row.answerable or row.recall for row in foreign)
    table = summarise(rows)
    assert table["all"]["gullible"]["auc"] == 1.0, "the wording gives unanswerable questions away"
    assert table["all"]["gullible"]["auc elsewhere"] == table["photo"]["gullible"]["auc elsewhere"] == 0.5
    assert table["all"]["gullible"]["questions"] == 12, "of its own pictures"
    assert "auc elsewhere" not in table["all"]["gullible" + OTHER]
    assert "ask elsewhere" not in table


def test_a_source_and_its_null_share_a_view() -> None:
    source, costs = Knowing(), dict[str, Cost]()
    rows_of(source, Asked(source), Chance(), costs=costs)
    assert source.views == 2
    assert set(costs) == {"knowing", "knowing" + OTHER, "chance"}
    facts = costs["knowing"].summary()
    assert facts["MB a picture"] == 1.0
    assert facts["ms a question"] >= 0
    assert len(costs["knowing"].question) == 5


def test_ink_is_where_something_is_drawn() -> None:
    def image() -> Image.Image:
        made = Image.new("RGB", SIZE, "white")
        for x in range(320, 384, 4):
            ImageDraw.Draw(made).line((x, 256, x, 320), "black")
        return made

    box = (320.0, 256.0, 384.0, 320.0)
    one = RealSample("a.png", "chart", image, (("Where is ink?", "value", (box,)),))
    (row,) = rows_of(Ink(), samples=[one])
    assert row.recall[57] == 1.0


def test_words_and_sentences_of_an_ocr_are_nulls_of_it() -> None:
    ocr = OcrSource(lambda pixels: PAGE, vectors, LineHead())
    page = RealSample(
        "a.png",
        "document",
        lambda: Image.new("RGB", (800, 600), "white"),
        (("What is the total?", "value", (PAGE[5].box,)), ("Total:", "label", (PAGE[5].box,))),
        PAGE,
    )
    words, same = rows_of(OcrWords(ocr), samples=[page])
    assert words.recall[57] == same.recall[57] == 1.0
    assert same.confidence > 0.9
    _, same = rows_of(OcrSentences(ocr), samples=[page])
    assert same.recall[57] == 1.0, "a sentence is nearest to itself"


def test_sources_are_opened_by_name_with_nulls() -> None:
    made = open_all("guide")
    assert list(made) == ["guide", "chance", "ink", "guide" + OTHER]
    assert isinstance(made["guide"], GuideSource)
    assert list(open_all("guide", nulls=False)) == ["guide"]
    with pytest.raises(ValueError, match="relevance 'tarot' is unknown"):
        open_all("guide,tarot")


def test_pictures_of_a_folder_with_questions(tmp_path: Path) -> None:
    for one in SAMPLES:
        one.image().save(tmp_path / one.name)
    lines = [
        {"image": one.name, "kind": one.kind, "ask": ask, "question": text, "boxes": boxes}
        for one in reversed(SAMPLES)
        for text, ask, boxes in one.questions
    ]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = list(in_folder(tmp_path))
    assert [(one.name, one.kind, one.questions) for one in read] == [
        (one.name, one.kind, one.questions) for one in SAMPLES
    ]
    assert [one.image().size for one in read] == [SIZE, SIZE]
    assert rows_of(Knowing(), samples=read) == rows_of(Knowing())


def test_labelled_pictures_are_those_that_are_there(tmp_path: Path) -> None:
    assert list(labelled("validation", tmp_path)) == []
    one, *_ = pictures("validation")
    Image.new("RGB", one.size, "white").save(tmp_path / one.file, "PNG")
    (read,) = labelled("validation", tmp_path)
    assert (read.name, read.kind, read.lines) == (one.file, one.kind, one.lines)
    assert len(read.questions) == len(one.questions)
    assert read.image().size == one.size
    assert list(labelled("test", tmp_path)) == []


def test_a_share_of_samples_is_the_same_each_time() -> None:
    many = [sample(f"{n}.png") for n in range(200)]
    first = [one.name for one in sampled(many, 0.3)]
    assert first == [one.name for one in sampled(many, 0.3)]
    assert 40 < len(first) < 80
    assert first != [one.name for one in sampled(many, 0.3, seed=1)]


def test_lines_are_typed() -> None:
    assert all(isinstance(line, PrintedLine) for one in pictures("validation") for line in one.lines)
    assert torch.tensor([line.box for line in PAGE]).shape == (len(PAGE), 4)
