"""Icons of installed themes: which files are read, by whole split, and how a page draws them."""

import base64
from collections import Counter

import pytest

from arr_coc_lab.world.browser import cache, icon_sets
from arr_coc_lab.world.browser.drawing import ICONS
from arr_coc_lab.world.browser.icon_sets import CALLED, PACKAGES, IconSet, as_html, is_plain, sets
from arr_coc_lab.world.browser.page import RenderedPage, write_page
from arr_coc_lab.world.browser.sheet import MARK
from arr_coc_lab.world.browser.types import icons

DRAWING = b'<svg xmlns="http://www.w3.org/2000/svg"><rect width="9" height="9" fill="#c00"/></svg>'
PLAIN = DRAWING.replace(b"#c00", b"currentColor")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty folder in the place of the one that packages are installed in."""
    monkeypatch.setattr(icon_sets, "ROOT", tmp_path)
    monkeypatch.setattr(icon_sets, "FEWEST", 1)
    sets.cache_clear()
    is_plain.cache_clear()
    yield tmp_path
    sets.cache_clear()
    is_plain.cache_clear()


def put(root, package, *names, data=DRAWING):
    """Write files of a package; the paths."""
    folder = root / next(each.folder for each in PACKAGES if each.name == package)
    paths = [folder / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return paths


def test_nothing_installed_is_no_set(root):
    assert sets("train") == ()
    assert "icon_sets.PACKAGES" in icon_sets.remark("train")


def test_a_set_is_of_the_split_of_its_package(root):
    put(root, "tango-icon-theme", "scalable/user-trash.svg")
    put(root, "papirus-icon-theme", "64x64/user-trash.svg")
    assert [each.name for each in sets("train")] == ["tango-icon-theme"]
    assert [each.name for each in sets("test")] == ["papirus-icon-theme"]
    assert sets("validation") == ()
    assert icon_sets.remark("train") is None
    assert icon_sets.remark("validation")


def test_what_files_show_goes_by_their_names(root):
    bin_, mail, _ = put(root, "tango-icon-theme", "a/user-trash.svg", "a/mail-unread.svg", "a/firefox.svg")
    assert sets("train")[0].icons == {"mail": (mail,), "trash": (bin_,)}


def test_of_one_name_the_best_file_is_taken(root):
    *_, large = put(root, "gnome-icon-theme", "16x16/folder.png", "48x48/folder.png", "256x256/folder.png")
    assert sets("train")[0].icons["folder"] == (large,)
    (lines,) = put(root, "gnome-icon-theme", "scalable/folder.svg")
    sets.cache_clear()
    assert sets("train")[0].icons["folder"] == (lines,)


def test_small_pictures_of_pixels_and_paintings_are_left_out(root):
    put(root, "gnome-icon-theme", "16x16/folder.png")
    put(root, "gnome-icon-theme", "scalable/user-trash.svg", data=DRAWING + b" " * icon_sets.LARGEST)
    assert sets("train") == ()


def test_an_icon_of_one_colour_gets_that_of_the_text(root):
    painted, plain = (
        *put(root, "tango-icon-theme", "a.svg"),
        *put(root, "tango-icon-theme", "b.svg", data=PLAIN),
    )
    assert (is_plain(painted), is_plain(plain)) == (False, True)
    assert base64.b64encode(DRAWING).decode() in as_html(painted, 24, "#123456")
    assert "#123456" not in as_html(painted, 24, "#123456")
    assert "background:#123456" in as_html(plain, 24, "#123456")
    assert "width:24px;height:24px" in as_html(plain, 24, "#123456")


def test_each_thing_has_names_of_its_own():
    calls = Counter(call.lower() for each in CALLED.values() for call in each)
    assert [call for call, count in calls.items() if count > 1] == []
    files = Counter(stem for _, _, stems in icon_sets._rows() for stem in stems.split())
    assert [stem for stem, count in files.items() if count > 1] == []
    assert set(ICONS) <= set(CALLED)


@pytest.mark.parametrize("seed", range(6))
def test_a_page_draws_from_a_set_and_asks_by_what_people_call_it(root, monkeypatch, seed):
    (path,) = put(root, "tango-icon-theme", "any.svg")
    shown = IconSet("any", {name: (path,) for name in sorted(CALLED)[:60]})
    monkeypatch.setattr(icons, "OWN", 0.0)
    monkeypatch.setattr(icons, "sets", lambda split: (shown,))
    html, sheet, _ = write_page(seed, "train", "icons")
    assert len(sheet.things) >= 3
    assert {name for name, _ in sheet.things} <= set(shown.icons)
    assert html.count("data:image/svg+xml") == len(sheet.things)
    calls = [call for name in shown.icons for call in CALLED[name]]
    assert any(call in text for _, text, *_ in sheet.inquiries for call in calls)
    marked = {f'{MARK}="{piece.number}"' for _, piece in sheet.things}
    assert all(mark in html for mark in marked)


def test_things_are_kept_in_a_cache(tmp_path):
    things = (("trash", (1.0, 2.0, 30.0, 40.5)), ("star", (5.0, 6.0, 7.0, 8.0)))
    cache.write(tmp_path / "0", RenderedPage(b"", (), (), "icons", None, 0, "train", things=things))
    assert cache.read(tmp_path / "0").things == things
