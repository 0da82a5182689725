"""Metrics: scores worked by hand, the quirks of the official programs."""

from __future__ import annotations

import numpy as np
import pytest

from arr_coc.data.metrics import anls, exact_match, loose_match
from arr_coc_lab.data.metrics import (
    click_accuracy,
    contains_answer,
    contains_formula,
    relaxed_accuracy,
    vqa_accuracy,
    yes_no_match,
    yes_no_scores,
)
from each import each

METRICS = [
    vqa_accuracy, anls, relaxed_accuracy, exact_match, loose_match, contains_answer, contains_formula,
]  # fmt: skip


@each("metric", METRICS)
class TestEveryMetric:
    def test_a_true_answer_scores_1(self, metric):
        assert metric("blue", ["blue"] * 10) == 1.0
        assert metric("blue", ["blue"]) == 1.0

    def test_a_wrong_or_empty_answer_scores_0(self, metric):
        assert metric("xylophone", ["blue"] * 10) == 0.0
        assert metric("", ["blue"] * 10) == 0.0
        assert metric("  \n", ["blue"] * 10) == 0.0

    def test_white_space_around_is_dropped(self, metric):
        assert metric(" blue\n", ["blue"] * 10) == 1.0

    def test_the_score_is_a_float(self, metric):
        assert type(metric("blue", ["blue"])) is float
        assert type(metric("red", ["blue"])) is float

    def test_no_truths_are_refused(self, metric):
        with pytest.raises(ValueError, match="no truths"):
            metric("blue", [])

    def test_one_string_is_not_a_list_of_truths(self, metric):
        with pytest.raises(ValueError, match=r"one string 'blue'.*list"):
            metric("b", "blue")


class TestVqaAccuracy:
    @each(
        ("agree", "score"),
        [
            (0, 0.0),
            (1, 0.3),  # left out once: 0 of 3; 9 times it stays: 1/3.     (0 + 9 * 1/3) / 10
            (2, 0.6),  # left out twice: 1/3; 8 times both stay: 2/3.      (2 * 1/3 + 8 * 2/3) / 10
            (3, 0.9),  # left out 3 times: 2/3; 7 times all stay: 1.       (3 * 2/3 + 7) / 10
            (4, 1.0),  # three others are left whoever is left out
            (10, 1.0),
        ],
    )
    def test_of_ten(self, agree, score):
        truths = ["red"] * agree + [f"other {i}" for i in range(10 - agree)]
        assert vqa_accuracy("red", truths) == pytest.approx(score)

    @each(
        ("truths", "score"),
        [
            (["red"], 1.0),
            (["blue"], 0.0),
            (["red", "red"], 1.0),  # of one other, one has to agree
            (["red", "blue"], 0.5),  # red left out: 0 of 1; blue left out: 1 of 1
            (["red", "red", "blue"], 2 / 3),  # 1/2, 1/2 and 2/2
            (["red", "red", "red", "blue"], 0.75),  # from four on as of ten: 2/3, 2/3, 2/3 and 3/3
        ],
    )
    def test_of_fewer(self, truths, score):
        assert vqa_accuracy("red", truths) == pytest.approx(score)

    @each(
        ("answer", "truth"),
        [
            ("two dogs", "2 dogs"),
            ("none", "0"),
            ("Ten", "10"),
            ("The dog", "dog"),
            ("a cat and an owl", "cat and owl"),
            ("isnt", "isn't"),
            ("dont know", "Don't know"),
            ("couldnt've", "couldn't've"),
            ("ow's'at", "'ow's'at"),
            ("1,000", "1000"),
            ("1,000,000", "1000000"),
            ("$1,000", "$1000"),
            ("3.50", "3.50"),
            ("yes.", "yes"),
            ("U.S.A.", "usa"),
            ("mt. fuji", "mt fuji"),
            ("4.", "4"),
            ("red, blue", "red blue"),
            ("red,blue", "red blue"),  # no space beside the comma, so it becomes one
            ("t-shirt", "t shirt"),
            ("well - known", "well known"),
            ("yes!", "yes"),
            ("(left)", "left"),
            ("black/white", "black white"),
            ("black\nwhite", "black white"),
            ("black\twhite", "black  white"),
        ],
    )
    def test_the_same_after_normalisation(self, answer, truth):
        assert vqa_accuracy(answer, [truth] * 10) == 1.0
        assert vqa_accuracy(truth, [answer] * 10) == 1.0

    @each(
        ("answer", "truth"),
        [
            ("eleven", "11"),  # number words end at ten
            ("3.50", "350"),  # a full stop before a digit stays
            ("3.50", "3.5"),  # and numbers are texts
            (".5", "5"),
            ("its", "it's"),  # not in the official table: its is a word
            ("shed", "she'd"),
            ("10:30", "1030"),  # a colon is kept
            ("5%", "5"),
            ("theatre", "atre"),  # articles are whole words
            ("dogs", "dog"),
            ("1,000 t-shirts", "1000 t shirts"),  # a comma between digits: no mark leaves a space
            ("", "red"),
        ],
    )
    def test_different_after_normalisation(self, answer, truth):
        assert vqa_accuracy(answer, [truth] * 10) == 0.0

    def test_a_comma_between_digits_joins_everything_else(self):
        assert vqa_accuracy("1,000 t-shirts", ["1000 tshirts"] * 10) == 1.0

    def test_truths_are_normalised_before_they_are_counted(self):
        truths = ["2", "two", "Two.", "the two"] + ["three"] * 6
        assert vqa_accuracy("2", truths) == 1.0

    def test_truths_that_agree_are_normalised_too(self):
        assert vqa_accuracy("Two", ["two"] * 10) == 1.0  # the official program compares these as they are

    def test_an_answer_of_articles_alone_is_empty(self):
        assert vqa_accuracy("the", ["a"] * 10) == 1.0


