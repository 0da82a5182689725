"""What a process holds while it answers a thousand questions: flat, or not.

    python bench/memory.py --out bench/results/memory.json

The bundled model, drawn pages of 512 and 768 px in turn (256 and 576 cells: the larger ones have saccades),
ten questions a session, the modes in turn. After each session the garbage is collected and counted: objects
that Python's collector tracks, tensors and their bytes among them, and the resident memory of the process.
Growth is told from question 40 on: two sessions of each kind of page, when all that is kept once is there.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch

from arr_coc import ARRCOCModel
from arr_coc_lab.world import draw_page

SIZES = (512, 768)
MODES = ("full", "prune", "sparse", "saccade", "compress", "weight")
PER_SESSION = 10
WARM = 40
"""Questions after which growth counts."""


def resident_megabytes() -> float:
    """Resident memory of this process; NaN where the system doesn't say it in /proc."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return float("nan")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def count() -> dict[str, float]:
    """What is held now, after the garbage is collected."""
    gc.collect()
    tracked = gc.get_objects()
    tensors = [thing for thing in tracked if issubclass(type(thing), torch.Tensor)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return {
        "objects": len(tracked),
        "tensors": len(tensors),
        "tensor MB": round(sum(storages.values()) / 2**20, 3),
        "resident MB": round(resident_megabytes(), 1),
    }


def run(questions: int) -> dict[str, Any]:
    """Ask; the counts after each session, and their growth."""
    model = ARRCOCModel.from_pretrained(strict=True)
    counts: list[dict[str, float]] = []
    start = time.perf_counter()
    for number in range(questions // PER_SESSION):
        size = SIZES[number % len(SIZES)]
        page = draw_page(number, (size, size), "test")
        session = model.session(page.image)
        for i in range(PER_SESSION):
            question = f"{page.questions[i % len(page.questions)].text} ({number}, {i})"
            session.ask(question, mode=MODES[(number + i) % len(MODES)], max_new_tokens=4)
        del session, page
        counts.append({"questions": (number + 1) * PER_SESSION, **count()})
    warm = next(row for row in counts if row["questions"] >= WARM)
    return {
        "questions": questions,
        "growth": {name: round(counts[-1][name] - warm[name], 3) for name in warm if name != "questions"},
        "from question": warm["questions"],
        "seconds": round(time.perf_counter() - start, 1),
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "counts": counts[:: max(1, len(counts) // 20)] + counts[-1:],
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    figures = run(options.questions)
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figures["growth"]))


if __name__ == "__main__":
    main()
