"""Probes: what they say is what the model says, their ends meet, and nothing is left behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from arr_coc.data.metrics import exact_match
from arr_coc.model import ARRCOCModel
from arr_coc.seam.lora import OWN
from arr_coc.session import Session
from arr_coc_lab.evaluate.methods import pick_methods
from arr_coc_lab.evaluate.probes import budget_sweep, contenders, faithfulness
from arr_coc_lab.evaluate.questions import ImageQueries, Query, world_questions
from arr_coc_lab.evaluate.reader import open_reader
from arr_coc_lab.evaluate.scene import Harness
from arr_coc_lab.results.files import decode_kept
from eyes import build, wrapped
from tiny import picture, tiny

PROBES = (
    budget_sweep,
    faithfulness,
    lambda session, question, **more: contenders(session, question, 9, **more),
)
FAMILIES = ("qwen3_vl", "qwen2_5_vl", "llava", "llava_next")
QUESTION = "Where is the door?"
LONGEST = 6
BLIND = ("random", "even grid", "visionzip", "scope", "divprune", "cdpruner+")


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return ARRCOCModel.from_pretrained(strict=True)


@pytest.fixture(scope="module")
def asked() -> ImageQueries:
    """A page of 8 x 8 cells. Its last question needs 6 cells, all that are nearest to its label."""
    return next(iter(world_questions(4, 256, per_page=4)))


@pytest.fixture(scope="module")
def session(model: ARRCOCModel, asked: ImageQueries) -> Session:
    return model.session(asked.image)


@pytest.fixture(scope="module")
def question(asked: ImageQueries) -> str:
    return asked.queries[3].text


@pytest.fixture(scope="module")
def sweep(session: Session, question: str) -> dict[str, Any]:
    return budget_sweep(session, question)


@pytest.fixture(autouse=True)
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models never end an answer by themselves."""
    for module in ("probes", "reader"):
        monkeypatch.setattr(f"arr_coc_lab.evaluate.{module}.LONGEST", LONGEST)


def tiny_session(family: str) -> Session:
    return wrapped(family, "gaze").session(picture(1, (48, 40)))


# ---- the budget -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["prune", "sparse"])
def test_every_point_is_what_the_model_says_with_that_budget(
    session: Session, question: str, sweep: dict[str, Any], mode: str
) -> None:
    points = (sweep if mode == "prune" else budget_sweep(session, question, mode=mode))["points"]
    kept = [point["kept"] for point in points]
    assert {1, 2, 4, 8, 16, 32, 64} <= set(kept)
    assert kept == sorted(set(kept))
    for point in points:
        answer = session.ask(question, budget=point["kept"], mode=mode)
        assert answer.kept == point["kept"]
        assert answer.text == point["answer"]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_cells_are_right(family: str) -> None:
    session = tiny_session(family)
    sweep = budget_sweep(session, QUESTION)
    full = session.ask(QUESTION, mode="full", max_new_tokens=LONGEST)
    last = sweep["points"][-1]
    assert last["kept"] == full.total
    assert sweep["right"] == last["answer"] == full.text
    assert last["right"]
    assert sweep["smallest"] is not None


def test_the_smallest_is_found_between_the_powers_of_two(sweep: dict[str, Any]) -> None:
    told = {point["kept"]: point["right"] for point in sweep["points"]}
    smallest = sweep["smallest"]
    assert 4 < smallest < 8  # else this page tests nothing
    assert all(right for kept, right in told.items() if kept >= smallest)
    assert told[smallest - 1] is False


@pytest.mark.slow
def test_one_right_count_among_wrong_ones_is_not_enough(
    session: Session, question: str, sweep: dict[str, Any]
) -> None:
    another = budget_sweep(session, question, right=sweep["points"][0]["answer"])
    assert another["points"][0]["right"]
    assert not another["points"][-1]["right"]
    assert another["smallest"] is None


