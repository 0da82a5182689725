"""Exact match on held-out pages of the bundled world, question by question: all tokens, ours, and the nulls.

    python -m arr_coc.evaluate --questions 2000 --out runs/results/bundled

Every answer is generated greedily by the base model; methods differ only in the cells that are kept. One
line per question goes to OUT.jsonl (a killed run goes on where it was); the summary in OUT.json is computed
from it. Questions are chosen so that the families are as even as the pages allow.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from tqdm import tqdm

from arr_coc.attending import even_grid
from arr_coc.decoding import generate_whole
from arr_coc.metrics import bootstrap_interval
from arr_coc.model import ARRCOCModel
from arr_coc.realize import EncodedImages
from arr_coc.seam import VisualFeatures
from arr_coc.session import GREEDY, Session
from arr_coc.texture import generate_texture_array
from arr_coc.training.bundled import image_tensor
from arr_coc.training.targets import evidence_mask
from arr_coc.world import Page, Question, draw_page
from arr_coc.world.vocabulary import FAMILIES

BUDGETS: tuple[int | str, ...] = (273, 128, 64, "auto")


def held_out_pages(
    count: int, size: int, per_page: int = 5, split: str = "test"
) -> Iterator[tuple[Page, list[Question]]]:
    """Pages with `count` questions in all, of each page those of the families asked least so far."""
    tally: Counter[str] = Counter()
    seed = asked = 0
    while asked < count:
        page = draw_page(seed, (size, size), split)
        seed += 1
        chosen: list[Question] = []
        for _ in range(min(per_page, len(page.questions), count - asked)):
            rest = [q for q in page.questions if q not in chosen]
            best = min(rest, key=lambda q: tally[q.family])
            tally[best.family] += 1
            chosen.append(best)
        asked += len(chosen)
        if chosen:
            yield page, chosen


def together(session: Session, questions: list[str]) -> dict[str, Any]:
    """Several questions about one image as one left-padded batch, without pixels (encoded already)."""
    rows = [session.inputs(q) for q in questions]
    longest = max(r["input_ids"].shape[1] for r in rows)
    pad = session.model.processor.tokenizer.pad_token_id
    fill = {"input_ids": pad, "attention_mask": 0, "mm_token_type_ids": 0}
    batch = {
        name: torch.cat([F.pad(r[name], (longest - r[name].shape[1], 0), value=value) for r in rows])
        for name, value in fill.items()
        if name in rows[0]
    }
    return batch | {"image_grid_thw": rows[0]["image_grid_thw"].repeat(len(rows), 1)}


def answers(
    model: ARRCOCModel, inputs: dict[str, Any], features: VisualFeatures, keep: list[Tensor]
) -> list[str]:
    """Greedy answers from the kept cells of each row."""
    compacted = model.adapter.compact(inputs, features, keep)
    ids = generate_whole(model.base, inputs, compacted, **GREEDY, max_new_tokens=8)
    new = ids[:, inputs["input_ids"].shape[1] :]
    return [text.strip() for text in model.processor.tokenizer.batch_decode(new, skip_special_tokens=True)]


@torch.no_grad()
def measure_page(model: ARRCOCModel, page: Page, asked: list[Question], seed: int) -> list[dict[str, Any]]:
    """One record per question: its answers and, where it has evidence, the share of it kept, by method."""
    session = Session(model, page.image)
    one = model.adapter.features(session.inputs("?"))
    n = len(asked)
    features = VisualFeatures(
        one.tokens * n, [level * n for level in one.levels], one.grids * n, one.cells * n, one.kind
    )
    image = image_tensor(page.image)[None]
    grid = one.grids[0]
    texture = generate_texture_array(image, grid[1:], model.layer.config.channels)
    inputs = together(session, [q.text for q in asked])
    total = grid[1] * grid[2]
    kept: dict[str, list[Tensor]] = {"full": [torch.arange(total)] * n}
    for budget in BUDGETS:
        encoded = EncodedImages(features, [texture] * n)
        prepared = model.prepare(inputs, budget=budget, mode="prune", encoded=encoded)
        kept[f"arr-coc@{budget}"] = [allocation.keep for allocation in prepared.allocations]
    generator = torch.Generator().manual_seed(seed)
    for budget in (273, 64):
        kept[f"random@{budget}"] = [
            torch.randperm(total, generator=generator)[:budget].sort().values for _ in asked
        ]
        kept[f"even grid@{budget}"] = [even_grid(grid[1:], budget)] * n
    truth = [torch.from_numpy(evidence_mask(q.evidence, *grid[1:])).flatten() for q in asked]
    said = {method: answers(model, inputs, features, keep) for method, keep in kept.items()}
    return [
        {
            "seed": page.seed,
            "template": page.template,
            "family": q.family,
            "question": q.text,
            "answer": q.answer,
            "said": {method: texts[i] for method, texts in said.items()},
            "kept": {m: len(keep[i]) for m, keep in kept.items() if m.endswith("auto")},
            "recall": {m: _recall(truth[i], keep[i]) for m, keep in kept.items()} if truth[i].any() else None,
            "evidence": round(truth[i].float().mean().item(), 5),
        }
        for i, q in enumerate(asked)
    ]


def _recall(truth: Tensor, keep: Tensor) -> float:
    """The share of the evidence cells `truth` (bool [N]) among the kept ones."""
    return round(truth[keep].sum().item() / truth.sum().item(), 4)


def interval(hits: np.ndarray) -> list[float]:
    """95 % bootstrap interval of a mean, as the result file has it."""
    return [round(end, 4) for end in bootstrap_interval(hits)]


def summarise(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Per method exact match (all, interval, by family), share of the full model's, evidence recall."""
    families = [f for f in FAMILIES if any(r["family"] == f for r in records)]
    summary: dict[str, Any] = {
        "questions": len(records),
        "evidence share": round(_mean([r["evidence"] for r in records]), 4),
    }
    full = _mean([r["said"]["full"] == r["answer"] for r in records])
    for method in records[0]["said"]:
        hits = np.array([r["said"][method] == r["answer"] for r in records], dtype=float)
        row: dict[str, Any] = {"exact match": round(float(hits.mean()), 4), "interval": interval(hits)}
        row["retained"] = round(float(hits.mean()) / full, 4) if full else None
        row["families"] = {
            f: round(float(np.mean([h for h, r in zip(hits, records, strict=True) if r["family"] == f])), 3)
            for f in families
        }
        row["evidence recall"] = round(_mean([r["recall"][method] for r in records if r["recall"]]), 4)
        sizes = [r["kept"][method] for r in records if method in r["kept"]]
        if sizes:
            row["mean kept"] = round(_mean(sizes), 1)
        summary[method] = row
    return summary


