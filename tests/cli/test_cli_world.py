"""`arr-coc world`: what is missing is said in one line; pages that are there stay."""

import errno
import json
import random
import shutil
from importlib import util
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from arr_coc_lab.teaching import filling
from arr_coc_lab.teaching.page import easy_page
from arr_coc_lab.world.browser import cache, fonts
from arr_coc_lab.world.browser.chromium import NAMES
from arr_coc_lab.world.browser.page import Inquired, RenderedPage
from command_line import run, run_json


def made(folder, count, kind="receipt"):
    """A cache of pages that no browser drew."""
    (folder / "train").mkdir(parents=True)
    for seed in range(count):
        page, png = easy_page(random.Random(seed), ("alpha", "bravo", "charlie"), 128), BytesIO()
        page.image.save(png, "PNG")
        questions = (Inquired("word", "Where does it say alpha?", "alpha", (page.words[0].box,)),)
        rendered = RenderedPage(png.getvalue(), questions, page.words, kind, None, seed, "train")
        cache.write(folder / "train" / str(seed), rendered)


def refused(capsys, *words):
    code, out, err = run(capsys, "world", *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    return err


def test_pages_that_are_there_need_no_browser(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    made(tmp_path / "pages", 3)
    before = {path.name: path.read_bytes() for path in (tmp_path / "pages" / "train").iterdir()}
    result = run_json(capsys, "world", str(tmp_path / "pages"), "--pages", "3", "--show", "2")
    assert (result["rendered"], result["pages"]) == (0, 3)
    with Image.open(result["picture"]) as picture:
        assert min(picture.size) > 400
        assert len(picture.convert("RGB").getcolors(maxcolors=1 << 24)) > 10
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "pages" / "train").iterdir()}


def test_only_what_is_missing_is_rendered(tmp_path):
    made(tmp_path, 2)
    (tmp_path / "train" / "1.json").unlink()  # a run was killed between the picture and its text
    assert filling.numbers(tmp_path, "train", 4, 2) == [1, 2, 3, filling.DOCUMENTS, filling.DOCUMENTS + 1]


def test_what_is_missing_is_said_with_how_to_install_it(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None if name in NAMES else f"/usr/bin/{name}")
    assert "install Chromium" in refused(capsys, str(tmp_path / "pages"))
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    assert "pip install 'playwright>=1.50' 'wordfreq>=3.1'" in refused(capsys, str(tmp_path / "pages"))
    assert not (tmp_path / "pages").exists()


def test_missing_documentation_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(filling, "executable", lambda: "chromium")
    monkeypatch.setattr(filling, "families", lambda split: ("DejaVu Sans",))

    def missing(split):
        raise RuntimeError("2 packages are not here; apt-get install git-doc")

    monkeypatch.setattr(filling, "documents_of", missing)
    assert "apt-get install git-doc" in refused(capsys, str(tmp_path / "pages"), "--documents", "5")


def test_bad_use(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(filling, "ready", lambda split, documents: None)
    assert "'letter' is unknown; use one of" in refused(capsys, str(tmp_path / "new"), "--type", "letter")
    made(tmp_path / "receipts", 1)
    assert "pages of type 'receipt'" in refused(capsys, str(tmp_path / "receipts"), "--type", "invoice")
    (tmp_path / "receipts" / "train" / "mine.txt").write_text("")
    assert "other files (mine.txt)" in refused(capsys, str(tmp_path / "receipts"))


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="no browser")
def test_pages_of_a_type_by_a_browser(capsys, tmp_path):
    result = run_json(capsys, "world", str(tmp_path), "--pages", "2", "--type", "receipt", "--processes", "1")
    assert (result["rendered"], result["failed"], result["pages"]) == (2, 0, 2)
    record = json.loads((Path(tmp_path) / "train" / "1.json").read_text())
    assert record["type"] == "receipt"
    assert record["questions"]


