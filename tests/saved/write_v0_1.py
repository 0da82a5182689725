"""How the files in tests/saved/v0.1 came to be: written once, by version 0.1.0, and never again.

    PYTHONPATH=src:tests python tests/saved/write_v0_1.py

Later versions must load them and come to the same results (tests/test_compatibility.py). The script is kept
to be read, not run: a later version would write its own formats, and then nothing would be tested. It is no
part of the suite and need not run with any other version than the one it was written for.

What lies in the folder:

    base/                    the tiny Qwen3-VL of tests/tiny.py (seed 7), its processor for up to 1024 cells
    allocator/               layer, stem, conv4, and a LoRA of each kind, all of random weights (seeds below)
    page.png                 200 x 192 px, 25 x 24 cells: more than the 529 tokens of mode "saccade"
    expected.json            per call: kept cells, mode, some logits, an answer; and what the other files hold
    allocation.safetensors   `Allocation.save` of a decision in mode "sparse"
    pages/                   two small pictures with questions, as `arr-coc eval --data jsonl:...` reads them
    results.jsonl, .json     result lines and the summary of that evaluation

Near-ties would let rounding on another machine change what is expected, so the script refuses seeds that make
any.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.stem import Stem
from arr_coc.model import ARRCOCModel
from arr_coc.seam.gestalt import ConvCompressor
from arr_coc.seam.lora import add_lora, add_partial
from arr_coc_lab.evaluate import Settings, evaluate
from arr_coc_lab.world import draw_page
from tiny import WIDTH, picture, tiny

FOLDER = Path(__file__).parent / "v0.1"
QUESTION = "What is the total?"
BUDGET = 48
NEW = 6
CALLS: dict[str, dict[str, Any]] = {
    "full": {"mode": "full"},
    "prune": {"mode": "prune"},
    "prune auto": {"mode": "prune", "budget": "auto"},
    "sparse": {"mode": "sparse"},
    "sparse half": {"mode": "sparse", "budget": 0.5},
    "saccade": {"mode": "saccade"},
    "weight": {"mode": "weight"},
    "compress": {"mode": "compress"},
    "compress conv4": {"mode": "compress", "gestalt": "conv4"},
}
MAPS = ("information", "perspectival", "participatory", "balanced")
MARGIN = 1e-4
"""Between the last score that is kept and the first that isn't, and between the first two next tokens."""


