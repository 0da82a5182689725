"""Metrics of OCRBench v2, which scores each kind of question in its own way: `metric_of`.

Kinds that need a parser of tables or a toolkit of translation metrics have none here (`metric_of` is None).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from arr_coc.data.metrics import Metric, similarity
from arr_coc.files.images import Box
from arr_coc_lab.data.metrics import contains_formula

_FENCE = re.compile(r"```(?:python|json)?\n(.*?)\n```", re.DOTALL | re.IGNORECASE)
_PAIR = re.compile(r"[\"']?([\w\s]+)[\"']?\s*[:=]\s*[\"']?([^\n,\"'{}]+)[\"']?")
_BOX = re.compile(r"[(\[]\s*(\d{1,4})\s*,\s*(\d{1,4})\s*,\s*(\d{1,4})\s*,\s*(\d{1,4})\s*[)\]]")
LONGEST = 2**16  # characters of a reply that are read as fields

_VQA = (
    "APP agent en", "ASCII art classification en", "math QA en", "reasoning VQA en", "science QA en",
    "text recognition en", "document classification en", "cognition VQA en", "diagram QA en",
    "cognition VQA cn", "reasoning VQA cn",
)  # fmt: skip
FIELDS = ("key information extraction en", "key information mapping en", "key information extraction cn")


def metric_of(kind: str, evaluation: str | None, boxes: Sequence[Box] = ()) -> Metric | None:
    """Return the metric of a kind of question (`type` in OCRBench v2) and its `eval`, or None for one
    without.

    `boxes` are those of the answer, in thousandths, for kinds that ask where it is. For kinds with fields, a
    truth is JSON text: {"name": "value"} or {"name": ["value", "another wording"]}.
    """
    if kind in _VQA:
        if evaluation == "multiple choice":
            return letters_match
        if evaluation == "case sensitive":
            return partial(contains_or_near, case=True)
        return contains_or_near_chinese if kind.endswith("cn") else contains_or_near
    if kind == "text counting en":
        return count_score if evaluation == "regression" else contains_exactly
    if kind in FIELDS:
        return fields_f1
    if kind == "VQA with position en" and boxes:
        return partial(answer_and_place, box=boxes[0])
    return {
        "formula recognition en": contains_formula,
        "formula recognition cn": contains_plain_formula,
        "text grounding en": box_iou,
    }.get(kind)


def letters_match(answer: str, truths: Sequence[str]) -> float:
    """1 where the letters of a reply, without all else, are a truth."""
    return float("".join(filter(str.isalpha, answer)) in truths)


def contains_exactly(answer: str, truths: Sequence[str]) -> float:
    """1 where a truth in lower case stands in the reply."""
    return float(any(truth.lower().strip() in answer for truth in truths if truth.strip()))


def contains_or_near(answer: str, truths: Sequence[str], case: bool = False) -> float:
    """1 where a truth of up to four words stands in the reply; of longer ones the similarity, from 0.5 on."""

    def plain(text: str) -> str:
        return (text if case else text.lower()).strip().replace("\n", " ")

    return _contains_or_near(plain(answer), map(plain, truths), lambda truth: len(truth.split()) < 5)


def contains_or_near_chinese(answer: str, truths: Sequence[str]) -> float:
    """`contains_or_near` without spaces; a truth is short if it has at most three parts between commas."""

    def plain(text: str) -> str:
        return "".join(text.lower().strip().replace("\n", " ").split(" "))

    return _contains_or_near(plain(answer), map(plain, truths), lambda truth: len(truth.split(",")) < 4)


def _contains_or_near(answer: str, truths: Any, is_short: Callable[[str], bool]) -> float:
    scores = [float(t in answer) if is_short(t) else similarity(answer, t) for t in truths]
    return max((score for score in scores if score >= 0.5), default=0.0)


def contains_plain_formula(answer: str, truths: Sequence[str]) -> float:
    r"""`contains_formula` where \text{...} counts as what it holds."""
    plain = partial(re.sub, r"\\text\{([^{}]*)\}", r"\1")
    return contains_formula(plain(answer), [plain(truth) for truth in truths])


def count_score(answer: str, truths: Sequence[str]) -> float:
    """1 - |count - truth| / truth of the first number of a reply, where that is above 0.5."""
    match = re.search(r"\d{1,9}", answer)
    scores = [
        1 - abs(int(match[0]) - int(truth)) / int(truth)
        for truth in truths
        if match and truth.strip().isdecimal() and int(truth) > 0 and int(match[0]) > 0
    ]
    return max((score for score in scores if score > 0.5), default=0.0)


def box_iou(answer: str, truths: Sequence[str]) -> float:
    """Intersection over union of the last box of a reply with the true one, four truths in thousandths."""
    boxes = [tuple(map(int, numbers)) for numbers in _BOX.findall(answer)]
    inside = [box for box in boxes if max(box) <= 1000]
    return _iou(inside[-1], [int(float(truth)) for truth in truths]) if inside else 0.0


def _iou(a: Sequence[float], b: Sequence[float]) -> float:
    if len(a) != 4 or len(b) != 4:
        return 0.0
    width, height = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    union = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)) - width * height
    return width * height / union if union > 0 else 0.0


def answer_and_place(answer: str, truths: Sequence[str], box: Box) -> float:
    """Half `contains_or_near` of the field "answer" of a reply, half the overlap of its field "bbox"."""
    fields = reply_fields(answer)
    numbers = [int(float(number)) for number in re.findall(r"\d{1,9}(?:\.\d+)?", fields.get("bbox", ""))]
    content = contains_or_near(fields["answer"], truths) if "answer" in fields else 0.0
    return 0.5 * content + 0.5 * _iou(numbers, [int(each) for each in box])


def fields_f1(answer: str, truths: Sequence[str]) -> float:
    """Return the share of fields, of the reply and the truth together, that are the same but for case and
    spaces.
    """
    reply = {name: _bare(value) for name, value in reply_fields(answer).items()}
    true: dict[str, Any] = json.loads(truths[0])
    names = reply.keys() | true.keys()
    right = [
        name
        for name, values in true.items()
        if reply.get(name) in [_bare(each) for each in (values if isinstance(values, list) else [values])]
    ]
    return len(right) / len(names) if names else 0.0


def _bare(value: Any) -> str:
    return str(value).lower().strip().replace("\n", " ").replace(" ", "")


def reply_fields(reply: str) -> Mapping[str, str]:
    """Return the fields of a reply: JSON, a Python dictionary, or lines as "name: value", also between
    fences.
    """
    match = _FENCE.search(reply[:LONGEST])
    text = match[1] if match else reply[:LONGEST].strip()
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, dict):
            return {str(name).strip(): str(each).strip() for name, each in value.items()}
    return {name.strip(): value.strip() for name, value in _PAIR.findall(text)}
