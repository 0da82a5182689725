"""Marks in words, by which a server knows where a picture belongs."""

from __future__ import annotations

from arr_coc.proxy.messages import api_of, picture_slots, with_parts
from arr_coc.proxy.tags import placed


def test_lines_of_pictures_without_a_mark_come_first() -> None:
    lines = [[("An overview.", True), ("A part.", True)], [("", True)]]
    assert placed("What?", lines, numbered=False) == "An overview.\nA part.\nWhat?"
    made = placed("[img] What? [img]", lines, numbered=False)
    assert made == "An overview.\n[img]\nA part.\n[img] What? [img]"
    made = placed("[img-1] [img-0] [img-7]", lines, numbered=True)
    assert made == "[img-2] An overview.\n[img-0]\nA part.\n[img-1] [img-7]"
    assert placed("[img-1]", [[("", True)]] * 2, numbered=False) == "[img-1]"


def test_words_stay_where_no_picture_changes() -> None:
    for words in ("", "What? [img]", "[img-0][img-1]\n", "[img-99999999999]"):
        assert placed(words, [[("", True)]] * 2, numbered=True) == words


def test_marks_go_with_packed_pictures() -> None:
    api = api_of("/api/chat")
    assert api is not None
    body = {"messages": [{"role": "user", "content": "See [img]. And [img]?", "images": ["one", "two"]}]}
    first, _ = picture_slots(api, body)
    (turn,) = with_parts(api, body, {first: [("An overview.", "AAAA"), ("A part.", "BBBB")]})["messages"]
    assert turn["images"] == ["AAAA", "BBBB", "two"]
    assert turn["content"] == "See An overview.\n[img]\nA part.\n[img]. And [img]?"
