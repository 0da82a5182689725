"""The figures in the card of the real pictures' labels, counted from the labels; the pictures aren't needed."""

import json
from collections import Counter, defaultdict
from typing import Any

from arr_coc.choose.boxes import Box, box_cells
from arr_coc_lab.pictures.labels import SECOND, RealPicture, manifest, pictures

CELL = 32  # px


def share(values: list[Any]) -> float:
    """The mean of numbers or of what holds."""
    return sum(values) / len(values)


def cells_of(picture: RealPicture, boxes: tuple[Box, ...]) -> set[int]:
    """Cells of 32 px that some boxes touch."""
    width, height = picture.size
    grid = (-(-height // CELL), -(-width // CELL))
    touched = [box_cells(box, grid, (grid[1] * CELL, grid[0] * CELL)) for box in boxes]
    return {int(cell) for cells in touched for cell in cells.flatten().nonzero()}


def counts_text() -> str:
    """How many pictures there are of each kind and language, and how many questions of each sort."""
    rows, every = manifest(), [question for picture in pictures() for question in picture.questions]
    asks, columns = Counter(question.ask for question in every), ("kind", "language", "split")
    kinds, languages, splits = ([*Counter(row[name] for row in rows).most_common()] for name in columns)
    listed = lambda pairs: ", ".join(f"{name} {count:,}" for name, count in pairs)  # noqa: E731
    return (
        f"{len(rows)} pictures of {len({row['package'] for row in rows})} packages, {sum(row['style'] == 'dark' for row in rows)} of them dark, "
        f"with {len(every):,} questions, {asks['unanswerable']:,} of them not answerable from the picture.\n\n"
        f"| | |\n|---|---|\n| split, by package | {listed(splits)} |\n| pictures | {listed(kinds)} |\n"
        f"| language of the print | {listed(languages)} |\n| asked for | {listed(asks.most_common())} |"
    )


def agreement_text() -> str:
    """How far the second reader's evidence is the first one's."""
    firsts = {(one.file, question.text): (one, question) for one in pictures() for question in one.questions}
    rows = [json.loads(line) for line in SECOND.read_text(encoding="utf-8").splitlines()]
    pairs = [
        (*firsts[key], row["boxes"]) for row in rows if (key := (row["file"], row["question"])) in firsts
    ]
    overlaps: dict[str, list[float]] = defaultdict(list)
    among = []
    for picture, question, boxes in pairs:
        if question.boxes and boxes:
            first, second = cells_of(picture, question.boxes), cells_of(picture, boxes)
            among.append(len(first & second) / len(first))
            for name in ("all", question.ask):
                overlaps[name].append(len(first & second) / len(first | second))
    every = overlaps.pop("all")
    kinds = ", ".join(f"{name} {share(overlaps[name]):.2f}" for name in sorted(overlaps))
    verdicts = sum(bool(question.boxes) == bool(boxes) for _, question, boxes in pairs)
    return (
        f"Of {len(every)} questions that both answer: intersection over union of the cells of {CELL} px {share(every):.3f}, at least one half for "
        f"{share([one >= 0.5 for one in every]):.0%}; {share(among):.3f} of the first reader's cells are among the second's ({kinds}). On whether a "
        f"question can be answered they agree in {verdicts} of {len(pairs)}; {len(rows) - len(pairs)} of the {len(rows)} were reworded since."
    )


def nulls_text(wording: float) -> str:
    """What needs no look at the picture reaches; `wording`: an AUC."""
    answered = {
        split: [q for one in pictures(split) for q in one.questions if q.boxes] for split in ("train", "test")
    }
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    for question in answered["train"]:
        answers[question.ask][question.answer] += 1
    commonest = share([answers[q.ask].most_common(1)[0][0] == q.answer for q in answered["test"]])
    return (
        f"The commonest answer to what is asked for, learned on the training split, is right for {commonest:.1%} of the test split. Cells by chance "
        f"keep 6 % of the evidence in 64 of 1,024 and 27 % in 273. The wording of a question alone tells whether it can be answered with an AUC of "
        f"{wording:.2f} (validation split, `python runs/presence.py`)."
    )
