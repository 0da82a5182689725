"""Relevance "page": texts of a browser's page or a screen, with their boxes, judged as lines of print.

    open_relevance("page:snapshot.yaml")    an ARIA snapshot with boxes, as Playwright's:
                                            page.aria_snapshot(mode="ai", boxes=True)
    open_relevance("page:screen.json")      [{"text": "Save", "role": "button", "box": [10, 20, 90, 40]}, ...]
    PageSource(parse_snapshot(text, "it"))  the same from Python

Nothing is recognised: the texts are exact. The head of `relevance.ocr` scores them, with the guide's own
table of meanings, so that nothing is downloaded. Boxes are in px of the picture; of a browser take the
screenshot in CSS px (Playwright: `screenshot(scale="css")`), or give `scale`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from arr_coc.choose.boxes import Box
from arr_coc.files.paths import input_file
from arr_coc.files.validation import parse_json
from arr_coc.relevance.boxes import FARTHEST, MAX_BOXES, parse_boxes
from arr_coc.relevance.lines import PrintedLine
from arr_coc.relevance.ocr import OcrSource, table_sentences
from arr_coc.relevance.source import PictureView

MAX_PAGE_BYTES = 20_000_000  # of a file
INK = 24  # of 255, by which print differs from the ground of its box
INSET = 2  # px along a box's sides that may be its frame
ON_PRINT = 0.5  # share of texts on print below which a note says that the boxes are of another scale

CONTROLS = frozenset(  # roles of which all of the box counts
    "button checkbox combobox link menuitem option radio searchbox slider switch tab textbox".split()
)
STATES = {"checked": "selected", "selected": "selected", "pressed": "selected", "disabled": "disabled"}

# A node of an ARIA snapshot: role, name in quotes or as a pattern, [attributes], and its text after a colon.
NODE = re.compile(
    r'(?P<role>[\w-]+)(?: (?P<name>"(?:[^"\\]|\\.)*"|/(?:[^/\\]|\\.)*/))?'
    r"(?P<attributes>(?: \[[^\]]*\])*)(?:$|:(?: (?P<text>.*))?$)"
)
NUMBER = r"(-?\d+(?:\.\d+)?)"
PLACE = re.compile(rf"\[box={NUMBER},{NUMBER},{NUMBER},{NUMBER}\]")  # x, y, width and height
BYTE = re.compile(r"\\x([0-9a-fA-F]{2})")


class PageText(NamedTuple):
    """A text of a page, such as a label, a cell of a table or a button, in px of the picture."""

    text: str
    box: Box
    role: str = ""  # by ARIA, such as "button"


PageTexts = Sequence[PageText] | Callable[[Tensor], Sequence[PageText]]


class PageSource(OcrSource):
    """Scores cells by which texts of a page a question needs; the texts and their boxes are given.

    Args:
        texts: of the page, or a function from a picture, float [3, h, w] in [0, 1], to them.
        scale: px of the picture for one px of the boxes: 2 for the screenshot of a phone at scale 2.
    """

    name = "page"

    def __init__(self, texts: PageTexts, scale: float = 1.0) -> None:
        super().__init__(read=lambda pixels: (), sentences=table_sentences())
        self.texts, self.scale = texts, scale
        digest = zlib.crc32(repr((list(texts), scale)).encode()) if isinstance(texts, Sequence) else 1
        self.version = f"{self.version}-{digest:08x}"  # a function's texts are known with a picture alone

    def view(self, picture: Tensor) -> PictureView:
        """Return the view of a picture: of its texts those on print, cut to it but for controls.

        Raises:
            ValueError: all boxes lie outside of the picture.
        """
        texts = self.texts if isinstance(self.texts, Sequence) else self.texts(picture)
        height, width = picture.shape[-2:]
        pixels = (picture.detach().cpu().clamp(0, 1) * 255).round().permute(1, 2, 0).numpy().astype(np.int16)
        lines, inside = [], 0
        for one in texts:
            x0, y0, x1, y1 = (side * self.scale for side in one.box)
            box = max(0.0, x0), max(0.0, y0), min(float(width), x1), min(float(height), y1)
            if box[0] >= box[2] or box[1] >= box[3]:
                continue
            inside += 1
            if (printed := _ink(box, pixels)) is not None:
                lines.append(PrintedLine(one.text or one.role, box if one.role in CONTROLS else printed))
        if texts and not inside:
            raise ValueError(
                f"the texts of the page, such as {texts[0].text!r:.60} at "
                f"[{', '.join(f'{side:g}' for side in texts[0].box)}], all lie outside of the picture, which "
                f"is {width}x{height} px: give snapshot and screenshot of one page at one scale"
            )
        note = None
        if len(lines) < ON_PRINT * inside:
            note = (
                f"of {inside} texts of the page {inside - len(lines)} lie where the picture shows no print: "
                "take snapshot and screenshot of one page at one scale"
            )
        return self.of_lines(lines, (height, width))._replace(note=note)


def _ink(box: Box, pixels: np.ndarray) -> Box | None:
    """Return a box without the blank rows and columns around its print; None if it shows none.

    `pixels` is the picture, int16 [h, w, 3] in 0..255. Print differs from the px beside it, a ground that
    shades off doesn't.
    """
    x0, y0, x1, y1 = (round(side) for side in box)
    if x1 - x0 > 4 * INSET and y1 - y0 > 4 * INSET:  # a frame is no print
        x0, y0, x1, y1 = x0 + INSET, y0 + INSET, x1 - INSET, y1 - INSET
    part = pixels[y0:y1, x0:x1]
    across = np.abs(np.diff(part, axis=1)).max(-1, initial=0) > INK
    down = np.abs(np.diff(part, axis=0)).max(-1, initial=0) > INK
    rows = np.flatnonzero(np.pad(down.any(1), (0, 1)) | np.pad(down.any(1), (1, 0)) | across.any(1))
    columns = np.flatnonzero(np.pad(across.any(0), (0, 1)) | np.pad(across.any(0), (1, 0)) | down.any(0))
    if not len(rows) or not len(columns):
        return None
    return (
        float(x0 + columns[0]), float(y0 + rows[0]), float(x0 + columns[-1] + 1), float(y0 + rows[-1] + 1)
    )  # fmt: skip


class _Node(NamedTuple):
    """A line of a snapshot."""

    depth: int  # spaces before it
    role: str
    text: str
    box: Box | None  # None: not given
    hidden: bool  # of no area, and not what a closed list shows


def parse_snapshot(content: str, name: str) -> tuple[PageText, ...]:
    """Return the texts of an ARIA snapshot with boxes, "[box=x,y,width,height]", in order.

    A text without a box lies in what its nearest ancestor's box has left beside the boxes around it. A node
    counts by its own text and name, but one that holds nodes with texts by theirs alone.

    Raises:
        ValueError: no snapshot, or one without boxes; `name` is that of the file, for the message.
    """
    remedy = 'save page.aria_snapshot(mode="ai", boxes=True) of Playwright, or a JSON list of boxes'
    nodes = []
    for number, line in enumerate(content.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith(("#", "```")):
            continue
        if not bare.startswith("- "):
            raise ValueError(f"line {number} of {name} is {bare!r:.60} and no node of a snapshot: {remedy}")
        if (node := _node(len(line) - len(line.lstrip()), bare[2:])) is not None:
            nodes.append(node)
    if len(nodes) > MAX_BOXES or not any(node.box for node in nodes):
        what = f"more than {MAX_BOXES} nodes" if len(nodes) > MAX_BOXES else "no [box=x,y,width,height]"
        raise ValueError(f"{name} has {what}: {remedy}")
    return _placed(nodes)


def _node(depth: int, bare: str) -> _Node | None:
    """Return the node of a line without its indent and dash; None for a URL or what can't be read."""
    if bare[:1] in "'\"":  # a key that YAML has to quote, and perhaps a text behind it
        end = re.match(r"'((?:[^']|'')*)'" if bare[0] == "'" else r'"((?:[^"\\]|\\.)*)"', bare)
        if end is None:
            return None
        bare = (end[1].replace("''", "'") if bare[0] == "'" else _plain(end[0])) + bare[end.end() :]
    if bare.startswith("/"):
        key, _, value = bare[1:].partition(": ")
        return _Node(depth, "text", _plain(value), None, False) if key == "placeholder" else None
    node = NODE.match(bare)
    if node is None:
        return None
    texts = [_plain(node[key]) for key in ("name", "text") if node[key]]
    states = re.findall(r"\[(\w+)\]", node["attributes"])
    texts += dict.fromkeys(STATES[state] for state in states if state in STATES)
    place = PLACE.search(node["attributes"])
    if place is None:
        return _Node(depth, node["role"], " ".join(texts), None, False)
    x, y, width, height = (max(-FARTHEST, min(float(side), FARTHEST)) for side in place.groups())
    if width > 0 and height > 0:
        return _Node(depth, node["role"], " ".join(texts), (x, y, x + width, y + height), False)
    return _Node(depth, node["role"], " ".join(texts), None, "[selected]" not in node["attributes"])