class TestAnls:
    @each(
        ("answer", "truth", "score"),
        [
            ("hello world", "hello wrld", 1 - 1 / 11),  # one letter too many of 11
            ("kitten", "sitting", 1 - 3 / 7),  # k>s, e>i, +g: 3 edits of 7
            ("ab", "ba", 0.0),  # 2 edits of 2: swapping is no edit of its own
            ("abcd", "abxy", 0.5),  # 2 of 4: exactly at the threshold, kept
            ("abcde", "abxyz", 0.0),  # 3 of 5: 0.4
            ("Hello", "hELLO", 1.0),
            ("New   York\n", " new york", 1.0),
            ("", "", 1.0),
            ("", "a", 0.0),
            ("µm", "mm", 0.5),
        ],
    )
    def test_by_hand(self, answer, truth, score):
        assert anls(answer, [truth]) == pytest.approx(score)
        assert anls(truth, [answer]) == pytest.approx(score)

    def test_the_nearest_truth_counts(self):
        # "1/8/93" against "Jan 8" is 0, against "1/8/1993" 2 edits of 8
        assert anls("1/8/93", ["Jan 8", "1/8/1993"]) == pytest.approx(0.75)

    def test_threshold(self):
        assert anls("abcd", ["abxy"], threshold=0.51) == 0.0
        assert anls("abcde", ["abxyz"], threshold=0.3) == pytest.approx(0.4)
        assert anls("abcd", ["wxyz"], threshold=0) == 0.0
        for bad in (-0.1, 1.1, float("nan")):
            with pytest.raises(ValueError, match="threshold"):
                anls("a", ["a"], threshold=bad)

    def test_distance_against_the_plain_recursion(self):
        def edits(a: str, b: str) -> int:
            if not a or not b:
                return len(a) + len(b)
            return min(edits(a[1:], b) + 1, edits(a, b[1:]) + 1, edits(a[1:], b[1:]) + (a[0] != b[0]))

        rng = np.random.default_rng(0)
        for _ in range(40):
            a, b = ("".join(rng.choice(list("ab"), rng.integers(1, 5))) for _ in range(2))
            assert anls(a, [b], threshold=0) == pytest.approx(1 - edits(a, b) / max(len(a), len(b)))


class TestRelaxedAccuracy:
    @each(
        ("answer", "truth", "score"),
        [
            ("95", "100", 1.0),  # 5/100 = 0.05, the last that counts
            ("105", "100", 1.0),
            ("94.9", "100", 0.0),
            ("105.1", "100", 0.0),
            ("100", "95", 0.0),  # relative to the truth: 5/95 = 0.0526
            ("14.0", "14", 1.0),
            ("1.4e1", "14", 1.0),
            ("-96", "-100", 1.0),  # 4/100
            ("96", "-100", 0.0),  # 196/100
            ("-3", "3", 0.0),
            ("5%", "0.05", 1.0),  # a percent sign divides by 100
            ("0.05", "5%", 1.0),
            ("5%", "5", 0.0),
            ("5 %", "5.2%", 1.0),  # 0.2/5.2 = 0.038
            ("0", "0", 1.0),  # a truth of 0 is compared as text
            ("0.0", "0", 0.0),
            ("0.001", "0", 0.0),
            ("0", "0.001", 0.0),  # 0.001/0.001 = 1
            ("1,000", "1000", 0.0),  # a thousands separator makes a text
            ("1,000", "1,000", 1.0),
            ("1,000", "1,001", 0.0),
            ("1_000", "1000", 0.0),
            ("2014", "2011", 1.0),  # a year is a number as well: 3/2011
            ("yes", "Yes", 1.0),
            ("Yes.", "Yes", 0.0),
            ("green", "green line", 0.0),
            ("14", "fourteen", 0.0),
            ("nan", "nan", 1.0),  # as text
            ("inf", "5", 0.0),
            ("", "5", 0.0),
            ("%", "%", 1.0),
        ],
    )
    def test_by_hand(self, answer, truth, score):
        assert relaxed_accuracy(answer, [truth]) == score

    def test_any_truth_will_do(self):
        assert relaxed_accuracy("10", ["red", "10.1"]) == 1.0

    def test_tolerance(self):
        assert relaxed_accuracy("95", ["100"], tolerance=0) == 0.0
        assert relaxed_accuracy("100.0", ["100"], tolerance=0) == 1.0
        assert relaxed_accuracy("80", ["100"], tolerance=0.2) == 1.0
        for bad in (-0.05, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="tolerance"):
                relaxed_accuracy("1", ["1"], tolerance=bad)


