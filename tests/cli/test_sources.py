"""Images that a command line names: a folder, standard input, a PDF."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arr_coc.answer import Answer
from arr_coc.choose.stem import FOREIGN, foreign_note
from arr_coc.cli import inputs as sources
from arr_coc.cli import terminal
from arr_coc.files.pdf import MAX_SIDE
from arr_coc.guide.trust import PHOTOGRAPH, SENTENCES
from arr_coc.model import ARRCOCModel
from arr_coc.trace.trace import Trace
from command_line import run, run_json
from tiny import picture

Capture = pytest.CaptureFixture[str]
QUESTION = "What is the total?"
ASK = (QUESTION, "-b", "5", "-m")


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Bytes on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.fixture
def pdf() -> str:
    """Three pages: red, green, blue; 72 x 36 points each."""
    red, *others = (Image.new("RGB", (72, 36), colour) for colour in ("red", "lime", "blue"))
    red.save("pages.pdf", save_all=True, append_images=others, resolution=72)
    red.save("page.pdf", resolution=72)
    return "pages.pdf"


class TestStandardInput:
    @pytest.mark.slow
    def test_the_bytes_of_an_image(
        self, capsys: Capture, image: str, folder: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = run_json(capsys, "ask", image, *ASK, folder)
        piped(monkeypatch, Path(image).read_bytes())
        facts = run_json(capsys, "ask", "-", *ASK, folder)
        assert (facts["answer"], facts["images"]) == (expected["answer"], ["-"])
        piped(monkeypatch, Path(image).read_bytes())
        assert run_json(capsys, "look", "-", *ASK, folder)["grid"] == [1, 6, 8]

    @pytest.mark.parametrize(
        ("data", "words"), [(b"", "standard input: image bytes"), (b"notes", "standard input: image bytes")]
    )
    def test_what_is_no_image(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch, data: bytes, words: str
    ) -> None:
        piped(monkeypatch, data)
        code, out, err = run(capsys, "ask", "-", "What?", "-m", "./nowhere")
        assert (code, out) == (2, "")
        assert words in err

    def test_a_keyboard_too_much_and_twice(
        self, capsys: Capture, image: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        piped(monkeypatch, Path(image).read_bytes())
        assert "name it once" in run(capsys, "ask", "-", "-", "What?")[2]
        monkeypatch.setattr(sources, "MAX_BYTES", 100)
        assert "is longer than" in run(capsys, "ask", "-", "What?")[2]
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        assert "pipe a file into it" in run(capsys, "ask", "-", "What?")[2]


class TestPDF:
    def test_pages(self, pdf: str) -> None:
        for number, colour in ((1, (255, 0, 0)), (2, (0, 255, 0)), (3, (0, 0, 255))):
            page = sources.open_picture(pdf, number)
            assert page.size == (144, 72)  # 144 to the inch
            assert np.abs(np.asarray(page)[36, 72].astype(int) - colour).max() <= 2
        assert sources.open_picture("page.pdf").size == (144, 72)

    def test_a_page_of_many_metres_is_drawn_small(self) -> None:
        Image.new("RGB", (100, 50)).save("huge.pdf", resolution=0.6)  # 12,000 points wide
        assert sources.open_picture("huge.pdf").size == (MAX_SIDE, MAX_SIDE // 2)

    @pytest.mark.slow
    def test_answered(self, capsys: Capture, pdf: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
        sources.open_picture(pdf, 2).save("second.png")
        expected = run_json(capsys, "ask", "second.png", *ASK, folder)
        facts = run_json(capsys, "ask", pdf, *ASK, folder, "--page", "2")
        assert (facts["answer"], facts["grid"]) == (expected["answer"], expected["grid"])
        piped(monkeypatch, Path(pdf).read_bytes())
        assert run_json(capsys, "ask", "-", *ASK, folder, "--page", "2")["answer"] == expected["answer"]

    def test_refusals(self, capsys: Capture, pdf: str, image: str) -> None:
        Path("cut.pdf").write_bytes(Path(pdf).read_bytes()[:200])
        for words, message in (
            (
                (pdf,),
                "'pages.pdf' has 3 pages: say which is asked about, page=1 or on the command line --page 1",
            ),
            ((pdf, "--page", "4"), "'pages.pdf' has no page 4: it has 3"),
            (("cut.pdf",), "'cut.pdf' is a PDF that cannot be read"),
            ((image, "--page", "1"), "is no PDF, so it has no page 1"),
        ):
            code, out, err = run(capsys, "ask", words[0], "What?", *words[1:], "-m", "./nowhere")
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert message in err

    def test_without_what_reads_it(self, capsys: Capture, pdf: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pypdfium2", None)
        code, out, err = run(capsys, "ask", pdf, "What?", "--page", "1")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "pip install 'pypdfium2>=5'" in err


UNREAD = f"arr-coc: 3 of 3 images: {SENTENCES['nothing']}; {PHOTOGRAPH}\n"
"""Of pictures of noise, which have even px as few as photographs."""
LEFT_OUT = "arr-coc: left out of folder 'scans': 1 other file (.txt 1)\n"


class TestFolders:
    def test_what_is_left_out_is_told(self, scans: Path) -> None:
        files, line = sources.folder_images(scans)
        assert ([file.name for file in files], f"arr-coc: {line}\n") == (
            ["a.JPG", "b.png", "c.webp", "deeper.png"],
            LEFT_OUT,
        )
        for name in ("1.pdf", "2.PDF", "README", ".hidden", "x.y1", "x.y2", "x.y3"):
            (scans / name).write_text("")
        (scans / "more").mkdir()
        assert sources.folder_images(scans)[1] == (
            "left out of folder 'scans': 7 other files (.pdf 2, no ending 1, .txt 1, .y1 1, ...), 1 folder"
        )
        for path in scans.iterdir():
            if path.suffix.lower() != ".pdf":
                path.rmdir() if path.is_dir() else path.unlink()
        with pytest.raises(ValueError, match=r"holds no image file .*: 2 other files \(\.pdf 2\)$"):
            sources.folder_images(scans)

    def test_links_that_lead_out_are_left_out(self, scans: Path, image: str) -> None:
        (scans / "in.png").symlink_to("b.png")
        (scans / "out.png").symlink_to(Path(image).absolute())
        (scans / "circle.png").symlink_to("circle.png")
        files, line = sources.folder_images(scans)
        assert {"in.png", "circle.png", "b.png"} < {file.name for file in files}
        assert "out.png" not in {file.name for file in files}
        assert line.endswith("1 other file (.txt 1), 1 link out of the folder")
        Path("link").symlink_to(scans)  # the folder itself may be one
        assert len(sources.folder_images(Path("link"))[0]) == len(files)

    @pytest.fixture
    def scans(self) -> Path:
        folder = Path("scans")
        (folder / "deeper.png").mkdir(parents=True)
        for number, name in enumerate(("b.png", "a.JPG", "c.webp")):
            picture(number, (64, 48)).save(folder / name)
        (folder / "notes.txt").write_text("no image")
        return folder

    @pytest.mark.slow
    def test_a_line_for_each_image_by_name(self, capsys: Capture, scans: Path, folder: str) -> None:
        (scans / "deeper.png").rmdir()
        code, out, err = run(capsys, "ask", str(scans), *ASK, folder, "--json")
        assert (code, err) == (0, LEFT_OUT)  # each line has its note
        lines = [json.loads(line) for line in out.splitlines()]
        assert [line["images"] for line in lines] == [[f"scans/{n}"] for n in ("a.JPG", "b.png", "c.webp")]
        model = ARRCOCModel.from_pretrained(folder)
        for line in lines:
            expected = model.ask(line["images"][0], QUESTION, budget=5)
            assert (line["answer"], line["kept"]) == (expected.text, 5)
        code, out, err = run(capsys, "ask", str(scans), *ASK, folder)
        assert (code, err) == (0, UNREAD + LEFT_OUT)
        assert [line.split()[0] for line in out.splitlines()] == ["a.JPG", "b.png", "c.webp"]
        assert {path.name for path in Path().iterdir()} == {"scans"}  # nothing is drawn

    @pytest.mark.slow
    def test_one_that_cannot_be_opened_costs_no_other(
        self, capsys: Capture, scans: Path, folder: str
    ) -> None:
        (scans / "a.JPG").write_bytes(b"notes")
        code, out, err = run(capsys, "ask", str(scans), *ASK, folder, "--json")
        lines = [json.loads(line) for line in out.splitlines()]
        assert code == 1
        assert ["error" in line for line in lines] == [True, False, False, True]
        assert "not an image" in lines[0]["error"]
        assert err == "arr-coc: 2 of 4 images could not be opened\n" + LEFT_OUT
        code, out, _ = run(capsys, "ask", str(scans), *ASK, folder)
        assert code == 1
        assert "not answered: " in out

    @pytest.mark.parametrize(
        "words", [("--out", "a.png"), ("--trace", "a.safetensors"), ("--page", "1"), ("--compare",)]
    )
    def test_what_is_for_one_answer(self, capsys: Capture, scans: Path, words: tuple[str, ...]) -> None:
        code, out, err = run(capsys, "ask", str(scans), *ASK, "./nowhere", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"{words[0]} is for one answer" in err

    @pytest.mark.slow
    def test_what_is_said_beside_answers_is_counted(self, capsys: Capture, scans: Path, folder: str) -> None:
        (scans / "deeper.png").rmdir()
        line = ("ask", str(scans), *ASK, folder, "--mode", "saccade")
        code, _, err = run(capsys, *line)
        assert (code, err.count("\n")) == (0, 2)
        assert err.startswith("arr-coc: 3 of 3 images: ")
        assert "no coarse view" in err
        code, out, err = run(capsys, *line, "--json")
        assert (code, err, out.count("no coarse view")) == (0, LEFT_OUT, 3)
        for number in range(4):
            picture(number, (224 + 32 * number, 32)).save(scans / f"{number}.png")
        _, _, err = run(capsys, "ask", str(scans), "What?", "-m", folder, "-b", "999")
        assert [": ".join(text.split(": ")[:2]) for text in err.splitlines()] == [
            "arr-coc: 3 of 7 images",
            "arr-coc: 1 of 7 images",
            "arr-coc: 1 of 7 images",
            "arr-coc: 2 other notes",
            "arr-coc: left out of folder 'scans'",
        ]

    @pytest.mark.slow
    def test_a_foreign_picture_is_counted_once_and_so_is_a_fallback(
        self, capsys: Capture, scans: Path, folder: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (scans / "deeper.png").rmdir()
        ask, notes = ARRCOCModel.ask, iter((FOREIGN, foreign_note("it ran as prune"), None))

        def other(*arguments: Any, **options: Any) -> Answer:
            note = next(notes)
            foreign = bool(note)
            return replace(ask(*arguments, **options), note=note, foreign=foreign, fallback=not foreign)

        monkeypatch.setattr(ARRCOCModel, "ask", other)
        code, _, err = run(capsys, "ask", str(scans), *ASK, folder)
        assert code == 0
        assert err.splitlines() == [
            "arr-coc: 1 of 3 images: it ran as prune",
            f"arr-coc: 1 of 3 images: {terminal.FALLBACK}",
            f"arr-coc: 2 of 3 images: {FOREIGN}",
            LEFT_OUT.strip(),
        ]

    def test_beside_others_or_without_images(self, capsys: Capture, scans: Path, image: str) -> None:
        assert "give it alone" in run(capsys, "ask", str(scans), image, "What?")[2]
        Path("empty").mkdir()
        assert "holds no image file" in run(capsys, "ask", "empty", "What?")[2]


@pytest.mark.slow
def test_words_that_are_no_question(capsys: Capture, image: str) -> None:
    for words, message in (
        ((image,), "no question about"),
        ((image, image), "no question about"),
        (("What is it?", image), "stands before the image: give"),
        ((image, ""), "the question is empty"),
        (("", "What is it?"), "an image's name is empty"),
        (("What is it?",), "no image before the question 'What is it?'"),
        ((image, "\udcff?"), "has half of a character"),
        ((image, "what", "is", "it?"), "a question of several words goes into quotes"),
        (("https://a.example/a.png", "What?"), "is an address and nothing is fetched"),
    ):
        code, out, err = run(capsys, "ask", *words, "-m", "./nowhere")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err


@pytest.mark.slow
def test_several_are_asked_about_together(capsys: Capture, image: str, folder: str) -> None:
    picture(2, (64, 64)).save("other.png")
    line = ("ask", image, "other.png", *ASK, folder)
    facts = run_json(capsys, *line, "--out", "two.png")
    answer = ARRCOCModel.from_pretrained(folder).ask([image, "other.png"], QUESTION, budget=5)
    assert (facts["answer"], facts["images"]) == (answer.text, [image, "other.png"])
    assert (facts["kept"], facts["total"]) == (10, 48 + 64)
    run_json(capsys, "ask", image, *ASK, folder, "--out", "one.png")
    assert Image.open("two.png").height > 1.8 * Image.open("one.png").height  # one below the other
    run_json(capsys, *line, "--trace", "a.safetensors")
    trace = Trace.load("a.safetensors")
    assert [strip.allocation.kept for strip in trace.strips] == [5, 5]
    assert (trace.answer, trace.has_clips) == (answer.text, False)


class TestLooks:
    @pytest.fixture
    def other(self) -> str:
        picture(2, (64, 64)).save("other.png")
        return "other.png"

    @pytest.mark.slow
    def test_several_have_lines_and_a_picture_each(self, capsys: Capture, image: str, other: str) -> None:
        code, out, err = run(capsys, "look", image, other, *ASK[:3])
        assert (code, err) == (0, "")
        names = [line.split()[1] for line in out.splitlines() if line.startswith(("image ", "picture "))]
        assert names == [image, "arr-coc-look-1.png", other, "arr-coc-look-2.png"]
        one, two = (Image.open(name).convert("RGB").tobytes() for name in names[1::2])
        assert one != two
        run(capsys, "look", other, *ASK[:3], "--out", "alone.png")
        assert Image.open("alone.png").convert("RGB").tobytes() == two

    @pytest.mark.slow
    def test_a_model_looks_at_them_together(
        self, capsys: Capture, image: str, other: str, folder: str
    ) -> None:
        code, out, err = run(capsys, "look", image, other, *ASK, folder, "--json")
        assert (code, err) == (0, "")
        session = ARRCOCModel.from_pretrained(folder).session([image, other])
        for line, name, expected in zip(
            out.splitlines(), (image, other), session.looks(QUESTION, budget=5), strict=True
        ):
            record = json.loads(line)
            assert record.pop("images") == [name]
            record.pop("coupling")
            assert all(part["cells"] <= 5 for part in record.pop("evidence"))
            assert record == expected.to_dict()
        assert not list(Path().glob("arr-coc-look*"))

    @pytest.mark.slow
    def test_a_folder_with_one_that_cannot_be_opened(self, capsys: Capture) -> None:
        Path("scans").mkdir()
        for number, name in enumerate(("b.png", "a.png")):
            picture(number, (64, 48)).save(f"scans/{name}")
        Path("scans/c.png").write_bytes(b"notes")
        code, out, err = run(capsys, "look", "scans", *ASK[:3], "--json")
        lines = [json.loads(line) for line in out.splitlines()]
        assert (code, err) == (1, "arr-coc: 1 of 3 images could not be opened\n")
        assert [line["images"] for line in lines] == [[f"scans/{name}.png"] for name in "abc"]
        assert ["keep" in line for line in lines] == [True, True, False]
        assert "not an image" in lines[2]["error"]
        alone = run_json(capsys, "look", "scans/b.png", *ASK[:3])
        assert lines[1] == {"images": ["scans/b.png"]} | alone
        code, out, _ = run(capsys, "look", "scans", *ASK[:3])
        assert (code, out.count("visual tokens"), out.count("not opened")) == (1, 2, 1)
        assert {path.name for path in Path().iterdir()} == {"scans"}  # nothing is drawn
        assert run(capsys, "look", "scans", *ASK[:3], "--out", "cells.png")[0] == 1
        assert {path.name for path in Path().iterdir()} == {"scans", "cells-1.png", "cells-2.png"}

    @pytest.mark.parametrize("words", [("--save", "a.safetensors"), ("--evidence", "1,1,9,9")])
    def test_what_is_of_one(self, capsys: Capture, image: str, other: str, words: tuple[str, str]) -> None:
        code, out, err = run(capsys, "look", image, other, "What?", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"{words[0]} is of one image" in err

    @pytest.mark.parametrize("command", ["look", "ask"])
    def test_a_box_that_is_not_of_the_image(self, capsys: Capture, image: str, command: str) -> None:
        for box, reason in {"0.1,0.1,0.5,0.5": "in fractions of 1", "900,900,990,990": "outside of"}.items():
            code, out, err = run(capsys, command, image, "What?", "--evidence", box)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert f"--evidence {[float(part) for part in box.split(',')]}" in err
            assert reason in err

    def test_a_page_of_each(self, capsys: Capture, pdf: str) -> None:
        second = sources.open_picture(pdf, 2)
        second.save("second.png")
        expected = run_json(capsys, "look", "second.png", *ASK[:3])
        assert run_json(capsys, "look", pdf, *ASK[:3], "--page", "2")["keep"] == expected["keep"]
        Path("scans").mkdir()
        second.save("scans/a.png")
        assert "--page is of one image" in run(capsys, "look", "scans", "What?", "--page", "1")[2]

    def test_no_picture_takes_the_place_of_an_image(self, capsys: Capture, other: str) -> None:
        Path(other).rename("look-2.png")
        picture(1, (64, 48)).save("look-3.png")
        code, out, err = run(capsys, "look", "look-3.png", "look-2.png", "What?", "--out", "look.png")
        assert (code, out) == (2, "")
        assert "is the image itself" in err
