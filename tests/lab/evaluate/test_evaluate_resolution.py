"""The null of resolution: it answers from the smallest image at which the model is sure."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.model import ARRCOCModel
from arr_coc.modes.call import EncodedImages
from arr_coc_lab.evaluate import Settings, evaluate, resolution
from arr_coc_lab.evaluate.answering import answer_compacted, visual_tokens
from arr_coc_lab.evaluate.early import Ready
from arr_coc_lab.evaluate.questions import world_questions
from arr_coc_lab.evaluate.resolution import NAME, resolution_by_question
from arr_coc_lab.evaluate.scene import Scene
from arr_coc_lab.results.files import read_results
from arr_coc_lab.rivals import METHODS, find_method

LOOKS = (9, 25)


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return ARRCOCModel.from_pretrained(strict=True)


@pytest.fixture(autouse=True)
def small_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "LOOKS", LOOKS)


@pytest.fixture(scope="module")
def scene(model: ARRCOCModel) -> Scene:
    """A page of 8 x 8 cells with several questions."""
    with torch.no_grad():
        return Scene(model, next(iter(world_questions(4, 256, per_page=4))))


@torch.no_grad()
def look(scene: Scene, i: int, sure: float) -> tuple[Ready, Stopwatch]:
    watch = Stopwatch(scene.model.device)
    method = resolution_by_question(sure)
    assert method.prepare is not None
    return method.prepare(scene.view, i, None, EncodedImages(), watch), watch


@pytest.mark.slow
def test_always_sure_reads_the_smallest_and_never_sure_the_whole(scene: Scene) -> None:
    for i in range(len(scene.texts)):
        first, watch = look(scene, i, 0.0)
        assert visual_tokens(scene.model, first.compacted) == LOOKS[0]
        assert watch.ms["encode"] == 0  # a look counts as choosing
        last, watch = look(scene, i, 1.1)
        assert visual_tokens(scene.model, last.compacted) == 64
        assert min(watch.ms["encode"], watch.ms["scoring"]) > 0


@pytest.mark.slow
@torch.no_grad()
def test_it_stops_at_the_first_sure_look(scene: Scene) -> None:
    """By the probabilities of each look, measured one by one."""
    counts = set()
    for i in range(len(scene.texts)):
        sureness = []
        for count in LOOKS:
            side = int(count**0.5)
            session = resolution.small_session(scene.view, (side, side))
            logits = scene.model.base(**session.inputs(scene.texts[i])).logits[0, -1]
            sureness.append(float(logits.softmax(-1).max()))
        for sure in (0.2, 0.5, 0.9):
            assert all(abs(own - sure) > 1e-3 for own in sureness), "the test's pages are no close calls"
            expected = next((n for n, own in zip(LOOKS, sureness, strict=True) if own >= sure), 64)
            tokens = visual_tokens(scene.model, look(scene, i, sure)[0].compacted)
            assert tokens == expected
            counts.add(tokens)
    assert len(counts) > 1  # it does depend on the question


@pytest.mark.slow
def test_unsure_it_answers_as_the_stock_model(scene: Scene) -> None:
    texts = [scene.session.ask(text, mode="full", max_new_tokens=8).text for text in scene.texts]
    made = [look(scene, i, 1.1)[0].compacted for i in range(len(texts))]
    assert answer_compacted(scene.model, made, "full", most=8, max_new_tokens=8) == texts


def test_an_image_of_few_cells_is_read_as_it_is(model: ARRCOCModel) -> None:
    page = next(iter(world_questions(1, 96)))
    with torch.no_grad():
        small = Scene(model, page)
    ready, watch = look(small, 0, 0.0)
    assert visual_tokens(model, ready.compacted) == small.view.total == 9
    assert watch.ms["scoring"] == 0


@pytest.mark.slow
def test_a_run_records_it(tmp_path: Path) -> None:
    names = ("full", "downsample", NAME, f"{NAME}:0")
    options = {"questions": 3, "per_image": 3, "size": 256, "budgets": (9,), "timed": 1}
    summary = evaluate(Settings(out=tmp_path / "run", methods=names, **options), progress=False)
    header, records = read_results(tmp_path / "run.jsonl")
    assert header["kinds"][NAME] == "null"
    for record in records:
        assert record["tokens"][NAME] in (*LOOKS, 64)
        assert record["tokens"][f"{NAME}:0"] == 9
        assert record["said"][f"{NAME}:0"] == record["said"]["downsample@9"]
        assert NAME not in record["kept"]
    assert summary["methods"][NAME]["ttft_ms"] > 0


@pytest.mark.parametrize("argument", ["", "many", "2", "-1", "nan"])
def test_a_variation_is_a_probability(argument: str) -> None:
    assert find_method(f"{NAME}:0.5").name == f"{NAME}:0.5"
    assert METHODS[NAME].kind == "null"
    with pytest.raises(ValueError, match="has no probability: use 0 to 1"):
        find_method(f"{NAME}:{argument}")
