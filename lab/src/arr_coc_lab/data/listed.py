"""Reader of any public set that is published as lists of questions, with their pictures beside or in them.

    RecordReader(splits={"test": (("a.json",),)}, hint="put a.json there", image="img", question="text")

A set is a row of such names in `published`. Its lists are JSON, JSON lines or tables (TSV) with a heading.
"""

from __future__ import annotations

import base64
import binascii
import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from huggingface_hub import cached_assets_path
from pydantic import BeforeValidator, Field, create_model

from arr_coc.data.record import (
    Answers,
    Box,
    Example,
    Fields,
    FourNumbers,
    HiddenAnswers,
    Id,
    NoSuchFile,
    Text,
    check_folder,
    check_inside,
    corners,
    find_file,
    find_image,
    get_meta,
    read_json,
    read_lines,
    records,
    take,
)
from arr_coc.files.validation import short
from arr_coc_lab.data.clips import LETTERS, check_options, choice_answers, with_options
from arr_coc_lab.data.parquet_rows import REMEDY, store_image

MAX_FIELD = 2**27  # most characters of a field of a table: a picture of 96 MB as base64
MIN_PICTURE = 64  # a shorter text in place of a picture is the id of the row that has it
MAX_BOXES = 4096  # of a question
Record = dict[str, Any]


def _flat(value: Any) -> list[Any]:
    """Boxes in a list, from one box or lists of boxes, as of several things or pages."""
    if not isinstance(value, list):
        raise ValueError("it should be a box of four numbers, or a list of boxes")
    if value and not any(isinstance(each, list) for each in value):
        return [value]
    return [box for each in value for box in _flat(each)]


Boxes = Annotated[list[FourNumbers], BeforeValidator(_flat), Field(max_length=MAX_BOXES)]


@dataclass(frozen=True, eq=False)
class RecordReader:
    """A reader of one public set: its files, and what the fields of its records are called.

    Called as all readers are, with a folder, a split (the first unless named) and a limit. ValueError for an
    unknown split, or a missing or damaged file, picture or field.
    """

    splits: Mapping[str, tuple[tuple[str, ...], ...]]  # each split's files, a file under any of its names;
    # a name with * is all files that fit
    hint: str  # what to put into the folder
    image: str
    question: str
    answers: str | None = None  # the field; with options a letter
    ids: tuple[str, ...] = ()  # joined by /; (): the file's name and the number in it
    folders: tuple[str, ...] = ("", "images")
    key: str | None = None  # of the list in an object
    options: tuple[str, ...] = ()  # a field with all of them, or a field for each
    boxes: str | None = None
    form: Literal["xyxy", "xywh"] = "xyxy"
    meta: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()  # splits without answers
    inside: bool = False  # whether pictures are base64 in the records
    prepare: Callable[[Record, str], Record | None] | None = None  # (record, where) before it is read; None
    # leaves it out
    finish: Callable[[Example, Record, Path], Example] | None = None  # the example, of a record and a folder

    def __call__(self, folder: Path, split: str = "", limit: int | None = None) -> Iterator[Example]:
        split = split or next(iter(self.splits))
        if split not in self.splits:
            raise ValueError(f"the set has no split {split!r}: use one of {', '.join(self.splits)}")
        paths = [path for names in self.splits[split] for path in self._paths(folder, names)]
        lists = [(path, _rows(path, self.key)) for path in paths]
        parts = (self._examples(folder, path, rows, split in self.hidden) for path, rows in lists)
        return take(chain.from_iterable(parts), limit)

    def _paths(self, folder: Path, names: tuple[str, ...]) -> list[Path]:
        if "*" not in names[0]:
            return [find_file(folder, names, self.hint)]
        check_folder(folder)
        paths = sorted(path for path in folder.glob(names[0]) if not path.name.startswith("."))
        if not paths:
            raise NoSuchFile(f"{folder} has no {names[0]}: {self.hint}")
        for path in paths:
            check_inside(path, folder)
        return paths

    def _examples(
        self, folder: Path, path: Path, rows: Iterator[tuple[str, Record]], hidden: bool
    ) -> Iterator[Example]:
        pictures: dict[str, Path] = {}  # of a table, by id
        for number, (where, record) in enumerate(rows):
            prepared = record if self.prepare is None else self.prepare(record, where)
            if prepared is None:
                continue
            example = self._example(folder, prepared, hidden, where, pictures)
            if not self.ids:
                example = replace(example, id=f"{path.stem}-{number}")
            yield example if self.finish is None else self.finish(example, prepared, folder)

    def _example(
        self, folder: Path, record: Record, hidden: bool, where: str, pictures: dict[str, Path]
    ) -> Example:
        fields: Any = (self._hidden_fields if hidden else self._fields).of(record, where)
        key = "/".join(getattr(fields, f"id{i}") for i in range(len(self.ids)))
        text, answers = fields.question, fields.answers
        if self.options:
            options = _options(record, self.options, where)
            text = with_options(text, options)
            answers = choice_answers(options, _letter(answers, where), where)
        if self.inside:
            image = _picture(fields.image, key, pictures, where)
        else:
            image = find_image(folder, fields.image, where, self.folders)
        return Example(
            id=key,
            image=image,
            question=text,
            answers=answers,
            boxes=as_boxes(fields.boxes, self.form, where),
            meta=get_meta(record, *self.meta),
            where=where,
        )

    @cached_property
    def _fields(self) -> type[Fields]:
        return self._model(Text if self.options else Answers)

    @cached_property
    def _hidden_fields(self) -> type[Fields]:
        return self._model(HiddenAnswers, ())

    def _model(self, answers: Any, default: Any = ...) -> type[Fields]:
        """Return what is expected of a record; messages name its fields as the file does."""
        ids: Any = {f"id{i}": (Id, Field(alias=name)) for i, name in enumerate(self.ids)}
        answers_field = (answers, Field(default, alias=self.answers)) if self.answers else (Any, ())
        boxes_field = (Boxes, Field([], alias=self.boxes)) if self.boxes else (Any, [])
        return create_model(
            "RecordFields",
            __base__=Fields,
            image=(Text, Field(alias=self.image)),
            question=(Text, Field(alias=self.question)),
            answers=answers_field,
            boxes=boxes_field,
            **ids,
        )


