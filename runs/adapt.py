"""What `arr-coc adapt` gains where nobody has taught an allocator: words of one's own about pictures of one's own.

    python runs/adapt.py OUT.json

Drawn pictures of 256 x 256 px, 64 cells, as an inspector of boards would have them: soft noise with four kinds of
marks, each with a name that no page has ("zorv", "blint", ...). A question asks for one of them; its box is the
evidence. The guide can't know these words, and a model that is as random as it was made can't either: what is kept
after is what was learned from 32 pictures. The other eight are measured on. The base model is a tiny Qwen3-VL of random
weights, so answers mean nothing (one token each): what counts is the evidence. A few minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw
from transformers import AutoConfig, Qwen3VLForConditionalGeneration

from arr_coc.store import checkpoint
from arr_coc.training.adaptation import Adaptation, adapt

PICTURES, SIDE, STEPS = 40, 256, 150
MARKS = {"zorv": "#c0392b", "blint": "#2463a8", "quade": "#1f8a4c", "morphel": "#d9a400"}
"""Names of marks and their colours."""


def draw(folder: Path) -> None:
    """Pictures with `questions.jsonl`, in a new folder."""
    folder.mkdir()
    lines = []
    for number in range(PICTURES):
        rng = random.Random(number)
        noise = torch.randint(90, 170, (8, 8, 3), generator=torch.Generator().manual_seed(number))
        picture = Image.fromarray(noise.to(torch.uint8).numpy()).resize(
            (SIDE, SIDE), Image.Resampling.BICUBIC
        )
        pen = ImageDraw.Draw(picture)
        places = rng.sample([(x, y) for x in range(4) for y in range(4)], len(MARKS))
        for (name, colour), (x, y) in zip(MARKS.items(), places, strict=True):
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
    checkpoint.load_base(checkpoint.BUNDLED)[1].save_pretrained(folder)


def main(out: Path, steps: int) -> None:
    """Adapt the model to the pictures and write what was gained."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        data, tiny = Path(place) / "marks", Path(place) / "random-qwen3-vl"
        draw(data)
        save_random(tiny)
        settings = Adaptation(
            str(tiny), str(data), steps=steps, questions=32, max_new_tokens=1, recipes=("relevance",)
        )
        results |= adapt(settings, Path(place) / "adapted")
    out.write_text(json.dumps({"command": "python runs/adapt.py", "steps": steps} | results, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    main(**vars(parser.parse_args()))
