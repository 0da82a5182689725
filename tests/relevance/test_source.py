"""Sources of relevance by name: sums are log odds, calibrations are found, and any source decides."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from PIL import Image
from torch import Tensor

from arr_coc.choose.boxes import box_cells
from arr_coc.files.pixels import image_pixels
from arr_coc.guide.coupling import Calibration, Coupling, Finding, GuideSource, Match
from arr_coc.guide.guide import GuidePage
from arr_coc.guide.trust import SENTENCES
from arr_coc.model import ARRCOCModel
from arr_coc.modes.call import Chooser
from arr_coc.relevance import names
from arr_coc.relevance.boxes import BoxSource, BoxView, GivenBox, parse_boxes
from arr_coc.relevance.source import (
    FLOOR,
    PRIOR,
    RelevanceSource,
    SumSource,
    calibrate,
    cells_from_boxes,
    cells_from_map,
    fit_calibration,
    guide_view,
    log_odds,
    mixed,
)
from arr_coc.relevance.sums import (
    open_relevance,
    parse_relevance,
    register_relevance,
    relevance_names,
)
from arr_coc.selector import Selector
from arr_coc.trace.observe import observe
from command_line import run, run_json
from each import each
from eyes import inputs_of, prepared_for, set_constants
from near import near
from tiny import picture, tiny

GRID = (4, 6)


class Sight(NamedTuple):
    """A picture as the view of a source that a test makes."""

    picture: Tensor

    @property
    def size(self) -> tuple[int, int]:
        return self.picture.shape[-2], self.picture.shape[-1]

    @property
    def nbytes(self) -> int:
        return self.picture.nbytes


class Made:
    """A source whose logits a function makes of a picture, a question and a grid."""

    version = "1"

    def __init__(
        self,
        logits: Callable[[Tensor, str, tuple[int, int]], Tensor],
        calibration: Calibration | None = None,
        name: str = "made",
        confidence: float = 0.9,
        findings: tuple[Finding, ...] = (),
    ) -> None:
        self.logits, self.calibration, self.name = logits, calibration, name
        self.confidence, self.findings = confidence, findings

    def view(self, picture: Tensor) -> Sight:
        return Sight(picture)

    def couple(self, view: Any, question: str, grid: tuple[int, int]) -> Coupling:
        return Coupling(self.logits(view.picture, question, grid), self.confidence, findings=self.findings)


def drawn(seed: int, spread: float = 2.0) -> Callable[[Tensor, str, tuple[int, int]], Tensor]:
    """Logits of noise."""
    return lambda picture, question, grid: (
        spread * torch.randn(grid, generator=torch.Generator().manual_seed(seed))
    )


def flat(logit: float) -> Callable[[Tensor, str, tuple[int, int]], Tensor]:
    return lambda picture, question, grid: torch.full(grid, logit)


def pointing(peak: int, name: str = "pointing") -> Made:
    """A source that is sure of one cell."""

    def logits(picture: Tensor, question: str, grid: tuple[int, int]) -> Tensor:
        cells = torch.full(grid, -6.0)
        cells.view(-1)[peak] = 3.0
        return cells

    return Made(logits, Calibration(1.0), name)


PICTURE = torch.rand(3, 64, 96, generator=torch.Generator().manual_seed(3))


def coupled(source: RelevanceSource, question: str = "What is the total?") -> Coupling:
    return source.couple(source.view(PICTURE), question, GRID)


# ---- sums ---------------------------------------------------------------------------------------------


def test_a_sum_is_of_log_odds_and_counts_the_prior_once() -> None:
    one, other = Made(drawn(0), Calibration(0.5, -1.0)), Made(drawn(1), Calibration(2.0, 0.3))
    expected = 0.5 * coupled(one).logits - 1.0 + 2.0 * coupled(other).logits + 0.3 - PRIOR
    assert torch.allclose(coupled(SumSource([one, other])).logits, expected, atol=1e-5)
    assert torch.allclose(coupled(SumSource([other, one])).logits, expected, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_sources_that_know_nothing_change_no_cell(count: int) -> None:
    one = Made(drawn(0), Calibration(1.0))
    nothing = [Made(flat(PRIOR), Calibration(1.0)) for _ in range(count)]
    assert torch.allclose(coupled(SumSource([one, *nothing])).logits, coupled(one).logits, atol=1e-5)
    alone = coupled(SumSource(nothing)).logits
    assert torch.allclose(alone, torch.full(GRID, PRIOR), atol=1e-5)


def test_what_independent_sources_say_together_is_their_posterior() -> None:
    """By Bayes, from likelihoods."""
    prior, likelihoods = 1 / (1 + math.exp(-PRIOR)), ((0.7, 0.1), (0.4, 0.2))
    sources, odds = [], prior / (1 - prior)
    for true, false in likelihoods:
        posterior = true * prior / (true * prior + false * (1 - prior))
        sources.append(Made(flat(log_odds(posterior)), Calibration(1.0)))
        odds *= true / false
    assert float(coupled(SumSource(sources)).logits[0, 0]) == pytest.approx(math.log(odds), abs=1e-4)


def test_confidences_are_averaged_as_log_odds_and_findings_are_in_order() -> None:
    box = (0.0, 0.0, 1.0, 1.0)
    one = Made(flat(0), Calibration(1.0), "one", 0.9, (Finding("one", "a", 0.4, box),))
    other = Made(flat(0), Calibration(1.0), "other", 0.1, (Finding("other", "b", 0.8, box),))
    both = coupled(SumSource([one, other]))
    assert both.confidence == pytest.approx(0.5)
    assert [finding.text for finding in both.findings] == ["b", "a"]
    certain = [Made(flat(0), Calibration(1.0), confidence=value) for value in (1e-9, 1.0)]
    assert coupled(SumSource(certain)).confidence == pytest.approx(0.5)


def test_a_source_with_nothing_to_go_by_is_left_out() -> None:
    one = Made(drawn(0), Calibration(1.0), confidence=0.9)
    blind = Made(flat(FLOOR), Calibration(1.0), confidence=0.0)
    for sources in ([one, blind], [blind, one]):
        both = coupled(SumSource(sources))
        assert both.confidence == pytest.approx(0.9)
        assert torch.allclose(both.logits, coupled(one).logits, atol=1e-5)
    assert coupled(SumSource([blind, blind])).confidence < 1e-4


def test_matches_are_those_of_the_guide() -> None:
    match = Match("total", "total", 0.9, (0.5, 0.5))
    guided = Coupling(torch.zeros(GRID), 0.5, matches=(match,))
    both = mixed([(Made(flat(0)), Coupling(torch.zeros(GRID), 0.5)), (Made(flat(0), name="guide"), guided)])
    assert both.matches == (match,)


def test_a_sum_knows_what_questions_are_about() -> None:
    one = SumSource([Made(flat(0))])
    assert coupled(one, "Describe the image.").overview > 0.9 > coupled(one).overview
    assert coupled(one, "What is unusual here?").unusual > 0.5 > coupled(one).unusual


def test_a_source_without_calibration_is_alone() -> None:
    raw = Made(drawn(0), name="raw")
    assert torch.allclose(coupled(SumSource([raw])).logits, coupled(raw).logits, atol=1e-5)
    with pytest.raises(ValueError, match=r"relevance 'raw' has no calibration.*source\.calibrate"):
        SumSource([raw, Made(drawn(1), Calibration(1.0))])


def test_a_sum_has_the_names_versions_and_views_of_its_parts() -> None:
    both = SumSource([GuideSource(), Made(drawn(0), Calibration(1.0))])
    assert (both.name, both.version) == ("guide+made", f"{GuideSource().version}+1")
    assert isinstance(both, RelevanceSource)
    view = both.view(PICTURE)
    assert view.size == (64, 96)
    assert view.nbytes == sum(part.nbytes for part in view.parts)
    assert isinstance(guide_view(both, view), GuidePage)
    assert guide_view(GuideSource(), GuideSource().view(PICTURE)) is not None
    assert guide_view(Made(flat(0)), Sight(PICTURE)) is None


# ---- calibrations -------------------------------------------------------------------------------------


SCALE, BIAS = 1.7, -2.5


def questions(count: int = 24, seed: int = 0) -> list[tuple[Tensor, str, Tensor]]:
    """Pictures of logits, and evidence drawn by them."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(count):
        logits = torch.randn(12, 16, generator=generator)
        chance = torch.rand(12, 16, generator=generator)
        made.append((logits, str(number), chance < torch.sigmoid(SCALE * logits + BIAS)))
    return made


