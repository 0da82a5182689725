"""Long text as memory: what stands after a label on a page of text, by how few visual tokens are left of the page.

    python runs/long_text.py runs/results/long-text.json [--pages 4]

    pages      `arr_coc_lab.world.draw_text_page`, split "test", 1024 x 1024 px, 1,024 cells; as many with running text of common
               words as with running text of random strings. Of each page its note and --values of its labelled values, drawn by chance
    strings    what stands after a label: 2 to 5 random characters of 32, which no language prior helps to read
    words      the note: two words, each one of 16 that the model was taught, in print of the same size
    exact      letter by letter; [low, high] is a bootstrap over questions of 95 %
    characters 1 - edits / length of the longer, mean over questions; a page without any print says what guessing gives

    all tokens       the stock model
    shrunk           the page as a picture of that many cells (`resize`); what optical compression is
    mean pooling     all cells encoded, then averaged to a grid of that many
    tower4, ...      the learned compressors there are, of the one factor that each has
    truncation       the first so many cells of the encoded page, in reading order: its first rows
    sparse           cells that the question points at, encoded alone, no coarse view
    saccade          half of the tokens a shrunk page, the other half cells that the question points at; of 529, 256 and 273
    ... of another question   the same tokens, the cells chosen for another label of the page

All in the bundled model, greedily. About 15 minutes on one free core.
"""

import argparse
import json
import random
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image
from tqdm import tqdm

from arr_coc.data.metrics import anls, exact_match
from arr_coc.model import ARRCOCModel
from arr_coc.seam.gestalt import COMPRESSORS, coarsen
from arr_coc_lab.evaluate.reader import CellReader
from arr_coc_lab.results.intervals import bootstrap_interval
from arr_coc_lab.world import draw_text_page

SIDES = (23, 16, 11, 8, 7)
"""Sides of the grid that is left of 32 x 32 cells: 1.9, 4, 8.5, 16 and 21 times fewer tokens."""
COARSE = {23: 16, 16: 11, 11: 7, 8: 5, 7: 4}
"""Side of the shrunk page beside which the rest are saccades."""
CELLS = 1024
PLAIN = ("resize", "pool4", "pool16")
"""Compressors that are measured at every number of tokens."""


def pooled(features, side):
    """The encoded page averaged to a grid of side x side."""
    reduce = partial(F.adaptive_avg_pool2d, output_size=(side, side))
    return coarsen(features, lambda x: reduce(x.float()).to(x.dtype))


def shrunk(model, session, mode, cells):
    """The coarse view of a page in a mode, of at most so many cells."""
    adapter = model.adapter_for(mode)
    return adapter.features(adapter.coarse(session.inputs("?"), cells=cells))


