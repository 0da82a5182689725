"""The command line: what it prints, writes and returns."""

from __future__ import annotations

import errno
import inspect
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import arr_coc
from arr_coc import session
from arr_coc.choose import stopwatch
from arr_coc.choose.allocation import Allocation, evidence_text
from arr_coc.choose.keep_list import KeepList
from arr_coc.cli import inputs, main
from arr_coc.cli.ask import ask_command
from arr_coc.files.images import open_image
from arr_coc.guide.guide import Guide, load_guide, save_guide
from arr_coc.model import ARRCOCModel
from arr_coc.modes.call import Prepared
from arr_coc.pixels.units import unit_evidence
from arr_coc.selector import Selector
from arr_coc.trace.trace import Trace
from command_line import run, run_json
from launching import PACKAGES
from tiny import picture

ENVIRONMENT = os.environ | {"PYTHONPATH": PACKAGES}
STAGES = set(stopwatch.STAGES)
KEYS = {
    "images",
    "answer",
    "kept",
    "total",
    "read",
    "grid",
    "magnified",
    "mode",
    "note",
    "foreign",
    "budget",
    "fallback",
    "evidence",
    "ms",
    "full",
}


class TestAsk:
    def test_a_trace_takes_every_option(
        self, capsys: pytest.CaptureFixture[str], image: str, folder: str
    ) -> None:
        """Each line is accepted with --trace as it is without, and the trace is of the same answer."""
        lines = [
            ("--mode", "sparse", "--magnify", "2", "--budget", "20", "--max-new-tokens", "2", "--compare"),
            ("--mode", "saccade", "--gestalt", "pool4", "--evidence", "0,0,9,9", "--strict"),
            ("--coverage", "0.8", "--relevance", "guide", "--device", "cpu", "--dtype", "float32"),
        ]
        others = {"words", "trace", "as-json", "out"}  # of the output alone
        others |= {"model", "allocator", "guide", "page", "fps"}  # of what is opened, not of how it is asked
        named = {name.replace("_", "-") for name in inspect.signature(ask_command).parameters}
        covered = {word.removeprefix("--") for line in lines for word in line if word.startswith("--")}
        assert named - others == covered
        for line in lines:
            words = ("ask", image, "What is it?", "-m", folder, *line)
            alone = run_json(capsys, *words)
            both = run_json(capsys, *words, "--trace", "a.safetensors")
            traced = Trace.load("a.safetensors")
            names = ("answer", "kept", "total", "read", "mode", "note", "budget")
            facts = {name: getattr(traced, name) for name in names}
            facts["magnified"] = list(traced.magnified or ())
            assert facts == {name: alone[name] for name in facts} == {name: both[name] for name in facts}

    @pytest.mark.slow
    def test_smoke(self, capsys: pytest.CaptureFixture[str], image: str, folder: str) -> None:
        code, out, err = run(capsys, "ask", image, "What is it?", "--model", folder, "--budget", "5")
        assert (code, err) == (0, "")
        for text in (image, "What is it?", "5 of 48 (10%)", "arr-coc-ask.png", "choosing", "encode", "total"):
            assert text in out
        assert Image.open("arr-coc-ask.png").width > 1000
        assert [path.name for path in Path().iterdir()] == ["arr-coc-ask.png"]

    def test_json(self, capsys: pytest.CaptureFixture[str], image: str, folder: str) -> None:
        facts = run_json(capsys, "ask", image, "What is it?", "-m", folder, "-b", "5")
        assert set(facts) == KEYS
        assert set(facts["ms"]) == STAGES
        assert (facts["kept"], facts["total"], facts["grid"]) == (5, 48, [1, 6, 8])
        assert (facts["mode"], facts["budget"], facts["fallback"], facts["full"]) == (
            "prune",
            5,
            False,
            None,
        )
        assert list(Path().iterdir()) == []  # a picture only where one was asked for

    @pytest.mark.slow
    def test_says_what_the_model_says(
        self, capsys: pytest.CaptureFixture[str], image: str, folder: str
    ) -> None:
        facts = run_json(capsys, "ask", image, "What is it?", "-m", folder, "-b", "0.5")
        answer = ARRCOCModel.from_pretrained(folder).ask(image, "What is it?", budget=0.5)
        assert (facts["answer"], facts["kept"], facts["budget"]) == (answer.text, 24, 0.5)

    @pytest.mark.slow
    def test_compare(self, capsys: pytest.CaptureFixture[str], image: str, folder: str) -> None:
        facts = run_json(capsys, "ask", image, "What is it?", "-m", folder, "-b", "2", "--compare")
        assert set(facts["full"]) == {"answer", "ms"}
        assert set(facts["full"]["ms"]) == STAGES
        full = ARRCOCModel.from_pretrained(folder).ask(image, "What is it?", mode="full")
        assert facts["full"]["answer"] == full.text
        assert facts["kept"] == 2
        code, out, _ = run(capsys, "ask", image, "What is it?", "-m", folder, "-b", "2", "--compare")
        assert code == 0
        assert "\nprune " in out
        assert "\nall tokens " in out
        assert "full answer" in out

    def test_default_budget_is_cut_to_the_image(
        self, capsys: pytest.CaptureFixture[str], image: str, folder: str
    ) -> None:
        assert run_json(capsys, "ask", image, "What is it?", "-m", folder)["kept"] == 48

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp"])
    def test_out(self, capsys: pytest.CaptureFixture[str], image: str, folder: str, name: str) -> None:
        run_json(capsys, "ask", image, "What is it?", "-m", folder, "--out", name)
        assert Image.open(name).width > 1000

    @pytest.mark.slow
    def test_a_trace_has_the_answer_that_is_printed(
        self, capsys: pytest.CaptureFixture[str], image: str, folder: str
    ) -> None:
        picture(2, (64, 64)).save("other.png")
        for names in ((image,), (image, "other.png")):
            words = ("ask", *names, "What is it?", "-m", folder, "--trace", "a.safetensors")
            short = run_json(capsys, *words, "--max-new-tokens", "2")["answer"]
            assert Trace.load("a.safetensors").answer == short
            assert run_json(capsys, *words)["answer"] != short

    @pytest.mark.slow
    def test_answers_are_not_markup(
        self,
        capsys: pytest.CaptureFixture[str],
        image: str,
        folder: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        code, out, _ = run(capsys, "ask", image, "[red]is it [/b]?", "-m", folder)
        assert code == 0
        assert "[red]is it [/b]?" in out

    @pytest.mark.slow
    def test_fallback_is_said(
        self,
        capsys: pytest.CaptureFixture[str],
        image: str,
        folder: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("scorer out of order")

        monkeypatch.setattr("arr_coc.choose.layer.ARRCOCLayer.scores", broken)
        code, out, err = run(capsys, "ask", image, "What is it?", "-m", folder, "-b", "3", "--json")
        facts = json.loads(out)
        assert code == 0
        assert (facts["fallback"], facts["kept"]) == (True, 48)
        assert "scorer out of order" in err
        assert "Traceback" not in err
        code, out, _ = run(capsys, "ask", image, "What is it?", "-m", folder, "-b", "3")
        assert "all tokens were used" in out
        code, out, err = run(capsys, "ask", image, "What is it?", "-m", folder, "-b", "3", "--strict")
        assert (code, out) == (1, "")
        assert err == "arr-coc: failed: RuntimeError: scorer out of order (--debug shows where)\n"

    @pytest.mark.slow
    def test_sample(
        self,
        capsys: pytest.CaptureFixture[str],
        folder: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        picture(2, (48, 48)).save(tmp_path / "sample.png")
        (tmp_path / "sample.json").write_text(json.dumps({"question": "Which?", "answer": "this"}))
        monkeypatch.setattr(inputs, "SAMPLE", tmp_path / "sample.json")
        code, out, _ = run(capsys, "ask", "-m", folder)
        assert code == 0
        assert "Which?" in out
        assert "built-in sample" in out


class TestLook:
    @pytest.mark.slow
    def test_smoke(self, capsys: pytest.CaptureFixture[str], image: str, folder: str) -> None:
        code, out, err = run(
            capsys, "look", image, "What is it?", "-m", folder, "-b", "5", "--save", "a.safetensors"
        )
        assert (code, err) == (0, "")
        for text in ("5 of 48 (10%)", "saliency 0.", "arr-coc-look.png", "a.safetensors"):
            assert text in out
        assert Image.open("arr-coc-look.png").width > 1000
        assert Allocation.load("a.safetensors").kept == 5

    def test_json_is_the_record(self, capsys: pytest.CaptureFixture[str], image: str, folder: str) -> None:
        record = run_json(capsys, "look", image, "What is it?", "-m", folder, "-b", "5")
        expected = ARRCOCModel.from_pretrained(folder).look(image, "What is it?", budget=5)
        assert set(record.pop("coupling")) == {"confidence", "whole", "odd", "printed", "matches"}
        boxes = unit_evidence(open_image(image), expected)
        assert [(one["box"], one["cells"]) for one in record.pop("evidence")] == [
            (list(one.box), one.cells) for one in boxes
        ]
        assert record == expected.to_dict()
        assert list(Path().iterdir()) == []

    def test_a_keep_list_is_read_back(
        self, capsys: pytest.CaptureFixture[str], image: str, folder: str
    ) -> None:
        code, out, _ = run(capsys, "look", image, "What is it?", "-b", "5", "--keep", "keep.json")
        assert code == 0
        assert "keep.json" in out
        alone = KeepList.load("keep.json")
        assert (alone.model_type, alone.size, alone.question) == (None, (64, 48), "What is it?")
        assert alone.is_of(open_image(image)) is True
        record = run_json(
            capsys, "look", image, "What is it?", "-m", folder, "-b", "5", "--keep", "keep.json"
        )
        one = KeepList.load("keep.json")
        assert (list(one.keep), list(one.grid)) == (record["keep"], record["grid"])
        model = ARRCOCModel.from_pretrained(folder)
        assert one.model_type == model.config.model_type
        named = model.ask(image, "What is it?", mode="prune", cells="keep.json", max_new_tokens=1)
        assert named.allocation.keep.tolist() == record["keep"]

    def test_a_coverage_in_place_of_a_budget(
        self, capsys: pytest.CaptureFixture[str], image: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        row = {"version": load_guide().version, "least": 0.0, "edges": [], "depths": {"0.9": [0.5]}}
        monkeypatch.setattr("arr_coc.relevance.coverage.coverage_table", lambda: {"guide": row})
        record = run_json(capsys, "look", image, "What is it?", "--coverage", "0.9")
        expected = Selector()(image, "What is it?", coverage=0.9)
        assert (record["budget"], record["keep"]) == ("coverage 0.9", expected.keep.tolist())
        row["least"] = 1.0
        code, out, _ = run(capsys, "look", image, "What is it?", "--coverage", "0.9")
        assert (code, "coverage 0.9 isn't promised" in " ".join(out.split())) == (0, True)
        assert f"evidence       {evidence_text(unit_evidence(open_image(image), expected))}" in out

    def test_a_coverage_that_is_refused(self, capsys: pytest.CaptureFixture[str], image: str) -> None:
        for words, reason in (
            (("--coverage", "0.9", "-b", "5"), "budget 5 and coverage 0.9 are both named"),
            (("--coverage", "1"), "coverage 1.0 is no share above 0 and below 1"),
            (("--coverage", "0.9", "--relevance", "boxes:boxes.json"), "coverage isn't calibrated"),
        ):
            Path("boxes.json").write_text("[]")
            code, out, err = run(capsys, "look", image, "What is it?", *words)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert reason in err

    @pytest.mark.slow
    def test_an_own_guide(self, capsys: pytest.CaptureFixture[str], image: str, tmp_path: Path) -> None:
        save_guide(Guide(), tmp_path / "mine")
        words = ("look", image, "What is it?", "-b", "5")
        own = run_json(capsys, *words, "--guide", str(tmp_path / "mine"))
        assert own["coupling"]["confidence"] != run_json(capsys, *words)["coupling"]["confidence"]
        code, _, err = run(capsys, *words, "--guide", str(tmp_path))
        assert (code, "has no guide" in err, err.count("\n")) == (2, True, 1)


class TestDraw:
    def test_smoke(self, capsys: pytest.CaptureFixture[str]) -> None:
        from arr_coc_lab.world import draw_page

        facts = run_json(
            capsys, "draw", "--count", "2", "--size", "320x256", "--seed", "5", "--out", "pages/new"
        )
        names = sorted(path.name for path in Path("pages/new").iterdir())
        assert names == ["page-0000.png", "page-0001.png", "questions.jsonl"]
        rows = [json.loads(line) for line in Path("pages/new/questions.jsonl").read_text().splitlines()]
        assert facts == {"folder": "pages/new", "pages": 2, "questions": len(rows)}
        assert set(rows[0]) == {"image", "question", "answer", "family", "boxes"}
        page = draw_page(5_000_001, (320, 256), "test")  # no page of another --seed
        assert (np.asarray(Image.open("pages/new/page-0001.png")) == np.asarray(page.image)).all()
        questions = [(row["question"], row["answer"]) for row in rows if row["image"] == "page-0001.png"]
        assert questions == [(q.text, q.answer) for q in page.questions]

    def test_again_gives_the_same(self, capsys: pytest.CaptureFixture[str]) -> None:
        for out in ("a", "b"):
            code, text, err = run(capsys, "draw", "-n", "1", "--size", "256x256", "-o", out)
            assert (code, err) == (0, "")
            assert "questions" in text
        for name in ("page-0000.png", "questions.jsonl"):
            assert Path("a", name).read_bytes() == Path("b", name).read_bytes()

    def test_a_larger_count_adds_pages(self, capsys: pytest.CaptureFixture[str]) -> None:
        for count, out in (("2", "pages"), ("4", "pages"), ("4", "at-once")):
            assert run(capsys, "draw", "-n", count, "--size", "96x96", "-o", out)[0] == 0
        names = [path.name for path in Path("pages").iterdir()]
        assert sorted(names) == sorted(path.name for path in Path("at-once").iterdir())
        for name in names:
            assert Path("pages", name).read_bytes() == Path("at-once", name).read_bytes()

    @pytest.mark.slow
    def test_nothing_is_replaced(self, capsys: pytest.CaptureFixture[str]) -> None:
        def files() -> dict[str, bytes]:
            return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}

        def refused(count: str, out: str) -> str:
            before = files()
            code, text, err = run(capsys, "draw", "-n", count, "--size", "96x96", "-o", out)
            assert (code, text, err.count("\n"), files()) == (2, "", 1, before)
            return err

        line = ("draw", "-n", "3", "--size", "96x96", "-o", "pages")
        drawn = run_json(capsys, *line)
        assert "'pages' has another questions.jsonl: choose another with --out" in refused("1", "pages")
        code, _, err = run(capsys, *line, "--seed", "1")
        assert (code, "another page-0000.png" in err) == (2, True)
        before = files()
        assert run_json(capsys, *line) == drawn
        Path("pages/page-0001.png").unlink()
        Path("pages/questions.jsonl").unlink()  # as Ctrl-C leaves it
        assert run_json(capsys, *line) == drawn
        assert files() == before
        Path("mine").mkdir()
        Path("mine/questions.jsonl").write_text('{"image": "a.png", "question": "Where?"}\n')
        assert "'mine' has another questions.jsonl" in refused("1", "mine")
        Path("mine/questions.jsonl").unlink()
        Path("mine/page-0001.png").write_bytes(b"mine")
        assert "'mine' has another page-0001.png" in refused("2", "mine")
        assert run(capsys, "draw", "-n", "1", "--size", "96x96", "-o", "mine")[0] == 0
        assert Path("mine/page-0001.png").read_bytes() == b"mine"


class TestInfo:
    @pytest.mark.slow
    def test_smoke(self, capsys: pytest.CaptureFixture[str], folder: str) -> None:
        facts = run_json(capsys, "info", "--model", folder)
        model = ARRCOCModel.from_pretrained(folder)
        assert facts["parameters"] == sum(p.numel() for p in model.base.parameters())
        assert (facts["model_type"], facts["allocator_trained"], facts["seam"]) == (
            "qwen3_vl",
            False,
            True,
        )
        assert {"arr-coc", "torch", "transformers"} <= set(facts["versions"])
        assert {"qwen3_vl", "qwen2_5_vl", "qwen2_vl", "qwen3_5", "llava"} <= {
            family["model_type"] for family in facts["families"]
        }
        code, out, err = run(capsys, "info", "--model", folder)
        assert (code, err) == (0, "")
        assert f"{facts['parameters']:,}" in out
        assert len(out.splitlines()) <= 12
        assert "llava" not in out
        code, longer, err = run(capsys, "info", "--model", folder, "--families")
        assert (code, err) == (0, "")
        kinds = {family["model_type"] for family in facts["families"]}
        assert all(kind in longer for kind in kinds)


class TestMain:
    @pytest.mark.slow
    def test_help_and_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        for arguments in ([], ["--help"], ["-h"]):
            code, out, err = run(capsys, *arguments)
            assert (code, err) == (0, "")
            for command in ("ask", "look", "draw", "info"):
                assert command in out
        assert run(capsys, "--version") == (0, f"arr-coc {arr_coc.__version__}\n", "")

    def test_unexpected_errors_are_one_line(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise RuntimeError("disk\non fire")

        monkeypatch.setattr("arr_coc_lab.world.draw_page", broken)
        code, out, err = run(capsys, "draw")
        assert (code, out) == (1, "")
        assert err == "arr-coc: failed: RuntimeError: disk on fire (--debug shows where)\n"
        for arguments in (["--debug", "draw"], ["draw", "--debug"]):
            with pytest.raises(RuntimeError, match="disk"):
                main(arguments)

    def test_a_full_disk_is_named_with_the_remedy(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", "a.png")

        monkeypatch.setattr("arr_coc_lab.world.draw_page", full)
        code, out, err = run(capsys, "draw")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "failed: 'a.png': No space left on device; make room there or choose another place" in err

    def test_library_prints_do_not_spoil_json(
        self,
        capsys: pytest.CaptureFixture[str],
        image: str,
        folder: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        prepare = session.prepare

        def noisy(*arguments: Any, **options: Any) -> Prepared:
            print("a library talks")
            return prepare(*arguments, **options)

        monkeypatch.setattr(session, "prepare", noisy)
        code, out, err = run(capsys, "look", image, "What?", "-m", folder, "--json")
        assert code == 0
        assert set(json.loads(out)) >= {"keep", "grid"}
        assert "a library talks" in err

    def test_logging_is_left_as_it_was(self, capsys: pytest.CaptureFixture[str]) -> None:
        logger = logging.getLogger("arr_coc")
        before = (logger.level, list(logger.handlers))
        run(capsys, "--version")
        assert (logger.level, logger.handlers) == before


class TestProcess:
    """The real thing: a new process."""

    def test_imports_are_light(self) -> None:
        heavy = "torch transformers kornia gradio matplotlib huggingface_hub".split()
        heavier = [*heavy, "numpy", "PIL", "typer"]
        code = (
            f"import sys, arr_coc; print([m for m in {heavier!r} if m in sys.modules])\n"
            f"import arr_coc.cli; print([m for m in {heavy!r} if m in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT
        )
        assert done.stdout == "[]\n[]\n"

    @pytest.mark.slow
    def test_help_and_bad_use_load_no_model_library(self, tmp_path: Path) -> None:
        lines = (
            (["--help"], 0),
            (["ask", "--help"], 0),
            (["app", "--help"], 0),
            (["--import", "no_such_module", "info"], 2),
            (["ask", "--bugdet", "3"], 2),
            (["ask", "x.png"], 2),
        )
        code = (
            "import sys; from arr_coc.cli import main\n"
            f"for words, code in {lines!r}:\n"
            "    assert main(words) == code, words\n"
            "print('refused', file=sys.stderr, flush=True)\n"
            "code = main(['ask', 'nope.png', 'What?'])\n"
            "sys.exit(99 if {'torch', 'transformers'} & set(sys.modules) else code)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=ENVIRONMENT,
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.partition("refused\n")[2].count("\n") == 1

    def test_every_public_name_can_be_imported(self) -> None:
        for name in arr_coc.__all__:
            assert getattr(arr_coc, name) is not None
        assert set(arr_coc.__all__) <= set(dir(arr_coc))
        with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
            _ = arr_coc.nonsense


@pytest.mark.slow
def test_wheel_holds_the_package_alone(tmp_path: Path) -> None:
    """What `pip install` gets: code, py.typed and the bundled files; no recipes and no tests."""
    import zipfile

    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    outside = {name for name in names if not name.startswith(("arr_coc/", "arr_coc-"))}
    assert not outside
    package = root / "src" / "arr_coc"
    beside = [*(package / "bundled").rglob("*"), *(package / "app" / "pictures").iterdir()]
    files = {str(path.relative_to(root / "src")) for path in beside if path.is_file()}
    assert {"arr_coc/py.typed", "arr_coc/cli/__init__.py"} | {
        f for f in files if "__pycache__" not in f
    } <= names