@each(("scale", "bias"), [(1.0, 0.0), (10.0, 3.0), (1e-3, 0.7), (250.0, -1e3)])
def test_a_known_scale_and_bias_are_found(scale: float, bias: float) -> None:
    stated = Made(lambda logits, question, grid: logits * scale + bias)
    fit = calibrate(stated, questions())
    assert fit is not None
    assert fit.scale * scale == pytest.approx(SCALE, abs=0.15)
    assert fit.scale * bias + fit.bias == pytest.approx(BIAS, abs=0.15)


def test_what_is_inverted_random_or_the_same_everywhere_has_none() -> None:
    assert calibrate(Made(lambda logits, question, grid: -logits), questions()) is None
    for seed in range(3):
        noise = torch.Generator().manual_seed(seed)
        blind = Made(lambda logits, question, grid, noise=noise: torch.randn(grid, generator=noise))
        assert calibrate(blind, questions()) is None
    assert calibrate(Made(flat(-7.0)), questions()) is None


def test_a_source_that_is_never_wrong_has_a_finite_one() -> None:
    evidence = {question: cells for _, question, cells in questions()}
    fit = calibrate(Made(lambda logits, question, grid: 2.0 * evidence[question] - 1), questions())
    assert fit is not None
    assert fit.scale + fit.bias > 3 > 0 > fit.bias - fit.scale
    assert fit.scale < 100


