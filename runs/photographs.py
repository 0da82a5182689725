"""Which pictures of a folder the guide takes for photographs, where it says that it is weak.

    python runs/photographs.py FOLDER --out runs/results/photographs.json

FOLDER: pictures with `questions.jsonl`, a question a line with image and kind ("photo", "screenshot", ...). Of each picture the
share of px like their neighbours and whether it counts as a photograph; a second of one core a picture.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from PIL import Image

from arr_coc.guide.coupling import MAX_EVEN, PHOTOGRAPH_WORDS, couple, fitted_pixels, view
from arr_coc.guide.guide import load_guide


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    guide = load_guide()
    lines = (arguments.folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    kinds = {asked["image"]: asked["kind"] for asked in map(json.loads, lines)}
    pictures = {}
    for name, kind in sorted(kinds.items()):
        with Image.open(arguments.folder / name) as image:
            page = view(guide, fitted_pixels(image.convert("RGB")))
        taken = couple(guide, page, "Where is it?", (8, 8)).photograph
        pictures[name] = {"kind": kind, "even": round(page.even, 3), "photograph": taken}
    of = {
        kind: [one for one in pictures.values() if one["kind"] == kind] for kind in sorted({*kinds.values()})
    }
    result = {
        "fewer words than": PHOTOGRAPH_WORDS,
        "share of even px below": MAX_EVEN,
        "kinds": {
            kind: {"pictures": len(some), "taken for photographs": sum(one["photograph"] for one in some)}
            for kind, some in of.items()
        },
        "pictures": pictures,
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["kinds"], indent=1))


if __name__ == "__main__":
    main()
