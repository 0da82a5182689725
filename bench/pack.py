"""What choosing and packing a picture costs, beside the prefill of a 2B model that it saves, in one run.

    python bench/pack.py --out bench/results/pack.json

A drawn page of --size px is chosen from and packed into --tokens tokens: as a new picture, and for another
question about it; so is the same page scaled to 12 megapixels, with the seconds of one core that it takes.
Beside it stands the first token of the published shape of Qwen3-VL-2B with random weights in bfloat16,
all tokens read (bench/prefill.py). Medians; some four minutes of two cores, 6 GiB.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from PIL import Image
from prefill import random_model

from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.guide.guide import Guide
from arr_coc.pixels import pack_for
from arr_coc.selector import Selector
from arr_coc_lab.evaluate.speed import circumstances, find_way, prompt
from arr_coc_lab.world import draw_page

PHOTOGRAPH = (4000, 3000)  # px


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """The median of some rounds, after one that isn't measured."""
    spent = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        spent.append(1000 * (time.perf_counter() - start))
    return median(spent[1:])


def core_seconds(image: Image.Image, questions: list[str], tokens: int, guide: Guide) -> dict[str, float]:
    """CPU seconds, on one thread, of the first question about a picture and of others: medians."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    first, others = [], []
    for _ in range(3):
        selector = Selector(guide)
        for question in questions[:5]:
            start = time.process_time()
            pack_for(image, question, tokens, selector=selector)
            (first if question == questions[0] else others).append(time.process_time() - start)
    torch.set_num_threads(threads)
    return {"first question": median(first), "another question": median(others)}


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=273)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", default="2B")
    parser.add_argument("--depth", type=int, help="layers of both halves: a smoke test")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    page = draw_page(0, (arguments.size, arguments.size), "test")
    questions = [question.text for question in page.questions]
    selector = Selector()
    asked = iter(questions * (arguments.rounds + 1))

    def again() -> None:
        pack_for(page.image, next(asked), arguments.tokens, selector=selector)

    def new() -> None:
        pack_for(page.image, questions[0], arguments.tokens, selector=Selector(selector.guide))

    spent = {"pack, new picture": milliseconds(new, 3 * arguments.rounds)}
    again()  # so that the picture is known
    spent["pack, another question"] = milliseconds(again, min(len(questions) - 2, 3 * arguments.rounds))
    photograph = page.image.resize(PHOTOGRAPH, Image.Resampling.BICUBIC)
    cores = core_seconds(photograph, questions, arguments.tokens, selector.guide)
    for name, value in cores.items():
        print(f"12 megapixels, {name:24s} {value:6.2f} s of one core")
    model = random_model(arguments.shape, arguments.depth, "cpu", torch.bfloat16)
    inputs = prompt(model, page.image, questions[0], 1)
    stock = find_way(model, "stock")
    spent["first token, all tokens"] = milliseconds(
        lambda: stock(inputs, Stopwatch(model.device)), arguments.rounds
    )
    prefill = spent["first token, all tokens"]
    for name, value in spent.items():
        print(f"{name:26s} {value:9.0f} ms  {value / prefill:6.1%}")
    if arguments.out:
        facts = {
            "command": f"python bench/pack.py --size {arguments.size} --tokens {arguments.tokens}",
            "shape": f"Qwen3-VL-{arguments.shape}",
            **circumstances(model, page.image, questions[0], 1),
            "ms": spent,
            "seconds of one core at 12 megapixels": cores,
            "share of prefill": {name: value / prefill for name, value in spent.items()},
        }
        arguments.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