@torch.no_grad()
def test_a_fit_needs_no_caller_that_asks_for_gradients() -> None:
    pictures, _, evidence = zip(*questions(), strict=True)
    fit = fit_calibration(pictures, evidence)
    assert fit is not None
    assert fit == calibrate(Made(lambda logits, question, grid: logits), questions())


def test_without_evidence_there_is_nothing_to_fit() -> None:
    nowhere = [(logits, question, torch.zeros_like(cells)) for logits, question, cells in questions(2)]
    for examples in (nowhere, []):
        with pytest.raises(ValueError, match="without evidence calibrate nothing"):
            calibrate(Made(drawn(0)), examples)


# ---- cells --------------------------------------------------------------------------------------------


def test_a_cell_has_the_highest_of_its_boxes_and_others_the_floor() -> None:
    boxes, size = [(0.0, 0.0, 30.0, 16.0), (16.0, 0.0, 48.0, 16.0), (80.0, 48.0, 96.0, 64.0)], (64, 96)
    cells = cells_from_boxes(boxes, [1.0, 2.0, -9.0], GRID, size)
    assert cells[0].tolist() == [1.0, 2.0, 2.0, FLOOR, FLOOR, FLOOR]
    assert float(cells[3, 5]) == FLOOR  # a box is no reason to think less of a cell
    assert (cells[1:] == FLOOR).all()
    assert (cells_from_boxes((), (), GRID, size, floor=-1.0) == -1).all()
    with pytest.raises(ValueError, match="zip"):
        cells_from_boxes(boxes, [1.0], GRID, size)