def _plain(value: str) -> str:
    """Return a text of YAML without its quotes and escapes."""
    if len(value) < 2 or value[0] != value[-1] or value[0] not in "'\"":
        return value
    if value[0] == "'":
        return value[1:-1].replace("''", "'")
    try:
        return str(json.loads(BYTE.sub(r"\\u00\1", value), strict=False))
    except ValueError:  # an escape of YAML that JSON lacks
        return value[1:-1]


def _placed(nodes: Sequence[_Node]) -> tuple[PageText, ...]:
    """Return the texts of nodes in order with their boxes, but for hidden nodes and what they hold."""
    children: list[list[int]] = [[] for _ in nodes]
    boxes: list[Box | None] = [node.box for node in nodes]
    parents, above, hidden = [-1] * len(nodes), list[int](), set[int]()
    for i, node in enumerate(nodes):
        while above and nodes[above[-1]].depth >= node.depth:
            above.pop()
        if above:
            parents[i] = above[-1]
            children[above[-1]].append(i)
        if node.hidden or parents[i] in hidden:
            hidden.add(i)
        above.append(i)
    texts = []
    telling = set()  # nodes with texts in them
    for i in reversed(range(len(nodes))):
        if i not in hidden and (nodes[i].text or i in telling) and parents[i] >= 0:
            telling.add(parents[i])
    for i, node in enumerate(nodes):
        if boxes[i] is None and parents[i] >= 0 and i not in hidden:
            whole = boxes[parents[i]]
            around = [(nodes[j].box, j < i) for j in children[parents[i]] if j != i]
            boxes[i] = whole and _rest(whole, [(box, before) for box, before in around if box])
        controls = not children[i] and node.role not in ("generic", "text")
        own = boxes[i]
        if own is not None and not (i in hidden or i in telling) and (node.text or controls):
            texts.append(PageText(node.text, own, node.role))
    return tuple(texts)


