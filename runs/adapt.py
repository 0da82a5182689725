"""What `arr-coc adapt` gains where nobody has taught an allocator: words of one's own about pictures of one's own.

    python runs/adapt.py OUT.json                                             random weights
    python runs/adapt.py OUT.json --model bundled --pictures 60 --steps 100   the bundled model and its allocator

Drawn pictures of 256 x 256 px, 64 cells, as an inspector of boards would have them: soft noise with four of eight
kinds of marks, each with a name that no page has ("zorv", "blint", ...). A question asks for one of them; its box is
the evidence. The guide can't know these words, and a model that is as random as it was made can't either: what is kept
after is what was learned. Every fifth picture is measured on, the others are learned from. Four cells are one mark;
sixteen hold all four, so there ink alone does well: what counts is the row of four cells, beside ink and beside our own
choice by another picture's question. The base model is a tiny Qwen3-VL of random weights, so answers mean nothing (one
token each). Recipes `relevance` and `stem`. `--folder` keeps everything; killed, the same line goes on where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw
from transformers import AutoConfig, Qwen3VLForConditionalGeneration

from arr_coc.store import checkpoint
from arr_coc.train.folder import CURVE
from arr_coc_lab.adaptation import PARTS, Adaptation, adapt

PICTURES, STEPS, SIDE = 200, 400, 256
FIGURES = ("step", "loss", "iou", "recall 1/16", "recall 1/4")
"""Of a part's curve."""
MARKS = {
    "zorv": "#c0392b", "blint": "#2463a8", "quade": "#1f8a4c", "morphel": "#d9a400",
    "tesk": "#7d3c98", "gruvit": "#e67e22", "lumo": "#17a2b8", "vask": "#f4f4f4",
}  # fmt: skip
"""Names of marks and their colours."""
EACH = 4
"""Marks in a picture."""


def draw(folder: Path, pictures: int) -> None:
    """Pictures with `questions.jsonl`."""
    folder.mkdir(exist_ok=True)
    lines = []
    for number in range(pictures):
        rng = random.Random(number)
        noise = torch.randint(90, 170, (8, 8, 3), generator=torch.Generator().manual_seed(number))
        picture = Image.fromarray(noise.to(torch.uint8).numpy()).resize(
            (SIDE, SIDE), Image.Resampling.BICUBIC
        )
        pen = ImageDraw.Draw(picture)
        places = rng.sample([(x, y) for x in range(4) for y in range(4)], EACH)
        for (name, colour), (x, y) in zip(rng.sample(list(MARKS.items()), EACH), places, strict=True):
            side = rng.randint(20, 36)
            left, top = 64 * x + rng.randint(0, 63 - side), 64 * y + rng.randint(0, 63 - side)
            box = [left, top, left + side, top + side]
            (pen.ellipse if rng.random() < 0.5 else pen.rectangle)(box, fill=colour)
            question = rng.choice(("Where is the {}?", "Show me the {}.", "Is there a {}?")).format(name)
            line = {"image": f"{number}.png", "question": question, "answer": "here", "boxes": [box]}
            lines.append(json.dumps(line) + "\n")
        picture.save(folder / f"{number}.png")
    (folder / "questions.jsonl").write_text("".join(lines))


def save_random(folder: Path) -> None:
    """A Qwen3-VL folder of random weights with the bundled processor."""
    config: Any = AutoConfig.from_pretrained(checkpoint.BUNDLED_MODEL)
    text, vision = config.text_config, config.vision_config
    text.hidden_size = vision.out_hidden_size = 64
    text.intermediate_size, text.num_hidden_layers, text.initializer_range = 96, 2, 0.2
    vision.hidden_size, vision.intermediate_size, vision.depth, vision.initializer_range = 64, 96, 3, 0.1
    vision.deepstack_visual_indexes = [1]
    torch.manual_seed(0)
    Qwen3VLForConditionalGeneration(config).save_pretrained(folder)
    checkpoint.load_base(checkpoint.BUNDLED_NAME)[1].save_pretrained(folder)


def curve(folder: Path) -> list[dict[str, float]]:
    """The figures of a part over its steps."""
    lines = [json.loads(line) for line in (folder / CURVE).read_text().splitlines()]
    return [{name: line[name] for name in FIGURES if name in line} for line in lines if "loss" in line]


def main(out: Path, model: str | None, pictures: int, steps: int, folder: Path | None) -> None:
    """Adapt the model to the pictures and write what was gained."""
    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place.mkdir(parents=True, exist_ok=True)
        data, tiny = place / "marks", place / "random-qwen3-vl"
        draw(data, pictures)
        if model is None and not tiny.is_dir():
            save_random(tiny)
        settings = Adaptation(
            model or str(tiny), str(data), steps=steps, max_new_tokens=1, recipes=("relevance", "stem")
        )
        facts = adapt(settings, place / "adapted", say=print)
        curves = {name: curve(place / "adapted" / PARTS / name) for name in facts["parts"]}
    changes = [f"--model {model}"] if model else []
    changes += [f"--pictures {pictures}"] if pictures != PICTURES else []
    changes += [f"--steps {steps}"] if steps != STEPS else []
    command = " ".join(["python runs/adapt.py", *changes])
    results = {"command": command, "pictures": pictures, "steps": steps} | facts | {"curves": curves}
    out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", help="to adapt; not given: random weights")
    parser.add_argument("--pictures", type=int, default=PICTURES)
    parser.add_argument("--steps", type=int, default=STEPS, help="of each recipe")
    parser.add_argument("--folder", type=Path, help="keep data, model and allocator here")
    main(**vars(parser.parse_args()))