@pytest.mark.parametrize("mode", ["prune", "sparse"])
def test_the_log_probability_is_the_base_models_own(session: Session, question: str, mode: str) -> None:
    """From all cells, which no mode has a LoRA for."""
    model, right = session.model, "SJL"
    reader = open_reader(session, question, mode, right)
    batch = session.batch([question], [right])
    pixels = session.inputs(question)["pixel_values"]
    everything = torch.arange(64)
    with torch.no_grad():
        found = reader.logprobs(reader.encode(everything), [everything])[0]
        loss = model.base(**batch, pixel_values=pixels).loss
    assert found == pytest.approx(-float(loss), abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_log_probabilities_are_of_the_tokens_one_by_one(family: str) -> None:
    """From a few cells, and where plain positions have gaps."""
    session = tiny_session(family)
    model = session.model
    reader = open_reader(session, QUESTION, "prune", "door")
    with torch.no_grad():
        keep = reader.decide(5).keep
        features = reader.encode(keep)
        found = reader.logprobs(features, [keep])[0]
        inputs, logprobs = session.batch([QUESTION], ["door"]), []
        start = int((inputs["labels"] == -100).sum())
        for end in range(start, inputs["input_ids"].shape[1]):
            row = {
                name: value[:, :end]
                if name in ("input_ids", "attention_mask", "mm_token_type_ids")
                else value
                for name, value in inputs.items()
                if name != "labels"
            }
            compacted = model.adapter.compact(row, features, [keep], use_cache=False)
            logits = model.base(**compacted.kwargs, use_cache=False).logits[0, -1]
            logprobs.append(float(logits.log_softmax(-1)[inputs["input_ids"][0, end]]))
    assert len(logprobs) == 5  # four letters and the end of the turn
    assert found == pytest.approx(sum(logprobs) / 5, abs=1e-4)


@pytest.mark.slow
def test_right_is_as_from_all_tokens_and_true_is_true(session: Session, question: str) -> None:
    full = session.ask(question, mode="full", max_new_tokens=LONGEST).text
    plain = budget_sweep(session, question)
    assert (plain["right"], plain["right_from"], plain["true_answers"]) == (full, "all tokens", [])
    assert {point["true"] for point in plain["points"]} == {None}
    other = plain["points"][0]["answer"]
    assert other != full
    judged = budget_sweep(session, question, true_answers=[other])
    assert [point["right"] for point in judged["points"]] == [point["right"] for point in plain["points"]]
    assert all(point["true"] is (point["answer"] == other) for point in judged["points"])
    assert budget_sweep(session, question, right=other)["right_from"] == "given"
    rows = contenders(session, question, 1, methods=["random"], true_answers=[other])["rows"]
    assert all(row["true"] is (row["answer"] == other) for row in rows)
    assert faithfulness(session, question, steps=1, draws=1)["right_from"] == "all tokens"


# ---- nulls and rivals -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_contenders_say_what_an_evaluation_says(model: ARRCOCModel, asked: ImageQueries) -> None:
    """Same image, same question, same budget, same seed, and the allocator's own choice first."""
    query = Query("0", asked.queries[3].text, asked.queries[3].answers)
    found = contenders(model.session(asked.image), query.text, 9, right=query.answers[0])
    names = [row["method"] for row in found["rows"]]
    assert names[0] == "arr-coc"
    assert set(names[1:]) == {*BLIND, "fastv", "downsample"}
    assert found["left_out"] == {}
    methods, _ = pick_methods(model, names, [], None)
    harness = Harness(model, methods, exact_match, [9], 1, max_new_tokens=LONGEST)
    record = harness.records(ImageQueries(asked.image, "probe", (query,)), ())[0]
    for row in found["rows"]:
        label = f"{row['method']}@9"
        assert row["answer"] == record["said"][label]
        assert row["right"] == (record["score"][label] == 1)
        assert row["tokens"] == record["tokens"][label]
        if row["keep"] is not None:
            assert row["keep"] == decode_kept(record["kept"][label], 64).nonzero()[0].tolist()
        assert (row["logprob"] is None) == (row["method"] == "fastv")
        assert (row["note"] is None) == (row["method"] not in ("fastv", "downsample"))
        if row["method"] == "fastv":
            assert row["tokens"] > found["budget"]
            assert row["note"].startswith("reads all 64 tokens in its first ")


def test_methods_of_layers_are_cut_where_their_names_say(session: Session, question: str) -> None:
    rows = contenders(session, question, 8, methods=["fastv", "fastv:1", "fastv:3"])["rows"][1:]
    layers = {row["method"]: row["note"].split(" layers")[0].split()[-1] for row in rows}
    assert layers == {"fastv": "2", "fastv:1": "1", "fastv:3": "3"}
    assert len({row["tokens"] for row in rows}) == 3


@pytest.mark.parametrize("mode", ["prune", "sparse"])
def test_ours_comes_first_as_the_model_decides(session: Session, question: str, mode: str) -> None:
    found = contenders(session, question, 0.25, mode=mode, methods=["random"])
    own, random = found["rows"]
    answer = session.ask(question, budget=0.25, mode=mode)
    assert own["method"] == {"prune": "arr-coc", "sparse": "arr-coc sparse"}[mode]
    assert (own["kind"], random["kind"]) == ("ours", "null")
    assert own["keep"] == answer.allocation.keep.tolist()
    assert own["answer"] == answer.text
    assert found["budget"] == len(random["keep"]) == 16


@pytest.mark.parametrize("family", FAMILIES[:3])
def test_with_every_cell_all_say_the_same(family: str) -> None:
    session = tiny_session(family)
    full = session.ask(QUESTION, mode="full", max_new_tokens=LONGEST)
    found = contenders(session, QUESTION, 1.0)
    assert found["budget"] == full.total
    for row in found["rows"]:
        assert row["answer"] == full.text
        assert row["right"]
        assert row["tokens"] == full.total


def test_ours_answers_with_its_lora_and_all_else_is_the_stock_model() -> None:
    built = tiny("qwen3_vl")
    model = ARRCOCModel(built.model, built.processor, strict=True)
    model.loras.add(OWN, 2)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.loras.parameters_of(OWN):
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    session = model.session(picture(1, (48, 40)))
    found = contenders(session, QUESTION, 1.0, methods=["random"], right="door")
    batch = session.batch([QUESTION], ["door"]) | {"pixel_values": session.inputs(QUESTION)["pixel_values"]}
    for row, mode in zip(found["rows"], ("prune", "full"), strict=True):
        assert row["answer"] == session.ask(QUESTION, budget=1.0, mode=mode, max_new_tokens=LONGEST).text
        with torch.no_grad():
            loss = model.adapter_for(mode).model(**batch).loss
        assert row["logprob"] == pytest.approx(-float(loss), abs=1e-4)
    ours, random = found["rows"]
    assert abs(ours["logprob"] - random["logprob"]) > 0.01  # else the LoRA does nothing


def test_what_a_family_lacks_is_left_out_by_name() -> None:
    found = contenders(tiny_session("llava_next"), QUESTION, 5)
    assert set(found["left_out"]) == {"visionzip", "scope", "fastv", "downsample"}
    assert "llava_next" in found["left_out"]["fastv"]
    few = contenders(tiny_session("qwen3_vl"), QUESTION, 1, methods=["downsample"])  # below its least picture
    assert not few["left_out"]
    assert [row["method"] for row in few["rows"]] == ["arr-coc", "downsample"]


# ---- faithfulness ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_ends_of_the_curves_meet(family: str) -> None:
    session = tiny_session(family)
    found = faithfulness(session, QUESTION, steps=3, draws=2, right="door")
    reader = open_reader(session, QUESTION, "prune", "door")
    with torch.no_grad():
        order = reader.decide(1.0).order
        ends = reader.logprobs(reader.encode(order).repeat(2), [order[:1], order[-1:]])
        full = reader.logprobs(reader.encode(order), [order.sort().values])[0]
    assert found["share"] == [0, 1 / 3, 2 / 3, 1]
    assert found["insertion"][0] == pytest.approx(ends[0], abs=1e-5)
    assert found["deletion"][-1] == pytest.approx(ends[1], abs=1e-5)  # one cell stays
    assert found["deletion"][0] == found["insertion"][-1] == pytest.approx(full, abs=1e-6)
    assert found["random"][-1] == found["random_deletion"][0] == [found["deletion"][0]] * 2
    assert found["random_deletion"] == found["random"][::-1]
    assert [len(found[name]) for name in ("deletion", "insertion", "random")] == [4, 4, 4]


def test_insertion_is_the_sweep(session: Session, question: str, sweep: dict[str, Any]) -> None:
    points = {point["kept"]: point["logprob"] for point in sweep["points"]}
    insertion = faithfulness(session, question, steps=4, draws=1)["insertion"]
    for given, kept in zip(insertion, (1, 16, 32, None, 64), strict=True):
        assert kept is None or given == pytest.approx(points[kept], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["prune", "sparse"])
def test_a_trained_map_beats_random_orders(session: Session, question: str, mode: str) -> None:
    areas = faithfulness(session, question, mode=mode)["auc"]
    assert areas["deletion"] < areas["random"] - 0.5
    assert areas["insertion"] > areas["random"] + 0.5


def test_the_area_is_that_under_the_curve(session: Session, question: str) -> None:
    found = faithfulness(session, question, steps=2, draws=2)
    for name in ("deletion", "insertion"):
        first, middle, last = found[name]
        assert found["auc"][name] == pytest.approx((first + 2 * middle + last) / 4)
    first, middle, last = (sum(values) / 2 for values in found["random"])
    assert found["auc"]["random"] == pytest.approx((first + 2 * middle + last) / 4)


# ---- all three ------------------------------------------------------------------------------------------


class Cancelled(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("probe", PROBES)
def test_equal_calls_give_equal_results_and_leave_nothing_behind(
    probe: Any, session: Session, question: str
) -> None:
    before = session.ask(question, budget=9)
    state, shares = torch.get_rng_state(), []
    found = probe(session, question, progress=shares.append)
    assert probe(session, question) == found
    assert json.loads(json.dumps(found, allow_nan=False)) == found

    def cancel(share: float) -> None:
        if share >= 0.3:
            raise Cancelled

    with pytest.raises(Cancelled):
        probe(session, question, progress=cancel)
    assert torch.equal(torch.get_rng_state(), state)
    after = session.ask(question, budget=9)
    assert after.text == before.text
    assert torch.equal(after.allocation.balanced, before.allocation.balanced)
    assert len(shares) > 5
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.3
    assert shares[-1] == 1.0


def test_bad_requests_are_refused_by_name(session: Session, question: str) -> None:
    with pytest.raises(ValueError, match="question is empty"):
        faithfulness(session, " ")
    with pytest.raises(ValueError, match="steps 0 is too small"):
        faithfulness(session, question, steps=0)
    with pytest.raises(ValueError, match="draws 0 is too small"):
        faithfulness(session, question, draws=0)
    assert contenders(session, question, 65, methods=["random"])["budget"] == 64  # as many as there are
    with pytest.raises(ValueError, match="'nothing' is unknown"):
        contenders(session, question, 9, methods=["nothing"])
    for name in ("oracle", "full", "shuffled question", "arr-coc saccade"):
        with pytest.raises(ValueError, match=rf"'{name}' can't be probed.*visionzip"):
            contenders(session, question, 9, methods=[name])


def test_a_failed_allocation_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(kind="stem", strict=False)
    monkeypatch.setattr(model.layer, "relevance", lambda *_: 1 / 0)
    for probe in PROBES:
        with pytest.raises(ValueError, match="allocation failed"):
            probe(model.session(picture(1)), QUESTION)
