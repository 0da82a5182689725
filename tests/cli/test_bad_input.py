"""Bad input on the command line: one line naming the value and the remedy, nothing lost, no traceback.

One test per row of the list: images, questions, budgets, models, output paths, commands.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.cli import main
from arr_coc.model import ARRCOCModel
from image_files import corners, encoded, png_header
from tiny import picture, tiny


@pytest.fixture
def saved(lent: str) -> Path:
    """A model folder to leave as it is."""
    return Path(lent)


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    """A model folder to spoil."""
    return Path(shutil.copytree(base, tmp_path / "model"))


@pytest.fixture(autouse=True)
def beside_a_photo(in_a_folder_of_its_own: None) -> None:
    picture(1, (64, 48)).save("photo.png")  # 48 visual tokens


class Refusal:
    """Run a command that must be refused."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str, words: tuple[str, ...], code: int = 2) -> None:
        before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
        assert main(arguments) == code
        out, err = self.capsys.readouterr()
        assert out == ""
        assert err.startswith("arr-coc: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert len(err) < 600
        assert "Traceback" not in err
        for word in words:
            assert word in err
        assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refusal:
    return Refusal(capsys)


def answered(capsys: pytest.CaptureFixture[str], saved: Path, *arguments: str) -> dict[str, object]:
    short = ["--model", str(saved), "--json", "--max-new-tokens", "2"]
    assert main(["ask", *arguments, *short, "--out", "out.png"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    Image.open("out.png").load()
    return json.loads(out)


class TestImages:
    def test_missing(self, refused: Refusal) -> None:
        refused("ask", "nope.png", "What?", words=("nope.png", "does not exist", "check the path"))
        refused("look", "nope.png", "What?", words=("nope.png", "does not exist"))

    def test_folder(self, refused: Refusal, tmp_path: Path) -> None:
        for command in ("ask", "look"):
            refused(command, str(tmp_path), "What?", words=(tmp_path.name, "no image file", ".png"))

    def test_unreadable(self, refused: Refusal) -> None:
        Path("notes.png").write_text("these are notes")
        refused("ask", "notes.png", "What?", words=("notes.png", "not an image", "PNG, JPEG"))

    def test_truncated(self, refused: Refusal) -> None:
        data = Path("photo.png").read_bytes()
        Path("cut.png").write_bytes(data[: len(data) // 2])
        refused("ask", "cut.png", "What?", words=("cut.png", "damaged or cut off", "download it again"))

    def test_empty(self, refused: Refusal) -> None:
        Path("empty.png").touch()
        refused("ask", "empty.png", "What?", words=("empty.png", "empty (0 bytes)", "again"))

    def test_bomb(self, refused: Refusal) -> None:
        Path("bomb.png").write_bytes(png_header(30_000, 30_000))
        refused(
            "ask",
            "bomb.png",
            "What?",
            words=("bomb.png", "900 megapixels", "at most 100", "scale it down"),
        )

    def test_address(self, refused: Refusal) -> None:
        refused(
            "ask",
            "https://example.org/a.png",
            "What?",
            words=("https://example.org/a.png", "download it"),
        )

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["animated", "cmyk", "16-bit", "alpha", "exif"])
    def test_unusual_files_work(self, capsys: pytest.CaptureFixture[str], saved: Path, kind: str) -> None:
        exif = Image.Exif()
        exif[0x0112] = 6
        deep = Image.fromarray(np.arange(30 * 20, dtype=np.uint16).reshape(20, 30) * 100)
        data = {
            "animated": lambda: encoded(
                corners(), "GIF", save_all=True, append_images=[picture(2, (30, 20))]
            ),
            "cmyk": lambda: encoded(corners().convert("CMYK"), "JPEG"),
            "16-bit": lambda: encoded(deep, "PNG"),
            "alpha": lambda: encoded(corners().convert("RGBA"), "PNG"),
            "exif": lambda: encoded(corners(), "JPEG", exif=exif),
        }[kind]()
        Path("unusual").write_bytes(data)
        height, width = answered(capsys, saved, "unusual", "What?")["grid"][1:]
        assert (height > width) if kind == "exif" else (width > height)

    @pytest.mark.slow
    @pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1)])
    def test_tiny_and_thin_files_work(
        self, capsys: pytest.CaptureFixture[str], saved: Path, size: tuple[int, int]
    ) -> None:
        Image.new("RGB", size, "red").save("thin.png")
        assert answered(capsys, saved, "thin.png", "What?")["total"] >= 1


class TestQuestions:
    def test_none(self, refused: Refusal) -> None:
        refused("ask", "photo.png", words=("photo.png", "no question", "add one in quotes"))
        refused("look", "photo.png", words=("photo.png", "no question", "add one in quotes"))

    @pytest.mark.parametrize("question", ["", "   ", "\n\t"])
    def test_empty(self, refused: Refusal, question: str) -> None:
        refused("ask", "photo.png", question, words=(repr(question), "empty", "ask something"))

    def test_ten_thousand_words(self, refused: Refusal, saved: Path) -> None:
        question = "what " * 10_000
        refused("ask", "photo.png", question, "-m", str(saved), words=("10000 words", "too long", "shorter"))


class TestBudgets:
    @pytest.mark.parametrize("budget", ["0", "-5", "nan", "abc", "", "inf", "-0.5", "1.5", "0.0"])
    def test_no_budget(self, refused: Refusal, saved: Path, budget: str) -> None:
        words = (budget or "''", "auto")  # the remedy says what may be given
        refused("ask", "photo.png", "What?", "-m", str(saved), "--budget", budget, words=words)

    def test_refused_before_a_model_is_loaded(self, refused: Refusal) -> None:
        refused("ask", "photo.png", "What?", "-m", "no/such/folder", "--budget", "abc", words=("abc",))

    @pytest.mark.slow
    def test_more_than_there_is(self, capsys: pytest.CaptureFixture[str], saved: Path) -> None:
        assert main(["ask", "photo.png", "What?", "-m", str(saved), "--budget", "49"]) == 0
        assert "all 48 cells were kept" in capsys.readouterr().out


class TestModels:
    def test_unknown_type(self, refused: Refusal, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"model_type": "frobnicator"}))
        words = ("frobnicator", "not supported", "qwen3_vl")
        refused("ask", "photo.png", "What?", "-m", str(folder), words=words)

    def test_no_folder(self, refused: Refusal) -> None:
        refused("ask", "photo.png", "What?", "-m", "./nope", words=("nope", "folder", "bundled"))

    def test_no_weights(self, refused: Refusal, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        refused("ask", "photo.png", "What?", "-m", str(folder), words=("model", "no weights", "safetensors"))

    def test_pickle(self, refused: Refusal, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        torch.save(tiny("qwen3_vl").model.state_dict(), folder / "pytorch_model.bin")
        words = ("pytorch_model.bin", "never loaded", "convert")
        refused("ask", "photo.png", "What?", "-m", str(folder), words=words)

    def test_other_shapes(self, refused: Refusal, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        name = "model.language_model.layers.0.mlp.up_proj.weight"
        weights[name] = weights[name][:-1].contiguous()
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        words = (str(folder), "don't fit its config.json", "save")
        refused("ask", "photo.png", "What?", "-m", str(folder), words=words)

    def test_allocator_of_another_base_model(self, refused: Refusal, folder: Path) -> None:
        other = tiny("qwen2_5_vl")
        layer = ARRCOCLayer(ARRCOCConfig(dim=other.model.config.get_text_config().hidden_size))
        ARRCOCModel(other.model, other.processor, layer, base_name="some/other").save_pretrained(folder)
        words = ("some/other", "qwen2_5_vl", "qwen3_vl")
        refused("ask", "photo.png", "What?", "-m", str(folder), words=words)

    def test_no_network(self, refused: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        words = ("nobody/no-such-model", "local model folder", "bundled")
        refused("ask", "photo.png", "What?", "-m", "nobody/no-such-model", "--json", words=words)


class TestOutputs:
    @pytest.mark.parametrize("command", ["ask", "look"])
    def test_unwritable(self, refused: Refusal, command: str) -> None:
        """Refused before a model is loaded: this one does not exist."""
        rest = ("photo.png", "What?", "-m", "./nope", "--out")
        Path("file").touch()
        Path("folder.png").mkdir()
        for path in (
            "no/such/folder/a.png",
            "file/a.png",
            "folder.png",
            "/proc/a.png",
        ):
            refused(command, *rest, path, words=(path, "cannot be written", "choose another"))
        refused(command, *rest, f"{'x' * 300}.png", words=("xxx", "too long for a file's name"))

    def test_unknown_kind_of_picture(self, refused: Refusal) -> None:
        refused("ask", "photo.png", "What?", "--out", "a.txt", words=("a.txt", ".png"))
        refused("look", "photo.png", "What?", "--save", "a.pkl", words=("a.pkl", ".safetensors"))

    def test_the_image_itself(self, refused: Refusal) -> None:
        refused("ask", "photo.png", "What?", "--out", "./photo.png", words=("photo.png", "the image itself"))

    def test_an_older_picture_survives_a_failure(self, refused: Refusal) -> None:
        Path("old.png").write_bytes(b"mine")
        refused("ask", "photo.png", "What?", "-m", "./nope", "--out", "old.png", words=("nope",))
        assert Path("old.png").read_bytes() == b"mine"

    def test_draw(self, refused: Refusal) -> None:
        Path("file").touch()
        refused("draw", "--out", "file", words=("file", "cannot be written", "--out"))


class TestCommands:
    def test_unknown_command(self, refused: Refusal) -> None:
        refused("frobnicate", words=("frobnicate", "--help"))

    def test_unknown_option(self, refused: Refusal) -> None:
        refused("ask", "--bugdet", "3", words=("--bugdet", "--budget", "arr-coc ask --help"))

    def test_too_many_arguments(self, refused: Refusal) -> None:
        for command in ("ask", "look"):
            words = ("'What' does not exist", "goes into quotes")
            refused(command, "photo.png", "What", "is", "it?", words=words)
        refused("ask", "photo.png", "photo.png", words=("no question", "add one in quotes"))

    def test_unknown_mode(self, refused: Refusal) -> None:
        refused("ask", "photo.png", "What?", "--mode", "sideways", words=("sideways", "prune"))

    @pytest.mark.parametrize("size", ["big", "1024", "0x0", "20x9000", "-5x5", "99999999x1"])
    def test_size(self, refused: Refusal, size: str) -> None:
        refused("draw", "--size", size, words=(size, "64" if size in ("0x0", "20x9000") else "WIDTHxHEIGHT"))

    @pytest.mark.parametrize(("option", "value"), [("--count", "0"), ("--count", "x"), ("--seed", "-1")])
    def test_numbers(self, refused: Refusal, option: str, value: str) -> None:
        refused("draw", option, value, words=(option, "arr-coc draw --help"))
