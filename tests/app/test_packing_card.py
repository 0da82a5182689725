"""The card "For any API" without a browser."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

from arr_coc.app import handlers, packing
from arr_coc.app.looking import Looking
from arr_coc.app.state import EncodedMemory, Tab
from arr_coc.guide import coupling
from arr_coc.guide.coupling import GuideSource
from arr_coc.pixels import RULES

ORDER = str(Path(__file__).parents[2] / "docs" / "order.png")
QUESTION = "When will the parcel arrive?"
FORM = ("claude", 120, "auto")


@pytest.fixture
def tab(files_of_its_own: None) -> Tab:
    return Tab()


def test_what_would_be_sent(tab: Tab) -> None:
    looking = Looking(EncodedMemory())
    line, pictures, table, file = handlers.on_pack(looking, tab, ORDER, QUESTION, *FORM)
    assert "tokens in place of 1,334" in line
    assert pictures
    assert all(caption.endswith(".") for _, caption in pictures)
    rows = table.split("<tr>")[2:]
    assert len(rows) == len(packing.SHOWN)  # claude is one of them
    assert "<td>1,334</td>" in rows[0]
    with zipfile.ZipFile(file) as whole:
        names = whole.namelist()
        facts = json.loads(whole.read("packed.json"))
    assert names == [f"packed-{n}.png" for n in range(1, len(pictures) + 1)] + ["packed.json"]
    assert facts["rule"] == "claude"
    record = tab.record
    handlers.on_pack(looking, tab, ORDER, "Who carries it?", *FORM)
    assert tab.record is record  # encoded once
    tab.close()
    assert not Path(file).exists()


def test_a_large_picture_is_encoded_once_for_both_cards(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide reads it smaller than it is, and what is sent is cut out of the picture as it is."""
    monkeypatch.setattr(coupling, "MAX_PIXELS", 256**2)
    encoded: list[int] = []
    view = GuideSource.view_all
    monkeypatch.setattr(
        GuideSource, "view_all", lambda self, some: encoded.append(len(some)) or view(self, some)
    )
    looking = Looking(EncodedMemory())
    handlers.on_look(looking, tab, ORDER, QUESTION, 3)
    line, *_ = handlers.on_pack(looking, tab, ORDER, QUESTION, *FORM)
    assert "tokens in place of 1,334" in line
    assert encoded == [1]


def test_where_the_parts_cost_more_the_card_says_so(tab: Tab) -> None:
    words = ["90 % less", "the same", "20 % more", "4.0 times more"]
    assert [packing.compared(sent, 100) for sent in (10, 100, 120, 400)] == words
    form = (ORDER, QUESTION, "claude", 400, "overview+crops")
    packed = packing.packed_pictures(Looking(EncodedMemory()), tab, *form)
    rows = packing.table(packed).split("<tr")[2:]
    assert all((" more</td>" in row) == ("class=more" in row) for row in rows)
    assert any("gemini-low" in row and "class=more" in row for row in rows)  # each picture costs it the same
    assert " more" not in packing.sent_line(packed)
    dearer = packing.sent_line(replace(packed, tokens=4 * packed.whole_tokens))
    assert f" in place of {packed.whole_tokens:,}, 4.0 times more." in dearer


def test_what_is_missing_or_wrong_is_said(tab: Tab, tmp_path: Path) -> None:
    looking = Looking(EncodedMemory())
    assert handlers.on_pack(looking, tab, None, QUESTION, *FORM)[0] == handlers.NO_PICTURE
    assert "Type what you want" in handlers.on_pack(looking, tab, ORDER, " ", *FORM)[0]
    for tokens in (0, 1e9, None, "9"):
        assert (
            "must be 1 to 10,000" in handlers.on_pack(looking, tab, ORDER, QUESTION, "32", tokens, "auto")[0]
        )
    assert "give at least 1120" in handlers.on_pack(looking, tab, ORDER, QUESTION, "gemini", 400, "auto")[0]
    assert "is not known" in handlers.on_pack(looking, tab, ORDER, QUESTION, "x", 400, "auto")[0]
    assert "is not known" in handlers.on_pack(looking, tab, ORDER, QUESTION, "32", 400, "x")[0]
    (tmp_path / "bad.png").write_bytes(b"no picture")
    line, pictures, table, file = handlers.on_pack(looking, tab, str(tmp_path / "bad.png"), QUESTION, *FORM)
    assert str(tmp_path) not in line
    assert (pictures, table, file) == ([], "", None)


def test_every_rule_can_be_chosen() -> None:
    assert {name for _, name in packing.rule_choices()} == {packing.SQUARE, *RULES}
    assert set(packing.SHOWN) <= {packing.SQUARE, *RULES}
