"""Reads pages and questions from parquet files, and writes kept cells and evidence boxes to others.

    job = CorpusJob("pages", "chosen", budget=64)       folders here, or addresses such as s3://bucket/pages
    for unit in list_units(job):
        choose_unit(job, selector, unit)                `corpus_actors` does this on many machines

The unit of work is a row group of a file of pages. It becomes one file of results, written under another name
and then renamed, so the files are the record of what is done. A row (`SCHEMA`) depends on its own page and
question, with `together` also on the rows beside it in its row group, and on nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs, parquet

from arr_coc import __version__
from arr_coc.choose.allocation import Allocation
from arr_coc.choose.budget import DEFAULT_BUDGET, Budget, parse_budget
from arr_coc.files.atomic import one_line
from arr_coc.files.paths import local_path
from arr_coc.files.question import check_question
from arr_coc.files.validation import short
from arr_coc.pixels import find_page, ranked_units
from arr_coc.selector import KnownPicture, Selector
from arr_coc_lab.data.parquet import IDS
from arr_coc_lab.data.parquet_rows import BATCH, LARGEST, QUESTIONS, REMEDY

TRIES = 3  # of a row group whose actor is ended, as for want of memory, in one run
BOX = {"x0": pa.int32(), "y0": pa.int32(), "x1": pa.int32(), "y1": pa.int32(), "score": pa.float32()}
# `kept` counts cells in raster order on a grid of (rows, columns); boxes are in px of a page of `size` =
# (width, height), best first. A row with an `error` has neither.
SCHEMA = pa.schema(
    {
        "file": pa.string(), "row": pa.int64(), "id": pa.string(), "question": pa.string(),
        "size": pa.list_(pa.int32()), "grid": pa.list_(pa.int32()), "kept": pa.list_(pa.int32()),
        "boxes": pa.list_(pa.struct(BOX)), "note": pa.string(), "error": pa.string(),
    }
)  # fmt: skip


class CorpusUnit(NamedTuple):
    """A row group of a file of pages: its rows from `first` on, and a digest of what the file says of it."""

    file: str
    group: int
    first: int
    rows: int
    digest: str

    @property
    def target(self) -> str:
        """The name of the file of its results."""
        return f"{PurePosixPath(self.file).stem}-{self.group:05}.parquet"


@dataclass(frozen=True)
class CorpusJob:
    """What is chosen from which pages, and where it is written.

    Args:
        source: Folder of `*.parquet` with the columns of `arr_coc_lab.data.parquet`; answers aren't needed.
        out: Folder for the results, reached by every machine under this name.
        budget: Cells of each page, as in `Selector.many`.
        allocator: Folder of a trained allocator; None: the guide decides.
        relevance: As in `Selector`.
        device: Of each actor.
        dtype: Of the guide. "auto" depends on the machine, and so may cells of nearly equal relevance.
        together: Rows that are chosen in one call of `Selector.many`. More than one is for GPUs: sums of
            several pages are added in another order, which may swap cells of nearly equal relevance.
    """

    source: str
    out: str
    budget: Budget = DEFAULT_BUDGET
    allocator: str | None = None
    relevance: str = "auto"
    device: str = "cpu"
    dtype: str = "float32"
    together: int = 1

    def open_selector(self) -> Selector:
        """Load what chooses; ValueError for a bad budget, allocator, relevance, device or `together`."""
        parse_budget(self.budget)
        if self.together < 1:
            raise ValueError(f"together {self.together} is no count of rows: give 1 or more")
        return Selector.from_pretrained(
            self.allocator, relevance=self.relevance, device=self.device, dtype=self.dtype
        )

    def settings(self, selector: Selector) -> str:
        """Return what the cells depend on beside the pages, as JSON; it stands in each file of results."""
        by = f"{selector.source.name} {selector.source.version}"
        own = [
            parse_budget(self.budget),
            self.allocator,
            self.relevance,
            by,
            self.device,
            self.dtype,
            self.together,
        ]
        return json.dumps([__version__, *own])


def find_place(path: str) -> tuple[Any, str]:
    """Return the file system of a folder here or of an address (`pyarrow.fs`), and the path in it."""
    if "://" in path:
        return fs.FileSystem.from_uri(path)
    return fs.LocalFileSystem(), str(local_path(path).absolute())


def list_units(job: CorpusJob) -> list[CorpusUnit]:
    """Return the row groups of all files of pages; ValueError for none, a damaged one or a missing column."""
    place, folder = find_place(job.source)
    if (place, folder) == find_place(job.out):
        raise ValueError(f"pages and results are both in {job.source!r}: give another folder for the results")
    try:
        every = place.get_file_info(fs.FileSelector(folder))
    except OSError as error:
        raise ValueError(f"{job.source!r} can't be read ({one_line(error)}): check the folder") from error
    units = []
    for path in sorted(one.path for one in every if one.is_file and one.extension == "parquet"):
        try:
            data = parquet.read_metadata(path, filesystem=place)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} can't be read ({one_line(error)}): {REMEDY}") from error
        _columns(path, data.schema.to_arrow_schema().names)
        first = 0
        for group in range(data.num_row_groups):
            part = data.row_group(group)
            digest = hashlib.sha256(repr(part.to_dict()).encode()).hexdigest()
            units.append(CorpusUnit(PurePosixPath(path).name, group, first, part.num_rows, digest))
            first += part.num_rows
    if not units:
        raise ValueError(f"{job.source!r} has no *.parquet with rows: give the folder of the pages")
    return units


def _columns(path: str, names: Sequence[str]) -> dict[str, str]:
    """Return the columns of pages that are read, as what they are here -> their name in the file."""
    wanted = {"image": ("image",), "question": QUESTIONS, "id": IDS}
    columns = {key: name for key, every in wanted.items() for name in reversed(every) if name in names}
    if lacks := {"image", "question"} - set(columns):
        has = ", ".join(list(names)[:12])
        raise ValueError(f"{path} has no column {min(lacks)!r} (it has {has}): rename the one that is meant")
    return columns


def is_done(job: CorpusJob, settings: str, unit: CorpusUnit) -> bool:
    """Return whether a whole file has the results of a row group; ValueError if by other settings.

    A file that is cut off, or whose pages were replaced since, doesn't count.
    """
    place, folder = find_place(job.out)
    path = f"{folder}/{unit.target}"
    try:
        data = parquet.read_metadata(path, filesystem=place)
    except (pa.ArrowException, OSError):
        return False
    marks = data.metadata or {}
    if marks.get(b"settings", b"").decode() != settings:
        raise ValueError(f"{path} was chosen with other settings than {settings}: give another folder")
    return marks.get(b"pages", b"").decode() == unit.digest and data.num_rows == unit.rows


def remove_parts(job: CorpusJob) -> None:
    """Remove what killed writers left in the folder of results."""
    place, folder = find_place(job.out)
    for one in place.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        if one.is_file and one.extension == "part":
            place.delete_file(one.path)


def choose_unit(job: CorpusJob, selector: Selector, unit: CorpusUnit) -> int:
    """Choose for the rows of a row group and write its file; return how many of them have an error.

    ValueError if the row group can't be read, or has ended TRIES processes; OSError if the file can't be
    written.
    """
    place, folder = find_place(job.out)
    place.create_dir(folder)
    path = f"{folder}/{unit.target}"
    parts = place.get_file_info([f"{path}.{number}.part" for number in range(TRIES)])
    part = next((one.path for one in parts if not one.is_file), None)
    if part is None:
        raise ValueError(f"what chose for it was ended {TRIES} times, as for want of memory: leave it out")
    place.open_output_stream(part).close()  # stays if this process is ended
    try:
        rows = list(choose_rows(selector, read_rows_of(job, unit), job.budget, job.together))
        schema = SCHEMA.with_metadata({"settings": job.settings(selector), "pages": unit.digest})
        parquet.write_table(pa.Table.from_pylist(rows, schema), part, filesystem=place)
    except Exception:
        place.delete_file(part)
        raise
    place.move(part, path)
    return sum(row["error"] is not None for row in rows)


def read_rows_of(job: CorpusJob, unit: CorpusUnit) -> Iterator[dict[str, Any]]:
    """Yield the rows of a row group: `file`, `row`, `id`, `question`, `image` as bytes, or an `error`."""
    place, folder = find_place(job.source)
    path = f"{folder}/{unit.file}"
    try:
        with parquet.ParquetFile(path, filesystem=place) as file:
            columns = _columns(path, file.schema_arrow.names)
            batches = file.iter_batches(BATCH, [unit.group], list(columns.values()), use_threads=False)
            for number, row in enumerate((row for each in batches for row in each.to_pylist()), unit.first):
                own: dict[str, Any] = {key: row[name] for key, name in columns.items()}
                own = {"id": None, "file": unit.file, "row": number, "error": None} | own
                try:
                    own["image"] = _picture_file(own["image"], place, folder)
                except ValueError as error:
                    own["error"] = one_line(error)
                yield own
    except (pa.ArrowException, OSError) as error:
        where = f"{path}, row group {unit.group}"
        raise ValueError(f"{where} can't be read ({one_line(error)}): {REMEDY}") from error


def _picture_file(value: Any, place: Any, folder: str) -> bytes:
    """Return the bytes of a row's picture, which stands in the row or in a file below the folder."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    name = value
    if isinstance(value, Mapping):
        value, name = value.get("bytes"), value.get("path")
    if isinstance(value, bytes):
        return value
    if not isinstance(name, str) or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise ValueError(f"'image' is {short(name)}: give a picture's bytes, or its path in the folder")
    try:
        if place.get_file_info(f"{folder}/{name}").size > LARGEST:
            raise ValueError(f"the picture {name!r} has more than {LARGEST:,} bytes: make it smaller")
        with place.open_input_stream(f"{folder}/{name}") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"the picture {name!r} can't be read ({one_line(error)}): check it") from error


