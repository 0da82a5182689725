"""Metrics of public data sets: (answer, truths) -> 0 to 1; a ValueError without truths.

Each follows the official program, quirks included; a docstring states where it doesn't.
`arr_coc.data.metrics` has those that training uses, too.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

from arr_coc.data.metrics import ARTICLES, check_truths, normalise


def vqa_accuracy(answer: str, truths: Sequence[str]) -> float:
    """VQA accuracy: the share of three people who agree, averaged over leaving out each of them.

        mean over i of min(1, [truths equal to the answer, without the i-th] / 3)

    Compared after the normalisation of the official program (Antol et al. 2015, GT-Vision-Lab/VQA), here
    always, as in MMF's evaluator of TextVQA; that program does it only where truths differ. With fewer than
    four truths all others have to agree; a single truth is not left out.
    """
    check_truths(truths)
    text = normalise(answer)
    matches = sum(normalise(truth) == text for truth in truths)
    if len(truths) == 1:
        return float(matches)
    needed = min(3, len(truths) - 1)
    others, same = len(truths) - matches, matches  # who is left out: one who disagrees, or one who agrees
    return (others * min(1, matches / needed) + same * min(1, (matches - 1) / needed)) / len(truths)


def relaxed_accuracy(answer: str, truths: Sequence[str], tolerance: float = 0.05) -> float:
    """1 where a number is within `tolerance` of a true one, or a text is a true one but for case (ChartQA).

    The error is |answer - truth| / |truth|. As in pix2struct's program a number is what Python's float reads
    ("1,000" is text), a percent sign divides by 100, and a truth of 0 is compared as text.
    """
    check_truths(truths)
    if not 0 <= tolerance < math.inf:
        raise ValueError(
            f"tolerance {tolerance!r} is not a relative error: use a number from 0, usually 0.05"
        )
    return float(any(_near(answer.strip(), truth.strip(), tolerance) for truth in truths))


def _near(answer: str, truth: str, tolerance: float) -> bool:
    value, true = _number(answer), _number(truth)
    if value is None or not true:
        return answer.lower() == truth.lower()
    return abs(value - true) / abs(true) <= tolerance


def _number(text: str) -> float | None:
    """Return the finite value of `text`, None where it is not a number."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None  # float reads "1_000", people don't


def choice_accuracy(answer: str, truths: Sequence[str]) -> float:
    """1 where a reply names the right option of a multiple-choice question, by its letter or in its words.

    `truths` are the right letter and, if that counts too, the option's text. A reply's letter is all of it
    ("(B)"), its start ("B. a dog") or named in it ("The answer is B"); the programs of Video-MME and
    lmms-eval take the first capital A to D anywhere.
    """
    check_truths(truths)
    letters = {truth.strip().upper() for truth in truths if re.fullmatch(r"\s*[A-Ha-h]\s*", truth)}
    letter = _letter(answer)
    if letter is not None:
        return float(letter in letters)
    texts = {_plain_option(truth) for truth in truths} - {"", *(each.lower() for each in letters)}
    return float(_plain_option(answer) in texts)


_LEADS = re.compile(
    r"\b(?i:answer|option|choice)\b(?:\s+is)?\s*:?\s*(?:option\s+)?\**\(?([A-H])\b(?!\s+[a-z])"
)


def _letter(reply: str) -> str | None:
    text = reply.strip().strip("*").strip()
    if re.fullmatch(r"\(?[A-Ha-h][.):]?\)?", text):
        return text.strip("(). :").upper()
    if match := re.match(r"\(([A-H])\)|([A-H])[.):]", text):
        return match[1] or match[2]
    match = _LEADS.search(text)
    return match[1] if match else None


def _plain_option(text: str) -> str:
    words = text.strip().rstrip(".!").lower().split()
    return " ".join(words[1:] if words and words[0] in ARTICLES else words)


def contains_answer(answer: str, truths: Sequence[str]) -> float:
    """1 where a truth stands anywhere in the reply, whatever its case and line breaks (OCRBench)."""
    check_truths(truths)
    return _contains(answer, truths, lambda text: text.lower().strip().replace("\n", " "))


