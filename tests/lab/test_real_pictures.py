"""The labels of the real pictures agree with one another, and their pictures come out of packages."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arr_coc_lab.pictures import fetch as fetching
from arr_coc_lab.pictures.fetch import fetch, reader
from arr_coc_lab.pictures.labels import QUESTIONS, SECOND, RealPicture, manifest, pictures
from arr_coc_lab.teaching.page import Real, open_source, words_of

KINDS = {"screenshot", "chart", "document", "photo", "map", "diagram", "scan", "terminal", "game"}
SPLITS = ("train", "validation", "test", "balance", "calibration")
KEPT_APART = """
apcupsd-doc calligraplan copyq-doc doublecmd-help-en enigma-doc eqonomize-doc fwbuilder-doc
gnome-sudoku gnome-taquin grass-doc homebank-data kgeography-data kmymoney-common konqueror
korganizer kphotoalbum kst-doc labelme-examples lemonldap-ng-doc lomiri-wallpapers-20.04
openshot-qt-doc pcp-doc qtdatavisualization5-doc-html r-cran-ggridges r-cran-patchwork
skrooge-common tali tellico-doc wims-help xfig-doc xplanet-images

ark debian-edu-doc-en dolphin freedombox-doc-en frescobaldi gimp-help-en gnome-user-docs
gnucash-docs gnumeric-doc hitori icinga2-doc kaddressbook kalarm kdiff3-doc kget kicad-doc-en kmplot
kpat kwordquiz opencv-doc pip-gradio pip-ocrmypdf pip-sklearn pip-ultralytics
plasma-workspace-wallpapers python3-skimage qtcharts5-doc-html r-cran-flextable r-cran-ggplot2
saods9-doc texstudio-doc tkgate-doc topcat-doc wireshark-doc
"""
"""The packages of the two test sets that nothing learns from and that no label is about."""


def inside(box: tuple[float, ...], size: tuple[int, int]) -> bool:
    x0, y0, x1, y1 = box
    return 0 <= x0 < x1 <= size[0] and 0 <= y0 < y1 <= size[1]


# ---- labels -------------------------------------------------------------------------------------------


def test_every_picture_is_there_once_with_questions() -> None:
    every = pictures()
    files = [one.file for one in every]
    assert len(set(files)) == len(files) == len(manifest()) > 1_000
    assert all(one.questions for one in every)
    assert all(re.fullmatch(r"[\w.+@-]+\.(png|jpe?g|gif|webp|bmp|tiff?)", file) for file in files)
    digests = [row["sha256"] for row in manifest()]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)
    assert len(set(digests)) == len(digests)


def test_every_question_is_of_a_picture_of_the_manifest() -> None:
    rows = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    assert {row["file"] for row in rows} == {row["file"] for row in manifest()}
    assert len(rows) == sum(len(one.questions) for one in pictures())


def test_splits_are_by_package() -> None:
    by_package = defaultdict(set)
    for row in manifest():
        by_package[row["package"]].add(row["split"])
    assert all(len(splits) == 1 for splits in by_package.values())
    assert [sum(len(pictures(split)) for split in SPLITS)] == [len(pictures())]
    counts = Counter(row["split"] for row in manifest())
    assert set(counts) == set(SPLITS)
    assert counts["train"] > 3 * counts["test"] > counts["validation"]


def test_nothing_is_of_a_package_that_is_kept_apart() -> None:
    apart = set(KEPT_APART.split())
    assert len(apart) == 65
    assert not apart & {row["package"] for row in manifest()}


@pytest.fixture(scope="module")
def every() -> tuple[RealPicture, ...]:
    return pictures()


def test_boxes_lie_in_their_pictures(every: tuple[RealPicture, ...]) -> None:
    for one in every:
        assert one.kind in KINDS
        assert min(one.size) > 32
        assert all(inside(box, one.size) for question in one.questions for box in question.boxes), one.file
        assert all(inside(line.box, one.size) and line.text for line in one.lines), one.file


def test_what_has_no_answer_has_no_box_and_all_else_has_both(every: tuple[RealPicture, ...]) -> None:
    for one in every:
        for question in one.questions:
            assert bool(question.boxes) == bool(question.answer) == (question.ask != "unanswerable")
            assert question.text.strip() == question.text != ""


def test_the_second_readers_boxes_are_of_the_same_pictures(every: tuple[RealPicture, ...]) -> None:
    sizes = {one.file: one.size for one in every}
    texts = {(one.file, question.text) for one in every for question in one.questions}
    rows = [json.loads(line) for line in SECOND.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        width, height = sizes[row["file"]]
        assert all(inside(box, (width + 2, height + 2)) for box in row["boxes"]), (
            row
        )  # two end a px or two beyond
    lacking = [row for row in rows if (row["file"], row["question"]) not in texts]
    assert len(lacking) < 0.01 * len(rows), "questions that were reworded since"


# ---- fetching -----------------------------------------------------------------------------------------


PIXELS = {"usr/share/doc/it/a.png": b"\x89PNG a", "usr/share/doc/it/b.png": b"\x89PNG b"}


def deb(folder: Path, files: dict[str, bytes]) -> Path:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("there is no dpkg-deb here")
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(
        "Package: it\nVersion: 1\nArchitecture: all\nMaintainer: me <me@example.org>\nDescription: it\n"
    )
    for name, data in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    path = folder / "it_1_all.deb"
    subprocess.run(["dpkg-deb", "--build", tree, path], check=True, capture_output=True)
    return path


def wheel(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "it-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def npm(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "it-1.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


PACKERS = {"deb": deb, "wheel": wheel, "npm": npm}


@pytest.mark.parametrize("kind", PACKERS)
def test_files_are_read_out_of_an_archive(kind: str, tmp_path: Path) -> None:
    read = reader(PACKERS[kind](tmp_path, PIXELS))
    for name, data in PIXELS.items():
        assert read(name) == data
    for name in ("usr/share/doc/it/none.png", "usr/share/doc/it", "../a.png"):
        with pytest.raises(KeyError):
            read(name)


def row(file: str, path: str, data: bytes, package: str = "it", split: str = "train") -> dict[str, str]:
    digest = hashlib.sha256(data).hexdigest()
    return {
        "file": file,
        "package": package,
        "version": "1",
        "path": path,
        "sha256": digest,
        "split": split,
    }


@pytest.mark.parametrize("kind", PACKERS)
def test_what_is_good_is_written_and_all_else_is_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").mkdir()
    archive = PACKERS[kind](tmp_path / "store", PIXELS)
    asked: list[str] = []

    def download(package: str, version: str, place: Path) -> Path | None:
        asked.append(package)
        return None if package == "gone" else Path(shutil.copy(archive, place))

    a, b = PIXELS
    rows = [
        row("a.png", a, PIXELS[a]),
        row("b.png", b, b"what it was"),
        row("c.png", "usr/share/doc/it/c.png", b"x"),
        row("d.png", "d.png", b"x", package="gone", split="test"),
    ]
    monkeypatch.setattr(fetching, "download", download)
    monkeypatch.setattr(fetching, "manifest", lambda: rows)
    folder = tmp_path / "pictures"
    changed, missing, gone = sorted(fetch(folder), key=lambda line: line[0])
    assert sorted(path.name for path in folder.iterdir()) == ["a.png"]
    assert (folder / "a.png").read_bytes() == PIXELS[a]
    assert changed.startswith("b.png: ")
    assert changed.endswith("has changed")
    assert missing.startswith("c.png: ")
    assert "has no usr/share/doc/it/c.png" in missing
    assert gone == "d.png: package gone 1 can't be downloaded"
    asked.clear()
    assert len(fetch(folder, "train")) == 2
    assert asked == ["it"]
    (folder / "b.png").touch()
    (folder / "c.png").touch()
    asked.clear()
    assert fetch(folder, "train") == []
    assert asked == [], "what is there isn't fetched again"


@pytest.mark.parametrize(
    ("package", "commands"),
    [
        ("gnumeric-doc", [["apt-get", "gnumeric-doc=1"], ["apt-get", "gnumeric-doc"]]),
        ("pip-orange3", [["-m", "orange3==1"], ["-m", "orange3==1"]]),
        ("npm-vtop", [["npm", "vtop@1"]]),
        ("npm-@vladmandic+face-api", [["npm", "@vladmandic/face-api@1"]]),
    ],
)
def test_each_registry_is_asked_by_its_own_client(
    package: str, commands: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[Any]] = []
    monkeypatch.setattr(fetching.subprocess, "run", lambda command, **more: calls.append(command))
    assert fetching.download(package, "1", tmp_path) is None
    assert len(calls) == len(commands)
    for call, (client, name) in zip(calls, commands, strict=True):
        assert client in call[:2]
        assert call[-1] == name
    (tmp_path / "it.tgz").touch()
    assert fetching.download(package, "1", tmp_path) == tmp_path / "it.tgz"


# ---- as training pages --------------------------------------------------------------------------------


def test_words_have_their_parts_of_the_line() -> None:
    one = next(picture for picture in pictures() if picture.lines)
    for line in one.lines:
        words = words_of([line])
        assert [word.text for word in words] == [w for w in line.text.split() if w in {x.text for x in words}]
        for word in words:
            x0, y0, x1, y1 = word.box
            assert line.box[0] - 0.01 <= x0 < x1 <= line.box[2] + 0.01
            assert (y0, y1) == (line.box[1], line.box[3])


def test_pictures_of_a_folder_are_pages(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no real pictures of split train"):
        open_source(f"real:{tmp_path}")
    one = pictures("train")[0]
    Image.new("RGB", one.size, "white").save(tmp_path / one.file, "PNG")
    source = open_source(f"real:{tmp_path}")
    assert isinstance(source, Real)
    assert len(source) == 1
    page = source[0]
    assert page.image.size == one.size
    assert len(page.questions) == len(one.questions)
