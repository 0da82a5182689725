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
from dataclasses import asdict, dataclass
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
from arr_coc.files.question import check_question, kind_of
from arr_coc.pixels import find_page, ranked_units
from arr_coc.selector import KnownPicture, Selector
from arr_coc_lab.data.parquet import IDS
from arr_coc_lab.data.parquet_rows import BATCH, QUESTIONS, REMEDY

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
        source: Folder of `*.parquet` with a row for each question: `image` (the bytes of a file, or {bytes}),
            `question` or `prompt`, and if there is one an id (`data.parquet.IDS`).
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
        own = asdict(self) | {"budget": parse_budget(self.budget), "version": __version__}
        del own["source"], own["out"]
        return json.dumps(own | {"by": f"{selector.source.name} {selector.source.version}"}, sort_keys=True)


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
    return sum("error" in row for row in rows)


def read_rows_of(job: CorpusJob, unit: CorpusUnit) -> Iterator[dict[str, Any]]:
    """Yield the rows of a row group: `file`, `row`, `id`, `question` and `image` as they stand there."""
    place, folder = find_place(job.source)
    path = f"{folder}/{unit.file}"
    try:
        with parquet.ParquetFile(path, filesystem=place) as file:
            columns = _columns(path, file.schema_arrow.names)
            batches = file.iter_batches(BATCH, [unit.group], list(columns.values()), use_threads=False)
            for number, row in enumerate((row for each in batches for row in each.to_pylist()), unit.first):
                own = {key: row[name] for key, name in columns.items()}
                yield {"file": unit.file, "row": number, "id": None, **own}
    except (pa.ArrowException, OSError) as error:
        where = f"{path}, row group {unit.group}"
        raise ValueError(f"{where} can't be read ({one_line(error)}): {REMEDY}") from error


def choose_rows(
    selector: Selector, rows: Iterable[Mapping[str, Any]], budget: Budget, together: int = 1
) -> Iterator[dict[str, Any]]:
    """Yield what `SCHEMA` says for each of the rows that `read_rows_of` yields, in their order.

    A bad page or question becomes a row with an error, and changes no other but by rounding (`together`).
    """
    rest = iter(rows)
    while part := list(islice(rest, together)):
        yield from _choose_together(selector, part, budget)


def _choose_together(
    selector: Selector, rows: Sequence[Mapping[str, Any]], budget: Budget
) -> list[dict[str, Any]]:
    results = [{"file": row["file"], "row": row["row"]} for row in rows]
    opened: dict[int, KnownPicture] = {}
    for i, (row, result) in enumerate(zip(rows, results, strict=True)):
        result["id"] = None if row["id"] is None else str(row["id"])
        try:
            result["question"] = check_question(row["question"])
            opened[i] = selector.known(_picture_bytes(row["image"]))
        except ValueError as error:
            result["error"] = one_line(error)
    images = [picture.image for picture in opened.values()]
    try:
        chosen = selector.many(images, [results[i]["question"] for i in opened], budget)
    except ValueError as error:
        if len(rows) > 1:
            return [one for row in rows for one in _choose_together(selector, [row], budget)]
        return [results[0] | {"error": one_line(error)}]
    for (i, picture), allocation in zip(opened.items(), chosen, strict=True):
        results[i] |= _result(selector, picture, allocation)
    return results


def _picture_bytes(value: Any) -> bytes:
    """Return the bytes of a page's file from a row's `image`; ValueError where they aren't in the row."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    content = value.get("bytes") if isinstance(value, Mapping) else value
    if not isinstance(content, bytes):
        raise ValueError(f"'image' is {kind_of(content)}: give the bytes of a picture's file, in the row")
    return content


def _result(selector: Selector, picture: KnownPicture, allocation: Allocation) -> dict[str, Any]:
    """Return the kept cells of a page, and as evidence its units: none where no cell stands out."""
    size = picture.image.size
    evidence = allocation.evidence(size)
    units = ranked_units(selector.beside(picture, find_page), allocation) if evidence else ()
    boxes = [dict(zip(BOX, (*unit.box, unit.score), strict=True)) for unit in units]
    kept = {"grid": allocation.grid[1:], "kept": allocation.keep.tolist()}
    return {"size": size, **kept, "boxes": boxes, "note": allocation.note}