class TestMatches:
    @each(
        ("answer", "exact", "loose"),
        [
            ("left", 1.0, 1.0),
            ("Left", 0.0, 1.0),
            ("left.", 0.0, 1.0),
            (" LEFT. ", 0.0, 1.0),
            ("on the left", 0.0, 0.0),
            ("left!", 0.0, 0.0),
            ("", 0.0, 0.0),
        ],
    )
    def test_by_hand(self, answer, exact, loose):
        assert exact_match(answer, ["right", "left"]) == exact
        assert loose_match(answer, ["right", "left"]) == loose

    def test_only_the_end_loses_its_full_stop(self):
        assert loose_match("3.5", ["35"]) == 0.0
        assert loose_match(".", [""]) == 1.0


class TestContains:
    @each(
        ("answer", "truth", "text", "formula"),
        [
            ("The word is STOP.", "stop", 1, 0),
            ("one\ntwo", "one two", 1, 1),
            ("on e", "one", 0, 1),
            ("x^{2} + 1", "x ^ { 2 }\n", 0, 1),
            ("", "a", 0, 0),
        ],
    )
    def test_by_hand(self, answer, truth, text, formula):
        assert contains_answer(answer, [truth]) == text
        assert contains_formula(answer, [truth]) == formula

    def test_an_empty_truth_is_in_no_reply(self):
        assert contains_answer("anything", ["", " "]) == contains_formula("anything", ["\n"]) == 0


class TestClickAccuracy:
    TRUTHS = ("[100.0, 200.0, 300.5, 400.0]",)

    @each(
        ("reply", "score"),
        [
            ("[200, 300]", 1),
            ("(300.5, 400)", 1),  # an edge
            ("[301, 300]", 0),
            ("pyautogui.click(x=0.2, y=0.3)", 1),  # fractions
            ("2 icons: the left one is at [150, 250].", 1),
            ("[100, 200, 300, 400]", 1),  # a box: its centre
            ("[0, 0, 150, 250]", 0),
            ("200 300", 1),
            ("-200, 300", 0),
            ("200", 0),
            ("no such thing", 0),
            ("", 0),
        ],
    )
    def test_by_hand(self, reply, score):
        assert click_accuracy(reply, self.TRUTHS) == score

    def test_any_box_will_do(self):
        assert click_accuracy("[5, 5]", ["[900, 900, 990, 990]", "[0, 0, 10, 10]"]) == 1

    def test_truths_that_are_no_boxes(self):
        with pytest.raises(ValueError, match="are no boxes: write each as"):
            click_accuracy("[1, 2]", ["left"])
        with pytest.raises(ValueError, match="no truths"):
            click_accuracy("[1, 2]", [])


class TestYesNo:
    @each(
        ("reply", "is_yes"),
        [
            ("Yes", True),
            ("no", False),
            ("No, there is none.", False),
            ("There is not. Yes", False),
            ("There is a dog. No cat", True),  # the first sentence counts
            ("NO", True),  # as in POPE's program
            ("", True),
        ],
    )
    def test_replies(self, reply, is_yes):
        assert yes_no_match(reply, ["yes"]) == is_yes
        assert yes_no_match(reply, ["No"]) == (not is_yes)

    def test_all_of_them_by_hand(self):
        answers = ["yes", "Yes.", "yes", "no", "no"]
        truths = ["yes", "yes", "no", "no", "yes"]
        assert yes_no_scores(answers, truths) == pytest.approx(
            {"accuracy": 0.6, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "yes_rate": 0.6}
        )
        assert yes_no_scores(["no"], ["no"]) == {
            "accuracy": 1, "precision": 0, "recall": 0, "f1": 0, "yes_rate": 0,
        }  # fmt: skip

    @each(("answers", "truths"), [([], []), (["yes"], [])])
    def test_refusals(self, answers, truths):
        with pytest.raises(ValueError, match="give one truth per answer"):
            yes_no_scores(answers, truths)
