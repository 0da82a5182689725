"""One question about one image or clip, and what all readers share: files, images, fields, boxes.

    class Question(Fields): question: Text; answers: Answers      what a reader expects of a record

Errors are a ValueError in one line with the file, the line or record, the field and its value.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count, islice
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from arr_coc.data.metrics import Metric
from arr_coc.files.images import Box
from arr_coc.files.paths import shorten
from arr_coc.files.validation import parse_json, short, validated

MAX_LINE = 2**24  # the most bytes of a line of a JSON lines file
_REMEDY = "it may be damaged or cut off; download or write it again"
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")


@dataclass(frozen=True)
class Example:
    """One question about one image or clip."""

    id: str  # the data set's own, unique within a split
    image: Path  # an existing file; in data sets of clips a video or a folder of frames
    question: str  # as the data set words it, without a prompt
    answers: tuple[str, ...]  # every accepted one, or the answers of ten people; may be empty
    boxes: tuple[Box, ...] = ()  # the evidence, (x0, y0, x1, y1) in px of the upright image
    meta: Mapping[str, str] = field(default_factory=dict, hash=False)  # further fields, as text
    where: str = field(default="", compare=False)  # file and line or record, for messages
    span: tuple[float, float] | None = None  # seconds (from, to) of a clip; None: all of it
    map: Path | None = None  # file of a relevance map over the upright image, see `evidence.read_map`
    size: tuple[int, int] | None = None  # (width, height) in px of the picture that the boxes are of
    metric: Metric | None = field(default=None, compare=False)  # of this question, before the data set's


def take(examples: Iterable[Example], limit: int | None) -> Iterator[Example]:
    """Return the first `limit` of `examples`, None for all; a ValueError, as they come, for an id that
    repeats.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit {limit!r} leaves no questions: use at least 1, or None for all")
    return islice(_each_once(examples), limit)


def _each_once(examples: Iterable[Example]) -> Iterator[Example]:
    places: dict[str, str] = {}
    for example in examples:
        check_once(example.id, example.where, places)
        yield example


def check_once(key: str, where: str, places: dict[str, str]) -> None:
    """Add an id and where it stands to `places`; raise ValueError if it is there already."""
    if key in places:
        raise ValueError(f"{where} repeats the id {short(key)} of {places[key]}: give each an id of its own")
    places[key] = where


class NoSuchFile(ValueError):
    """Raised if a folder lacks the files of a data set."""


def find_file(folder: Path, names: Iterable[str], layout: str) -> Path:
    """Return the first of `names` that is a file in `folder`; its links may not lead out of it.

    `NoSuchFile` if none is there; the message ends in `layout`, which describes the folder.
    """
    check_folder(folder)
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if is_file(folder / name):
            check_inside(folder / name, folder)
            return folder / name
    raise NoSuchFile(f"{folder} has no {_listed(wanted)}: {layout}")


def check_folder(folder: Path) -> None:
    """Raise ValueError unless the folder of a data set is there."""
    if not folder.exists():
        raise ValueError(f"folder {str(folder)!r} does not exist: check the path of the data set")
    if not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is a file: give the folder of the data set")


def find_image(folder: Path, name: str, where: str, under: Iterable[str] = ("",)) -> Path:
    """Return the first image called `name` in the subfolders `under` of `folder`, "" for the folder itself.

    `name` is tried as it is, then with each of `IMAGE_SUFFIXES`. A ValueError if it leads out of the folder
    or there is no such image.
    """
    check_name(name, where)
    places = [folder / base for base in dict.fromkeys(under)]
    named = PurePosixPath(name)
    stem = named.with_suffix("") if named.suffix.lower() in IMAGE_SUFFIXES else named
    endings = [ending for suffix in IMAGE_SUFFIXES for ending in (suffix, suffix.upper())]
    others = (place / f"{stem}{ending}" for place in places for ending in endings)
    for path in chain((place / named for place in places), others):
        if is_file(path):
            check_inside(path, folder, f"{where}: image {short(name)}")
            return path
    # A place may hold a part of the name, which is the file's.
    texts = (str(place) for place in places)
    searched = _listed([text if text.isprintable() else repr(text) for text in texts])
    raise ValueError(f"{where}: image {short(name)} is not in {searched}: unpack the images there")


def is_file(path: Path) -> bool:
    """Return whether a path is a file that can be looked for."""
    try:
        return path.is_file()
    except OSError:  # a name too long for the disk, or a folder that may not be entered
        return False


def check_inside(path: Path, folder: Path, what: str = "") -> None:
    """Raise a ValueError if a link leads from the folder of a data set to a file outside of it.

    A folder from somebody else may hold links to the user's own files.
    """
    real, root = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    if real.is_relative_to(root):
        return
    # In the Hub's cache the files of a snapshot are links to its blobs.
    snapshots = next((each for each in (root, *root.parents) if each.name == "snapshots"), None)
    if snapshots is not None and real.is_relative_to(snapshots.with_name("blobs")):
        return
    remedy = "put the file itself there, copied or as a hard link"
    raise ValueError(f"{what or shorten(path)} is reached by a link out of {shorten(folder)}: {remedy}")


