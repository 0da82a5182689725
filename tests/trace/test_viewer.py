"""Assets and the self-contained page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from arr_coc.choose.allocation import SCORERS
from arr_coc.trace.viewer import assets, page

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def view(question: str = "Where?") -> dict[str, object]:
    return {"format": "arr-coc view 2", "question": question, "image": "data:image/png;base64,AAAA"}


class Elements(HTMLParser):
    """What a browser would make of a page: tags with attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags:
            self.texts.setdefault(self.tags[-1][0], []).append(data)

    def policy(self) -> str:
        return next(str(a["content"]) for tag, a in self.tags if tag == "meta" and "http-equiv" in a)


def test_assets_are_the_viewer_alone() -> None:
    script, style = assets()
    assert "window.ArrCocViewer = { mount, pair, history, album, look }" in script
    assert ".arrcoc .ac-stage" in style
    assert ".arrcoc .ac-film" in style
    # No markup from text, no evaluation, no network; the only address is the name of the SVG namespace.
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|eval\(|Function\(|fetch\(|XMLHttp|import\(", script
    )
    addresses = re.findall(r"https?://[^\"']*", script + style)
    assert addresses == ["http://www.w3.org/2000/svg"]


def test_the_three_maps_have_the_words_of_python() -> None:
    script, _ = assets()
    words = dict(re.findall(r'(\w+): "(\w+)"', script.partition("SCORER_WORDS = {")[2].partition("}")[0]))
    assert [words.get(name, name) for name in SCORERS] == [word for word, _ in SCORERS.values()]
    for word, _ in SCORERS.values():
        assert re.search(rf"^  {word}: ?", script, re.M), f"{word} is not explained"


def test_every_rule_of_the_style_stays_in_the_viewer() -> None:
    _, style = assets()
    plain = re.sub(r"/\*.*?\*/", "", style, flags=re.S)
    selectors = [s.strip() for s in re.findall(r"([^{}]+)\{", plain)]
    outside = [s for s in selectors if "arrcoc" not in s and not s.startswith("@")]
    assert outside == []


def test_a_page_holds_everything_and_asks_for_nothing() -> None:
    elements = Elements(page([view()]))
    assert not [a for _, a in elements.tags if "src" in a or "href" in a]
    policy = elements.policy()
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    assert "http" not in policy
    for tag, kind in (("script", "script-src"), ("style", "style-src")):
        (text,) = [t for t in elements.texts[tag] if "arrcoc" in t and not t.startswith("[")]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


def test_hostile_text_is_data() -> None:
    text = page([view(HOSTILE)], title=HOSTILE)
    elements = Elements(text)
    assert [tag for tag, _ in elements.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in elements.tags]
    data = next(t for t in elements.texts["script"] if t.startswith("["))
    assert json.loads(data) == [view(HOSTILE)]
    assert "".join(elements.texts["title"]).strip() == HOSTILE


def test_a_page_says_its_size() -> None:
    big = view("x" * 3_000_000)
    said = re.search(r"<footer>([\d.]+) MB", page([big]))
    assert said is not None
    assert float(said[1]) == pytest.approx(len(page([big])) / 1e6, abs=0.1)


def test_bad_views_are_named() -> None:
    with pytest.raises(ValueError, match="at least one view"):
        page([])
    with pytest.raises(ValueError, match=r"format 'other'.*Trace\.view"):
        page([{"format": "other"}])
    with pytest.raises(ValueError, match="JSON"):  # a NaN would make the page unreadable
        page([{**view(), "kept": float("nan")}])
