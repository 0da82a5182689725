"""Relevance "page": snapshots become texts with boxes, and texts on print become cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from arr_coc.choose.boxes import box_cells
from arr_coc.files.drawing import load_font
from arr_coc.files.pixels import image_pixels
from arr_coc.relevance.conformance import WORDS, check_source
from arr_coc.relevance.page import PageSource, PageText, parse_snapshot, parse_texts
from arr_coc.relevance.sums import open_relevance
from arr_coc.selector import Selector
from command_line import run, run_json
from each import each

SNAPSHOT = """\
- generic [active] [ref=e1] [box=0,0,400,300]:
  - heading "Receipt: \\"May\\"" [level=1] [ref=e2] [box=20,10,360,40]
  - generic [ref=e3] [box=20,60,360,40]:
    - text: Total
    - generic [ref=e4] [box=220,60,160,40]: "42.10"
  - 'button "Pay: now" [ref=e5] [box=20,120,120,30]'
  - checkbox "Keep a copy" [checked] [ref=e6] [box=20,170,200,20]
  - combobox [ref=e7] [box=20,200,100,30]:
    - option "Cash" [box=0,0,0,0]
    - option "Card" [selected] [box=0,0,0,0]
  - link "Help" [ref=e8] [cursor=pointer] [box=20,250,60,20]:
    - /url: https://example.org/help
  - textbox [ref=e9] [box=200,250,100,20]:
    - /placeholder: Search here
  - switch [ref=e10] [box=320,250,40,20]
  - text: 'it''s'