def test_a_map_on_its_own_grid_is_itself_and_a_coarser_cell_the_mean() -> None:
    scores = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(cells_from_map(scores, (4, 6)), scores, atol=1e-5)
    means = scores.unflatten(1, (3, 2)).unflatten(0, (2, 2)).mean((1, 3))
    assert torch.allclose(cells_from_map(scores, (2, 3)), means, atol=1e-5)
    assert torch.allclose(cells_from_map(scores, (1, 1)), scores.mean(), atol=1e-5)


def test_a_finer_grid_is_interpolated_within_what_was_there() -> None:
    scores = torch.arange(4.0).expand(3, 4)
    fine = cells_from_map(scores, (6, 16))
    assert (fine.diff(dim=1) >= 0).all()
    assert torch.allclose(fine, fine[:1].expand_as(fine), atol=1e-5)
    assert (float(fine.min()), float(fine.max())) == (0.0, 3.0)


@pytest.mark.parametrize(
    ("patches", "content"),
    [
        ((10, 10), (0.0, 2.0, 10.0, 8.0)),  # bars above and below
        ((10, 10), (2.0, 0.0, 8.0, 10.0)),  # to the left and right
        ((10, 14), (0.0, 0.0, 10.0, 10.0)),  # padding behind it
        ((10, 10), None),  # stretched to a square
        ((6, 30), None),
    ],
)
@pytest.mark.parametrize("grid", [(12, 20), (5, 7), (3, 40)])
def test_what_an_encoder_saw_lies_where_it_was(
    patches: tuple[int, int], content: tuple[float, float, float, float] | None, grid: tuple[int, int]
) -> None:
    x0, y0, x1, y1 = content or (0.0, 0.0, patches[1], patches[0])
    for y, x in ((0.5, 0.5), (0.12, 0.88), (0.9, 0.3)):
        scores = torch.full(patches, -1.0)
        scores[int(y0 + y * (y1 - y0)), int(x0 + x * (x1 - x0))] = 5.0
        outside = torch.ones(patches, dtype=torch.bool)
        outside[int(y0) : int(y1), int(x0) : int(x1)] = False
        cells = cells_from_map(scores.masked_fill(outside, 90.0), grid, content)
        row, column = divmod(int(cells.argmax()), grid[1])
        assert abs((row + 0.5) / grid[0] - y) <= 0.5 / grid[0] + 1 / (y1 - y0)
        assert abs((column + 0.5) / grid[1] - x) <= 0.5 / grid[1] + 1 / (x1 - x0)
        assert float(cells.max()) <= 5.0 + 1e-4, "nothing of the border"


# ---- names --------------------------------------------------------------------------------------------


@each(
    ("text", "parts"),
    [
        ("guide", [("guide", "")]),
        ("guide+ocr", [("guide", ""), ("ocr", "")]),
        (" guide + ocr:folder ", [("guide", ""), ("ocr", "folder")]),
        ("boxes:a+b.json+guide", [("boxes", "a+b.json"), ("guide", "")]),
        ("boxes:C:\\pages\\a.json", [("boxes", "C:\\pages\\a.json")]),
        ("auto", [("auto", "")]),
    ],
)
def test_names_are_taken_apart(text: str, parts: list[tuple[str, str]]) -> None:
    assert list(parse_relevance(text)) == parts


