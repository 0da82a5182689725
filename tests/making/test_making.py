"""The stages that make the bundled model: in a row on tiny pages, what they teach, their command lines."""

from __future__ import annotations

import importlib
import json
import os
import random
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rendered_pages import FIELDS, fill
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor

from arr_coc.choose.stem import Familiarity, Stem, load_stem
from arr_coc.files.saved import BUNDLED
from arr_coc.train.recipe import load_recipe, parse_override
from arr_coc_lab.teaching.page import opened
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.browser.cache import CachedPages
from making import answers, bundled, familiarity, language, packing, reading, rendered, stem, together, vision
from making.inquiry import AskedWindows, inquiries
from making.optimizers import Optimizers, load_checkpoint, save_checkpoint
from making.packing import IGNORED
from making.printed import labels
from making.targets import cell_targets
from making.words import ROLES, build_embeddings, build_roles, spelling_tokenizer
from near import near

ROOT = Path(__file__).parents[2]
BASE = ROOT / "src/arr_coc/bundled/model/model.safetensors"
needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="Muon came with torch 2.9")


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Path:
    return fill(tmp_path_factory.mktemp("pages"))


# ---- the stages, on tiny pages ------------------------------------------------------------------------


@pytest.mark.slow
@needs_muon
def test_from_nothing_to_a_model(tmp_path, tokenizer):
    v = tmp_path / "v.safetensors"
    vision.train(v, [96], 2, 18, 1e-3, 1, until=1)
    vision.train(v, [96], 2, 18, 1e-3, 1, sheets=1.0)
    vision.train(v, [96], 2, 18, 1e-3, 1, until=1)  # past it already: nothing happens
    assert (
        load_checkpoint(
            v, vision.Eyes(bundled.build_model(tokenizer, build_embeddings(tokenizer, bundled.DIM)))
        )
        == 2
    )
    language.train(tmp_path / "l.safetensors", 2, 1, 1e-3, 1)
    together.train(
        tmp_path / "t.safetensors",
        v,
        tmp_path / "l.safetensors",
        [128],
        16,
        1,
        1e-4,
        0.2,
        0.05,
        1,
        None,
        tmp_path / "model",
        sheets=0.5,
    )
    last = json.loads((tmp_path / "t.jsonl").read_text().splitlines()[-1])
    assert 0 <= last["validation"]["all"] <= 1
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path / "model")
    assert type(loaded).__name__ == "Qwen3VLForConditionalGeneration"
    assert AutoProcessor.from_pretrained(tmp_path / "model").tokenizer.chat_template is not None


@pytest.mark.slow
@needs_muon
def test_from_a_model_to_one_that_reads_rendered_pages(pages, tmp_path, monkeypatch):
    eyes, mind, both = (tmp_path / f"{name}.safetensors" for name in ("eyes", "mind", "both"))
    for steps in (1, 2):  # the second call goes on
        reading.train(eyes, pages, pages, BASE, steps, 96, 1e-4, 0.5, 1)
        answers.train(mind, pages, BASE, steps, 1, 1e-4, 0.5, 1)
    assert "held out" in json.loads(eyes.with_suffix(".jsonl").read_text().splitlines()[-1])
    folder = tmp_path / "model"
    rendered.train(both, BASE, eyes, mind, pages, folder, 1, 1e-4, 0.0, 0.1, 1)
    out = tmp_path / "reading.json"
    words = [str(folder), str(out), "--pages", str(pages), "--questions", "2", "--drawn", "1"]
    monkeypatch.setattr(sys, "argv", ["reading.py", *words])
    runpy.run_path(str(ROOT / "runs" / "reading.py"), run_name="__main__")
    result = json.loads(out.read_text())
    assert result["rendered"]["labelled"]["questions"] == 2
    assert result["drawn"]["all"]["questions"] == 1


@pytest.mark.slow
@needs_muon
def test_a_stem_goes_on_where_it_was(tmp_path: Path) -> None:
    out = tmp_path / "stem.safetensors"
    checkpoints = []
    for steps in (2, 3):
        stem.train(out, [256], steps, 64, 2e-3, 0.0, 1, 0.5, 5.0, None)
        checkpoints.append(load_file(out))
    assert [float(weights["state.step.stem.head.1.weight"]) for weights in checkpoints] == [2, 3]
    learned = {name for name, value in checkpoints[0].items() if not torch.equal(value, checkpoints[1][name])}
    assert {name for name in checkpoints[0] if name.startswith("weight.")} - learned <= {
        "weight.stem.gestalt.weight",  # every fourth batch has a gestalt
        "weight.stem.gestalt.bias",
    }


def test_a_batch_of_the_stem_depends_on_its_number_alone() -> None:
    first, later = (stem.StemPages([128, 192], 32, at, 9, 0.5)[5 - at] for at in (0, 5))
    assert first["texts"] == later["texts"]
    assert first["grid"] == later["grid"]
    for name in ("pictures", "words", "glyphs"):
        assert torch.equal(first[name], later[name])


