"""How long installing into an empty environment takes, and how large that gets, step by step.

    python bench/install.py --step "torch torchvision" --step "-e .[app,ocr] -e ./lab" --case "make app" \\
        --out bench/results/install.json

Each `--step` holds arguments of `pip install`, run in the root of the repository with an empty cache.
`megabytes` is what lies in site-packages after it (1 MB is 10^6 bytes), byte code included. `--case NAME` is
the entry of the result file that is written anew; the others stay. `--keep FOLDER` leaves the environment
there; else it is removed. `--then` runs a command of the environment at the end and notes its exit code.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GPU = ("nvidia", "cuda", "triton")  # how the names of packages begin that torch needs for GPUs alone
LISTED = 12  # packages that are listed, the largest


def folder_bytes(folder: Path) -> int:
    """Bytes of the files below a folder; links aren't followed, and files with several names count once."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            facts = path.stat()
            seen[facts.st_dev, facts.st_ino] = facts.st_size
    return sum(seen.values())


def package_bytes(package: Distribution) -> int:
    """Bytes of the files that a distribution has installed."""
    paths = [Path(str(file.locate())) for file in package.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file())


def install(steps: list[str], folder: Path) -> dict[str, Any]:
    """Make an environment in a folder and install what the steps say; what each took, and what lies there."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    (packages,) = (folder / "lib").glob("python*/site-packages")
    rows = []
    for step in steps:
        before, begun = os.times(), time.monotonic()
        words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
        subprocess.run([python, *words, *shlex.split(step)], cwd=ROOT, check=True)
        seconds, after = time.monotonic() - begun, os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        megabytes = folder_bytes(packages) / 1e6
        rows.append({
            "pip install": step, "seconds": round(seconds), "cpu": round(cpu), "megabytes": round(megabytes),
        })  # fmt: skip
        print(rows[-1], file=sys.stderr)
    found = {package.metadata["Name"]: package for package in distributions(path=[str(packages)])}
    sizes = sorted(((package_bytes(each), name) for name, each in found.items()), reverse=True)
    return {
        "python": platform.python_version(),
        "torch": found["torch"].version if "torch" in found else None,
        "steps": rows,
        "seconds": sum(row["seconds"] for row in rows),
        "megabytes": rows[-1]["megabytes"] if rows else 0,
        "packages": len(found),
        "for GPUs": sorted(name for name in found if name.lower().startswith(GPU)),
        "largest, MB": {name: round(size / 1e6) for size, name in sizes[:LISTED]},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step", action="append", required=True, metavar="WORDS")
    parser.add_argument("--then", action="append", default=[], metavar="WORDS")
    parser.add_argument("--case", default="here", metavar="NAME")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    folder = Path(args.keep or tempfile.mkdtemp()).absolute()
    try:
        result = install(args.step, folder)
        result["ran"] = {
            words: subprocess.run(
                [folder / "bin" / first, *others], capture_output=True, cwd=folder, check=False
            ).returncode
            for words in args.then
            for first, *others in [shlex.split(words)]
        }
    finally:
        if args.keep is None:
            shutil.rmtree(folder)
    print(json.dumps(result, indent=1))
    if args.out is not None:
        cases = json.loads(args.out.read_text(encoding="utf-8")) if args.out.is_file() else {}
        text = json.dumps(cases | {args.case: result}, indent=1)
        args.out.write_text(text + "\n", encoding="utf-8")
