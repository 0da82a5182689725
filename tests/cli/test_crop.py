"""The command `arr-coc crop`."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image

from arr_coc.cli.crop import FOLDER
from command_line import run, run_json

Capture = pytest.CaptureFixture[str]
ORDER = Path(__file__).parents[2] / "docs" / "order.png"
QUESTION = "When will the parcel arrive?"


@pytest.fixture
def page() -> str:
    with Image.open(ORDER) as whole:
        whole.resize((whole.width // 2, whole.height // 2)).save("order.png")
    return "order.png"


class Pipe(io.StringIO):
    """A standard output whose bytes can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = io.BytesIO()


def test_pictures_go_into_a_folder(capsys: Capture, page: str) -> None:
    code, out, err = run(capsys, "crop", page, QUESTION, "--tokens", "100")
    assert (code, err) == (0, "")
    files = sorted(Path(FOLDER).iterdir())
    assert files[0].name == "order-1.png"
    assert all(str(file) in out.replace("\n", "") or file.name in out for file in files)
    assert "in place of 260" in out
    assert "32 x 32 px a token" in out


def test_json_has_places_and_writes_nothing(capsys: Capture, page: str) -> None:
    facts = run_json(capsys, "crop", page, QUESTION, "--tokens", "100", "--for", "claude")
    assert facts["tokens"] <= 100 < facts["whole_tokens"]
    assert (facts["rule"], facts["image"], facts["question"], facts["paths"]) == (
        "claude",
        page,
        QUESTION,
        [],
    )
    assert len(facts["places"]) >= len(facts["pictures"]) >= 1
    assert not Path(FOLDER).exists()
    facts = run_json(capsys, "crop", page, QUESTION, "--tokens", "100", "--layout", "crop", "--out", "mine")
    assert [Path(path).name for path in facts["paths"]] == ["order-1.png"]
    with Image.open(facts["paths"][0]) as picture:
        assert list(picture.size) == facts["pictures"][0]["size"]


def test_one_picture_on_stdout(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from arr_coc.cli import main

    monkeypatch.setattr(sys, "stdout", pipe := Pipe())
    assert main(["crop", page, QUESTION, "--tokens", "100", "--out", "-"]) == 0
    with Image.open(pipe.buffer) as picture:
        assert picture.format == "PNG"
    assert pipe.getvalue() == ""


def test_standard_input(capsys: Capture, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(page).read_bytes())))
    code, _, err = run(capsys, "crop", "-", QUESTION, "--tokens", "60", "--layout", "crop", "--out", "mine")
    assert (code, err) == (0, "")
    assert [path.name for path in Path("mine").iterdir()] == ["stdin-1.png"]


def test_a_page_of_a_pdf(capsys: Capture) -> None:
    pytest.importorskip("pypdfium2")
    one, *others = (Image.new("RGB", (300, 200), colour) for colour in ("white", "lime"))
    one.save("pages.pdf", save_all=True, append_images=others, resolution=72)
    facts = run_json(capsys, "crop", "pages.pdf", QUESTION, "--page", "2", "--tokens", "20")
    assert facts["tokens"] <= 20


def test_a_folder_line_by_line(capsys: Capture, page: str) -> None:
    Path("scans").mkdir()
    shutil.move(page, "scans/a.png")
    Path("scans/b.png").write_bytes(b"no picture")
    code, out, err = run(capsys, "crop", "scans", QUESTION, "--tokens", "60", "--json")
    first, second = map(json.loads, out.splitlines())
    assert code == 1
    assert (first["image"], second["images"]) == (str(Path("scans/a.png")), [str(Path("scans/b.png"))])
    assert "error" in second
    assert "1 of 2 images could not be opened" in err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--for", "gpt-0"), "rule 'gpt-0' is not known: use one of"),
        (("--for", "gemini", "--tokens", "300"), "give at least 1120"),
        (("--out", "-", "--json"), "both write to stdout"),
        (("--out", "-", "--layout", "overview+crops", "--tokens", "150"), "use strip for --out -"),
        (("--relevance", "gaze"), "is of a model"),
        (("--layout", "mosaic"), "mosaic"),
        (("--out", "order.png"), "can't be made a folder"),
    ],
)
def test_what_is_refused_in_a_line(capsys: Capture, page: str, words: tuple[str, ...], reason: str) -> None:
    code, out, err = run(capsys, "crop", page, QUESTION, *words)
    assert (code, out) == (2, "")
    assert reason in err
    assert err.count("\n") == 1


def test_without_words_the_sample(capsys: Capture) -> None:
    assert run_json(capsys, "crop", "--tokens", "60")["tokens"] <= 60


def test_the_readable_height_is_that_of_packing() -> None:
    from arr_coc.cli import options
    from arr_coc.pixels.packing import READABLE

    assert options.READABLE == READABLE


NAMES = (
    "page.png", "page.jpg", "PAGE.webp", "page-2.png", "page-1-2.png", "page.jpg-2.png", "page.jpg.png",
    "Page.JPG", "e\u0301.png", "\u00e9.jpg", "page-1.png",
)  # fmt: skip
"""Names of one folder that could lead to the same output, also where upper and lower case are the same."""


def drawn(path: Path, colour: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (64, 64), colour).save(path, "PNG")  # whatever it is called
    return path


@pytest.mark.slow
def test_no_output_has_the_name_of_another(capsys: Capture) -> None:
    """Of one folder and of others, of inputs that lie where outputs go, and of what else is there."""
    files = [
        drawn(Path("scans") / name, f"#{40 * (i % 5) + 60:02x}00{20 * i:02x}") for i, name in enumerate(NAMES)
    ]
    before = {file: file.read_bytes() for file in Path("scans").iterdir()}

    def cut(folder: str, out: str) -> dict[str, list[Path]]:
        code, printed, _ = run(capsys, "crop", folder, QUESTION, "-t", "9", "--json", "--out", out)
        assert code == 0
        lines = map(json.loads, printed.splitlines())
        return {line["image"]: [Path(path) for path in line["paths"]] for line in lines}

    first = cut("scans", "cut")
    paths = [str(path).casefold() for each in first.values() for path in each]
    assert len(first) == len(before) >= len(files) - 2  # a file system may take two names for one
    assert len(set(paths)) == len(paths)
    assert first == cut("scans", "cut")  # the same line again has the same names
    contents = {path: path.read_bytes() for each in first.values() for path in each}
    drawn(Path("others/page-2.png"), "lime")
    drawn(Path("cut/order-1.png"), "blue")
    shutil.copy(ORDER, "others/order.png")
    for other in (cut("others", "cut"), cut("scans", "scans")):
        assert other
    assert all(path.read_bytes() == content for path, content in (contents | before).items())
    with Image.open("cut/order-1.png") as picture:
        assert picture.getpixel((0, 0)) == (0, 0, 255)


def test_pages_of_a_pdf_are_apart(capsys: Capture) -> None:
    pytest.importorskip("pypdfium2")
    Image.new("RGB", (64, 64)).save(
        "a.pdf", save_all=True, append_images=[Image.new("RGB", (64, 64))], resolution=72
    )
    drawn(Path("a-page-2.png"), "red")
    lines = (
        ["a.pdf", QUESTION, "--page", "1"],
        ["a.pdf", QUESTION, "--page", "2"],
        ["a-page-2.png", QUESTION],
    )
    paths = [run_json(capsys, "crop", *words, "-t", "9", "--out", "cut")["paths"] for words in lines]
    assert len({path for each in paths for path in each}) == 3
