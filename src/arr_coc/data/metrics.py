"""Metrics of visual question answering: (answer, truths) -> 0 to 1; a ValueError without truths.

Each follows the official program, quirks included; a docstring states where it doesn't.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

Metric = Callable[[str, Sequence[str]], float]

_NUMBER_WORDS = "zero one two three four five six seven eight nine ten"
_NUMBERS = {word: str(value) for value, word in enumerate(_NUMBER_WORDS.split())} | {"none": "0"}
_ARTICLES = ("a", "an", "the")
_MARKS = ';/[]"{}()=+\\_-><@`,?!'  # apostrophe, colon and full stop aren't among them
_CONTRACTIONS = """
    ain't aren't can't could've couldn't didn't doesn't don't hadn't hasn't haven't he'd he's how'd how'll
    how's isn't it'd it'll ma'am might've mightn't must've mustn't needn't not've o'clock oughtn't shan't
    should've shouldn't somebody'd somebody'll somebody's someone'd someone'll someone's something'd
    something'll that's there'd there're there's they'd they'll they're they've 'twas wasn't we've weren't
    what'll what're what's what've when's where'd where's where've who'd who'll who's who've why'll why're
    why's won't would've wouldn't y'all you'd you'll you're you've

    couldn't've hadn't've he'd've it'd've mightn't've 'ow's'at she'd've shouldn't've somebody'd've
    someone'd've something'd've there'd've they'd've we'd've who'd've wouldn't've y'all'd've y'all'll you'd've
"""
# The official table holds every contraction with one of its apostrophes missing. What means something else
# without it (its, lets, shed, well, were, ill) is not in it.
_WHOLE = {
    word[: mark.start()] + word[mark.end() :]: word
    for word in _CONTRACTIONS.split()
    for mark in re.finditer("'", word)
}


def vqa_accuracy(answer: str, truths: Sequence[str]) -> float:
    """VQA accuracy: the share of three people who agree, averaged over leaving out each of them.

        mean over i of min(1, [truths equal to the answer, without the i-th] / 3)

    Compared after the normalisation of the official program (Antol et al. 2015, GT-Vision-Lab/VQA), here
    always, as in MMF's evaluator of TextVQA; that program does it only where truths differ. With fewer than
    four truths all others have to agree; a single truth is not left out.
    """
    _check(truths)
    text = _normalise(answer)
    matches = sum(_normalise(truth) == text for truth in truths)
    if len(truths) == 1:
        return float(matches)
    needed = min(3, len(truths) - 1)
    others, same = len(truths) - matches, matches  # who is left out: one who disagrees, or one who agrees
    return (others * min(1, matches / needed) + same * min(1, (matches - 1) / needed)) / len(truths)


def _normalise(text: str) -> str:
    """Lower case, number words as digits, no articles or marks, contractions with their apostrophe."""
    text = re.sub(r"[\n\t]", " ", text).strip()
    joins = re.search(r"\d,\d", text)  # 1,000: then no mark leaves a space, wherever it stands
    marks = {m: "" if joins or f"{m} " in text or f" {m}" in text else " " for m in _MARKS}
    text = re.sub(r"\.(?!\d)", "", text.translate(str.maketrans(marks)))
    words = (_NUMBERS.get(word, word) for word in text.lower().split())
    return " ".join(_WHOLE.get(word, word) for word in words if word not in _ARTICLES)


def anls(answer: str, truths: Sequence[str], threshold: float = 0.5) -> float:
    """Normalised Levenshtein similarity to the nearest truth; 0 where it is below `threshold` (DocVQA).

        s = max over truths of 1 - edits(answer, truth) / max(len(answer), len(truth))

    Case and runs of white space are ignored. Exactly at the threshold the score stays, as in the challenge's
    program; the paper (Biten et al. 2019, eq. 1) would give 0.
    """
    _check(truths)
    if not 0 <= threshold <= 1:
        raise ValueError(
            f"threshold {threshold!r} is not a similarity: use a number from 0 to 1, usually 0.5"
        )
    text = " ".join(answer.lower().split())
    best = max(similarity(text, " ".join(truth.lower().split())) for truth in truths)
    return best if best >= threshold else 0.0


def similarity(a: str, b: str) -> float:
    """1 - edits(a, b) / length of the longer text; 1 for two empty ones."""
    length = max(len(a), len(b))
    return 1.0 if length == 0 else 1 - _edits(a, b) / length


def _edits(a: str, b: str) -> int:
    """Levenshtein distance: the fewest insertions, deletions and replacements that turn `a` into `b`."""
    row = list(range(len(b) + 1))  # one row of the table of distances, of prefixes of `b`
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def f1(answer: str, truths: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of words, with the best truth (Rajpurkar et al. 2016).

    Words are compared after the normalisation of `vqa_accuracy`; if neither has a word, it is 1.
    """
    _check(truths)
    return max(_f1(_normalise(answer).split(), _normalise(truth).split()) for truth in truths)


