"""How well a base model reads: questions about held-out rendered pages, and about drawn ones, by exact match.

    python runs/reading.py FOLDER OUT.json --pages CACHE [--questions 400] [--print 24] [--whole]

    rendered    pages of split "test" of a cache of `arr-coc world`: half of them of held-out types, most in held-out
                fonts, their words held out; questions whose answer is printed in one line of the page. Each is asked
                about the part of the page round its evidence (1024 x 768 px; --whole: all of it), scaled so that the
                smallest print of its evidence is --print px
    drawn       pages of `arr_coc_lab.world`, split "test", 1024 x 1024 px

All tokens are shown; answers are greedy. Every answer is also printed.
Cost: half a second a question on one core, for the bundled model.
"""

import argparse
import json
import random
import sys
from itertools import islice
from pathlib import Path
from statistics import fmean

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from arr_coc.data.metrics import anls, exact_match
from arr_coc_lab.teaching.page import opened
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.browser.cache import CachedPages
from arr_coc_lab.world.training_pages import sample_questions

sys.path.insert(0, str(Path(__file__).parents[1]))  # how the model was made lies beside the package

from making.bundled import CELL
from making.inquiry import inquiries, least_print, moved
from making.printed import labels
from making.windows import cut

LABELLED = ("value", "card", "price", "crossing")
"""Kinds that are labelled values and table cells."""
PART, LARGEST, SIDE, TOKENS = (32, 24), 64, 1024, 40
"""Width and height in cells of a part of a page, cells of the longest side of a whole one, side in px of drawn pages,
tokens of the longest answer."""


def part(page, question, size, whole):
    """The picture of a page round a question's evidence, with the question there; None where it is not printed."""
    least = least_print(question, page.words) if question.evidence else 0.0
    if least == 0:
        return None
    scale = size / least
    sides = [-(-int(side * scale) // CELL) for side in page.image.size]
    w, h = sides if whole else map(min, zip(sides, PART, strict=True))
    if max(w, h) > LARGEST:
        return None
    start = []
    for axis, cells in enumerate((w, h)):
        middle = (min(b[axis] for b in question.evidence) + max(b[axis + 2] for b in question.evidence)) / 2
        room = page.image.size[axis] - cells * CELL / scale
        start.append(max(0.0, min(middle - cells * CELL / scale / 2, room)))
    view = cut(page, (start[0], start[1], scale), (w * CELL, h * CELL))
    there = moved(question, start[0], start[1], scale)
    if not any(inquiries([there], view.words, labels(view.words, h, w))):
        return None
    pixels = (view.pixels.permute(1, 2, 0) * 255).round().byte().numpy()
    return Image.fromarray(pixels), question


def rendered(cache, count, size, whole, seed=0):
    """`count` pictures with a question each, at most three of a page."""
    rng, pages = random.Random(seed), CachedPages(cache, "test")
    number = 0
    for index in rng.sample(range(len(pages)), len(pages)):
        page = opened(pages[index])
        parts = (part(page, q, size, whole) for q in rng.sample(page.questions, len(page.questions)))
        for image, question in islice(filter(None, parts), 3):
            yield image, question.kind, question.text, question.answer
            number += 1
            if number == count:
                return


def drawn(count, seed=0):
    """`count` pictures with a question each, eight of a page."""
    for number in range(-(-count // 8)):
        page = draw_page(number, (SIDE, SIDE), "test", void=False)
        own = min(8, count - 8 * number)
        for question in sample_questions(random.Random(seed + number), page.questions, own):
            yield page.image, question.family, question.text, question.answer


@torch.no_grad()
def answer(model, processor, image, text):
    """What the model answers."""
    content = [{"type": "image"}, {"type": "text", "text": text}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    inputs = processor(text=[prompt], images=[image], return_tensors="pt")
    ids = model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
    return processor.tokenizer.decode(ids[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def measure(model, processor, examples):
    """Rows of kind, question, truth and answer."""
    rows = []
    for image, kind, text, truth in examples:
        reply = answer(model, processor, image, text)
        rows.append({"kind": kind, "question": text, "truth": truth, "answer": reply})
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    return rows


def figures(rows):
    """Exact match, similarity and number of some rows."""
    hits = [exact_match(row["answer"], [row["truth"]]) for row in rows]
    near = [anls(row["answer"], [row["truth"]], 0.0) for row in rows]
    return {"exact": round(fmean(hits), 4), "similarity": round(fmean(near), 4), "questions": len(rows)}


def summary(rows, groups):
    """Figures by kind, of groups of kinds and of all."""
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in sorted({r["kind"] for r in rows})}
    table = {kind: figures(own) for kind, own in kinds.items()}
    for name, members in groups.items():
        own = [row for row in rows if row["kind"] in members]
        if own:
            table[name] = figures(own)
    return table | {"all": figures(rows)}


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", type=Path)
parser.add_argument("out", type=Path)
parser.add_argument("--pages", type=Path, required=True)
parser.add_argument("--questions", type=int, default=400, help="about rendered pages")
parser.add_argument("--drawn", type=int, default=256, help="about drawn pages")
parser.add_argument("--print", type=float, default=24.0, dest="size")
parser.add_argument("--whole", action="store_true")
parser.add_argument("--threads", type=int, default=1)
args = parser.parse_args()

torch.set_num_threads(args.threads)
processor = AutoProcessor.from_pretrained(args.folder)
model = AutoModelForImageTextToText.from_pretrained(args.folder, dtype="float32").eval()
result = {"model": str(args.folder), "print": args.size, "whole": args.whole}
rows = measure(model, processor, rendered(args.pages, args.questions, args.size, args.whole))
if rows:
    result["rendered"] = summary(rows, {"labelled": LABELLED})
rows = measure(model, processor, drawn(args.drawn)) if args.drawn else []
if rows:
    result["drawn"] = summary(rows, {})
args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