class PageAnswers:
    """Answers about one page from few tokens, by method and number of tokens."""

    def __init__(self, model, page, whole=None):
        self.model, self.page, self.session = model, page, model.session(page.image)
        self.left_out = {}

    def coarse(self, name, gestalt):
        """A session that has a gestalt of that name already."""
        fresh = self.session.fresh()
        encoded = fresh.encoded("compress")
        encoded.features, encoded.gestalts[name] = self.session.encoded("compress").features, gestalt
        return fresh

    def ask(self, session, questions, **how):
        """(tokens, answers) of questions asked alone."""
        answers = [session.ask(question.text, **how) for question in questions]
        return max(answer.read for answer in answers), [answer.text for answer in answers]

    def cells(self, questions, keeps, mode):
        """(tokens, answers) from given cells."""
        answers = []
        for question, keep in zip(questions, keeps, strict=True):
            reader = CellReader(self.session, question.text, question.answer, mode)
            answers.append(reader.answer(reader.encode(keep), keep))
        return max(map(len, keeps)), answers

    @torch.no_grad()
    def every(self, questions):
        """Yields (method, side or None, tokens, answers)."""
        model, session = self.model, self.session
        yield "all tokens", None, *self.ask(session, questions, mode="full")
        features = session.encoded("full").features
        session.encoded("compress").features = features
        turned = [*questions[1:], questions[0]]
        for side in SIDES:
            count = side * side
            small = self.coarse("resize", shrunk(model, session, "compress", count))
            yield "shrunk", side, *self.ask(small, questions, mode="compress", gestalt="resize")
            small = self.coarse("pool4", pooled(features, side))
            yield "mean pooling", side, *self.ask(small, questions, mode="compress", gestalt="pool4")
            first = torch.arange(count)
            yield "truncation", side, *self.cells(questions, [first] * len(questions), "full")
            yield "sparse", side, *self.ask(session, questions, mode="sparse", budget=count)
            few = COARSE[side] ** 2
            fresh = session.fresh()
            fresh.encoded("saccade").gestalts["resize"] = shrunk(model, session, "saccade", few)
            how = {"mode": "saccade", "gestalt": "resize", "budget": count - few}
            yield "saccade", side, *self.ask(fresh, questions, **how)
            if side in (16, 8):
                looks = [session.look(q.text, mode="sparse", budget=count).keep for q in turned]
                yield "sparse, of another question", side, *self.cells(questions, looks, "sparse")
        for name in COMPRESSORS:
            if name in PLAIN:
                continue
            try:
                yield name, None, *self.ask(session, questions, mode="compress", gestalt=name)
            except ValueError as error:  # a compressor without weights for this model
                self.left_out[name] = str(error)
        blank = model.session(Image.new("RGB", self.page.image.size, "white"))
        yield "a page without print", None, *self.ask(blank, questions, mode="sparse", budget=64)


def scored(rows):
    """Scores of (answer, truth) pairs."""
    exact = [exact_match(answer, [truth]) for answer, truth in rows]
    low, high = bootstrap_interval(exact)
    characters = [anls(answer, [truth], threshold=0.0) for answer, truth in rows]
    return {
        "questions": len(rows),
        "exact": round(sum(exact) / len(exact), 3),
        "interval": [round(low, 3), round(high, 3)],
        "characters": round(sum(characters) / len(characters), 3),
    }


def summed(rows, tokens, left_out, how):
    """The result file."""
    return how | {
        "left out": left_out,
        "rows": [
            {
                "method": method,
                "side": side,
                "tokens": tokens[method, side],
                "compression": round(CELLS / tokens[method, side], 1),
                **{kind: scored(pairs) for kind, pairs in sorted(kinds.items())},
            }
            for (method, side), kinds in rows.items()
        ],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--pages", type=int, default=4, help="of each kind of running text")
    parser.add_argument("--values", type=int, default=3, help="labelled values of a page that are asked for")
    args = parser.parse_args()

    model, start = ARRCOCModel.from_pretrained(strict=True), time.time()
    rows, tokens, left_out = defaultdict(lambda: defaultdict(list)), {}, {}
    for number in tqdm(range(args.pages), "pages"):
        for filler in ("words", "strings"):
            page = draw_text_page(number, filler=filler)
            notes = [q for q in page.questions if q.family == "note"]
            values = [q for q in page.questions if q.family == "value"]
            questions = random.Random(number).sample(values, min(args.values, len(values))) + notes
            answers = PageAnswers(model, page)
            for method, side, count, texts in answers.every(questions):
                key = (method, side)
                tokens[key] = max(tokens.get(key, 0), count)
                for question, text in zip(questions, texts, strict=True):
                    kind = "words" if question.family == "note" else "strings"
                    pair = (text, question.answer)
                    rows[key][kind].append(pair)
                    if kind == "strings":
                        rows[key][f"strings among {filler}"].append(pair)
            left_out |= answers.left_out
        how = {
            "command": f"python runs/long_text.py {args.out} --pages {number + 1} --values {args.values}",
            "pages": 2 * (number + 1),
            "cells": CELLS,
            "minutes": round((time.time() - start) / 60, 1),
        }
        result = summed(rows, tokens, left_out, how)
        args.out.write_text(json.dumps(result, indent=1) + "\n")  # a run that is stopped has those before
    for row in result["rows"]:
        print(
            row["method"],
            row["tokens"],
            *(f"{kind} {row[kind]['exact']}/{row[kind]['characters']}" for kind in ("strings", "words")),
        )
