"""The worst cases of a result file: where a method lost most against all tokens, to be looked at.

    cases = worst_cases("sparse.jsonl.gz", "arr-coc@64")   [{"id", "question", "answer", "right", ...}, ...]
    image = case_image("sparse.jsonl.gz", cases[0])        the image of one, drawn or opened again

Laws: a case is an answer that is not wholly right; the biggest loss against "full" comes first, then the
lowest score, then the order of the file. A file from elsewhere is read with care: what it lacks is a
ValueError that names the line.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from arr_coc.core.images import open_image
from arr_coc.evaluate.run import WORLD
from arr_coc.store.results.files import Record, decode_kept, read_results
from arr_coc.store.results.kinds import FULL, kind
from arr_coc.store.validation import validated
from arr_coc.world import draw_page

Case = dict[str, Any]
LARGEST = 4096
"""Most cells along one side of a grid; a file with more is refused."""
Side = Annotated[int, Field(ge=1, le=LARGEST)]


class _Answered(BaseModel):
    """What a record needs to be shown as a case."""

    model_config = ConfigDict(strict=True)
    question: str
    family: str
    answers: list[str] = Field(min_length=1)
    texts: dict[str, str] = Field(alias="said")  # the answers by method
    grid: Annotated[tuple[Literal[1], Side, Side], Field(strict=False)]
    kept: dict[str, str] = {}


def worst_cases(path: str | Path, method: str | None = None, count: int = 24) -> list[Case]:
    """Where a method lost most against the answer from all tokens.

    Args:
        path: a result file of `arr-coc eval`, plain or `.gz`.
        method: as in the file, with its budget, such as "arr-coc@64"; None: the first of ours.
        count: at most so many cases, at least 1.

    Returns:
        JSON-safe, the worst first: `id`, `image`, `family`, `question`, `answer`, `right` (the accepted
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
    names = list(dict.fromkeys(name for record in records for name in record["score"]))
    if method is None:
        method = next((name for name in names if kind(name, header) == "ours"), None)
        if method is None:
            raise ValueError(f"{path} has no answers of arr-coc: name one of {', '.join(names) or 'nothing'}")
    if method not in names:
        raise ValueError(f"{path} has no method {method!r}: use one of {', '.join(names)}")
    imperfect = [n for n, record in enumerate(records) if record["score"].get(method, 1) < 1]

    def badness(n: int) -> tuple[float, float]:
        score = records[n]["score"]
        return score[method] - score.get(FULL, 1), score[method]

    worst = sorted(imperfect, key=badness)[:count]
    return [_case(records[n], method, f"{path}, line {n + 2}") for n in worst]


def case_image(path: str | Path, case: Case) -> Image.Image:
    """The image of a case: a page is drawn again, a file is opened where the run's data lies.

    Args:
        path: the result file that the case is from.
        case: one of `worst_cases`.

    Raises:
        ValueError: the file lacks what finds the image, or it isn't there any more.
    """
    header, _ = read_results(path)
    data, image, size = header.get("data"), case["image"], header.get("size")
    if not isinstance(data, str):
        raise ValueError(f"{path}, line 1 has no `data`: give the file that `arr-coc eval` wrote")
    source, _, place = image.partition(":")
    if data == WORLD:
        if not place.isdecimal() or len(place) > 9 or type(size) is not int:
            raise ValueError(
                f"{path}: image {image!r} of size {size!r} is no drawn page: it should be SPLIT:NUMBER "
                "and a number of px"
            )
        return draw_page(int(place), (size, size), source).image
    name, _, folder = data.partition(":")
    root = Path(folder.strip()).expanduser().resolve()
    file = (root / place).resolve()
    if not folder.strip() or source != name.strip().lower() or not file.is_relative_to(root):
        raise ValueError(f"{path}: image {image!r} is not inside of its data {data!r}: it is not opened")
    if not file.is_file():
        raise ValueError(f"image {image!r} is not in {folder.strip()}: put the data set of the run there")
    return open_image(file)


def _case(record: Record, method: str, where: str) -> Case:
    """One record as a case.

    Raises:
        ValueError: something is missing or of the wrong kind.
    """
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