def _f1(words: Sequence[str], truth: Sequence[str]) -> float:
    if not words or not truth:
        return float(not words and not truth)
    both = sum((Counter(words) & Counter(truth)).values())
    return 2 * both / (len(words) + len(truth))


def relaxed_accuracy(answer: str, truths: Sequence[str], tolerance: float = 0.05) -> float:
    """1 where a number is within `tolerance` of a true one, or a text is a true one but for case (ChartQA).

    The error is |answer - truth| / |truth|. As in pix2struct's program a number is what Python's float reads
    ("1,000" is text), a percent sign divides by 100, and a truth of 0 is compared as text.
    """
    _check(truths)
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
    """The finite value of `text`, None where it is not a number."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None  # float reads "1_000", people don't


def exact_match(answer: str, truths: Sequence[str]) -> float:
    """1 if the answer is one of the truths, letter by letter; white space around both is dropped."""
    _check(truths)
    return float(answer.strip() in {truth.strip() for truth in truths})


def loose_match(answer: str, truths: Sequence[str]) -> float:
    """`exact_match` that also ignores case and full stops at the end, as LLaVA's scripts do for GQA."""
    _check(truths)
    return float(_plain(answer) in {_plain(truth) for truth in truths})


def _plain(text: str) -> str:
    return text.strip().rstrip(".").rstrip().lower()


def choice_accuracy(answer: str, truths: Sequence[str]) -> float:
    """1 where a reply names the right option of a multiple-choice question, by its letter or in its words.

    `truths` are the right letter and, if that counts too, the option's text. A reply's letter is all of it
    ("(B)"), its start ("B. a dog") or named in it ("The answer is B"); the programs of Video-MME and
    lmms-eval take the first capital A to D anywhere.
    """
    _check(truths)
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
    return " ".join(words[1:] if words and words[0] in _ARTICLES else words)


def seconds_accuracy(answer: str, truths: Sequence[str], tolerance: float = 0.5) -> float:
    """1 where the first time of a reply (1:05 is 65 s) is within `tolerance` seconds of a true one."""
    _check(truths)
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"tolerance {tolerance!r} is no time: use seconds from 0, usually 0.5")
    value = _seconds(answer)
    times = [_seconds(truth) for truth in truths]
    return float(
        value is not None and any(t is not None and abs(t - value) <= tolerance + 1e-9 for t in times)
    )


def _seconds(text: str) -> float | None:
    match = re.search(r"(?:([0-9]{1,6}):)?([0-9]{1,9}(?:\.[0-9]{1,9})?)", text)
    return None if match is None else 60 * int(match[1] or 0) + float(match[2])


def contains_answer(answer: str, truths: Sequence[str]) -> float:
    """1 where a truth stands anywhere in the reply, whatever its case and line breaks (OCRBench)."""
    _check(truths)
    return _contains(answer, truths, lambda text: text.lower().strip().replace("\n", " "))


def contains_formula(answer: str, truths: Sequence[str]) -> float:
    """1 where a truth stands anywhere in the reply, spaces left out and case kept (formulas of OCRBench)."""
    _check(truths)
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
    _check(truths)
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
    _check(truths)
    reply = "yes" if _is_yes(answer) else "no"
    return float(any(truth.strip().lower() == reply for truth in truths))


def _is_yes(reply: str) -> bool:
    words = reply.strip().partition(".")[0].replace(",", "").split()
    return not {"No", "not", "no"} & set(words)


def yes_no_scores(answers: Sequence[str], truths: Sequence[str]) -> dict[str, float]:
    """What POPE publishes of all its questions: accuracy, precision, recall, f1 and yes_rate, each 0 to 1.

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
    """The mean of `scores` for each of `classes`, one per score, in the order in which they first come."""
    if len(scores) != len(classes):
        raise ValueError(f"{len(scores)} scores and {len(classes)} classes: give one class per score")
    groups: dict[str, list[float]] = {}
    for score, name in zip(scores, classes, strict=True):
        groups.setdefault(name, []).append(score)
    return {name: sum(group) / len(group) for name, group in groups.items()}


def _check(truths: Sequence[str]) -> None:
    if isinstance(truths, str):  # its letters would count as truths
        raise ValueError(f"truths are one string {truths[:40]!r}: pass a list of strings")
    if len(truths) == 0:
        raise ValueError("there are no truths to compare with: score only questions that have an answer")