def moved(module: nn.Module, seed: int, size: float = 0.2) -> Any:
    """The module with every weight moved, as if it were trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return module


def write_base() -> None:
    """The tiny model, with a processor that takes pictures of up to 256 x 256 px as they are."""
    built = tiny("qwen3_vl")
    model = copy.deepcopy(built.model).to(torch.bfloat16)  # half the bytes; it is opened in float32
    model.save_pretrained(FOLDER / "base")
    processor = copy.deepcopy(built.processor)
    processor.image_processor.size = {"shortest_edge": 16 * 16, "longest_edge": 256 * 256}
    processor.save_pretrained(FOLDER / "base")


def write_allocator() -> None:
    """Every part that an allocator folder can hold but the second compressor."""
    plain = ARRCOCModel.from_pretrained(FOLDER / "base", dtype=torch.float32)
    layer = moved(ARRCOCLayer(ARRCOCConfig(dim=WIDTH)), seed=1, size=0.1)
    layer.trained = True
    add_lora(plain.base, 2)
    add_partial(plain.base, 2)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in plain.base.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    whole = ARRCOCModel(
        plain.base,
        plain.processor,
        layer,
        stem=moved(Stem(WIDTH, width=8, blocks=1), seed=2),
        convs={"conv4": moved(ConvCompressor(WIDTH, 4, 2), seed=4)},
        base_name="tiny",
    )
    whole.save_pretrained(FOLDER / "allocator")
    (FOLDER / "allocator" / "README.md").unlink()  # the card says nothing that is loaded
    for path in (FOLDER / "allocator").rglob("adapter_model.safetensors"):
        save_file(load_file(path), path, metadata={"format": "pt"})


def open_model() -> ARRCOCModel:
    """As a later version opens it."""
    folders = {"name_or_folder": FOLDER / "base", "allocator": FOLDER / "allocator"}
    return ARRCOCModel.from_pretrained(**folders, dtype=torch.float32, budget=BUDGET, strict=True)


@torch.no_grad()
def expected_of(model: ARRCOCModel, call: dict[str, Any]) -> dict[str, Any]:
    """What one call gives: cells, logits, answer."""
    session = model.session(FOLDER / "page.png")
    ask = {name: value for name, value in call.items() if name != "mode"}
    if call["mode"] == "saccade":  # the default, 529 tokens in all, as a model without a budget has it
        model.budget = model.layer.config.budget
    answer = session.ask(QUESTION, mode=call["mode"], max_new_tokens=NEW, **ask)
    if "gestalt" in call:
        logits, ids = None, None  # `forward` and `generate` take no compressor
    else:
        inputs = session.inputs(QUESTION)
        logits = model(**inputs, mode=call["mode"], **ask).logits[0, -1]
        options = {"max_new_tokens": NEW, "do_sample": False, "output_logits": True}
        output = model.generate(**inputs, mode=call["mode"], return_dict_in_generate=True, **options, **ask)
        ids = output.sequences[0, inputs["input_ids"].shape[1] :].tolist()
        for step in output.logits:
            best = step[0].topk(2).values
            assert best[0] - best[1] > MARGIN, f"{call}: two next tokens are nearly one"
    allocation = answer.allocation
    if call["mode"] not in ("full", "weight", "compress"):
        ranked = allocation.balanced.flatten().sort(descending=True).values
        gap = float(ranked[allocation.kept - 1] - ranked[allocation.kept])
        assert gap > MARGIN / 10, f"{call}: the last cell is kept by {gap}"
    model.budget = BUDGET
    return {
        "call": call,
        "mode": answer.mode,
        "keep": allocation.keep.tolist(),
        "first": allocation.order[:5].tolist(),
        "void": allocation.void,
        "kept": answer.kept,
        "read": answer.read,
        "text": answer.text,
        "ids": ids,
        "logits": None if logits is None else [round(value, 7) for value in logits[:24].tolist()],
    }


def write_pages() -> None:
    """Two pictures, two questions each."""
    (FOLDER / "pages").mkdir()
    lines = []
    for i in (1, 2):
        picture(i, (48, 40)).save(FOLDER / "pages" / f"{i}.png")
        lines += [
            {
                "id": f"{i}{letter}",
                "image": f"{i}.png",
                "question": question,
                "answers": ["x"],
                "boxes": [[0, 0, 20, 20]],
            }
            for letter, question in (("a", "What is it?"), ("b", "Who?"))
        ]
    _write_lines(FOLDER / "pages" / "test.jsonl", lines)


def run() -> dict[str, Any]:
    """The evaluation of the pages; its summary."""
    return evaluate(
        Settings(
            out=Path("results"), data="jsonl:pages", split="test", model="base", allocators=("allocator",),
            methods=("arr-coc", "arr-coc sparse", "even grid", "visionzip"), budgets=(0.5, 9, "auto"),
            max_new_tokens=3, dtype="float32",
        ),
        progress=False,
    )  # fmt: skip


def write_results() -> dict[str, Any]:
    """Result lines and summary; the right answer of three questions is what one method says."""
    run()
    records = [json.loads(line) for line in (FOLDER / "results.jsonl").read_text().splitlines()[1:]]
    truths = FOLDER / "pages" / "test.jsonl"
    lines = [json.loads(line) for line in truths.read_text().splitlines()]
    for line, record, method in zip(
        lines, records, ("arr-coc@9", "visionzip@9", "arr-coc@auto"), strict=False
    ):
        line["answers"] = [record["said"][method]]
    _write_lines(truths, lines)
    (FOLDER / "results.jsonl").unlink()
    return run()


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main() -> None:
    """Write everything anew."""
    torch.set_num_threads(1)
    os.chdir(FOLDER)  # settings of a result file name no place on this disk
    for path in FOLDER.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    draw_page(3, (200, 192), "test", void=False).image.save(FOLDER / "page.png", optimize=True)
    write_base()
    write_allocator()
    model = open_model()
    expected: dict[str, Any] = {name: expected_of(model, call) for name, call in CALLS.items()}
    session = model.session(FOLDER / "page.png")
    record = session.look(QUESTION, mode="sparse")
    record.save(FOLDER / "allocation.safetensors")
    write_pages()
    summary = write_results()
    written = {
        "calls": expected,
        "question": QUESTION,
        "budget": BUDGET,
        "new": NEW,
        "allocation": {
            "grid": list(record.grid),
            "keep": record.keep.tolist(),
            "order": record.order.tolist(),
            "weights": record.weights.tolist(),
            "tensions": record.tensions,
            "budget": record.budget,
            "void": record.void,
            "sums": {name: float(getattr(record, name).double().sum()) for name in MAPS},
        },
        "scores": {name: [row["n"], row["score"]] for name, row in summary["methods"].items()},
    }
    (FOLDER / "expected.json").write_text(json.dumps(written) + "\n")


if __name__ == "__main__":
    main()
