"""What a user names as data: a folder of images with questions, or NAME:DIR. Without torch, so that commands
refuse what can't be read before they load anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from arr_coc.data import DataSet, Example, data_sets, open_data
from arr_coc.files.paths import local_path


def open_scored(
    spec: str, split: str | None, limit: int | None, own_answers: bool
) -> tuple[DataSet, Iterator[Example]]:
    """As `open_data`, for images; a ValueError where there are no answers to score, unless `own_answers`."""
    data, examples = open_data(spec, split, limit, clips=False)
    if data.metric is None and not own_answers:
        raise ValueError(
            f"data {spec!r} has no answers to score: use jsonl:DIR with answers, or a public set, or the "
            "model's own answers (--own-answers)"
        )
    return data, examples


def data_spec(data: str, own_answers: bool = True) -> str:
    """NAME:DIR of a folder: COCO's boxes, parquet, or lines with or, given `own_answers`, without answers.

    Raises:
        ValueError: it is no folder, or has no readable question; without `own_answers`, the first line whose
            answer is missing or wrong.
    """
    name, colon, _ = data.partition(":")
    if colon and name.strip().lower() in data_sets():
        return data
    folder = local_path(data)
    if colon and not folder.exists():
        return data  # `open_data` says which names there are
    if not folder.exists():
        raise ValueError(
            f"data {data!r} is not there: give a folder of images with questions.jsonl, or NAME:DIR"
        )
    if (folder / "annotations").is_dir():
        return f"coco:{data}"
    if not (folder / "questions.jsonl").is_file() and _has_parquet(folder):
        return f"parquet:{data}"
    lines = f"folder:{data}"
    for _ in open_data(lines)[1]:  # errors in the lines are raised here
        pass
    try:
        for _ in open_data(f"jsonl:{data}")[1]:
            pass
    except ValueError as error:  # some question has no answer: the model's own stands in
        if not own_answers:
            raise ValueError(f"{error}, or use the model's own answers (--own-answers)") from error
        return lines
    return f"jsonl:{data}"


def _has_parquet(folder: Path) -> bool:
    return folder.suffix == ".parquet" or any(
        any(folder.glob(f"{place}*.parquet")) for place in ("", "data/")
    )
