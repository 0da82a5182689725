"""The data sets by name: the reader, metric and prompt of each.

data, examples = open_data("textvqa:/data/textvqa", limit=500)
for example in examples:
    score = data.metric(reply(example.image, example.question + data.prompt), example.answers)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from arr_coc.core.paths import local_path
from arr_coc.data.chartqa import read_chartqa
from arr_coc.data.clips import LETTER
from arr_coc.data.coco import read_coco
from arr_coc.data.docvqa import read_docvqa
from arr_coc.data.gqa import read_gqa
from arr_coc.data.lines import read_folder, read_jsonl
from arr_coc.data.longvideobench import read_longvideobench
from arr_coc.data.metrics import (
    anls,
    choice_accuracy,
    exact_match,
    loose_match,
    relaxed_accuracy,
    vqa_accuracy,
)
from arr_coc.data.mvbench import read_mvbench
from arr_coc.data.parquet import read_parquet
from arr_coc.data.pope import read_pope
from arr_coc.data.record import Example, NoSuchFile, check_inside
from arr_coc.data.rendered import read_rendered
from arr_coc.data.textvqa import read_textvqa
from arr_coc.data.videomme import read_videomme
from arr_coc.data.vqav2 import read_vqav2
from arr_coc.store.validation import bare, nearest

Metric = Callable[[str, Sequence[str]], float]

SHORT = "\nAnswer the question using a single word or phrase."
"""What LLaVA and lmms-eval append to a question of the public data sets of images here."""


class Reader(Protocol):
    """Reads the questions of a folder; `split` has the official one of the data set as default."""

    def __call__(self, folder: Path, split: str = ..., limit: int | None = None) -> Iterator[Example]: ...


@dataclass(frozen=True)
class DataSet:
    """One data set on disk.

    Attributes:
        name: as in `NAME:DIR`.
        read: its reader.
        metric: (answer, truths) -> 0 to 1; None where questions have no answers.
        prompt: what follows the question, "" for nothing.
        clips: whether `Example.image` is a video or a folder of frames instead of an image.
        classes: keys of `Example.meta` by which results are published, for `metrics.mean_by_class`.
    """

    name: str
    read: Reader
    metric: Metric | None
    prompt: str
    clips: bool = False
    classes: tuple[str, ...] = ()


DATASETS: dict[str, DataSet] = {
    data.name: data
    for data in (
        DataSet("vqav2", read_vqav2, vqa_accuracy, SHORT),
        DataSet("textvqa", read_textvqa, vqa_accuracy, SHORT),
        DataSet("docvqa", read_docvqa, anls, SHORT),
        DataSet("chartqa", read_chartqa, relaxed_accuracy, SHORT),
        DataSet("gqa", read_gqa, loose_match, SHORT),
        DataSet("pope", read_pope, loose_match, SHORT, classes=("category",)),
        DataSet("videomme", read_videomme, choice_accuracy, LETTER, True, ("duration", "task_type")),
        DataSet("mvbench", read_mvbench, choice_accuracy, LETTER, True, ("task",)),
        DataSet("longvideobench", read_longvideobench, choice_accuracy, LETTER, True, ("duration_group",)),
        DataSet("jsonl", read_jsonl, loose_match, ""),
        DataSet("coco", read_coco, loose_match, ""),
        DataSet("parquet", read_parquet, loose_match, SHORT),
        DataSet("rendered", read_rendered, exact_match, ""),
        DataSet("folder", read_folder, None, ""),
    )
}


def open_data(
    spec: str, split: str | None = None, limit: int | None = None, *, clips: bool = True
) -> tuple[DataSet, Iterator[Example]]:
    """The data set and the questions that `NAME:DIR` names.

    Files are opened and read now, images are located as their questions come.

    Args:
        spec: a name of `DATASETS` and a folder, such as "textvqa:/data/textvqa".
        split: None for the one that results are usually published on.
        limit: at most so many questions, the first ones; None for all.
        clips: whether the caller can take questions about clips.

    Raises:
        ValueError: a spec of another form, an unknown name, a data set of clips for a caller of images, or
            what the reader raises.
    """
    name, colon, folder = spec.partition(":")
    names = ", ".join(DATASETS)
    if not colon or not folder.strip():
        raise ValueError(f"data {spec!r} is not NAME:DIR: write for example textvqa:/data/textvqa ({names})")
    if name.strip().lower() not in DATASETS:
        hint = nearest(name.strip(), DATASETS)
        raise ValueError(f"data set {name!r} is unknown: use one of {names}, or jsonl:DIR for your own{hint}")
    data = DATASETS[name.strip().lower()]
    if data.clips and not clips:
        images = ", ".join(name for name, other in DATASETS.items() if not other.clips)
        raise ValueError(f"data {spec!r} is about clips, and this is done with images: use one of {images}")
    choice = {} if split is None else {"split": split}
    return data, _read(data, local_path(folder.strip()), choice | {"limit": limit})


def _read(data: DataSet, folder: Path, choice: dict[str, Any]) -> Iterator[Example]:
    """The questions in a folder, or in the one folder of it that has them: archives and the Hub nest them.

    Raises:
        ValueError: what the reader says of the folder; or several of its folders have questions.
    """
    try:
        return data.read(folder, **choice)
    except NoSuchFile as error:
        reason = ValueError(str(error))
    readings: dict[str, Iterator[Example]] = {}
    for inner in _folders(folder):
        with contextlib.suppress(NoSuchFile):
            check_inside(inner, folder)
            readings[inner.name] = data.read(inner, **choice)
    if len(readings) > 1:
        some = ", ".join(map(bare, list(readings)[:12]))
        raise ValueError(f"{folder} has questions in several folders ({some}): give one of them") from reason
    if not readings:
        raise reason
    return next(iter(readings.values()))


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:  # a file, or nothing
        return []