def choose_rows(
    selector: Selector, rows: Iterable[Mapping[str, Any]], budget: Budget, together: int = 1
) -> Iterator[dict[str, Any]]:
    """Yield what `SCHEMA` says for each of the rows that `read_rows_of` yields, in their order.

    A bad page or question becomes a row with an error and changes no other, but with `together` by rounding.
    """
    rest = iter(rows)
    while part := list(islice(rest, together)):
        yield from _choose_together(selector, part, budget)


def _choose_together(
    selector: Selector, rows: Sequence[Mapping[str, Any]], budget: Budget
) -> list[dict[str, Any]]:
    opened: dict[int, KnownPicture] = {}
    errors = {i: row["error"] for i, row in enumerate(rows) if row["error"] is not None}
    for i, row in enumerate(rows):
        try:
            if i not in errors:
                check_question(row["question"])
                opened[i] = selector.known(row["image"])
        except ValueError as error:
            errors[i] = one_line(error)
    try:
        images = [picture.image for picture in opened.values()]
        chosen = selector.many(images, [rows[i]["question"] for i in opened], budget)
    except ValueError as error:
        if len(rows) > 1:
            return [one for row in rows for one in _choose_together(selector, [row], budget)]
        errors, opened, chosen = {0: one_line(error)}, {}, []
    results = {
        i: _result(selector, *pair) for i, pair in zip(opened, zip(opened.values(), chosen), strict=True)
    }
    return [
        {
            "file": row["file"],
            "row": row["row"],
            "id": None if row["id"] is None else str(row["id"]),
            "question": row["question"] if isinstance(row["question"], str) else None,
            "error": errors.get(i),
            **results.get(i, {}),
        }
        for i, row in enumerate(rows)
    ]


def _result(selector: Selector, picture: KnownPicture, allocation: Allocation) -> dict[str, Any]:
    """Return the kept cells of a page, and as evidence its units: none where no cell stands out."""
    size = picture.image.size
    evidence = allocation.evidence(size)
    units = ranked_units(selector.beside(picture, find_page), allocation) if evidence else ()
    return {
        "size": list(size),
        "grid": list(allocation.grid[1:]),
        "kept": allocation.keep.tolist(),
        "boxes": [dict(zip(BOX, (*unit.box, unit.score), strict=True)) for unit in units],
        "note": allocation.note,
    }
