"""Later questions get what they need of earlier pictures, at the end of their own turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from arr_coc.proxy import recall
from chat_servers import CLIENT, PATHS, Started, encoded, sent_for, users_turn
from each import each

Start = Callable[..., Started]
YES = {"role": "assistant", "content": "Yes."}


def said(api: str, body: bytes) -> list[str]:
    """The texts of the last turn."""
    turn = json.loads(body)["input" if api == "responses" else "messages"][-1]
    content = turn["content"]
    return content.split("\n") if isinstance(content, str) else [p["text"] for p in content if "text" in p]


def talk(api: str, *questions: str, heights: tuple[int, ...] = (800, 801, 802)) -> list[dict[str, Any]]:
    """Some pictures, each with a question about what is red, and then questions without any."""
    turns: list[dict[str, Any]] = []
    for height in heights:
        turns += [users_turn(api, "What is red?", [encoded(1280, height)]), YES]
    for question in questions:
        turns += [users_turn(api, question, []), YES]
    return turns[:-1]


@each("api", [*PATHS])
def test_parts_are_appended_and_named(start: Start, api: str) -> None:
    started = start()
    sent = sent_for(started, api, talk(api, "And what is green on p801?"))
    assert said(api, sent) == ["And what is green on p801?", "From picture 2, sent earlier: the green part."]
    record = started[2].journal.records[-1]
    assert (record.recalled, record.count, record.packed) == (1, 3, 3)
    assert record.pictures[-1].outcome.reason == "recalled"
    assert record.pictures[-1].outcome.before == 0
    assert record.after == sum(one.outcome.after for one in record.pictures) > 1200
    assert "parts for 1 later question; " in record.line
    page = CLIENT.get(started[0] + "/arr_coc/requests").text
    assert "a later question needed it" in page
    assert "tokens more" in page


def test_what_is_shown_is_not_sent_again(start: Start) -> None:
    started = start()
    for question in ("What is red on p801?", "Thanks!", "What else?", "What is blue on p801?"):
        assert said("chat", sent_for(started, "chat", talk("chat", question))) == [question]
    twice = talk("chat", "What is green on p801?", "Is it green on p801?")
    assert len(said("chat", sent_for(started, "chat", twice[:-2]))) == 2
    assert said("chat", sent_for(started, "chat", twice)) == ["Is it green on p801?"]
    whole = talk("chat", "What is green?", heights=())
    whole = [users_turn("chat", "Read the page aloud.", [encoded(1280, 803)]), YES, *whole]
    assert said("chat", sent_for(started, "chat", whole)) == ["What is green?"]  # it went whole


def test_a_new_picture_that_answers_is_enough(start: Start) -> None:
    started = start()
    turns = [*talk("chat"), YES, users_turn("chat", "What is green on p801?", [encoded(1280, 810)])]
    assert not any("From picture" in text for text in said("chat", sent_for(started, "chat", turns)))
    question = "What is green, or purple, on p801?"  # of which the double is not sure
    turns[-1] = users_turn("chat", question, [encoded(1280, 810)])
    assert (
        said("chat", sent_for(started, "chat", turns))[-1] == "From picture 2, sent earlier: the green part."
    )


def test_places_in_px_are_asked_of_the_whole(start: Start) -> None:
    started = start()
    question = "Return the bounding box of what is green on p801."
    assert said("chat", sent_for(started, "chat", talk("chat", question))) == [question]
    turns = [users_turn("chat", question, [encoded(1280, 801)])]
    sent_for(started, "chat", turns)
    assert started[2].journal.records[-1].pictures[-1].outcome.reason == "coordinates"


def test_as_many_pictures_as_came(start: Start) -> None:
    """A server that takes one in place of each is asked again without any part more."""
    started = start()
    started[1].most_pictures = 1
    turns = talk("chat", "What is green on p800?", heights=(800,))
    sent = sent_for(started, "chat", turns)
    assert said("chat", sent) == ["What is green on p800?"]
    started[1].most_pictures = 99
    assert sent_for(started, "chat", turns) == sent


def test_the_last_pictures_are_looked_at(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "MAX_BEFORE", 2)
    started = start()
    for height, number in ((800, 3), (801, 2), (802, 3)):  # the first one is too long ago
        turns = talk("chat", f"And what is green on p{height}?")
        named = said("chat", sent_for(started, "chat", turns))[1]
        assert named == f"From picture {number}, sent earlier: the green part."
