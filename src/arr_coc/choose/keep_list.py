"""A keep list: which cells of one picture's grid to keep, as a small JSON file that any engine can read.

    KeepList.of(allocation, question, picture, "qwen3_vl").save("keep.json")
    model.ask("page.png", question, mode="sparse", cells="keep.json")

`docs/keep-list.md` describes the file. A file may come from anybody: all of it is checked when it is read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from PIL.Image import Image
from pydantic import BaseModel, ConfigDict, Field

from arr_coc.choose.allocation import MAX_CELLS, Allocation, Grid
from arr_coc.files.atomic import write_atomic
from arr_coc.files.images import ImageSource, open_image, picture_digest
from arr_coc.files.paths import local_path
from arr_coc.files.question import check_question
from arr_coc.files.validation import parse_json, short, validated

RELEASE = metadata.version("arr-coc")
FORMAT = "arr-coc keep list"
VERSION = 1
MAX_FILE_BYTES = 2**24  # of a file; one with every number below MAX_CELLS has about 8 million
MAX_QUESTION = 100_000  # characters
_REMEDY = "write it again with `arr-coc look --keep`"

Side = Annotated[int, Field(ge=1, le=MAX_CELLS)]
Cell = Annotated[int, Field(ge=0, lt=MAX_CELLS)]
Pixels = Annotated[int, Field(ge=1, le=2**31)]


class _Fields(BaseModel):
    """The fields of a file; unknown ones are refused, so that nothing of a newer one is lost unnoticed."""

    model_config = ConfigDict(strict=True, extra="forbid")
    format: Literal["arr-coc keep list"]
    version: Literal[1]
    arr_coc: Annotated[str, Field(max_length=64, pattern=r"^[\w.+-]+$")]
    model_type: Annotated[str, Field(max_length=64, pattern=r"^[\w.-]+$")] | None
    question: Annotated[str, Field(max_length=MAX_QUESTION)]
    grid: Annotated[tuple[Side, Side, Side], Field(strict=False)]
    keep: Annotated[list[Cell], Field(min_length=1, max_length=MAX_CELLS)]
    size: Annotated[tuple[Pixels, Pixels], Field(strict=False)] | None
    digest: Annotated[str, Field(pattern=r"^blake2b-128:[0-9a-f]{32}$")] | None


@dataclass(frozen=True)
class KeepList:
    """The cells to keep of one picture; a ValueError names what is wrong with a field.

    `grid` is (T, H, W), T = 1 for a picture; `keep` are the raster indices of the kept cells, rising.
    `model_type` is the model whose grid it is, as in its config.json, or None where no model was loaded.
    `size` is the width and height of the upright picture in px and `digest` that of its pixels, or None where
    unknown. `arr_coc` is the version that made the list.
    """

    grid: Grid
    keep: tuple[int, ...]
    question: str
    model_type: str | None = None
    size: tuple[int, int] | None = None
    digest: str | None = None
    arr_coc: str = RELEASE

    def __post_init__(self) -> None:
        self._check("the keep list")

    @classmethod
    def of(
        cls,
        allocation: Allocation,
        question: str,
        picture: ImageSource | None = None,
        model_type: str | None = None,
    ) -> KeepList:
        """Return the list of an allocation, of a model's answer or of a `Selector`.

        `picture` is whatever `open_image` takes; None where there is none, as for a clip.
        """
        upright = None if picture is None else open_image(picture)
        return cls(
            grid=(allocation.grid[0], allocation.grid[1], allocation.grid[2]),
            keep=tuple(allocation.keep.tolist()),
            question=question,
            model_type=model_type,
            size=None if upright is None else upright.size,
            digest=None if upright is None else _digest(upright),
        )

    def is_of(self, picture: ImageSource) -> bool | None:
        """Return whether a picture, upright, has the very pixels of this list's; None without a digest."""
        return None if self.digest is None else self.digest == _digest(open_image(picture))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as they stand in a file."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    def save(self, path: str | Path) -> None:
        """Write the list as a JSON file, whole or not at all."""
        # a line a field: short to read, and `keep` doesn't take a line for each number
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in self.to_dict().items()]
        write_atomic(("{\n" + ",\n".join(lines) + "\n}\n").encode(), Path(path))

    @classmethod
    def load(cls, path: str | Path) -> KeepList:
        """Return the list in a file, of any version that this release knows.

        Raises:
            ValueError: no such file, too long, no JSON, a name twice, another format or version, or a field
                that is missing, unknown, of another type or out of range.
        """
        where = f"keep list {short(str(path))}"
        try:
            with local_path(path).open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise ValueError(f"{where} can't be read ({error.strerror}): give a file that exists") from error
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"{where} is longer than {MAX_FILE_BYTES >> 20} MiB: {_REMEDY}")
        return cls.from_dict(parse_json(content, where, _REMEDY), where)

    @classmethod
    def from_dict(cls, value: Any, where: str = "the keep list") -> KeepList:
        """Return the list of parsed JSON; ValueError as in `load`."""
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ValueError(f'{where} is no keep list (its "format" isn\'t "{FORMAT}"): {_REMEDY}')
        version = value.get("version")
        if type(version) is not int or version != VERSION:
            newer = type(version) is int and version > VERSION
            remedy = "update arr-coc" if newer else _REMEDY
            raise ValueError(
                f"{where} is of version {short(version)}, this release reads {VERSION}: {remedy}"
            )
        fields = validated(_Fields, value, where)
        try:
            return cls(
                grid=fields.grid,
                keep=tuple(fields.keep),
                question=fields.question,
                model_type=fields.model_type,
                size=fields.size,
                digest=fields.digest,
                arr_coc=fields.arr_coc,
            )
        except ValueError as error:
            raise ValueError(str(error).replace("the keep list", where, 1)) from error

    def _check(self, where: str) -> None:
        plain = {"format": FORMAT, "version": VERSION} | vars(self)
        validated(_Fields, plain | {"keep": list(self.keep)}, where)
        try:
            check_question(self.question)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        total = self.grid[0] * self.grid[1] * self.grid[2]
        if total > MAX_CELLS:
            raise ValueError(f"{where}: grid {list(self.grid)} has {total:,} cells: at most {MAX_CELLS:,}")
        for before, after in pairwise(self.keep):
            if after <= before:
                raise ValueError(f"{where}: keep has {after} after {before}: name each cell once, rising")
        if self.keep[-1] >= total:
            raise ValueError(
                f"{where}: keep has {self.keep[-1]}, and a grid of {list(self.grid)} has 0 to {total - 1}"
            )


def _digest(picture: Image) -> str:
    """Return the digest of an upright picture's pixels as it stands in a file."""
    return f"blake2b-128:{picture_digest(picture).hex()}"
