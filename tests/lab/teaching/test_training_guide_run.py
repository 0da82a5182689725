"""Runs of the guide's training: figures, goes on as if never cut off, folders of others, one's own images."""

import json
import math
import shutil
import signal

import pytest
import torch
from safetensors.torch import load_file

from arr_coc.guide.guide import GUIDE_FILE, Guide, load_guide
from arr_coc.train.folder import last_checkpoint
from arr_coc.train.loop import LEARNED
from arr_coc_lab.teaching.recipe import load_guide_recipe
from arr_coc_lab.teaching.stages import READS
from arr_coc_lab.teaching.trainer import GuideLearner, newer, rise_and_fall, train_guide


def weights(out):
    return load_file(out / GUIDE_FILE)


def train(recipe, out):
    return train_guide(recipe, out, progress=False, device="cpu")


def lines(out):
    every = [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]
    return [line for line in every if "loss" in line]


@pytest.fixture(scope="module")
def spotted(tiny, tmp_path_factory):
    """Two runs of stage spotting by one step, of seeds 0 and 1: tests read them, or change a copy."""
    folders = [tmp_path_factory.mktemp("spotted") / str(seed) for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        train(tiny(stage="spotting", steps=1, seed=seed), folder)
    return folders


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """A run of both stages, of two steps each, and what it returned."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, train(tiny(steps=2), folder)


@pytest.mark.slow
def test_both_stages_write_a_guide_and_figures(whole):
    folder, result = whole
    assert (result["stage"], result["steps"], result["signal"]) == ("relevance", 2, None)
    assert [(line["stage"], line["step"]) for line in lines(folder)] == [
        ("spotting", 1), ("spotting", 2), ("relevance", 1), ("relevance", 2),
    ]  # fmt: skip
    assert all(
        math.isfinite(value) for line in lines(folder) for value in line.values() if value != line["stage"]
    )
    guide = Guide()
    guide.load_state_dict(weights(folder))
    ready = load_guide(folder, "float32")
    assert torch.equal(ready.head.look.weight, guide.head.look.weight)
    recipe = json.loads((folder / "recipe.json").read_text())
    assert (recipe["stage"], recipe["steps"]) == ("both", 2)


@pytest.mark.slow
def test_relevance_leaves_eyes_and_words_alone(tiny, spotted, tmp_path):
    before = weights(spotted[0])
    train(tiny(stage="relevance", steps=1, init=str(spotted[0])), tmp_path / "run")
    after = weights(tmp_path / "run")
    changed = {name.split(".")[0] for name in after if not torch.equal(before[name], after[name])}
    assert changed == {"reader", "pages", "head"}


@pytest.mark.slow
def test_relevance_takes_the_eyes_of_a_run_that_still_learns(tiny, spotted, tmp_path):
    eyes, start = map(str, spotted)
    train(tiny(stage="relevance", steps=1, init=start, eyes=eyes), tmp_path / "run")
    other, run = weights(spotted[0]), weights(tmp_path / "run")
    kept = {name for name in run if torch.equal(other[name], run[name])}
    assert kept >= {name for name in run if name.split(".")[0] in READS}
    assert "head.last.weight" not in kept


@pytest.mark.slow
def test_two_runs_take_the_mean_of_what_learns(tiny, spotted, tmp_path):
    settings = {"stage": "relevance", "steps": 1, "save_every": 1}
    train(tiny(**settings, init=str(spotted[0])), tmp_path / "alone")
    train(tiny(**settings, init=str(spotted[1]), seed=1), tmp_path / "peer")
    train(tiny(**settings, init=str(spotted[0]), peer=str(tmp_path / "peer")), tmp_path / "beside")
    alone, peer, beside = (weights(tmp_path / name) for name in ("alone", "peer", "beside"))
    for name in alone:
        learns = name.split(".")[0] in ("reader", "pages", "head") and alone[name].is_floating_point()
        mean = (alone[name] + peer[name]) / 2 if learns else alone[name]
        torch.testing.assert_close(beside[name], mean, msg=name)


@pytest.mark.slow
def test_a_peer_that_learned_nothing_since_or_is_elsewhere_is_left_alone(spotted, tmp_path):
    peer = str(tmp_path / "peer")
    assert newer(peer, "relevance", None) is None
    shutil.copytree(spotted[0], tmp_path / "peer")
    assert newer(peer, "relevance", None) is None
    time, held, means = newer(peer, "spotting", None)
    assert held.keys() == means.keys() == weights(tmp_path / "peer").keys()
    assert newer(peer, "spotting", time) is None
    (last_checkpoint(tmp_path / "peer" / "spotting") / LEARNED).write_bytes(b"junk")
    with pytest.raises(ValueError, match="peer"):
        newer(peer, "spotting", None)


def test_the_rate_rises_and_falls():
    assert [rise_and_fall(step, 2, step / 10, 0.4) for step in range(11)] == pytest.approx(
        [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0]
    )
    assert rise_and_fall(9, 2, 0.9, 0.0) == 1.0
    assert rise_and_fall(9, 2, 1.2, 0.4) == 0.0


@pytest.fixture
def stopping(monkeypatch):
    """Ctrl-C comes in the first step after a start."""

    def forward(self, items, real=GuideLearner.forward):
        result = real(self, items)
        signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(GuideLearner, "forward", forward)
    return monkeypatch


@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not_been(tiny, whole, tmp_path, stopping):
    out, recipe = tmp_path / "parts", tiny(steps=2)
    for stage, steps in (("spotting", 1), ("spotting", 2), ("relevance", 1)):
        result = train(recipe, out)
        assert (result["stage"], result["steps"], result["signal"]) == (stage, steps, signal.SIGINT)
        Guide().load_state_dict(weights(out))  # usable at any time
    stopping.undo()
    assert train(recipe, out)["signal"] is None
    one, two = weights(whole[0]), weights(out)
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-5)
    assert [line["step"] for line in lines(out)] == [1, 2, 1, 2]


@pytest.mark.slow
def test_a_finished_run_goes_on_with_more_steps(tiny, spotted, tmp_path):
    shutil.copytree(spotted[0], tmp_path / "run")
    assert train(tiny(stage="spotting", steps=1), tmp_path / "run")["steps"] == 1
    more = tiny(stage="spotting", steps=2, save_every=1, log_every=2)
    assert train(more, tmp_path / "run")["steps"] == 2
    assert [line["step"] for line in lines(tmp_path / "run")] == [1, 2]


@pytest.mark.slow
def test_minutes_end_it(tiny, tmp_path):
    result = train(tiny(steps=10_000, minutes=0.001), tmp_path / "run")
    assert result["stage"] == "relevance"
    assert result["steps"] < 50


@pytest.mark.parametrize("name", ["letter.txt", "guide.safetensors"])
def test_what_others_made_stays(tiny, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=r"holds other files|holds a guide, which this run would overwrite"):
        train(tiny(steps=1), tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


@pytest.mark.slow
def test_another_recipe_does_not_go_on_with_a_run(tiny, spotted):
    with pytest.raises(ValueError, match="holds a run with seed = 0, not 7"):
        train(tiny(stage="spotting", steps=1, seed=7), spotted[0])


@pytest.mark.slow
def test_a_damaged_run_is_refused_in_one_line(tiny, spotted, tmp_path):
    shutil.copytree(spotted[0], tmp_path / "run")
    (last_checkpoint(tmp_path / "run" / "spotting") / "trainer_state.json").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="can't be read") as error:
        train(tiny(stage="spotting", steps=2), tmp_path / "run")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pages": ()}, "pages is missing"),
        ({"stage": "relevance"}, "needs eyes"),
        ({"eyes": "run"}, "for --stage relevance alone"),
        ({"batch": "many"}, "batch is 'many'"),
        ({"bach": 3}, "bach is unknown"),
    ],
)
def test_bad_settings_are_refused_in_one_line(changes, message):
    with pytest.raises(ValueError, match=message) as error:
        load_guide_recipe({"pages": "here", **changes})
    assert "\n" not in str(error.value)