def test_a_full_disk_ends_the_run_with_a_line(capsys, tmp_path, monkeypatch):
    class Full(list):
        def put(self, done):
            self.append(done)

    def write(place, page):
        raise OSError(errno.ENOSPC, "No space left on device", str(place))

    class Browser:
        error, unloadable = KeyError, {}

        def __enter__(self):
            return self

        def __exit__(self, *what):
            return None

    monkeypatch.setattr(filling, "Chromium", Browser)
    monkeypatch.setattr(filling, "start_worker", lambda seed: None)
    monkeypatch.setattr(filling, "render_page", lambda *what: None)
    monkeypatch.setattr(cache, "write", write)
    done = Full()
    filling._work(done, tmp_path, "train", range(5), None, None, ())
    assert len(done) == 1  # the other four would fail alike

    def fill_all(*what):
        raise done[0].refused
        yield

    monkeypatch.setattr(filling, "ready", lambda split, documents: None)
    monkeypatch.setattr(filling, "fill_all", fill_all)
    code, out, err = run(capsys, "world", str(tmp_path / "pages"), "--pages", "5")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "No space left on device" in err
    assert "choose another place" in err


def test_a_run_in_which_every_page_failed_is_no_success(capsys, tmp_path, monkeypatch):
    made(tmp_path, 1)
    results = (filling.Done(number, "Error: broken", ("a.html: it took too long",)) for number in (1, 2))
    monkeypatch.setattr(filling, "ready", lambda split, documents: None)
    monkeypatch.setattr(filling, "fill_all", lambda *what: results)
    code, _, err = run(capsys, "world", str(tmp_path), "--pages", "3")
    assert code == 1
    assert err.count("passed over a.html: it took too long") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("count", "remarks"), [(fonts.FEW - 1, 1), (fonts.FEW, 0)])
def test_few_fonts_are_remarked_on(capsys, tmp_path, monkeypatch, count, remarks):
    names = tuple(f"Family {i}" for i in range(count))
    monkeypatch.setattr(fonts, "installed", lambda: names)
    monkeypatch.setattr(filling, "ready", lambda split, documents: None)
    monkeypatch.setattr(filling, "fill_all", lambda *where: iter((filling.Done(1),)))
    made(tmp_path, 1)
    code, _, err = run(capsys, "world", str(tmp_path), "--pages", "2")
    assert (code, err.count("font families are installed here")) == (0, remarks)


def test_html_is_counted_apart_and_must_hold_pages(capsys, tmp_path, monkeypatch):
    assert "has no .html file" in refused(capsys, str(tmp_path / "pages"), "--html", str(tmp_path))
    assert "name their folder with --html" in refused(capsys, str(tmp_path / "pages"), "--views", "3")
    wanted = []
    monkeypatch.setattr(filling, "ready", lambda split, documents: None)

    def render(folder, split, numbers, *rest):
        wanted.append((list(numbers), rest[-1]))
        made(folder, 1)
        return iter(())

    monkeypatch.setattr(filling, "fill_all", render)
    (tmp_path / "mine.html").write_text("<p>a page</p>" + " " * 2000)
    run_json(capsys, "world", str(tmp_path / "pages"), "--html", str(tmp_path), "--views", "3")
    first = filling.VIEWS
    assert wanted == [([first, first + 1, first + 2], tmp_path)]


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="no browser")
def test_views_of_html_by_a_browser(capsys, tmp_path):
    rows = "".join(
        f"<div><div>Label {name}</div><div>{i}00</div></div>" for i, name in enumerate("abcdefgh", 1)
    )
    text = " ".join(f"word{i}" for i in range(400))
    (tmp_path / "mine.html").write_text(f"<body>{rows}<button>Send it</button><p>{text}</p></body>")
    line = ("world", str(tmp_path / "pages"), "--html", str(tmp_path), "--views", "2", "--processes", "1")
    result = run_json(capsys, *line)
    assert (result["rendered"], result["failed"], result["pages"]) == (2, 0, 2)
    record = json.loads((tmp_path / "pages" / "train" / f"{filling.VIEWS}.json").read_text())
    assert record["type"] == "interface"
    assert any(kind == "value" for kind, *_ in record["questions"])