@pytest.mark.slow
def test_familiarity_is_fitted_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (BUNDLED / "allocator").glob("*.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(familiarity, "SIDES", (128,))
    monkeypatch.setattr("making.foreign.SIDES", (128,))
    familiarity.main(tmp_path, 10, 10, tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert {name: row["pictures"] for name, row in report.items()} == {
        "train": 10,
        "validation": 3,
        "test": 2,
        "foreign": 10,
        "other foreign": 2,
    }
    stem, before = load_stem(tmp_path, 192), load_stem(BUNDLED / "allocator", 192)
    assert isinstance(stem, Stem)
    assert isinstance(before, Stem)
    assert isinstance(stem.familiarity, Familiarity)
    old = before.state_dict()
    assert all(
        torch.equal(v, old[k]) for k, v in stem.state_dict().items() if not k.startswith("familiarity")
    )


def test_a_fit_separates_what_can_be_separated() -> None:
    generator = torch.Generator().manual_seed(0)
    own, validation = torch.randn(2, 300, 12, generator=generator)
    foreign = torch.randn(300, 12, generator=generator) + torch.tensor([3.0] * 4 + [0.0] * 8)
    unit = familiarity.fit(own, validation, foreign)
    assert familiarity.share_foreign(unit, validation) <= 0.02
    assert familiarity.share_foreign(unit, foreign) > 0.95


@needs_muon
def test_a_killed_run_goes_on_to_the_same_result(tmp_path):
    def build():
        torch.manual_seed(0)
        net = torch.nn.Sequential()
        net.add_module("blocks", torch.nn.Linear(6, 6))
        net.add_module("head", torch.nn.Linear(6, 2))
        return net, Optimizers(net.named_parameters(), 1e-2)

    def steps(net, optimizer, first, last):
        for step in range(first, last):
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
            optimizer.step(net(x).square().mean(), 1e-2)

    net, optimizer = build()
    steps(net, optimizer, 0, 6)
    other, other_optimizer = build()
    steps(other, other_optimizer, 0, 3)
    save_checkpoint(tmp_path / "run.safetensors", other, other_optimizer, 3)
    resumed, resumed_optimizer = build()
    assert load_checkpoint(tmp_path / "run.safetensors", resumed, resumed_optimizer) == 3
    steps(resumed, resumed_optimizer, 3, 6)
    for a, b in zip(net.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="no weight"):
        load_checkpoint(tmp_path / "run.safetensors", torch.nn.Linear(3, 3))


# ---- what they are taught ------------------------------------------------------------------------------


def test_patchify_is_the_processors_arithmetic(tokenizer):
    page = draw_page(2, (160, 96))
    image = torch.from_numpy(np.array(page.image)).permute(2, 0, 1).float() / 255
    processor = bundled.build_processor(tokenizer)
    batch = processor.image_processor(images=[page.image], return_tensors="pt")
    torch.testing.assert_close(bundled.patchify(image), batch["pixel_values"], atol=1e-6, rtol=0)
    assert batch["image_grid_thw"].tolist() == [[1, 6, 10]]


def test_packed_questions_equal_each_question_alone(tokenizer, model):
    page = draw_page(3, (256, 192))
    questions = list(page.questions)[:3]
    assert len(questions) == 3
    cells = torch.from_numpy(np.argwhere(np.ones((6, 8), bool)))
    batch = language.collate([packing.pack(tokenizer, cells, (6, 8), questions)], tokenizer.pad_token_id)
    image = torch.from_numpy(np.array(page.image)).permute(2, 0, 1).float() / 255
    batch |= {
        "pixels": bundled.patchify(image),
        "grid": torch.tensor([[1, 12, 16]]),
        "kept": torch.ones(48, dtype=torch.bool),
    }
    wanted = batch["labels"] != packing.IGNORED
    processor = bundled.build_processor(tokenizer)
    with torch.no_grad():
        packed, _ = together.answer_logits(model, batch, wanted)
        for number, question in enumerate(questions, start=1):
            content = [{"type": "image"}, {"type": "text", "text": question.text}]
            text = processor.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True
            )
            alone = model(**processor(text=[text], images=[page.image], return_tensors="pt")).logits[0, -1]
            here = (batch["block"][0] == number) & wanted[0]
            assert near(packed[0][here][0], alone)


def test_packed_questions_see_no_other_question(tokenizer):
    block = torch.tensor([0, 0, 1, 1, 2, 2, -1])
    visible = packing.attention(block)[0] == 0
    assert visible[2, :3].all()
    assert not visible[4, 2:4].any()
    assert not visible[:6, 6].any()
    assert not visible[2, 3]


def test_dense_loss_is_small_for_perfect_eyes_only(tokenizer, embeddings):
    roles = build_roles(tokenizer, embeddings)
    words = torch.from_numpy(cell_targets(draw_page(4, (256, 256)))).flatten(1).long()
    perfect = torch.zeros(words.shape[1], bundled.DIM)
    for r, role in enumerate(ROLES):
        there = words[r] >= 0
        perfect[there] += roles.directions[roles.spans[role][0] + words[r][there]]
    good, accuracy = vision.dense_loss(perfect, words, roles)
    bad, _ = vision.dense_loss(torch.zeros_like(perfect), words, roles)
    assert float(good) < 0.2 * float(bad)
    assert min(accuracy.values()) > 0.9


def test_any_text_is_legal_and_comes_back(tokenizer):
    for text in ("What is the invoice number?", "ça va? 数字 🙂\n\t~", "Z9K QQ7", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_perfect_eyes_have_no_loss(pages, tokenizer, embeddings):
    spelling = reading.build_spelling(tokenizer, embeddings)
    batch = reading.Texts(pages, "train", 128, 0, 1, 0.0).cut(random.Random(0))
    eyes = answers.sum_of_pieces(batch["places"].T, batch["counts"].T, spelling, noise=0.0)
    good, figures = reading.print_loss(eyes, batch["places"], batch["counts"], spelling)
    bad, _ = reading.print_loss(torch.zeros_like(eyes), batch["places"], batch["counts"], spelling)
    assert float(good) < 0.3 * float(bad)
    assert figures["piece"] > 0.9
    assert figures["blank"] > 0.95


def test_an_answer_lies_in_the_cells_that_spell_it(pages, tokenizer):
    page = opened(CachedPages(pages, "train")[0])
    words = [word._replace(size=20.0) for word in page.words]
    marks = labels(words, 5, 10)
    questions = list(inquiries(page.questions, words, marks))
    assert [tokenizer.decode(q.tokens) for q in questions] == [value for _, value in FIELDS]
    for inquiry in questions:
        assert len(inquiry.cells) == len(inquiry.tokens) + 1
        for cell, token in zip(inquiry.cells, inquiry.tokens, strict=False):
            assert token - 7 in marks.places[:, *cell]


@pytest.mark.parametrize("pixels", [False, True])
def test_windows_are_asked_with_every_answer_in_sight(pages, tokenizer, pixels):
    fast = spelling_tokenizer(tokenizer)
    batch = AskedWindows(fast, pages, "train", 0, 4, batch=2, pixels=pixels)[1]
    numbers = [number for row in batch["pointers"] for cells in row for number in cells]
    assert len(numbers) == int((batch["labels"] != IGNORED).sum())
    assert min(numbers) >= 0
    assert len(batch["places"]) == (len(batch["kept"]) if pixels else int(batch["kept"].sum()))
    assert int(batch["visual"].sum()) == int(batch["kept"].sum())


# ---- command lines and what is shipped -----------------------------------------------------------------


RECORDER = """#!/usr/bin/env bash
printf -v line '%q ' "$@"
printf '%s\\n' "$line" >> "$RECORD"  # at once: some calls run side by side
"""


def recorded(script: str, folder: Path) -> list[list[str]]:
    """The arguments of every call of Python that a script makes, in an empty folder where nothing is run."""
    commands = folder / "commands"
    commands.mkdir()
    (commands / "python").write_text(RECORDER)
    for name in ("gzip", "cp"):  # of results that nobody made here
        (commands / name).write_text("#!/usr/bin/env bash\n")
    for path in commands.iterdir():
        path.chmod(0o755)
    (folder / "empty").mkdir()
    environment = {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHON": str(commands / "python"),
        "RECORD": str(folder / "record"),
        "OUT": str(folder / "out"),
    }
    subprocess.run(["bash", str(ROOT / script)], cwd=folder / "empty", env=environment, check=True)
    return [shlex.split(line) for line in (folder / "record").read_text().splitlines()]


@pytest.mark.parametrize(
    ("script", "stages"),
    [
        ("runs/bundled.sh", {"vision", "language", "together"}),
        ("runs/reads.sh", {"reading", "answers", "rendered"}),
        ("runs/study.sh", {"stem"}),
    ],
)
def test_every_command_line_of_the_scripts_is_legal(tmp_path: Path, script: str, stages: set[str]) -> None:
    called = set()
    for arguments in recorded(script, tmp_path):
        if "torch.distributed.run" in arguments:
            arguments = arguments[arguments.index("-m", 1) :]
        if arguments[0] != "-m":
            assert arguments[0] == "-" or (ROOT / arguments[0]).is_file(), arguments
        elif arguments[1].startswith("making."):
            module = importlib.import_module(arguments[1])
            module.command_line().parse_args(arguments[2:])
            called.add(arguments[1].removeprefix("making."))
        elif arguments[1:3] == ["arr_coc", "train"]:
            name, *changes = arguments[3 : arguments.index("--out")]
            load_recipe(name, dict(parse_override(change) for change in changes))
        else:
            assert arguments[1] == "arr_coc"
    assert called == stages


def test_the_wheel_holds_nothing_of_making() -> None:
    builders = pytest.importorskip("hatchling.builders.wheel")
    builder = builders.WheelBuilder(str(ROOT))
    files = {file.distribution_path for file in builder.recurse_included_files()}
    assert {"arr_coc/train/trainer.py", "arr_coc/train/recipes/relevance.toml"} <= files
    assert not {file for file in files if not file.startswith("arr_coc/")}
    stages = {path.name for path in (ROOT / "making").glob("*.py")} - {"__init__.py"}
    assert not stages & {file.removeprefix("arr_coc/train/") for file in files}
