"""How a gestalt and its saccades are best laid out in the prompt, measured on the bundled model.

    python runs/arrangement.py OUT.json [--size 2048] [--questions 160]

    frame     "image": the gestalt in the image's own coordinates, at fractional positions, before the saccades;
              "own": the gestalt as an image of its own before the fine one
    order     of the saccades: "raster" or "relevance" (the most relevant first)
    place     of the saccades: before the "question", or "after" it (the gestalt is always before)

The kept cells are the same in every row. With the adapter that the package ships (it was taught image/raster/question)
and without it (nothing was taught): the second half says what a model prefers that knows none of them. About 10 minutes
on one core.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from arr_coc import ARRCOCQwen
from arr_coc.choose.allocation import Allocation
from arr_coc.seam.assembly import GESTALT
from arr_coc.session import GREEDY, Session
from arr_coc_lab.evaluate.questions import world_questions

ROWS = [
    ("image", "raster", "question"),
    ("image", "relevance", "question"),
    ("image", "raster", "after"),
    ("own", "raster", "question"),
    ("own", "relevance", "question"),
    ("own", "raster", "after"),
]


def two_images(
    session: Session, adapter: Any, question: str, allocation: Allocation
) -> tuple[dict[str, Any], torch.Tensor]:
    """Arguments of the base model for the coarse view as an image of its own, and which columns are saccades."""
    processor = session.model.processor
    inputs = session.inputs(question)
    coarse = adapter.coarse(inputs)
    both = {name: torch.cat([coarse[name], inputs[name]]) for name in ("pixel_values", "image_grid_thw")}
    counts = [int(t * h * w) // 4 for t, h, w in both["image_grid_thw"].tolist()]
    content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": question}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    first, second, rest = text.split(processor.image_token)
    text = first + processor.image_token * counts[0] + second + processor.image_token * counts[1] + rest
    ids = processor.tokenizer(text, return_tensors="pt")["input_ids"]
    both |= {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == processor.image_token_id).long(),
    }
    layout = adapter.layout(both)
    keep = [torch.arange(counts[0]), allocation.keep]
    compacted = adapter.assemble(both, layout, keep, adapter.encode_cells(both, keep), None)
    fine = compacted.columns[0] >= int((ids[0] == processor.image_token_id).nonzero()[counts[0]])
    return dict(compacted.kwargs), fine & (compacted.kwargs["input_ids"][0] == processor.image_token_id)


def arranged(
    kwargs: dict[str, Any], fine: torch.Tensor, allocation: Allocation, order: str, place: str, closing: int
) -> dict[str, Any]:
    """The same prompt with its saccades in another order or at another place; every position as it was."""
    columns = torch.arange(len(fine))
    saccades, others = columns[fine], columns[~fine]
    rank = torch.arange(len(saccades))
    if order == "relevance":
        where = {cell: i for i, cell in enumerate(allocation.keep.tolist())}
        rank = torch.tensor([where[cell] for cell in allocation.order.tolist()])
    # `closing` tokens end the user's turn and open the answer.
    at = int(saccades[0]) if place == "question" else len(others) - closing
    line = torch.cat([others[:at], saccades[rank], others[at:]])
    moved = dict(kwargs)
    for name in ("input_ids", "attention_mask", "mm_token_type_ids"):
        moved[name] = kwargs[name][:, line]
    moved["position_ids"] = kwargs["position_ids"][..., line].clone()
    moved["position_ids"][0] = torch.arange(len(line))
    vision = kwargs["mm_encoder_outputs"]["image"]
    coarse = sum(map(len, vision.pooler_output)) - len(saccades)
    index = torch.cat([torch.arange(coarse), coarse + rank])
    levels = [[torch.cat(list(level))[index]] for level in vision.deepstack_features]
    moved["mm_encoder_outputs"] = {
        "image": type(vision)(
            pooler_output=[torch.cat(list(vision.pooler_output))[index]], deepstack_features=levels
        )
    }
    return moved


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out", type=Path)
parser.add_argument("--size", type=int, default=2048)
parser.add_argument("--questions", type=int, default=160)
args = parser.parse_args()

model = ARRCOCQwen.from_pretrained(strict=True)
tokenizer = model.processor.tokenizer
closing = len(tokenizer("<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False)["input_ids"])
right: dict[str, list[bool]] = {}
with torch.no_grad(), tqdm(total=args.questions) as bar:
    for page in world_questions(args.questions, args.size, 8, "test"):
        session = model.session(page.image)
        for query in page.queries:
            inputs = session.inputs(query.text)
            for mode in ("saccade", "full"):  # no LoRA is at work in the mode "full"
                adapter = model.adapter_for(mode)
                prepared = model.prepare(inputs, mode="saccade", encoded=session.encoded("saccade"))
                allocation, columns = prepared.allocations[0], prepared.compacted.columns[0]
                fine = adapter.encode_cells(inputs, [allocation.keep])
                gestalt = adapter.features(adapter.coarse(inputs))
                layout = adapter.layout(inputs)
                one = adapter.assemble(inputs, layout, [allocation.keep], fine, gestalt).kwargs
                image = one["input_ids"][0] == adapter.image_token_id
                own, own_fine = two_images(session, adapter, query.text, allocation)
                for frame, order, place in ROWS:
                    kwargs, some = (
                        (one, image & (columns != GESTALT)) if frame == "image" else (own, own_fine)
                    )
                    moved = arranged(kwargs, some, allocation, order, place, closing)
                    ids = adapter.model.generate(**moved, **GREEDY, max_new_tokens=8)
                    text = tokenizer.decode(ids[0, moved["input_ids"].shape[1] :], skip_special_tokens=True)
                    name = f"{frame}/{order}/{place}" + ("" if mode == "saccade" else ", no adapter")
                    right.setdefault(name, []).append(text.strip() in query.answers)
            bar.update()
result = {
    "command": f"python runs/arrangement.py {args.out} --size {args.size} --questions {args.questions}",
    "questions": args.questions,
    "size": args.size,
    "exact match": {name: round(sum(hits) / len(hits), 4) for name, hits in right.items()},
}
args.out.write_text(json.dumps(result, indent=1) + "\n")
print(json.dumps(result, indent=1))