def check_name(name: str, where: str, what: str = "image") -> None:
    """Raise a ValueError unless `name` is a relative path that stays inside the folder it is joined to."""
    parts = PurePosixPath(name).parts
    bad = (
        not parts
        or ".." in parts
        or name.startswith(("/", "~"))
        or re.search(r"[\\\x00-\x1f]|^[A-Za-z]:|://", name)
    )
    if bad:
        remedy = "use a relative path with / inside the data set's folder"
        raise ValueError(f"{where}: {what} {short(name)} is no name of a file in the folder: {remedy}")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; a ValueError names the line where it stops being JSON."""
    try:
        return parse_json(path.read_bytes(), str(path), _REMEDY)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): check its permissions") from error


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON lines file with their places ("PATH, line 3"); empty lines are left out."""
    try:
        with path.open("rb") as lines:
            for number in count(1):
                line = lines.readline(MAX_LINE + 1)
                if len(line) > MAX_LINE:
                    raise ValueError(f"{path}, line {number} is longer than {MAX_LINE:,} bytes: {_REMEDY}")
                if not line:
                    return
                if line.strip():
                    where = f"{path}, line {number}"
                    yield where, _object(parse_json(line, where, _REMEDY), where)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): check its permissions") from error


def records(path: Path, content: Any, key: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the objects of the list `content[key]`, or `content` itself, with their places ("PATH, record
    3").
    """
    if key is not None:
        content = content.get(key) if isinstance(content, dict) else None
    if not isinstance(content, list):
        wanted = "is no list of questions" if key is None else f"has no list {key!r}"
        raise ValueError(f"{path} {wanted}: give the file as it is published")
    return _numbered(path, content)


def _numbered(path: Path, values: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, value in enumerate(values, 1):
        where = f"{path}, record {number}"
        yield where, _object(value, where)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {short(value)} is not an object: write {{...}} with named fields")
    return value


class Fields(BaseModel):
    """What a reader expects of the records of a file; further fields may stand beside them."""

    @classmethod
    def of(cls, record: Mapping[str, Any], where: str) -> Self:
        """Return the fields of a record; a ValueError names file, line, field and value of a wrong one."""
        return validated(cls, record, where)


def _text_or_number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError("it should be a text or a whole number")
    return str(value)


def _answers(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    right = all(isinstance(v, (str, int, float)) and not isinstance(v, bool) for v in values)
    answers = tuple("" if _is_nan(v) else str(v) for v in values)
    if not right or not any(answer.strip() for answer in answers):  # one of ten people may have left it empty
        raise ValueError("it should be a text or a list of texts")
    return answers


def _answers_or_none(value: Any) -> tuple[str, ...]:
    return () if value in (None, "", []) or _is_nan(value) else _answers(value)


def _is_nan(value: Any) -> bool:
    """Return whether a value is NaN, by which a column of numbers marks a missing one."""
    return isinstance(value, float) and math.isnan(value)


# stripped and not empty
Text = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
Id = Annotated[str, BeforeValidator(_text_or_number)]  # a string or a whole number, as a string
# one answer or a list of them, each a string or a number
Answers = Annotated[tuple[str, ...], BeforeValidator(_answers)]
# `Answers` that may be missing or empty, as in a test split.
HiddenAnswers = Annotated[tuple[str, ...], BeforeValidator(_answers_or_none), Field(default=())]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
FourNumbers = tuple[Number, Number, Number, Number]


def corners(numbers: FourNumbers, form: str, where: str) -> Box:
    """Return a box of form "xyxy" or "xywh" as (x0, y0, x1, y1) in pixels; a ValueError if it has no area."""
    x0, y0, x1, y1 = numbers
    if form == "xywh":
        x1, y1 = x0 + x1, y0 + y1
    if x1 <= x0 or y1 <= y0:
        other = "xywh" if form == "xyxy" else "xyxy"
        remedy = f'correct it, or write "box_format": "{other}" if that is what it is'
        raise ValueError(f"{where}: box {list(numbers)} has no area as {form}: {remedy}")
    return x0, y0, x1, y1


def check_evidence(example: Example, size: tuple[int, int]) -> None:
    """Raise a ValueError for boxes of a question that can't lie in its upright image of `size` px."""
    if example.boxes and example.size not in (None, size):
        boxed, real = ("x".join(map(str, each)) for each in (example.size, size))
        raise ValueError(
            f"{example.where}: its boxes are of a picture of {boxed} px, but {shorten(example.image)} is "
            f"{real} px: give the boxes of the upright image"
        )
    check_boxes_within(example.boxes, size, f"{example.where}: box", shorten(example.image))


def check_boxes_within(boxes: Iterable[Box], size: tuple[int, int], what: str, picture: str) -> None:
    """Raise a ValueError for boxes in fractions of 1, or mostly outside of a picture of `size` px."""
    width, height = size
    for box in boxes:
        x0, y0, x1, y1 = box
        if max(box) <= 1:
            raise ValueError(f"{what} {list(box)} is in fractions of 1: give px of {picture}")
        if not (0 <= x0 + x1 <= 2 * width and 0 <= y0 + y1 <= 2 * height):
            raise ValueError(
                f"{what} {list(box)} lies outside of {picture}, which is {width}x{height} px: give pixels "
                "of the upright image"
            )


def get_meta(record: Mapping[str, Any], *keys: str) -> dict[str, str]:
    """Return those of `keys` that the record has, as text; lists are joined by commas, the rest left out."""
    texts = {}
    for key in keys:
        value = record.get(key)
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            value = ", ".join(value)
        if isinstance(value, (str, int, float)) and value != "":
            texts[key] = str(value)
    return texts


def _listed(values: list[str]) -> str:
    return " or ".join(values)
