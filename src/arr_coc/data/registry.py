"""The data sets by name: the reader, metric and prompt of each.

data, examples = open_data("textvqa:/data/textvqa", limit=500)
for example in examples:
    score = data.metric(reply(example.image, example.question + data.prompt), example.answers)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from arr_coc.data.lines import read_folder, read_jsonl
from arr_coc.data.metrics import loose_match
from arr_coc.data.record import Example, NoSuchFile, check_inside
from arr_coc.files.paths import local_path
from arr_coc.files.plugins import plugin, plugins
from arr_coc.files.saved import bare, nearest

Metric = Callable[[str, Sequence[str]], float]


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


OWN = (DataSet("jsonl", read_jsonl, loose_match, ""), DataSet("folder", read_folder, None, ""))
"""Questions of your own; the public data sets come with `arr-coc-lab`."""


@cache
def data_sets() -> dict[str, DataSet]:
    """All data sets by name: those of other distributions, then your own questions."""
    added = (each for name in sorted(plugins("data")) for each in plugin("data", name))
    return {each.name: each for each in (*added, *OWN)}


def open_data(
    spec: str, split: str | None = None, limit: int | None = None, *, clips: bool = True
) -> tuple[DataSet, Iterator[Example]]:
    """The data set and the questions that `NAME:DIR` names.

    Files are opened and read now, images are located as their questions come.

    Args:
        spec: a name of `data_sets()` and a folder, such as "textvqa:/data/textvqa".
        split: None for the one that results are usually published on.
        limit: at most so many questions, the first ones; None for all.
        clips: whether the caller can take questions about clips.

    Raises:
        ValueError: a spec of another form, an unknown name, a data set of clips for a caller of images, or
            what the reader raises.
    """
    name, colon, folder = spec.partition(":")
    sets = data_sets()
    names = ", ".join(sets)
    if not colon or not folder.strip():
        raise ValueError(f"data {spec!r} is not NAME:DIR: write for example textvqa:/data/textvqa ({names})")
    if name.strip().lower() not in sets:
        hint = nearest(name.strip(), sets)
        raise ValueError(f"data set {name!r} is unknown: use one of {names}, or jsonl:DIR for your own{hint}")
    data = sets[name.strip().lower()]
    if data.clips and not clips:
        images = ", ".join(name for name, other in sets.items() if not other.clips)
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
