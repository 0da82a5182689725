"""Icons of Debian's icon themes, split by theme.

    sets("train")                       the sets that are installed here
    sets("train")[0].icons["trash"]     files of them that show a bin
    CALLED["trash"]                     ("bin", "trash can", "rubbish bin", ...)

Every theme uses the file names of the freedesktop naming specification: `icon_names.txt` tells what they
show.
"""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/usr/share")
MEDIA = {".svg": "image/svg+xml", ".png": "image/png"}
LARGEST = 60_000  # bytes of a file; larger ones slow the browser
FEWEST = 40  # different icons of a usable set
SMALLEST = 32
"""Least side in px of a bitmap, by the folder that it lies in."""


class IconPackage(NamedTuple):
    """A package of icons: as Debian names it, its split, and the folder of its icons below ROOT."""

    name: str
    split: str
    folder: str


PACKAGES: tuple[IconPackage, ...] = tuple(
    IconPackage(*line.split())
    for line in """
    bootstrap-icons             train       bootstrap-icons/svg
    adwaita-icon-theme          train       icons/Adwaita
    breeze-icon-theme           train       icons/breeze
    elementary-xfce-icon-theme  train       icons/elementary-xfce
    gnome-icon-theme            train       icons/gnome
    mate-icon-theme             train       icons/mate
    tango-icon-theme            train       icons/Tango
    suru-icon-theme             train       icons/suru
    deepin-icon-theme           train       icons/bloom
    lxde-icon-theme             train       icons/nuoveXT2
    elementary-icon-theme       validation  icons/elementary
    paper-icon-theme            test        icons/Paper
    faenza-icon-theme           test        icons/Faenza
    papirus-icon-theme          test        icons/Papirus
    """.strip().splitlines()
)
"""The packages, each in a drawing style of its own."""


class IconSet(NamedTuple):
    """The icons of a package by what they show, the files of each."""

    name: str
    icons: dict[str, tuple[Path, ...]]


@lru_cache(maxsize=1)
def _rows() -> list[list[str]]:
    text = Path(__file__).with_name("icon_names.txt").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [[part.strip() for part in line.split("|")] for line in lines]


CALLED: dict[str, tuple[str, ...]] = {
    name: tuple(call.strip() for call in calls.split(",")) for name, calls, _ in _rows()
}
"""What people call the picture of an icon, the usual name first."""


@lru_cache(maxsize=4)
def sets(split: str) -> tuple[IconSet, ...]:
    """Return the installed sets of a split, in the order of PACKAGES."""
    every = (_read(package) for package in PACKAGES if package.split == split)
    return tuple(each for each in every if len(each.icons) >= FEWEST)


def remark(split: str) -> str | None:
    """Return a warning before pages are rendered with our own icons alone; None where others are
    installed.
    """
    if sets(split):
        return None
    return (
        "no icon themes of the split are installed here, so icons are of our own drawing: for pages like "
        "those the guide was taught, apt-get install the packages in world.browser.icon_sets.PACKAGES"
    )


def _read(package: IconPackage) -> IconSet:
    """Return the icons that a package has here, in alphabetical order of their files."""
    name_of = {stem: name for name, _, stems in _rows() for stem in stems.split()}
    best: dict[str, Path] = {}
    for path in sorted((ROOT / package.folder).rglob("*")):
        stem = path.name.split(".")[0]
        if path.suffix in MEDIA and stem in name_of and path.is_file() and path.stat().st_size <= LARGEST:
            if path.suffix == ".svg" or _side(path) >= SMALLEST:
                best[stem] = max(best.get(stem, path), path, key=_rank)
    icons: dict[str, tuple[Path, ...]] = {}
    for stem, path in sorted(best.items()):
        icons[name_of[stem]] = (*icons.get(name_of[stem], ()), path)
    return IconSet(package.name, icons)


def _rank(path: Path) -> tuple[bool, int, str]:
    """Return the order of files with one name: vector before bitmap, then by size."""
    return path.suffix == ".svg", _side(path), str(path)


def _side(path: Path) -> int:
    """Return the side in px that a theme's folder says its icons are drawn for; 0 if it says none."""
    sides = (part.split("x")[0].split("@")[0] for part in path.parts)
    return max((int(side) for side in sides if side.isdigit() and int(side) <= 512), default=0)


@lru_cache(maxsize=4096)
def is_plain(path: Path) -> bool:
    """Return whether an icon has one colour, that of the text around it."""
    return path.stem.endswith("symbolic") or b"currentColor" in path.read_bytes()


def as_html(path: Path, size: float, colour: str) -> str:
    """HTML of an icon with its file inside, `size` px wide and high; a one-colour icon gets the colour."""
    data = f"data:{MEDIA[path.suffix]};base64,{b64encode(path.read_bytes()).decode()}"
    side = f"width:{size:.0f}px;height:{size:.0f}px;vertical-align:middle"
    if is_plain(path):
        mask = f"url({data}) center/contain no-repeat"
        return f'<span style="display:inline-block;{side};background:{colour};mask:{mask}"></span>'
    return f'<img src="{data}" alt="" style="{side};object-fit:contain">'
