"""The moments that questions name."""

from __future__ import annotations

import math

import pytest
import torch

from arr_coc.video.temporal import (
    EDGE_SHARE,
    OUTSIDE_EXACT,
    OUTSIDE_VAGUE,
    Moment,
    asks_when,
    event_of,
    moment_of,
    moment_shown,
)
from each import each

START, END = Moment(0.0, EDGE_SHARE, share=True), Moment(1 - EDGE_SHARE, 1.0, share=True)


@each(
    ("question", "moment"),
    [
        ("What does the caption say at 5.5 seconds?", Moment(5.5, 5.5)),
        ("Which shape appears at 3.75 s?", Moment(3.75, 3.75)),
        ("What is on screen at 1:05?", Moment(65, 65)),
        ("What is on screen at 0:00:07?", Moment(7, 7)),
        ("Who speaks at minute 2?", Moment(120, 120)),
        ("What happens at second 4?", Moment(4, 4)),
        ("Around 12 seconds, which colour is it?", Moment(12, 12)),
        ("What does he do between 3 and 5 seconds?", Moment(3, 5)),
        ("Summarise from 0:10 to 0:20.", Moment(10, 20)),
        ("What happens after 2 minutes?", Moment(120, math.inf)),
        ("What was shown before 6 seconds?", Moment(0, 6)),
        ("What is seen in the first 3 seconds?", Moment(0, 3)),
        ("What is seen in the last 5 seconds?", Moment(-5, 0)),
        ("What is the first number of the counter?", START),
        ("Read the first caption.", START),
        ("What colour is the cross in the beginning?", START),
        ("What colour is the triangle at first?", START),
        ("What time does the clock show at the end?", END),
        ("What number does the counter end with?", END),
        ("What does the last caption say?", END),
        ("What is the total?", None),
        ("When does the light turn red?", None),
        ("Which one appears first?", None),
        ("Which turn is taken the first time?", None),
        ("What are the first of all names?", None),
        ("How does it change from the start to the end?", None),
        ("How many people are there at 5 tables?", None),
        ("Which street is at 12 percent?", None),
        ("Is the meeting at 25 %?", None),
        ("", None),
    ],
)
def test_moments_of_questions(question: str, moment: Moment | None) -> None:
    assert moment_of(question) == moment


TIMES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)


@each(
    ("moment", "steps"),
    [
        (Moment(1.0, 1.0), [2]),
        (Moment(1.2, 1.2), [2]),
        (Moment(0.0, 0.0), [0]),
        (Moment(2.9, 2.9), [5]),
        (Moment(0.6, 1.6), [1, 2, 3]),
        (Moment(2.0, math.inf), [4, 5]),
        (Moment(-1.0, 0.0), [4, 5]),
        (START, [0]),
        (END, [5]),
        (Moment(0.0, 0.5, share=True), [0, 1, 2]),
    ],
)
def test_the_steps_of_a_moment(moment: Moment, steps: list[int]) -> None:
    worth = moment.worth(TIMES, 6)
    assert worth is not None
    assert (worth == 1).nonzero().flatten().tolist() == steps
    assert worth[worth < 1].unique().tolist() == pytest.approx(
        [OUTSIDE_VAGUE if moment.share else OUTSIDE_EXACT]
    )


def test_what_says_nothing_of_a_clip() -> None:
    assert Moment(1.0, 1.0).worth(None, 6) is None  # no times are known
    assert Moment(9.0, 9.0).worth(TIMES, 6) is None  # behind its end
    one = START.worth(None, 1)
    assert one is not None
    assert one.tolist() == [1.0]


@each(
    ("question", "when"),
    [
        ("When does the light turn red?", True),
        ("At which second does the slide begin?", True),
        ("At what time does he leave?", True),
        ("After how many seconds is the circle gone?", True),
        ("How long does the bell ring?", True),
        ("Tell me when the door opens.", True),
        ("What does the sign say when the light turns red?", False),
        ("How many people are there?", False),
        ("What happens at 5 seconds?", False),
        ("Which one appears first?", False),
    ],
)
def test_questions_about_a_time(question: str, when: bool) -> None:
    assert asks_when(question) is when


@each(
    ("question", "event"),
    [
        ("What does the caption say while the red circle is on screen?", "the red circle is on screen"),
        ("Which number is on the counter as the blue ring appears?", "the blue ring appears"),
        ("What is sung during the second act?", "the second act"),
        ("What does the sign say when the light turns red?", "the light turns red"),
        ("When does the light turn red?", None),
        ("At which second is the ring as large as the cross?", None),
        ("What is the total?", None),
        ("While?", None),
        ("", None),
    ],
)
def test_events_that_questions_name(question: str, event: str | None) -> None:
    assert event_of(question) == event


def test_an_event_is_where_several_cells_show_it() -> None:
    chances = torch.zeros(3, 4, 4)
    chances[0, 0, 0] = 0.9  # one cell alone
    chances[1, :2, :2] = 0.6
    assert moment_shown(chances).tolist() == pytest.approx([OUTSIDE_VAGUE, 1.0, OUTSIDE_VAGUE])
    assert moment_shown(torch.ones(2, 1, 1)).tolist() == pytest.approx(
        [1.0, OUTSIDE_VAGUE]
    )  # of one cell a step
