"""The worst cases of a result file: where a method lost most against all tokens.

    cases = worst_cases("sparse.jsonl.gz", "arr-coc@64")   [{"id", "question", "answer", "right", ...}, ...]
    images = case_images("sparse.jsonl.gz", cases)         the image of each, drawn or opened again

A result file can't make an app show any other file: lines are validated, and only images that the data set's
own reader finds under the same question id are opened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from arr_coc.data import open_data
from arr_coc.files.images import open_image
from arr_coc.files.validation import nearest, short, validated
from arr_coc_lab.evaluate.questions import image_key
from arr_coc_lab.evaluate.run import WORLD
from arr_coc_lab.results.files import ERROR, Record, decode_kept, read_results
from arr_coc_lab.results.kinds import FULL, kind
from arr_coc_lab.world import draw_page

Case = dict[str, Any]
LARGEST = 4096  # cells along one side of a grid; a file with more is refused
MAX_NUMBER = 16  # digits of a page's number
Side = Annotated[int, Field(ge=1, le=LARGEST)]


class _Answered(BaseModel):
    """The fields of a record that a case needs."""

    model_config = ConfigDict(strict=True)
    question: str
    family: str
    answers: list[str] = Field(min_length=1)
    texts: dict[str, str] = Field(alias="said")  # the answers by method
    grid: Annotated[tuple[Literal[1], Side, Side], Field(strict=False)]
    kept: dict[str, str] = {}


def worst_cases(path: str | Path, method: str | None = None, count: int = 24) -> list[Case]:
    """Cases (answers not fully right) where a method lost most against the answer from all tokens.

    The biggest loss comes first, then the lowest score, then the order of the file. `method` is a name with
    its budget, such as "arr-coc@64"; None: the first of ours.

    Returns:
        At most `count` JSON-safe dicts: `id`, `image`, `family`, `question`, `answer`, `right` (the accepted
        answers, " | " between them), `full` (the answer from all tokens) and `full_score` (None where the
        file has none), `score`, `kept` (indices of the kept cells in raster order, None where the method
        keeps none) and `grid` (H, W).

    Raises:
        ValueError: the file can't be read, a line lacks something (names it), the method is not in the
            file, or the count is below 1.
    """
    if count < 1:
        raise ValueError(f"count {count} is too small: use 1 or more")
    header, records = read_results(path)
    names = list(dict.fromkeys(name for record in records if ERROR not in record for name in record["score"]))
    if method is None:
        method = next((name for name in names if kind(name, header) == "ours"), None)
        if method is None:
            raise ValueError(f"{path} has no answers of arr-coc: name one of {', '.join(names) or 'nothing'}")
    if method not in names:
        hint = nearest(method, names)
        raise ValueError(f"{path} has no method {short(method)}: use one of {', '.join(names)}{hint}")
    imperfect = [
        n for n, record in enumerate(records) if ERROR not in record and record["score"].get(method, 1) < 1
    ]

    def badness(n: int) -> tuple[float, float]:
        score = records[n]["score"]
        return score[method] - score.get(FULL, 1), score[method]  # the biggest loss, then the lowest score

    worst = sorted(imperfect, key=badness)[:count]
    return [_case(records[n], method, f"{path}, line {n + 2}") for n in worst]


def case_images(path: str | Path, cases: Sequence[Case]) -> list[Image.Image]:
    """Return the images of cases: a page is drawn again, a file is opened where the run's data lies.

    Raises:
        ValueError: the result file lacks what finds an image, or the data set is gone or does not ask this
            question about this image.
    """
    header, _ = read_results(path)
    data = header.get("data")
    if not isinstance(data, str):
        raise ValueError(f"{path}, line 1 has no `data`: give the file that `arr-coc eval` wrote")
    if data != WORLD:
        return _opened(path, data, header.get("split"), cases)
    return [_drawn(path, case["image"], header.get("size")) for case in cases]


def _drawn(path: str | Path, image: str, size: Any) -> Image.Image:
    split, _, number = image.partition(":")
    if not number.isdecimal() or len(number) > MAX_NUMBER or type(size) is not int:
        raise ValueError(
            f"{path}: image {short(image)} of size {size!r} is no drawn page: it should be SPLIT:NUMBER "
            "and a number of px"
        )
    return draw_page(int(number), (size, size), split).image


def _opened(path: str | Path, data: str, split: str | None, cases: Sequence[Case]) -> list[Image.Image]:
    wanted = {case["id"]: case["image"] for case in cases}
    images: dict[str, Image.Image] = {}
    _, examples = open_data(data, split, clips=False)
    for example in examples:
        if wanted.get(example.id) == image_key(data, example.image):
            images[example.id] = open_image(example.image)
            if len(images) == len(wanted):
                break
    if missing := [ident for ident in wanted if ident not in images]:
        question = f"question {short(missing[0])} about image {short(wanted[missing[0]])}"
        raise ValueError(
            f"{path}: {question} is not in its data {short(data)}: put the data set of the run there"
        )
    return [images[case["id"]] for case in cases]


def _case(record: Record, method: str, where: str) -> Case:
    line = validated(_Answered, record, where)
    if method not in line.texts:
        raise ValueError(f"{where} has a score of {method!r} but not its answer: evaluate again")
    cells = None
    if method in line.kept:
        try:
            cells = decode_kept(line.kept[method], math.prod(line.grid)).nonzero()[0].tolist()
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    return {
        "id": record["id"],
        "image": record["image"],
        "family": line.family,
        "question": line.question,
        "answer": line.texts[method],
        "right": " | ".join(dict.fromkeys(line.answers)),
        "full": line.texts.get(FULL),
        "score": record["score"][method],
        "full_score": record["score"].get(FULL),
        "kept": cells,
        "grid": list(line.grid[1:]),
    }