def table(summary: dict[str, Any]) -> str:
    """A markdown table of a summary: exact match per method, retained share, recall, and every family."""
    methods = [name for name, row in summary.items() if isinstance(row, dict)]
    families = list(summary[methods[0]]["families"])
    head = ["method", "exact match", "95 % interval", "retained", "evidence recall", *families]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name in methods:
        row = summary[name]
        kept = f" ({row['mean kept']:.0f} on average)" if "mean kept" in row else ""
        low, high = row["interval"]
        retained = "-" if row["retained"] is None else f"{row['retained']:.1%}"
        cells = [name + kept, f"{row['exact match']:.1%}", f"{low:.1%} - {high:.1%}", retained]
        cells += [f"{row['evidence recall']:.2f}", *(f"{row['families'][f]:.0%}" for f in families)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean(values: list[Any]) -> float:
    return float(np.mean(values)) if values else float("nan")


def main() -> None:
    """Run the measurement from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="OUT.jsonl and OUT.json are written")
    parser.add_argument("--model", help="folder of the base model; left out: the bundled one")
    parser.add_argument("--allocator", help="folder of the allocator; left out: the model's own")
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--size", type=int, default=1024, help="side of the pages in px")
    parser.add_argument("--split", default="test")
    parser.add_argument("--table", action="store_true", help="only print the table of OUT.json")
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(args.out.with_suffix(".json").read_text())))
        return
    model = ARRCOCModel.from_pretrained(args.model, allocator=args.allocator, strict=True)
    lines = args.out.with_suffix(".jsonl")
    lines.parent.mkdir(parents=True, exist_ok=True)
    records = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    done = {r["seed"] for r in records}
    with lines.open("a") as file, tqdm(total=args.questions, initial=len(records), unit="question") as bar:
        for page, asked in held_out_pages(args.questions, args.size, split=args.split):
            if page.seed in done:
                continue
            found = measure_page(model, page, asked, seed=page.seed)
            file.writelines(json.dumps(record) + "\n" for record in found)
            file.flush()
            records += found
            bar.update(len(found))
    command = f"python -m arr_coc.evaluate --out {args.out} --questions {args.questions} --size {args.size}"
    for name in ("model", "allocator"):
        command += f" --{name} {getattr(args, name)}" if getattr(args, name) else ""
    head = {"command": command, "split": args.split, "image": f"{args.size}x{args.size}"}
    head |= {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "machine": platform.machine(),
    }
    text = json.dumps(head | summarise(records), indent=1)
    args.out.with_suffix(".json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
