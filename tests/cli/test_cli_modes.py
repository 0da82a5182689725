"""The command line in every mode: what it prints and returns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from arr_coc.choose.stem import FOREIGN, GUIDED
from arr_coc.cli import inputs, options
from arr_coc.model import ARRCOCModel
from arr_coc.modes import MODES
from arr_coc.seam.gestalt import COMPRESSORS
from command_line import run, run_json
from eyes import set_constants
from tiny import picture, save_tiny

Capture = pytest.CaptureFixture[str]
ASK = ("ask", "photo.png", "What is it?", "-m")
LOOK = ("look", *ASK[1:])


@pytest.fixture(autouse=True)
def beside_a_photo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(1, (64, 48)).save(tmp_path / "photo.png")  # 6x8 cells
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def coarsely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gestalts of at most 9 tokens, and images that are large enough to have one."""
    set_constants(monkeypatch)


class TestAsk:
    @pytest.mark.parametrize(
        ("mode", "read"),
        [("full", 48), ("prune", 3), ("weight", 48), ("sparse", 3), ("saccade", 6 + 3), ("compress", 6)],
    )
    def test_modes(self, capsys: Capture, folder: str, mode: str, read: int) -> None:
        facts = run_json(capsys, *ASK, folder, "-b", "3", "--mode", mode)
        assert (facts["mode"], facts["read"], facts["total"]) == (mode, read, 48)
        note = facts["note"] or ""  # the guide may add that it recognises no word of so small a picture
        assert (f"budget had no effect in mode {mode}" in note) is not MODES[mode].chooses
        assert facts["fallback"] is False

    @pytest.mark.parametrize(
        ("mode", "tokens"),
        [
            ("full", "48 of 48 (100%)"),
            ("saccade", "9 of 48 (19%): a coarse view of 6 and 3 fine"),
            ("compress", "6 of 48 (12%)"),
        ],
    )
    def test_tokens_read_are_printed(self, capsys: Capture, folder: str, mode: str, tokens: str) -> None:
        code, out, err = run(capsys, *ASK, folder, "-b", "3", "--mode", mode)
        assert (code, err) == (0, "")
        assert f"visual tokens {tokens}" in [" ".join(line.split()) for line in out.splitlines()]
        assert (f"\n{mode} " in out) == (mode != "full")  # its line of times
        assert ("\nall tokens " in out) == (mode == "full")

    @pytest.mark.slow
    def test_gestalts(self, capsys: Capture, folder: str) -> None:
        for name, coarse in (("resize", 6), ("pool4", 12), ("pool16", 4)):
            for mode, kept in (("compress", 0), ("saccade", 5)):
                options = ("-b", "5", "--mode", mode, "--gestalt", name)
                facts = run_json(capsys, *ASK, folder, *options)
                assert (facts["mode"], facts["read"]) == (mode, coarse + kept)
        code, out, err = run(capsys, *ASK, folder, "--mode", "compress", "--gestalt", "tower4")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "'tower4' has no trained weights" in err

    def test_help_names_every_mode_and_what_it_reads(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "600")  # nothing is wrapped
        code, out, _ = run(capsys, "ask", "--help")
        assert code == 0
        for mode in MODES.values():
            assert f"{mode.name}: {mode.help}" in out
        code, out, _ = run(capsys, "look", "--help")
        assert code == 0
        assert ", ".join(name for name, mode in MODES.items() if mode.chooses) in out

    def test_gestalts_are_those_of_the_model(self) -> None:
        assert options.GESTALT_NAMES == tuple(COMPRESSORS)

    @pytest.mark.parametrize(
        "options", [("--mode", "dense"), ("--mode", ""), ("--gestalt", "zip"), ("--gestalt", "RESIZE")]
    )
    def test_other_modes_and_gestalts_cost_no_loading(
        self, capsys: Capture, options: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(inputs, "load_model", None)
        for more in ((), ("--json",)):
            code, out, err = run(capsys, *ASK, "bundled", *options, *more)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert options[0] in err

    @pytest.mark.slow
    def test_another_mode_than_the_named_one_is_noted(self, capsys: Capture, tmp_path: Path) -> None:
        save_tiny("llava", tmp_path / "llava")
        line = (*ASK, str(tmp_path / "llava"), "-b", "3", "--mode", "sparse")
        code, out, err = run(capsys, *line, "--json")
        facts = json.loads(out)
        assert (code, facts["mode"], facts["read"]) == (0, "prune", 3)
        assert "llava can't encode some cells alone" in facts["note"]
        assert facts["note"].startswith(err.removeprefix("arr-coc: WARNING: ").rstrip("\n"))
        code, out, _ = run(capsys, *line)
        assert code == 0
        assert "sparse ran as prune" in out


class TestLook:
    @pytest.mark.slow
    def test_modes(self, capsys: Capture, folder: str) -> None:
        for mode in ("sparse", "saccade"):
            record = run_json(capsys, *LOOK, folder, "-b", "5", "--mode", mode)
            expected = ARRCOCModel.from_pretrained(folder).look(*LOOK[1:3], budget=5, mode=mode)
            assert "confidence" in record.pop("coupling")
            assert all(part["cells"] <= 5 for part in record.pop("evidence"))
            assert record == expected.to_dict()
            assert len(record["keep"]) == 5
        code, out, err = run(capsys, *LOOK, folder, "--mode", "compress")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "--mode" in err


class TestLookWithoutAModel:
    def test_the_guide_looks(self, capsys: Capture) -> None:
        code, out, err = run(capsys, "look", "photo.png", "What is the total?", "-b", "5")
        assert (code, err) == (0, "")
        assert "confidence" in out
        assert "words" in out

    def test_what_it_says_is_in_the_record(self, capsys: Capture) -> None:
        code, out, _ = run(capsys, "look", "photo.png", "What is the total?", "-b", "5", "--json")
        record = json.loads(out)
        assert code == 0
        assert len(record["keep"]) == 4, "all that so small a picture has"
        assert [match["word"] for match in record["coupling"]["matches"]].count("total") >= 1

    @pytest.mark.parametrize(
        "option", [("--mode", "prune"), ("--allocator", "mine"), ("--relevance", "trained")]
    )
    def test_options_of_a_model_need_one(self, capsys: Capture, option: tuple[str, str]) -> None:
        code, out, err = run(capsys, "look", "photo.png", "What?", *option)
        assert (code, out) == (2, "")
        assert f"{option[0]} is of a model" in err.replace(" trained is", " is")
        assert "name one with --model" in err

    @pytest.mark.slow
    def test_nothing_heavy_but_torch(self) -> None:
        """Neither models nor plots nor data sets are imported; the threads of torch sleep while they wait."""
        program = (
            "import os, sys; from arr_coc.cli import main\n"
            "for options in (['--json'], ['--out', 'look.png']):\n"
            "    words = ['look', 'photo.png', 'What is the total?', '--relevance', 'guide']\n"
            "    assert main([*words, *options]) == 0\n"
            "heavy = {'transformers', 'tokenizers', 'peft', 'huggingface_hub', 'matplotlib',\n"
            "         'torchvision', 'arr_coc_lab.data', 'arr_coc.model'} & set(sys.modules)\n"
            "assert not heavy, heavy\n"
            "assert os.environ['OMP_WAIT_POLICY'] == 'passive'"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_of_an_own_picture_the_guide_chooses_unless_another_is_named(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    red = Image.new("RGB", (320, 320), "white")
    ImageDraw.Draw(red).ellipse((90, 90, 230, 230), "red")
    red.save("red.png")
    for command in ("ask", "look"):
        line = [command, "red.png", "Where is the red circle?", "-m", "bundled", "-b", "16", "--json"]
        notes = {
            relevance: json.loads(run(capsys, *line, "--relevance", relevance)[1])["note"] or ""
            for relevance in ("auto", "guide", "trained")
        }
        foreign = command == "ask"  # of an answer one warning is enough
        assert {name: GUIDED in note for name, note in notes.items()} == {
            "auto": not foreign, "guide": False, "trained": False,
        }  # fmt: skip
        assert all(note.startswith(FOREIGN) == foreign for note in notes.values())
    run(capsys, "ask", "red.png", "What?", "-m", "bundled", "-b", "16", "--out", "noted.png")
    below: list[str] = []
    monkeypatch.setattr(
        "arr_coc.trace.picture.with_note", lambda drawing, note: below.append(note) or drawing
    )
    run(capsys, "ask", "red.png", "What?", "-m", "bundled", "-b", "16", "--out", "noted.png")
    assert [note.split(" Also: ")[0] for note in below] == [FOREIGN]