@each(
    ("text", "message"),
    [
        ("tarot", "relevance 'tarot' is unknown; use one of auto, trained, gaze, guide, ocr, ppocr"),
        ("guide+tarot", "relevance 'tarot' is unknown"),
        ("", "relevance '' is unknown"),
        ("guide+", "relevance 'guide\\+' is unknown"),
        ("GUIDE", "relevance 'GUIDE' is unknown"),
        ("x\ny" * 999, r"relevance 'x\\ny"),
        ("guide+gaze", "relevance 'gaze' can't be part of a sum"),
        ("trained+guide", "relevance 'trained' can't be part of a sum"),
        ("guide+guide", "relevance 'guide\\+guide' names a source twice"),
        ("boxes:a+boxes:b", "names a source twice"),
    ],
)
def test_what_is_no_relevance_is_refused_in_a_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        parse_relevance(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300
    with pytest.raises(ValueError, match=message):
        Selector(relevance=text)


@each(
    ("text", "message"),
    [
        ("gaze", "relevance 'gaze' is of a wrapped model: use ARRCOCModel, or one of guide, "),
        ("boxes", "relevance 'boxes' needs a file: boxes:FILE.json"),
        ("guide+boxes:none.json", "'none.json' can't be read"),
        ("retriever", "relevance 'retriever' needs a model"),
        ("dense", "relevance 'dense' needs a model"),
        ("index", "relevance 'index' needs a file"),
        ("guide:none", "'none' has no guide|none"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_a_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        open_relevance(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("what", [5, None, object(), Made, ["guide"]])
def test_what_is_no_source_is_refused(what: Any) -> None:
    with pytest.raises(ValueError, match=r"is no source: it needs name, version"):
        open_relevance(what)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are registered in a test are gone after it."""
    monkeypatch.setattr(names, "_registered", {})


@pytest.mark.usefixtures("registry")
def test_a_registered_name_is_opened_once_for_each_argument() -> None:
    arguments = []

    def opener(argument: str) -> Made:
        arguments.append(argument)
        return Made(flat(0), Calibration(1.0), f"mine {argument}")

    register_relevance("mine", opener)
    assert "mine" in relevance_names()
    for text in ("mine", "mine:a", "guide+mine:a", "mine"):
        open_relevance(text)
    assert arguments == ["", "a"]
    assert open_relevance("mine:b+guide").name == "mine b+guide"
    with pytest.raises(ValueError, match="relevance 'mine' is taken"):
        register_relevance("mine", opener)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("name", ["", "Mine", "my source", "a+b", "a:b", "-a", "é", "guide", "auto", "boxes"])
def test_a_name_that_is_none_or_taken_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"relevance {name!r} is (no name|taken)".replace("+", r"\+")):
        register_relevance(name, lambda argument: Made(flat(0)))


def test_entry_points_are_found_and_loaded_when_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []

    def load() -> Callable[[str], Made]:
        loads.append(1)
        return lambda argument: pointing(int(argument or 0), "theirs")

    monkeypatch.setattr(names, "plugins", lambda kind: {"theirs": SimpleNamespace(load=load)})
    assert relevance_names()[-1] == "theirs"
    assert parse_relevance("guide+theirs:3")[1] == ("theirs", "3")
    assert not loads
    assert int(coupled(open_relevance("theirs:3")).logits.argmax()) == 3
    assert loads


# ---- deciding -----------------------------------------------------------------------------------------


def write_boxes(path: Path, *boxes: dict[str, Any]) -> str:
    path.write_text(json.dumps(boxes), encoding="utf-8")
    return f"boxes:{path}"


def textured(size: tuple[int, int] = (256, 192)) -> Image.Image:
    return picture(5, size)


def test_a_selector_goes_by_boxes_of_a_file(tmp_path: Path) -> None:
    here, there = ({"box": [x, y, x + 60, y + 30], "text": text} for x, y, text in
                   ((4, 4, "Total 42.10"), (180, 150, "Cashier Mary")))  # fmt: skip
    selector = Selector(relevance=write_boxes(tmp_path / "page.json", here, there))
    for question, one in (("What is the total?", here), ("Who is the cashier?", there)):
        cells = box_cells(tuple(one["box"]), (6, 8), (256, 192)).flatten()
        decision = selector.decide(textured(), question, int(cells.sum()), (6, 8))
        assert decision.allocations[0].keep.tolist() == cells.nonzero().flatten().tolist()
        assert decision.couplings[0].findings[0].text == one["text"]
        assert decision.couplings[0].recognised


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    kept, versions = [], set()
    for x in (4, 180):
        source = write_boxes(tmp_path / "page.json", {"box": [x, 4, x + 60, 30], "score": 0.9})
        selector = Selector(relevance=source)
        kept.append(selector(textured(), "What is the total?", 2, (6, 8)).keep.tolist())
        versions.add(selector.source.version)
    assert kept[0] != kept[1]
    assert len(versions) == 2


def test_a_selector_takes_a_source_and_a_sum() -> None:
    own = pointing(17)
    assert int(Selector(relevance=own)(textured(), "What?", 1, (6, 8)).keep) == 17
    both = Selector(relevance=SumSource([GuideSource(), own]))
    assert 17 in both(textured(), "What is the total?", 3, (6, 8)).keep.tolist()
    decision = Selector(relevance=own).decide_clip([textured()] * 4, "What?", 2, (6, 8))
    assert int(decision.allocations[0].order[0]) % 48 == 17


@pytest.mark.parametrize("mode", ["prune", "sparse", "saccade", "weight"])
def test_a_source_decides_in_a_wrapped_model(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_constants(monkeypatch)
    built = tiny("qwen3_vl")
    model = ARRCOCModel.wrap(built.model, built.processor, budget=7, strict=True, relevance=pointing(17))
    prepared = prepared_for(model, inputs_of("qwen3_vl"), mode)
    assert [int(one.order[0]) for one in prepared.allocations] == [17, 17]
    assert len(prepared.couplings) == 2


def test_a_wrapped_model_answers_by_boxes(tmp_path: Path) -> None:
    built, image = tiny("qwen3_vl"), textured((48, 48))
    source = write_boxes(tmp_path / "page.json", {"box": [16, 24, 32, 40], "text": "Total"})
    model = ARRCOCModel.wrap(built.model, built.processor, budget=4, strict=True, relevance=source)
    answer = model.ask(image, "What is the total?", max_new_tokens=2)
    assert (answer.kept, answer.fallback) == (4, False)
    expected = box_cells((16, 24, 32, 40), answer.grid[1:], image.size).flatten().nonzero().flatten()
    assert answer.allocation.keep.tolist() == expected.tolist()
    assert answer.couplings[0].findings[0].text == "Total"


@torch.no_grad()
@pytest.mark.parametrize("relevance", ["own", "boxes"])
def test_dropping_equals_masking_whatever_decides(relevance: str, tmp_path: Path) -> None:
    built, inputs = tiny("qwen3_vl"), inputs_of("qwen3_vl")
    source: Any = pointing(5)
    if relevance == "boxes":
        source = write_boxes(tmp_path / "page.json", {"box": [0, 0, 20, 20], "score": 0.9})
    model = ARRCOCModel.wrap(built.model, built.processor, budget=7, strict=True, relevance=source)
    prepared = model.prepare(inputs | {"use_cache": False}, mode="prune")
    dropped = prepared.model(**prepared.compacted.kwargs).logits
    mask = torch.zeros_like(inputs["input_ids"])
    for row, columns in enumerate(prepared.compacted.columns):
        mask[row, columns[columns >= 0]] = 1
    masked = inputs | {"attention_mask": mask, "position_ids": model.adapter.positions(inputs)}
    reference, stock = built.model(**masked).logits, built.model(**inputs).logits
    for row, columns in enumerate(prepared.compacted.columns):
        real = columns >= 0
        assert near(dropped[row, real], reference[row, columns[real]])
        assert (dropped[row, real] - stock[row, columns[real]]).abs().max() > 0.1  # the others did matter


def test_a_model_refuses_what_cannot_be_opened_and_stays_as_it_came() -> None:
    built = tiny("qwen3_vl")
    for source, message in (("boxes:none.json", "none.json"), ("tarot", "tarot"), (5, "is no source")):
        with pytest.raises(ValueError, match=message):
            ARRCOCModel.wrap(built.model, built.processor, relevance=source)
    model = ARRCOCModel.wrap(built.model, built.processor, relevance=pointing(0))
    assert isinstance(model.chooser, Chooser)
    assert model.chooser.source is model.relevance
    assert ARRCOCModel.wrap(built.model, built.processor, relevance="gaze").chooser.source is None


def test_a_source_that_is_unsure_says_so_and_asks_no_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arr_coc.modes.scoring.gaze", None)
    built = tiny("qwen3_vl")
    lost = Made(drawn(0), Calibration(1.0), confidence=0.05)
    model = ARRCOCModel.wrap(built.model, built.processor, budget=7, strict=True, relevance=lost)
    assert prepared_for(model, inputs_of("qwen3_vl"), "sparse").note == SENTENCES["nothing"]


def test_a_trace_tells_what_a_source_found(tmp_path: Path) -> None:
    built, image = tiny("qwen3_vl"), textured((48, 48))
    for source in (
        write_boxes(tmp_path / "page.json", {"box": [16, 24, 32, 40], "text": "Total"}),
        SumSource([GuideSource(), pointing(3)]),
    ):
        model = ARRCOCModel.wrap(built.model, built.processor, budget=4, strict=True, relevance=source)
        trace = observe(model.session(image), "What is the total?", max_new_tokens=1)
        assert trace.strips[0].guidance is not None
        assert bool(trace.strips[0].guidance.spots) == isinstance(source, SumSource)


def test_the_command_line_names_what_a_source_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    textured().save("page.png")
    source = write_boxes(Path("page.json"), {"box": [4, 4, 60, 30], "text": "Total \x1b[31m42.10"})
    code, out, err = run(capsys, "look", "page.png", "What is the total?", "--relevance", source)
    assert code == 0, err
    assert "by boxes" in out
    assert "42.10" in out
    assert "\x1b[31m" not in out
    facts = run_json(capsys, "look", "page.png", "What is the total?", "--relevance", f"guide+{source}")
    assert facts["coupling"]["findings"][0]["source"] == "boxes"
    for wrong in ("tarot", "boxes:none.json", "gaze"):
        code, out, err = run(capsys, "look", "page.png", "What?", "--relevance", wrong)
        assert (code, out) == (2, "")
        assert wrong.partition(":")[2] or wrong in err


# ---- boxes --------------------------------------------------------------------------------------------


def test_boxes_are_scored_by_words_and_by_their_own_probability() -> None:
    boxes = [
        GivenBox((0, 0, 16, 16), "the total sum"),
        GivenBox((16, 0, 32, 16), "nothing of it"),
        GivenBox((32, 0, 48, 16), score=0.999),
        GivenBox((48, 0, 64, 16), score=0.001),
    ]
    logits = coupled(BoxSource(boxes)).logits[0]
    assert logits[0] > logits[1] > FLOOR
    assert logits[2] > 0 > logits[3]
    assert (logits[4:] == FLOOR).all()
    assert torch.equal(logits, coupled(BoxSource(lambda picture: boxes)).logits[0])
    empty = coupled(BoxSource([]))
    assert (empty.logits == FLOOR).all()
    assert empty.confidence == 0
    assert empty.findings == ()


@each(
    "value",
    [
        {"box": [0, 0, 1, 1]},
        [5],
        [{}],
        [{"box": [0, 0, 1]}],
        [{"box": [0, 0, 0, 1]}],
        [{"box": [3, 0, 1, 1]}],
        [{"box": [0, 0, float("nan"), 1]}],
        [{"box": [0, 0, 1, True]}],
        [{"box": [0, 0, 1, "1"]}],
        [{"box": [0, 0, 1, 10**400]}],
        [{"box": [0, 0, 1, 1], "text": 5}],
        [{"box": [0, 0, 1, 1], "score": 1.5}],
        [{"box": [0, 0, 1, 1], "score": "high"}],
        [{"box": [0, 0, 1, 1], "score": float("nan")}],
    ],
)
def test_hostile_boxes_are_refused_in_a_line(value: Any) -> None:
    with pytest.raises(ValueError, match=r"page\.json") as refused:
        parse_boxes(value, "page.json")
    assert "\n" not in str(refused.value)


def test_boxes_are_held_against_the_picture() -> None:
    """In other units they would point to nothing, and yet be matched with a question's words."""
    picture, total = torch.ones(3, 64, 96), "total"

    def boxes(*sides: tuple[float, float, float, float], scale: float = 1.0) -> list[GivenBox]:
        return [GivenBox(tuple(scale * side for side in box), total) for box in sides]

    inside = ((8.0, 8.0, 24.0, 16.0), (40.0, 30.0, 90.0, 60.0))
    for given, message in (
        (boxes(*inside, scale=1 / 96), r"\[0\.08.*shares of 1: give px of .* 96x64"),
        (boxes((0, 0, 1, 1)), "shares of 1"),
        (boxes((97, 0, 120, 9), (0, 65, 9, 99), (-9, -9, -1, -1)), r"\[97, 0, 120, 9\].*outside .*96x64"),
        (boxes(*inside, scale=20), "all lie outside"),
        (boxes((9, 9, 5, 12)), "no area"), (boxes((5, 12, 9, 9)), "no area"),
        (boxes((5, 5, 5, 9)), "no area"),
        (boxes((0, 0, float("nan"), 9)), "no area"), (boxes((0, float("-inf"), 9, 9)), "no area"),
    ):  # fmt: skip
        for source in (BoxSource(given), BoxSource(lambda picture, given=given: given)):
            with pytest.raises(ValueError, match=message):
                source.view(picture)
    whole = BoxSource(boxes(*inside)).view(picture)
    cut = BoxSource(boxes(*inside, (90, -20, 300, 8), (97, 0, 120, 9))).view(picture)
    assert isinstance(whole, BoxView)
    assert isinstance(cut, BoxView)
    assert whole.note is None
    assert [one.box for one in cut.boxes[2:]] == [(90, 0, 96, 8)]
    assert (
        cut.note == "1 of 4 boxes lie outside of the picture: give px of the upright picture, which is 96x64"
    )
    picture = textured()
    sides = picture.size[0] - 4.0, picture.size[0] + 900.0
    given = boxes((4, 4, 60, 30), (sides[0], 0, sides[1], 8), (sides[1], 0, sides[1] + 9, 9))
    decision = Selector(relevance=SumSource([BoxSource(given)])).decide(picture, "What is the total?", 4)
    assert "1 of 3 boxes lie outside of the picture: give px" in (decision.allocations[0].note or "")
    assert all(0 <= side <= 1 for found in decision.couplings[0].findings for side in found.box)


def test_a_mark_before_a_list_of_boxes_is_read(tmp_path: Path) -> None:
    """As programs of Windows write it."""
    path = tmp_path / "boxes.json"
    path.write_text(json.dumps([{"box": [4, 4, 60, 30], "text": "Total"}]), encoding="utf-8-sig")
    (source,) = open_relevance(f"boxes:{path}").sources
    assert source.boxes == (GivenBox((4, 4, 60, 30), "Total"),)


def test_boxes_beyond_the_picture_lose_nothing_of_it(tmp_path: Path) -> None:
    boxes = parse_boxes([{"box": [-1e9, -5, 1e9, 9], "text": "total"}, {"box": [500, 500, 501, 501]}], "it")
    cells = coupled(BoxSource(boxes)).logits
    assert cells.isfinite().all()
    assert (cells[0] > FLOOR).all()
    path = tmp_path / "boxes.json"
    for text in ("[" * 100_000, "{", "\x00", "[{'box': 1}]"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"boxes\.json") as refused:
            open_relevance(f"boxes:{path}")
        assert "\n" not in str(refused.value)


def test_pixels_of_a_picture_reach_a_source_as_they_are() -> None:
    seen: list[Tensor] = []
    source = Made(lambda picture, question, grid: seen.append(picture) or torch.zeros(grid))
    Selector(relevance=source)(textured(), "What?", 1, (6, 8))
    assert torch.equal(seen[0], image_pixels(textured())[0])