def _rest(whole: Box, around: Sequence[tuple[Box, bool]]) -> Box:
    """Return what is left of a box beside those before (True) and after it: the larger strip of each."""
    x0, y0, x1, y1 = whole
    for (left, top, right, bottom), before in around:
        if before:
            beside, below = (max(x0, right), y0, x1, y1), (x0, max(y0, bottom), x1, y1)
        else:
            beside, below = (x0, y0, min(x1, left), y1), (x0, y0, x1, min(y1, top))
        areas = [max(0.0, c - a) * max(0.0, d - b) for a, b, c, d in (beside, below)]
        if max(areas) > 0:
            x0, y0, x1, y1 = beside if areas[0] > areas[1] else below
    return x0, y0, x1, y1


def parse_texts(value: Any, name: str) -> tuple[PageText, ...]:
    """Return texts from a list of {"text": ..., "role": ..., "box": [x0, y0, x1, y1]}; ValueError if bad."""
    made = []
    for number, (box, one) in enumerate(zip(parse_boxes(value, name), value, strict=True)):
        role = one.get("role", "") if isinstance(one, Mapping) else ""
        if not isinstance(role, str) or not (role or box.text):
            raise ValueError(f"box {number} of {name} has no text: give text, role and box")
        made.append(PageText(box.text, box.box, role))
    return tuple(made)


def open_page_texts(argument: str = "") -> PageSource:
    """Open the source "page:FILE": an ARIA snapshot with boxes, or a JSON list of texts with boxes."""
    if not argument:
        raise ValueError("relevance 'page' needs a file: page:snapshot.yaml, or a PageSource in Python")
    path = input_file(argument)
    name = f"page {str(path)!r}"
    try:
        if path.stat().st_size > MAX_PAGE_BYTES:
            raise ValueError(f"{name} has more than {MAX_PAGE_BYTES / 1e6:g} MB: give a snapshot of one page")
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{name} can't be read ({error}): give a snapshot or a JSON file") from error
    if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return PageSource(parse_texts(parse_json(content, name, "give a JSON list of texts"), name))
    try:
        return PageSource(parse_snapshot(content.decode("utf-8-sig"), name))
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text (byte {error.start}): save it as UTF-8") from error
