"""One question about one image, and what the readers of all data sets share: files, images, fields, boxes.

    Example(id, image, question, answers, boxes, meta, where)

Files come from anywhere: a name in them can't lead out of the data set's folder, and whatever is missing or
of the wrong kind is a ValueError in one line with the file, the line (or the record, counted from 1) and the
remedy. An example's image exists when it is handed out; it is not opened here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any

Box = tuple[float, float, float, float]

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")


@dataclass(frozen=True)
class Example:
    """One question, with what is known about it.

    Attributes:
        id: the data set's own, unique within a split.
        image: path of an existing file.
        question: as the data set words it, without a prompt.
        answers: every accepted one, or what each of ten people said; empty where none is known.
        boxes: the evidence, (x0, y0, x1, y1) in pixels of the upright image; empty where unknown.
        meta: what else a data set says of the question, such as its type.
        where: file and line or record of the question, for messages; two examples may differ in it alone
            and be equal.
    """

    id: str
    image: Path
    question: str
    answers: tuple[str, ...]
    boxes: tuple[Box, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict, hash=False)
    where: str = field(default="", compare=False)


def take(examples: Iterable[Example], limit: int | None) -> Iterator[Example]:
    """The first `limit` of `examples`, all for None.

    Raises:
        ValueError: the limit is less than 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit {limit!r} leaves no questions: use at least 1, or None for all")
    return islice(examples, limit)


def find_file(folder: Path, names: Iterable[str], layout: str) -> Path:
    """The first of `names` that is a file in `folder`.

    Raises:
        ValueError: the folder or all of the files are missing; the message ends in `layout`, which tells how
            the folder should look.
    """
    _check_folder(folder)
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if _is_file(folder / name):
            return folder / name
    raise ValueError(f"{folder} has no {_listed(wanted)}: {layout}")


def _check_folder(folder: Path) -> None:
    if not folder.exists():
        raise ValueError(f"folder {str(folder)!r} does not exist: check the path of the data set")
    if not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is a file: give the folder of the data set")


def find_image(folder: Path, name: str, where: str, under: Iterable[str] = ("",)) -> Path:
    """The image called `name` in one of the subfolders `under` of `folder`; the first that exists.

    The name as it is comes first in all of them. Only where there is no such file, its ending is taken off
    and each of `IMAGE_SUFFIXES` tried, in lower and upper case.

    Args:
        folder: of the data set.
        name: a file name, stem or relative path as the data set writes it.
        where: file and line of the question, for messages.
        under: subfolders, "" for the folder itself.

    Raises:
        ValueError: the name leads out of the folder, or there is no such image.
    """
    check_name(name, where)
    places = [folder / base for base in dict.fromkeys(under)]
    asked = PurePosixPath(name)
    stem = asked.with_suffix("") if asked.suffix.lower() in IMAGE_SUFFIXES else asked
    endings = [ending for suffix in IMAGE_SUFFIXES for ending in (suffix, suffix.upper())]
    others = (place / f"{stem}{ending}" for place in places for ending in endings)
    for path in chain((place / asked for place in places), others):
        if _is_file(path):
            return path
    looked = _listed([str(place) for place in places])
    raise ValueError(f"{where}: image {_shown(name)} is not in {looked}: unpack the images there")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for the disk, or a folder that may not be entered: not found here
        return False


def check_name(name: str, where: str) -> None:
    """Raises ValueError unless `name` is a relative path that stays inside the folder it is joined to.

    Links on disk are followed: they are the user's own, and big image folders are often linked.
    """
    parts = PurePosixPath(name).parts
    bad = (
        not parts
        or ".." in parts
        or name.startswith(("/", "~"))
        or re.search(r"[\\\x00-\x1f]|^[A-Za-z]:|://", name)
    )
    if bad:
        remedy = "use a relative path with / inside the data set's folder"
        raise ValueError(f"{where}: image {_shown(name)} is no name of a file in the folder: {remedy}")


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        ValueError: the file can't be read or is no JSON; names the line where it stops being it.
    """
    try:
        return _parse(path.read_bytes(), str(path), lines=True)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): check its permissions") from error


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON lines file with their places ("PATH, line 3"); empty lines are passed over.

    Raises:
        ValueError: the file can't be read, or a line is no JSON object.
    """
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    where = f"{path}, line {number}"
                    yield where, _object(_parse(line, where, lines=False), where)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): check its permissions") from error


