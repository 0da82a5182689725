"""Writes a task for lmms-eval: drawn pages with questions, which the bundled model can read.

    python -m arr_coc_lab.integrations.pages --out pages-task --questions 100
    python -m lmms_eval --include_path pages-task --tasks arr_coc_pages ...

Its questions are those of `arr-coc eval --data world` with the same arguments, scored by exact match.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from arr_coc.data.metrics import exact_match
from arr_coc.files.atomic import move_files, temporary_folder
from arr_coc.files.images import open_image
from arr_coc.files.paths import local_path
from arr_coc_lab.extras import install_line

TASK = Path(__file__).with_name("arr_coc_pages.yaml")
PAGES = "pages.parquet"


def doc_to_visual(doc: Mapping[str, Any]) -> list[Any]:
    """Return the image of a question, for lmms-eval."""
    return [doc["image"].convert("RGB")]


def doc_to_text(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Any = None) -> str:
    """Return the question, unchanged: the bundled model is trained to answer in a word."""
    return doc["question"]


def process_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Return the score of an answer, 0 or 1."""
    return {"exact_match": exact_match(results[0], [doc["answer"]])}


def write_task(folder: Path, questions: int, size: int, seed: int, split: str) -> None:
    """Write a task with pages of `size` px into `folder`; ValueError without `datasets` or if it can't."""
    from arr_coc_lab.evaluate.questions import world_questions

    try:
        from datasets import Dataset, Features, Image, Value
    except ImportError as error:
        raise ValueError(f"this needs datasets, which is missing: {install_line('pages')}") from error
    features = {name: Value("string") for name in ("id", "question", "answer", "family", "page")}

    rows = []
    for page in world_questions(questions, size, split=split, seed=seed):
        buffer = io.BytesIO()
        open_image(page.image).save(buffer, format="PNG")
        picture = {"bytes": buffer.getvalue(), "path": None}
        for query in page.queries:
            own = {"id": query.id, "question": query.text, "answer": query.answers[0]}
            rows.append(own | {"family": query.family, "page": page.key, "image": picture})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        data = Dataset.from_list(rows, features=Features(features | {"image": Image()}))
        with temporary_folder(".saving-", folder) as new:
            data.to_parquet(new / PAGES)
            shutil.copyfile(TASK, new / TASK.name)
            move_files(new, folder, (PAGES, TASK.name))
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error}): choose another with --out"
        raise ValueError(f"folder {str(folder)!r} {reason}") from error


def command(
    out: Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="Where.")] = "arr-coc-task",
    questions: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 100,
    size: Annotated[int, typer.Option(min=64, max=4096, help="Side of the pages in px.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws other pages.")] = 0,
    split: Annotated[Literal["train", "validation", "test"], typer.Option(help="Of the pages.")] = "test",
) -> None:
    """Write drawn pages and their questions as a task of lmms-eval."""
    try:
        write_task(local_path(out), questions, size, seed, split)
    except ValueError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from error
    print(f"python -m lmms_eval --model arr_coc --include_path {out} --tasks arr_coc_pages --batch_size 1")


if __name__ == "__main__":
    typer.run(command)
