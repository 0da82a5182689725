"""Bad input on the command line: one line naming the value and the remedy, nothing lost, no traceback."""

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


BOTH = ("ask", "look")


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
            assert word in err, arguments
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


ASK = ("ask", "photo.png", "What?")
QUESTION_MISSING = ("photo.png", "no question", "add one in quotes")
REFUSALS = [
    *((f"{command} nope.png What?", ("nope.png", "does not exist", "check the path")) for command in BOTH),
    *((f"{command} empty_folder What?", ("empty_folder", "no image file", ".png")) for command in BOTH),
    ("ask notes.png What?", ("notes.png", "not an image", "PNG, JPEG")),
    ("ask cut.png What?", ("cut.png", "damaged or cut off", "download it again")),
    ("ask empty.png What?", ("empty.png", "empty (0 bytes)", "again")),
    ("ask bomb.png What?", ("bomb.png", "900 megapixels", "at most 100", "scale it down")),
    ("ask https://example.org/a.png What?", ("https://example.org/a.png", "download it")),
    *((f"{command} photo.png", QUESTION_MISSING) for command in BOTH),
    ("ask photo.png photo.png", QUESTION_MISSING[1:]),
    *((("ask", "photo.png", text), (repr(text), "empty", "ask something")) for text in ("", "   ", "\n\t")),
    *(
        (f"{command} photo.png What is it?", ("'What' does not exist", "goes into quotes"))
        for command in BOTH
    ),
    *(
        (
            (*ASK, "-m", "no/such/folder", "--budget", budget),
            (budget or "''", "auto"),
        )  # before a model is read
        for budget in ("0", "-5", "nan", "abc", "", "inf", "-0.5", "1.5", "0.0")
    ),
    ((*ASK, "-m", "./nope"), ("nope", "folder", "bundled")),
    ((*ASK, "--mode", "sideways"), ("sideways", "prune")),
    ((*ASK, "--out", "a.txt"), ("a.txt", ".png")),
    ((*ASK, "--out", "./photo.png"), ("photo.png", "the image itself")),
    ("look photo.png What? --save a.pkl", ("a.pkl", ".safetensors")),
    ("look photo.png What? --keep a.txt", ("a.txt", ".json")),
    ("frobnicate", ("frobnicate", "--help")),
    ("ask --bugdet 3", ("--bugdet", "--budget", "arr-coc ask --help")),
    ("draw --out notes.png", ("notes.png", "cannot be written", "--out")),
    *((f"draw --size {size}", (size, "WIDTHxHEIGHT")) for size in ("big", "1024", "-5x5", "99999999x1")),
    *((f"draw --size {size}", (size, "64")) for size in ("0x0", "20x9000")),
    *(
        (f"draw {line}", (line.split()[0], "arr-coc draw --help"))
        for line in ("--count 0", "--count x", "--seed -1")
    ),
]


def test_refusals(refused: Refusal) -> None:
    photo = Path("photo.png").read_bytes()
    Path("cut.png").write_bytes(photo[: len(photo) // 2])
    Path("notes.png").write_text("these are notes")
    Path("empty.png").touch()
    Path("bomb.png").write_bytes(png_header(30_000, 30_000))
    Path("empty_folder").mkdir()
    for line, words in REFUSALS:
        refused(*(line.split() if isinstance(line, str) else line), words=words)


def test_a_question_of_ten_thousand_words(refused: Refusal, saved: Path) -> None:
    question = "what " * 10_000
    refused("ask", "photo.png", question, "-m", str(saved), words=("10000 words", "too long", "shorter"))


class TestImages:
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


class TestBudgets:
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

    def test_an_older_picture_survives_a_failure(self, refused: Refusal) -> None:
        Path("old.png").write_bytes(b"mine")
        refused("ask", "photo.png", "What?", "-m", "./nope", "--out", "old.png", words=("nope",))
        assert Path("old.png").read_bytes() == b"mine"
