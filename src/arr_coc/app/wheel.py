"""The wheel of the package that runs, made again from its files: for a place that no package index serves.

    name, content = own_wheel()         "arr_coc-0.1.0-py3-none-any.whl", bytes
    requirements("app")                 ["gradio<7,>=6.27", "huggingface-hub<3,>=1.31", ...]

Laws: the same files give the same bytes; what a wheel of the repository holds is in it, to the last file
(`tests/app/test_own_wheel.py`); no build tool is needed, so that an installed package can do it, too.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from arr_coc import __version__

NAME = "arr-coc"
PACKAGE = Path(__file__).parents[1]
TAG = "py3-none-any"
LEFT_OUT = {"__pycache__"}
"""Folders of the package that are no part of it."""
WHEEL = f"Wheel-Version: 1.0\nGenerator: arr-coc {__version__}\nRoot-Is-Purelib: true\nTag: {TAG}\n"
QUICK = 1
"""How hard to compress: weights hardly shrink, however long one tries."""
OLDEST = (1980, 1, 1, 0, 0, 0)
"""The date of every file, the first that an archive can name: the bytes depend on contents alone."""


def own_wheel() -> tuple[str, bytes]:
    """The file name and the content of a wheel with the package as it runs here, changes of yours included.

    Raises:
        ValueError: the package is not installed, so that its name, licence and needs are not on record.
    """
    info = f"arr_coc-{__version__}.dist-info"
    files = {
        f"arr_coc/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes()
        for path in sorted(PACKAGE.rglob("*"))
        if path.is_file() and not LEFT_OUT & set(path.parts)
    }
    installed = _installed()
    files |= {f"{info}/WHEEL": WHEEL.encode()}
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        if text := installed.read_text(name):
            files[f"{info}/{name}"] = text.encode()
    record = f"{info}/RECORD"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in (files | {record: _record(files, record)}).items():
            entry = zipfile.ZipInfo(name, OLDEST)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data, compresslevel=QUICK)
    return f"arr_coc-{__version__}-{TAG}.whl", content.getvalue()


def requirements(*extras: str) -> list[str]:
    """What the package needs, a line each as in requirements.txt, without the package itself.

    Args:
        extras: of the package, whose needs count as well.

    Raises:
        ValueError: the package is not installed.
    """
    needs = [Requirement(line) for line in _installed().requires or ()]
    lines = set()
    for need in needs:
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
            need.marker = None
            lines.add(str(need))
    return sorted(lines)


def _installed() -> Distribution:
    try:
        return distribution(NAME)
    except PackageNotFoundError as error:
        raise ValueError(
            "arr-coc runs from a folder that is not installed, so no wheel can be made of it: pip install "
            "-e . there first"
        ) from error


def _record(files: dict[str, bytes], own: str) -> bytes:
    """The table of files with their hashes and sizes that a wheel ends with; `own` is its own name."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(data)))
    rows.writerow((own, "", ""))
    return text.getvalue().encode()