def _parse(content: bytes, where: str, lines: bool) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8 text (byte {error.start}): save it as UTF-8") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, " if lines else ""  # `where` names the line of a JSON lines file
        remedy = "it may be cut off; download or write it again"
        raise ValueError(
            f"{where}: {place}column {error.colno} is not JSON ({error.msg}): {remedy}"
        ) from error
    except (RecursionError, ValueError) as error:  # nested too deep, or a number of thousands of digits
        reason = "nested too deep" if isinstance(error, RecursionError) else "a number is too long"
        raise ValueError(
            f"{where} is not a data set ({reason}): give an official or your own file"
        ) from error


def records(path: Path, content: Any, key: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list with their places ("PATH, record 3"): of `content[key]`, or of `content` itself.

    Raises:
        ValueError: there is no such list, or something in it is no object.
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
        raise ValueError(f"{where}: {_shown(value)} is not an object: write {{...}} with named fields")
    return value


def get_text(record: Mapping[str, Any], key: str, where: str) -> str:
    """The string `record[key]`, stripped and not empty.

    Raises:
        ValueError: it is missing, empty, or no string.
    """
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(record, key, where, "a text")
    return value.strip()


def get_id(record: Mapping[str, Any], key: str, where: str) -> str:
    """`record[key]`, a string or whole number, as a string.

    Raises:
        ValueError: it is missing or something else.
    """
    value = record.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise _wrong(record, key, where, "a text or a whole number")
    return value


def get_answers(record: Mapping[str, Any], key: str, where: str, hidden: bool = False) -> tuple[str, ...]:
    """The answers of `record[key]`: one or a list of them, each a string or a number.

    Where they may be `hidden`, as in a test split, they may also be missing or empty, and none are returned.

    Raises:
        ValueError: it is missing, an empty list, holds something else, or nothing but empty strings.
    """
    value = record.get(key)
    if hidden and not value:
        return ()
    values = value if isinstance(value, list) else [value]
    right = all(isinstance(v, (str, int, float)) and not isinstance(v, bool) for v in values)
    answers = tuple(str(v) for v in values)
    if not right or not any(answer.strip() for answer in answers):  # one of ten people may have said nothing
        raise _wrong(record, key, where, "a text or a list of texts")
    return answers


def get_meta(record: Mapping[str, Any], *keys: str) -> dict[str, str]:
    """Those of `keys` that the record has, as text; a list is joined by commas, anything deeper left out."""
    found = {}
    for key in keys:
        value = record.get(key)
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            value = ", ".join(value)
        if isinstance(value, (str, int, float)) and value != "":
            found[key] = str(value)
    return found


def get_boxes(values: Any, form: str, where: str) -> tuple[Box, ...]:
    """Boxes as (x0, y0, x1, y1) in pixels.

    Args:
        values: a list of lists of four numbers.
        form: "xyxy" for two corners, "xywh" for the top left corner, width and height.
        where: file and line, for messages.

    Raises:
        ValueError: an unknown form, not four finite numbers, or a box without area.
    """
    if form not in ("xyxy", "xywh"):
        raise ValueError(f"{where}: box_format {_shown(form)} is unknown: write xyxy or xywh")
    if not isinstance(values, list):
        raise ValueError(f"{where}: boxes {_shown(values)} are no list: write [[x0, y0, x1, y1], ...]")
    boxes = []
    for value in values:
        numbers = value if isinstance(value, list) else []
        if len(numbers) != 4 or not all(_finite(v) for v in numbers):
            raise ValueError(f"{where}: box {_shown(value)} is not four numbers: write [x0, y0, x1, y1]")
        x0, y0, x1, y1 = (float(v) for v in numbers)
        if form == "xywh":
            x1, y1 = x0 + x1, y0 + y1
        if x1 <= x0 or y1 <= y0:
            other = "xywh" if form == "xyxy" else "xyxy"
            remedy = f'correct it, or say "box_format": "{other}" if that is what it is'
            raise ValueError(f"{where}: box {_shown(value)} has no area as {form}: {remedy}")
        boxes.append((x0, y0, x1, y1))
    return tuple(boxes)


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _wrong(record: Mapping[str, Any], key: str, where: str, wanted: str) -> ValueError:
    if key not in record:
        return ValueError(f"{where}: {key!r} is missing: it should be {wanted}")
    return ValueError(f"{where}: {key!r} is {_shown(record[key])}: it should be {wanted}")


def _listed(values: list[str]) -> str:
    return " or ".join(values)


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:76]}..."
