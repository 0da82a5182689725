"""The journal of the proxy: whatever is asked, a record and a page are bounded."""

from __future__ import annotations

import json

import pytest

from arr_coc.proxy import journal
from arr_coc.proxy.journal import MAX_DRAWN, MAX_LETTERS, Journal, RequestedPicture
from arr_coc.proxy.packing import Outcome


def picture(letters: int = 10, reason: str = "small") -> RequestedPicture:
    outcome = Outcome(reason, (("caption", "A" * 10_000),), 50, 40, thumbnail="t" * 99)
    return RequestedPicture("w" * letters + "?", outcome)


def test_a_record_is_bounded() -> None:
    made = Journal()
    record = made.add_pictures("/v1/messages", "m", "32", [picture(2000)] * 32, others=7)
    assert len(record.pictures) == MAX_DRAWN
    for one in record.pictures:
        assert one.question.endswith("ww?")
        assert len(one.question) == MAX_LETTERS + 3
        assert one.outcome.parts == (("caption", ""),)
    assert record.nbytes < 50_000
    assert record.summary == "packed 0 of 39 pictures, 1280 of 1600 tokens"
    assert 'arr_coc_whole_pictures_total{reason="many_pictures"} 7.0' in made.metrics().decode()
    assert 'arr_coc_pictures_total{outcome="whole"} 39.0' in made.metrics().decode()


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_BYTES", 40_000)
    made = Journal(10_000)
    for _ in range(30):
        made.keep(made.add_pictures("/v1/messages", "m", "32", [picture(2000)] * 8))
    assert 1 <= len(made.records) <= 4
    assert made.records[-1].number == 30
    assert len(made.page()) < 80_000
    none = Journal(0)
    none.keep(none.add_pictures("/v1/messages", "m", "32", [picture()]))
    assert not none.records


def test_all_who_ask_share_a_page() -> None:
    made = Journal(2)
    for draw in (made.page, made.as_json):
        assert draw() is draw()
        before = draw()
        made.keep(made.add_pictures("/v1/messages", "m", "32", [picture()]))
        assert draw() != before
    assert [one["number"] for one in json.loads(made.as_json())["requests"]] == [2, 1]


def test_totals_are_of_answered_requests() -> None:
    """Also where no request is kept, and each is told in a line."""
    told: list[str] = []
    made = Journal(0, told.append)
    assert made.totals.saved == "no tokens known"
    packed = RequestedPicture("Which?", Outcome("packed", (), 1000, 400, "crops"))
    later = RequestedPicture("And who?", Outcome("recalled", (), 0, 100, "crops"))
    unsure = RequestedPicture("Why?", Outcome("unsure", (), 1000, 500, "shrunk"))
    made.add_pictures("/v1/messages", "m", "32", [packed])  # refused, and asked again in another way
    record = made.add_pictures("/v1/messages", "m", "32", [packed, later, unsure, picture()])
    made.keep(record._replace(status=200, ms=12.3))
    assert made.totals == (1, 3, 2050, 1040)
    assert made.totals.saved == "49 % less"
    (line,) = told
    assert line.endswith(
        "m: 3 pictures, 2 packed, parts for 1 later question; 2,050 -> 1,040 tokens (49 % less), "
        "12 ms, status 200"
    )
    assert "2,050 &rarr; 1,040" in made.page().decode()
    assert json.loads(made.as_json())["totals"]["before"] == 2050
    counts = made.metrics().decode()
    assert 'arr_coc_pictures_total{outcome="recalled"} 1.0' in counts
    assert 'reason="unsure"' not in counts  # it didn't go as it came
    grown = Journal(1)
    grown.keep(
        grown.add_pictures("/v1/messages", "m", "32", [later, packed._replace(outcome=unsure.outcome)])
    )
    assert "shrunk, 0 picture" in grown.page().decode()
    assert "it may not hold what is asked for" in grown.page().decode()
