"""The commands of a study: what they print and write, that they go on, and what they refuse."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from arr_coc.cli import main
from arr_coc.data import metrics
from arr_coc.model import ARRCOCModel
from arr_coc.train.recipe import recipes
from arr_coc_lab.cli.report import COLUMNS
from arr_coc_lab.data import SHORT
from arr_coc_lab.data import metrics as lab_metrics
from arr_coc_lab.world import draw_page
from command_line import run, run_json
from each import each
from tiny import picture, save_tiny

Capture = pytest.CaptureFixture[str]
QUESTION = "What is the number?"
TIMES = re.compile(rb', "ms": .*')
EVAL = "eval --size 128 --questions 3 --methods full,arr-coc,random --budgets 8,auto --timed 1".split()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny Qwen3-VL with its processor as a folder."""
    folder = tmp_path_factory.mktemp("tiny") / "base"
    save_tiny("qwen3_vl", folder)
    return str(folder)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Drawn pages with questions and boxes."""
    folder = tmp_path_factory.mktemp("pages")
    lines = []
    for seed in range(4):
        page = draw_page(seed, (192, 160), "train", void=False)
        page.image.save(folder / f"{seed}.png")
        for q in [q for q in page.questions if q.evidence][:2]:
            row = {"image": f"{seed}.png", "question": q.text, "answer": q.answer, "boxes": q.evidence}
            lines.append(json.dumps(row) + "\n")
    (folder / "questions.jsonl").write_text("".join(lines))
    return str(folder)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def refused(capsys: Capture, *words: str) -> str:
    """The one line that a bad use is answered with."""
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, ""), err
    assert err.startswith("arr-coc: ")
    assert err.count("\n") == 1
    return err


class TestTrain:
    def test_list_names_the_built_in_recipes(self, capsys: Capture) -> None:
        code, out, _ = run(capsys, "train", "list")
        assert code == 0
        lines = out.split("\n\n")[0].splitlines()
        assert [line.split()[0] for line in lines] == list(recipes())
        assert all(line.endswith(".") and len(line) <= 80 for line in lines)  # a sentence each
        assert "not-one" in refused(capsys, "train", "list", "not-one")

    def test_list_describes_a_recipe(self, capsys: Capture) -> None:
        facts = run_json(capsys, "train", "list")
        assert set(facts) == set(recipes())
        code, out, _ = run(capsys, "train", "list", *recipes())
        assert code == 0
        for name, path in recipes().items():
            assert name in out.splitlines()
            words = [
                word for line in path.read_text().splitlines() if line[:1] == "#" for word in line[1:].split()
            ]
            for text in (facts[name], out):  # nothing is cut
                assert " ".join(words) in " ".join(text.split())
        assert max(map(len, out.splitlines())) <= 80
        assert list(run_json(capsys, "train", "list", "hard")) == ["hard"]

    @pytest.mark.slow
    def test_a_recipe_with_changes_writes_an_allocator(self, capsys: Capture, base: str, pages: str) -> None:
        changes = (f"model={base}", f"data=jsonl:{pages}", "steps=2", "warmup=1", "log_every=1", "workers=0")
        code, out, err = run(capsys, "train", "relevance", *changes, "layer.explore=0.25", "--out", "made")
        assert code == 0, err
        for text in ("folder", "made", "2 steps", "learned", "loss", "of the evidence", "ask IMAGE QUESTION"):
            assert text in out
        assert "{" not in out  # no dictionary of the Trainer's
        assert "step 1 of 2: loss" in err
        recipe = json.loads(Path("made/recipe.json").read_text())
        assert (recipe["stage"], recipe["steps"], recipe["data"]) == ("relevance", 2, [f"jsonl:{pages}"])
        assert [json.loads(line)["step"] for line in Path("made/curve.jsonl").open()][:2] == [1, 2]
        model = ARRCOCModel.from_pretrained("made", strict=True)
        assert model.layer.trained
        assert model.layer.config.explore == 0.25
        assert model.ask(Path(pages) / "0.png", "What?", budget=5, max_new_tokens=2).kept == 5
        line = ("train", "relevance", *changes, "layer.explore=0.25", "--out", "made")
        assert "holds a finished run" in refused(capsys, *line)

    @pytest.mark.slow
    def test_json_and_a_folder_of_images_with_questions_alone(
        self, capsys: Capture, base: str, tmp_path: Path
    ) -> None:
        picture(1).save(tmp_path / "one.png")
        (tmp_path / "questions.jsonl").write_text(json.dumps({"image": "one.png", "question": "What?"}))
        changes = (f"model={base}", f"data=folder:{tmp_path}", "precision=float32", "steps=2", "workers=0")
        facts = run_json(capsys, "train", "distill", *changes, "-o", "made")
        assert facts["folder"] == "made"
        assert facts["steps"] == 2
        assert facts["learned"] > 1000
        assert Path("made/arr_coc.safetensors").is_file()

    @each(
        ("words", "message"),
        [
            (["relevanse"], "recipe 'relevanse' is unknown: use one of .*relevance"),
            (["relevance", "stepps=2"], "stepps is unknown: use steps"),
            (["relevance", "steps"], "'steps' is no change of a recipe: write KEY=VALUE"),
            (["relevance", "steps=few"], "steps is 'few': input should be a valid integer"),
            (["relevance", "steps=0"], "steps is 0: input should be greater than or equal to 1"),
            (["relevance", "data=jsonl:nowhere", "steps=1"], "nowhere"),
            (["relevance", "model=./nowhere", "steps=1"], "model folder 'nowhere' doesn't exist"),
            (["relevance", "--dtype", "float16"], "precision is 'float16'|precision has 'float16'"),
            (["relevance", "lora=4"], "lora is no setting of stage 'relevance', but of answers"),
            ([], "(?i)missing argument 'RECIPE'"),
            (["relevance", "--outt", "x"], "(?i)no such option:? '?--outt"),
        ],
    )
    def test_refusals(self, capsys: Capture, words: list[str], message: str) -> None:
        assert re.search(message, refused(capsys, "train", *words))

    def test_a_device_that_is_not_there_leaves_no_folder(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
        message = refused(capsys, "train", "relevance", "--device", "cuda")
        assert "device 'cuda' can't be used on this machine" in message
        assert "device 'gpu' is unknown" in refused(capsys, "train", "relevance", "--device", "gpu")
        assert list(Path().iterdir()) == []

    def test_one_gpu_of_several_is_chosen_elsewhere(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: torch.device("cuda"))
        monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
        monkeypatch.setattr("torch.accelerator.device_count", lambda: 2)
        message = refused(capsys, "train", "relevance", "--device", "cuda:1")
        assert "set CUDA_VISIBLE_DEVICES=1 and use cuda" in message

    @pytest.mark.slow
    def test_dtype_is_the_recipes_precision(self, capsys: Capture, base: str, pages: str) -> None:
        changes = (f"model={base}", f"data=jsonl:{pages}", "steps=1", "workers=0")
        run_json(capsys, "train", "relevance", *changes, "--dtype", "bfloat16", "--device", "cpu")
        assert json.loads(Path("arr-coc-allocator/recipe.json").read_text())["precision"] == "bfloat16"

    def test_a_folder_that_cannot_be_made(self, capsys: Capture, base: str) -> None:
        Path("taken").write_text("a file")
        assert "taken" in refused(capsys, "train", "relevance", f"model={base}", "--out", "taken/inside")


@pytest.fixture(scope="module")
def printed() -> io.StringIO:
    """What the run of `measured` printed."""
    return io.StringIO()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, printed: io.StringIO) -> Path:
    """The files of one run on the bundled model."""
    folder = tmp_path_factory.mktemp("measured")
    with redirect_stdout(printed):
        assert main([*EVAL, "--out", str(folder / "run")]) == 0
    return folder


class TestEval:
    @pytest.mark.slow
    def test_it_writes_lines_summary_and_plot_and_goes_on(
        self, capsys: Capture, measured: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert {path.name for path in measured.iterdir()} == {"run.jsonl", "run.json", "run.png"}
        assert Image.open(measured / "run.png").width > 800
        header, *records = [json.loads(line) for line in (measured / "run.jsonl").open()]
        assert len(records) == 3
        assert [("ms" in record) for record in records].count(True) == 1
        assert all(
            set(record["said"]) == {"full", "arr-coc@8", "arr-coc@auto", "random@8"} for record in records
        )
        assert "--methods full,arr-coc,random" in header["header"]["command"]

        before = {path.name: path.read_bytes() for path in measured.glob("run.json*")}
        with monkeypatch.context() as patch:
            patch.setattr("arr_coc_lab.evaluate.run.Harness.records", None)  # nothing is asked again
            code, out, _ = run(capsys, *EVAL, "--out", str(measured / "run"))
        assert code == 0
        assert {path.name: path.read_bytes() for path in measured.glob("run.json*")} == before
        summary = json.loads(before["run.json"])
        for method, row in summary["methods"].items():
            assert re.search(rf"{re.escape(method)}\W.* {row['score']:.1%} ", out)
        assert "run.png" in out

    @pytest.mark.slow
    def test_a_run_elsewhere_ends_in_the_same_bytes_but_for_times(
        self, capsys: Capture, measured: Path
    ) -> None:
        summary = run_json(capsys, *EVAL, "--out", "again")
        assert summary["questions"] == 3
        files = (measured / "run.jsonl", Path("again.jsonl"))
        first, again = ([TIMES.sub(b"", line) for line in file.open("rb")] for file in files)
        assert first[1:] == again[1:]
        (one,), (other,) = (json.loads(lines[0]).values() for lines in (first, again))
        assert {name for name in one if one[name] != other[name]} == {"command"}

    def test_full_alone_has_a_table_and_no_plot(self, capsys: Capture, base: str) -> None:
        line = ("eval", "-m", base, "--size", "64", "--questions", "1", "--methods", "full", "--timed", "0")
        code, out, _ = run(capsys, *line)
        assert code == 0
        assert "| full |" in out
        assert {path.name for path in Path().iterdir()} == {"arr-coc-eval.jsonl", "arr-coc-eval.json"}

    @each(
        ("words", "message"),
        [
            (["--budgets", "many"], "many"),
            (["--budgets", ""], "budget"),
            (["--methods", "full,magic"], "magic"),
            (["--data", "textvqa"], "data 'textvqa' is not there: give a folder of images .* or NAME:DIR"),
            (["--data", "nothing:here"], "data set 'nothing' is unknown"),
            (["--data", "textvqa:nowhere"], "nowhere"),
            (["--model", "./nowhere"], "model folder 'nowhere' doesn't exist"),
            (["--relevance", "giude"], "relevance 'giude' is unknown"),
            (["--relevance", "boxes:nowhere.json"], "nowhere.json"),
            (["--split", "tests"], "tests"),
            (["--allocator", "nowhere=./nowhere"], "nowhere"),
            (["--questions", "0"], "(?i)--questions"),
        ],
    )
    def test_refusals(self, capsys: Capture, words: list[str], message: str) -> None:
        assert re.search(message, refused(capsys, "eval", "--questions", "1", *words))
        assert list(Path().iterdir()) == []

    @pytest.mark.slow
    def test_a_file_of_another_run_and_a_folder_that_cannot_be_made(
        self, capsys: Capture, measured: Path
    ) -> None:
        another = [word.replace("128", "160") for word in EVAL]
        message = refused(capsys, *another, "--out", str(measured / "run"))
        assert "its size is 128, now 160" in message
        Path("taken").write_text("a file")
        assert "choose another with --out" in refused(capsys, *EVAL, "--out", "taken/run")


class TestReport:
    @pytest.mark.slow
    def test_lines_packed_lines_and_summary_give_the_same_table(
        self, capsys: Capture, measured: Path, printed: io.StringIO
    ) -> None:
        Path("packed.jsonl.gz").write_bytes(gzip.compress((measured / "run.jsonl").read_bytes()))
        for name in ("run.jsonl", "run.json"):
            Path(name).write_bytes((measured / name).read_bytes())
        for name in ("run.jsonl", "run.json", "packed.jsonl.gz"):
            code, out, _ = run(capsys, "report", name)
            assert code == 0
            assert out.split("picture")[0] == printed.getvalue().split("picture")[0]
            picture = Path(name.split(".json")[0] + ".png")
            assert picture.name in out
            assert Image.open(picture).width > 800
            picture.unlink()
        assert run_json(capsys, "report", "run.jsonl") == json.loads(Path("run.json").read_text())

    @pytest.mark.slow
    def test_other_columns_and_another_picture(self, capsys: Capture, measured: Path) -> None:
        tables = set()
        for columns in COLUMNS:
            line = ("report", str(measured / "run.json"), "--columns", columns, "-o", "a.png")
            code, out, err = run(capsys, *line)
            assert code == 0, err
            tables.add(out)
        assert len(tables) == len(COLUMNS)
        assert [path.name for path in Path().iterdir()] == ["a.png"]

    def test_columns_are_not_the_projects_own_targets(self, capsys: Capture, measured: Path) -> None:
        message = refused(capsys, "report", str(measured / "run.json"), "--columns", "targets")
        assert "families" in message

    @pytest.mark.slow
    def test_parts_joined_are_the_whole_run(self, capsys: Capture) -> None:
        small = ["eval", "--size", "128", "--questions", "5", "--per-image", "2", "--methods", "full,random"]
        small += ["--budgets", "4", "--timed", "0"]
        run(capsys, *small, "--out", "whole")
        for part in (1, 2):
            run(capsys, *small, "--part", f"{part}/2", "--out", f"part{part}")
        code, table, _ = run(capsys, "report", "part2.jsonl", "part1.jsonl", "--out", "joined")
        assert code == 0
        whole, joined = (Path(f"{name}.jsonl").read_text().splitlines() for name in ("whole", "joined"))
        assert whole[1:] == joined[1:]
        assert (
            json.loads(Path("joined.json").read_text())["methods"]
            == json.loads(Path("whole.json").read_text())["methods"]
        )
        assert "random@4" in table
        assert "give each part of one run once" in refused(
            capsys, "report", "part1.jsonl", "part1.jsonl", "--out", "x"
        )
        assert "part '3' is not I/N" in refused(capsys, *small, "--part", "3", "--out", "x")

    @each(
        ("name", "content"),
        [
            ("a.json", "garbage"),
            ("a.json", "{}"),
            ("a.json", "[]"),
            ("a.jsonl", "garbage\n"),
            ("a.jsonl", "[]\n"),
            ("a.jsonl", '{"header": {}}\n'),
            ("a.jsonl", '{"header": {}}\n{"id": "1"}\n'),
            ("a.jsonl.gz", "garbage"),
            ("a.json", None),
            ("a.jsonl", None),
            ("a.txt", None),
        ],
    )
    def test_garbage_is_refused(self, capsys: Capture, name: str, content: str | None) -> None:
        if content is not None:
            Path(name).write_text(content)
        if name == "a.txt":
            Path(name).mkdir()
        message = refused(capsys, "report", name)
        assert content == '{"header": {}}\n' or name in message
        assert not list(Path().glob("*.png"))

    def test_a_picture_that_cannot_be_written(self, capsys: Capture, measured: Path) -> None:
        message = refused(capsys, "report", str(measured / "run.json"), "--out", "nowhere/a.png")
        assert "choose another with --out" in message


# ---- public data sets, in their own formats ------------------------------------------------------------


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def textvqa(folder: Path, answer: str) -> Path:
    row = {"question": QUESTION, "image_id": "a", "question_id": 1, "answers": [answer, *["other"] * 9]}
    write(folder / "TextVQA_0.5.1_val.json", {"data": [row]})
    return folder / "train_images/a.jpg"


def vqav2(folder: Path, answer: str) -> Path:
    row = {"image_id": 42, "question_id": 42001}
    write(
        folder / "v2_OpenEnded_mscoco_val2014_questions.json", {"questions": [row | {"question": QUESTION}]}
    )
    people = [{"answer": text} for text in (answer, answer, *["other"] * 8)]
    annotation = {"question_type": "what", "answer_type": "other", "answers": people}
    write(folder / "v2_mscoco_val2014_annotations.json", {"annotations": [row | annotation]})
    return folder / "val2014/COCO_val2014_000000000042.jpg"


def docvqa(folder: Path, answer: str) -> Path:
    row = {
        "questionId": 1,
        "question": QUESTION,
        "image": "documents/a.png",
        "answers": [answer, "other"],
        "question_types": ["form"],
    }
    write(folder / "val_v1.0_withQT.json", {"data": [row]})
    return folder / "documents/a.png"


def chartqa(folder: Path, answer: str) -> Path:
    write(folder / "test_human.json", [{"imgname": "a.png", "query": QUESTION, "label": answer}])
    write(folder / "test_augmented.json", [])
    return folder / "png/a.png"


def gqa(folder: Path, answer: str) -> Path:
    row = {"question": QUESTION, "imageId": "a", "answer": answer, "types": {}, "fullAnswer": answer}
    write(folder / "testdev_balanced_questions.json", {"1": row})
    return folder / "images/a.jpg"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "metric", "said", "answer", "score"),
    [
        (textvqa, lab_metrics.vqa_accuracy, "Seventeen.", "seventeen", 0.3),  # one person of ten
        (vqav2, lab_metrics.vqa_accuracy, "ten", "10", 0.6),  # two people
        (docvqa, metrics.anls, "seventeen", "seventeenth", 0.8182),
        (chartqa, lab_metrics.relaxed_accuracy, "17.5", "18", 1.0),  # within 5 %
        (gqa, metrics.loose_match, "seventeen", "eighteen", 0.0),
    ],
)
def test_public_data_sets_are_scored_by_their_own_metric(
    capsys: Capture,
    base: str,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path, str], Path],
    metric: Callable[..., float],
    said: str,
    answer: str,
    score: float,
) -> None:
    """A random model's words are noise, so what is said is given; all else is the run's own."""
    monkeypatch.setattr("arr_coc_lab.evaluate.scene.Harness._answer", lambda *asked: [said] * len(asked[3]))
    image = make(Path("data"), answer)
    image.parent.mkdir(parents=True)
    picture(1).save(image)
    line = ("eval", "--data", f"{make.__name__}:data", "-m", base, "--methods", "full,arr-coc,random")
    summary = run_json(capsys, *line, "--budgets", "5", "--timed", "0", "--out", "run")
    assert summary["metric"] == metric.__name__.replace("_", " ")
    assert {name: row["score"] for name, row in summary["methods"].items()} == dict.fromkeys(
        ("full", "arr-coc@5", "random@5"), score
    )
    _, record = (json.loads(row) for row in Path("run.jsonl").open())
    assert record["question"] == QUESTION + SHORT
    assert answer in record["answers"]
    assert record["image"] == f"{make.__name__}:{image.relative_to('data')}"
    assert record["tokens"]["arr-coc@5"] == 5


@pytest.mark.slow
def test_a_question_is_scored_by_its_own_metric(
    capsys: Capture, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OCRBench scores formulas without their spaces, all else with them."""
    monkeypatch.setattr("arr_coc_lab.evaluate.scene.Harness._answer", lambda *asked: ["x+1"] * len(asked[3]))
    rows = [
        {"dataset_name": name, "id": 1, "image_path": "a.png", "question": QUESTION, "answers": "x + 1"}
        for name in ("HME100k", "docVQA")
    ]
    write(Path("data/OCRBench.json"), [row | {"type": row["dataset_name"]} for row in rows])
    picture(1).save(Path("data/a.png"))
    run_json(
        capsys,
        "eval",
        "--data",
        "ocrbench:data",
        "-m",
        base,
        "--methods",
        "full",
        "--timed",
        "0",
        "--out",
        "run",
    )
    _, *records = (json.loads(row) for row in Path("run.jsonl").open())
    assert {record["family"]: record["score"]["full"] for record in records} == {"HME100k": 1, "docVQA": 0}


@pytest.mark.slow
def test_answers_on_a_data_set_are_the_models(capsys: Capture, base: str) -> None:
    image = textvqa(Path("data"), "seventeen")
    image.parent.mkdir(parents=True)
    picture(1).save(image)
    line = ("eval", "--data", "textvqa:data", "-m", base, "--methods", "full,arr-coc", "--budgets", "5")
    run_json(capsys, *line, "--timed", "0", "--out", "run")
    _, record = (json.loads(row) for row in Path("run.jsonl").open())
    model = ARRCOCModel.from_pretrained(base)
    for name, mode in (("full", "full"), ("arr-coc@5", "prune")):
        answer = model.ask(image, QUESTION + SHORT, mode=mode, budget=5)
        assert record["said"][name] == answer.text
        assert record["score"][name] == lab_metrics.vqa_accuracy(answer.text, ["seventeen", *["other"] * 9])