"""


def test_nodes_of_a_snapshot_become_texts_with_boxes() -> None:
    texts = {one.text: one for one in parse_snapshot(SNAPSHOT, "it")}
    assert texts['Receipt: "May"'] == PageText('Receipt: "May"', (20, 10, 380, 50), "heading")
    assert texts["42.10"].box == (220, 60, 380, 100)
    assert texts["Total"].box == (20, 60, 220, 100), "what its sibling leaves"
    assert texts["Pay: now"] == PageText("Pay: now", (20, 120, 140, 150), "button")
    assert texts["Keep a copy selected"].role == "checkbox"
    assert texts["Card selected"].box == (20, 200, 120, 230)
    assert texts["Search here"].box == (200, 250, 300, 270)
    assert texts["Help"].box == (20, 250, 80, 270)
    assert texts[""] == PageText("", (320, 250, 360, 270), "switch")
    assert "it's" in texts
    assert not any("Cash" in text or "example.org" in text for text in texts)


def test_texts_without_a_box_share_what_their_neighbours_leave() -> None:
    listed = parse_snapshot(
        "- generic [box=0,0,100,60]:\n"
        "  - text: above\n  - generic [box=0,20,100,20]: between\n  - text: below\n",
        "it",
    )
    assert [one.box for one in listed] == [(0, 0, 100, 20), (0, 20, 100, 40), (0, 40, 100, 60)]


@each(
    ("content", "message"),
    [
        ("", r"has no \[box="),
        ("- text: a\n- button \"b\"", r"has no \[box="),
        ("<html></html>", "line 1 of it is '<html></html>' and no node"),
        ("- a [box=1,2,3,4]: x\nb", "line 2 of it"),
    ],
)  # fmt: skip
def test_what_is_no_snapshot_with_boxes_is_refused_in_a_line(content: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        parse_snapshot(content, "it")
    assert "\n" not in str(refused.value)


def test_odd_lines_of_a_snapshot_do_no_harm() -> None:
    odd = "\n".join(
        (
            "- generic [box=0,0,9e9,99]:", "- generic [box=0,0,90,90]: ok", '- "', "- 'x",
            '- button "\\q" [box=1,1,5,5]',
            '- text: "\\x41\\u00e9"', "- [box=1,2,3,4]",
            " " * 5000 + "- deep [box=1,1,2,2]: deep", "- img /a.*b/ [box=3,3,4,4]",
            "- a [box=99999999999999999999,0,5,5]: far",
        )
    )  # fmt: skip
    texts = [one.text for one in parse_snapshot(odd, "it")]
    assert "ok" in texts
    assert "\\q" in texts
    assert "far" in texts


@each(
    ("value", "message"),
    [
        ({"box": [0, 0, 1, 1]}, "is no list"),
        ([{"box": [0, 0, 1, 1]}], "box 0 of it has no text"),
        ([{"box": [0, 0, 1, 1], "role": 5}], "box 0 of it has no text"),
        ([{"text": "a"}], "box 0 of it is"),
    ],
)
def test_lists_of_texts_are_checked(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_texts(value, "it")
    assert parse_texts([{"text": "a", "role": "cell", "box": [1, 2, 3, 4]}], "it") == (
        PageText("a", (1, 2, 3, 4), "cell"),
    )


def screen(scale: int = 1) -> Image.Image:
    """What SNAPSHOT describes, in part."""
    image = Image.new("RGB", (400 * scale, 300 * scale), "white")
    draw, font = ImageDraw.Draw(image), load_font("DejaVuSans.ttf", 16 * scale)
    for x, y, text in (
        (20, 14, 'Receipt: "May"'), (20, 70, "Total"), (320, 70, "42.10"), (30, 125, "Pay: now"),
        (40, 170, "Keep a copy"), (25, 205, "Card"), (20, 250, "Help"),
    ):  # fmt: skip
        draw.text((x * scale, y * scale), text, "black", font)
    return image


@each("scale", [1, 2])
def test_boxes_end_where_print_ends_and_controls_are_whole(scale: int) -> None:
    source = PageSource(parse_snapshot(SNAPSHOT, "it"), scale)
    view = source.view(image_pixels(screen(scale))[0])
    boxes = {line.text: [side / scale for side in line.box] for line in view.lines}
    assert boxes["Total"][2] < 80
    assert boxes["42.10"][0] > 310
    assert boxes["Pay: now"] == [20, 120, 140, 150]
    assert "switch" not in boxes, "of which the picture shows nothing"
    assert "Search here" not in boxes
    assert view.note is None


def test_a_ground_that_shades_off_is_no_print() -> None:
    shade = torch.linspace(0.2, 0.8, 200).expand(3, 80, 200).clone()
    source = PageSource([PageText("Total", (0, 0, 200, 80))])
    assert not source.view(shade).lines
    shade[:, 30:40, 50:90:2] = 1
    (line,) = source.view(shade).lines
    assert line.box == pytest.approx((49, 29, 90, 41), abs=1)


def known(picture: Tensor) -> list[PageText]:
    """A browser that knows where the pictures of the conformance tests bear which print."""
    lines = ("TOTAL 42.10", "CASHIER Mary", "TABLE 17", "INVOICE 9038")
    for scene, text in zip(WORDS, lines, strict=True):
        places = (picture < 0.99).any(0).nonzero()
        own = (scene.picture < 0.99).any(0).nonzero()
        if len(places) and len(places) == len(own):
            (y0, x0), (y1, x1) = places.amin(0).tolist(), (places.amax(0) + 1).tolist()
            return [PageText(text, (x0 - 4.0, y0 - 4.0, x1 + 90.0, y1 + 4.0))]
    return []


def test_it_keeps_the_laws_of_sources() -> None:
    """But for one question about a number, of which it is as sure where another number stands."""
    broken = check_source(PageSource(known))
    assert len(broken) <= 1
    assert all(what.startswith("tells pictures apart: 'What is the number of the table?'") for what in broken)


def test_by_its_name_alone_and_in_a_sum_for_look_and_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    screen().save("page.png")
    Path("snapshot.yaml").write_text(SNAPSHOT, encoding="utf-8-sig")
    listed = [one._asdict() for one in parse_snapshot(SNAPSHOT, "it")]
    Path("screen.json").write_text(json.dumps(listed))
    for name in ("page:snapshot.yaml", "page:screen.json", "guide+page:snapshot.yaml"):
        decision = Selector(relevance=name).decide("page.png", "What is the total?", 8, (10, 13))
        kept = {(int(y), int(x)) for _, y, x in decision.allocations[0].positions}
        cells = box_cells((320, 72, 364, 86), (10, 13), (400, 300)).nonzero().tolist()
        assert {tuple(cell) for cell in cells} <= kept, name
    facts = run_json(
        capsys, "look", "page.png", "What is the total?", "--relevance", "guide+page:snapshot.yaml"
    )
    assert {one["source"] for one in facts["coupling"]["findings"]} == {"page"}
    for name in ("page", "page:none.yaml"):
        code, _, err = run(capsys, "look", "page.png", "What?", "--relevance", name)
        assert code == 2
        assert err.count("\n") == 1


def test_boxes_of_another_scale_are_named() -> None:
    pixels = image_pixels(screen())[0]
    texts = [PageText(f"text {i}", (250 + 5 * i, 110, 300 + 5 * i, 160)) for i in range(8)]
    view = PageSource([*texts, PageText("Total", (0, 60, 200, 100))]).view(pixels)
    assert "of 9 texts of the page 8 lie where the picture shows no print" in (view.note or "")
    with pytest.raises(ValueError, match="all lie outside of the picture, which is 400x300 px"):
        PageSource([PageText("a", (900, 900, 990, 990))]).view(pixels)


def test_versions_follow_the_texts(tmp_path: Path) -> None:
    one, other = PageSource([PageText("a", (0, 0, 9, 9))]), PageSource([PageText("b", (0, 0, 9, 9))])
    assert len({one.version, other.version, PageSource([PageText("a", (0, 0, 9, 9))], 2).version}) == 3
    assert PageSource([PageText("a", (0, 0, 9, 9))]).version == one.version
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"- \xff [box=0,0,1,1]")
    with pytest.raises(ValueError, match=r"is not UTF-8 text \(byte 2\)"):
        open_relevance(f"page:{path}")