def as_boxes(boxes: list[tuple[float, float, float, float]], form: str, where: str) -> tuple[Box, ...]:
    """Boxes of form "xyxy" or "xywh" as corners; a ValueError for one without an area."""
    return tuple(corners(box, form, where) for box in boxes)


def _rows(path: Path, key: str | None) -> Iterator[tuple[str, Record]]:
    if path.suffix == ".jsonl":
        return read_lines(path)
    if path.suffix == ".tsv":
        return read_table(path)
    return records(path, read_json(path), key)


def read_table(path: Path) -> Iterator[tuple[str, Record]]:
    """Yield the rows of a table (TSV, quoted as CSV) as texts by their column, with places ("PATH, row 3").

    Rows count from 1 after the heading; empty fields are left out. A ValueError for a damaged file.
    """
    csv.field_size_limit(MAX_FIELD)  # of the process: pictures stand in the fields
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.DictReader(file, delimiter="\t", strict=True), 1):
                yield f"{path}, row {number}", {name: text for name, text in row.items() if name and text}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} can't be read ({short(str(error))}): {REMEDY}") from error


def _options(record: Record, names: tuple[str, ...], where: str) -> list[str]:
    """Return the options of a question, without the letters "(A)" or "A." before them."""
    values = record.get(names[0]) if len(names) == 1 else [record[name] for name in names if name in record]
    if not isinstance(values, list) or not all(isinstance(each, str) and each.strip() for each in values):
        raise ValueError(f"{where}: {short(names[0])} is {short(values)}: it should be a list of texts")
    check_options(values, where)
    return [_unlettered(each, letter) for letter, each in zip(LETTERS, values, strict=False)]


def _unlettered(option: str, letter: str) -> str:
    for mark in (f"({letter})", f"（{letter}）", f"{letter}.", f"{letter})"):
        if option.strip().startswith(mark):
            return option.strip().removeprefix(mark).strip() or option.strip()
    return option.strip()


def _letter(answer: str, where: str) -> int:
    letter = answer.strip("(). ").upper()
    if len(letter) != 1 or letter not in LETTERS:
        raise ValueError(f"{where}: answer {short(answer)} is no letter of an option: correct it")
    return LETTERS.index(letter)


def _picture(text: str, key: str, pictures: dict[str, Path], where: str) -> Path:
    """Return the file in the cache of a picture in base64, or of that of an earlier row by its id."""
    if len(text) <= MIN_PICTURE:
        if text not in pictures:
            raise ValueError(
                f"{where}: picture {short(text)} is neither base64 nor an earlier row's id: {REMEDY}"
            )
        pictures[key] = pictures[text]
        return pictures[key]
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{where}: the picture is no base64 ({error}): {REMEDY}") from error
    pictures[key] = store_image(content, cached_assets_path("arr-coc", "parquet", "00").parent, where)
    return pictures[key]