def contains_formula(answer: str, truths: Sequence[str]) -> float:
    """1 where a truth stands anywhere in the reply, spaces left out and case kept (formulas of OCRBench)."""
    check_truths(truths)
    return _contains(answer, truths, lambda text: text.replace("\n", "").replace(" ", ""))


def _contains(answer: str, truths: Sequence[str], plain: Callable[[str], str]) -> float:
    return float(any(plain(truth) in plain(answer) for truth in truths if plain(truth)))


def click_accuracy(answer: str, truths: Sequence[str]) -> float:
    """1 where the point of a reply lies in a true box, edges included (ScreenSpot).

    Points and boxes ("[x0, y0, x1, y1]") are in thousandths of the picture's width and height; a reply whose
    numbers are all from 0 to 1 is in fractions. The first numbers in brackets count, else the first of the
    reply; four of them are a box, whose centre is the point. Programs of ScreenSpot read each model's own
    form instead.
    """
    check_truths(truths)
    point = _point(answer)
    boxes = [tuple(map(float, re.findall(_DECIMAL, truth))) for truth in truths]
    if any(len(box) != 4 for box in boxes):
        raise ValueError(f"truths {list(truths)[:2]!r:.80} are no boxes: write each as '[x0, y0, x1, y1]'")
    return float(
        point is not None and any(x0 <= point[0] <= x1 and y0 <= point[1] <= y1 for x0, y0, x1, y1 in boxes)
    )


_DECIMAL = r"-?\d{1,9}(?:\.\d{1,9})?"
_BRACKETS = re.compile(rf"[\[(]\s*({_DECIMAL}(?:[\s,]+{_DECIMAL}){{1,3}})\s*[\])]")


def _point(reply: str) -> tuple[float, float] | None:
    match = _BRACKETS.search(reply)
    numbers = [float(number) for number in re.findall(_DECIMAL, match[1] if match else reply)]
    if len(numbers) < 2:
        return None
    numbers = numbers[: 4 if len(numbers) >= 4 else 2]
    if all(0 <= number <= 1 for number in numbers):
        numbers = [1000 * number for number in numbers]
    return (numbers[0] + numbers[-2]) / 2, (numbers[1] + numbers[-1]) / 2


def yes_no_match(answer: str, truths: Sequence[str]) -> float:
    """1 where a reply, read as yes or no, is a true one (POPE).

    As in POPE's program a reply is no if its first sentence has the word no, No or not, and else yes.
    """
    check_truths(truths)
    reply = "yes" if _is_yes(answer) else "no"
    return float(any(truth.strip().lower() == reply for truth in truths))


def _is_yes(reply: str) -> bool:
    words = reply.strip().partition(".")[0].replace(",", "").split()
    return not {"No", "not", "no"} & set(words)


def yes_no_scores(answers: Sequence[str], truths: Sequence[str]) -> dict[str, float]:
    """Return what POPE publishes of all its questions: accuracy, precision, recall, f1 and yes_rate, each 0
    to 1.

    `truths` are yes or no, one per answer; answers are read as by `yes_no_match`. Yes is the positive class;
    a rate of nothing is 0. ValueError for no answers, or another number of them than of truths.
    """
    if len(answers) != len(truths) or not answers:
        raise ValueError(f"{len(answers)} answers and {len(truths)} truths: give one truth per answer")
    pairs = Counter((_is_yes(a), t.strip().lower() == "yes") for a, t in zip(answers, truths, strict=True))
    hits, wrong, missed = pairs[True, True], pairs[True, False], pairs[False, True]
    return {
        "accuracy": (hits + pairs[False, False]) / len(answers),
        "precision": hits / max(1, hits + wrong),
        "recall": hits / max(1, hits + missed),
        "f1": 2 * hits / max(1, 2 * hits + wrong + missed),
        "yes_rate": (hits + wrong) / len(answers),
    }


def mean_by_class(scores: Sequence[float], classes: Sequence[str]) -> dict[str, float]:
    """Return the mean of `scores` for each of `classes`, one per score, in the order in which they first
    come.
    """
    if len(scores) != len(classes):
        raise ValueError(f"{len(scores)} scores and {len(classes)} classes: give one class per score")
    groups: dict[str, list[float]] = {}
    for score, name in zip(scores, classes, strict=True):
        groups.setdefault(name, []).append(score)
    return {name: sum(group) / len(group) for name, group in groups.items()}
