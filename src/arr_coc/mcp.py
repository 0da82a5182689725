"""A server of the Model Context Protocol: an agent asks about a picture and gets the parts that matter.

    build_server(["shots"]).run("stdio")

Tools: `list` tells what pictures there are, `look_at` gives an overview and crops, `read` the rows of print
that matter, `where` boxes. Only files below the folders that are named are opened. Needs the extra
`arr-coc[mcp]`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from heapq import nlargest
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.boxes import Box
from arr_coc.files.images import open_image
from arr_coc.files.paths import find_alike, local_path, plain_name, shorten
from arr_coc.files.pdf import is_pdf, open_page
from arr_coc.files.plugins import install_line
from arr_coc.files.validation import nearest, validated
from arr_coc.guide.trust import SURE, is_general, is_transcription, sentence, verdict_of
from arr_coc.pixels import Packed, PrintedPage, find_page, find_rule, pack_for, ranked_units
from arr_coc.pixels.units import around, line_scores
from arr_coc.relevance.lines import PrintedLine
from arr_coc.relevance.ocr import lines_of_view, rapid_ocr
from arr_coc.selector import Selector

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

MAX_BYTES = 2**28  # of a file
MAX_TOKENS = 100_000
MAX_READ_BYTES = 2**28  # of pictures whose print is kept
LINE_BYTES = 400  # of memory, of a line beside its text
MAX_LISTED, MAX_SEEN = 50, 20_000  # files that are told of, and that are looked at for that
LISTED = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".pdf")
INSTRUCTIONS = (
    "Ask these tools about pictures and PDF pages in place of reading whole files: they give the parts that "
    "a question needs, at a size at which they can be read."
)


class ReadLine(NamedTuple):
    """A row of print that a question needs, and its box (x0, y0, x1, y1) in px of the picture."""

    text: str
    box: tuple[int, int, int, int]


class Folders:
    """The folders whose files may be opened.

    Raises:
        ValueError: none is named, or one isn't there.
    """

    def __init__(self, names: Sequence[str | Path]) -> None:
        if not names:
            raise ValueError("no folder is named: give those whose pictures may be opened, such as .")
        self.places = []
        for name in names:
            place = local_path(name)
            if not place.is_dir():
                own = "" if place.is_absolute() else f" in {shorten(Path.cwd())}, where this was started"
                raise ValueError(
                    f"folder {shorten(name)} is not there{own}: give the whole path of one whose pictures "
                    "may be opened, such as /home/me/screenshots"
                )
            self.places.append(place.resolve())

    def read(self, name: str) -> bytes:
        """The content of a file below the folders.

        `name` is a path, relative to here or to one of them, or a file:// address. Where no file is called
        so, one is taken whose name has other blanks or accents. Links are followed before it is decided
        whether the file is below. Of a path that isn't, the message doesn't say whether anything is there.

        Raises:
            ValueError: the path leads elsewhere, or to no regular file of at most MAX_BYTES.
        """
        target = self._resolved(name)
        try:
            file = os.open(target, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            reason = error.strerror or "it can't be opened"
            raise ValueError(f"path {shorten(name)} cannot be read ({reason}): check its name") from error
        with os.fdopen(file, "rb") as opened:
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode):
                raise ValueError(f"path {shorten(name)} is no regular file: give that of a picture")
            if facts.st_size > MAX_BYTES:
                raise ValueError(f"path {shorten(name)} is larger than {MAX_BYTES >> 20} MiB: scale it down")
            # A folder on the way may have become a link since the path was checked.
            if self._resolved(name) != target or not os.path.samestat(facts, os.stat(target)):
                raise ValueError(f"path {shorten(name)} changed while it was opened: ask again")
            return opened.read(MAX_BYTES)

    def _resolved(self, name: str) -> Path:
        listed = ", ".join(map(str, self.places))
        path, there = _of_address(name), []
        try:
            path = path.expanduser()
            targets = [place / path for place in (Path.cwd(), *self.places)]  # an absolute path stays itself
            below = [target for each in targets if self._holds(target := each.resolve())]
            there = [target for target in below if target.is_file()]
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a zero byte, no such home
            raise ValueError(
                f"path {shorten(name)} can't be followed: give another below {listed}"
            ) from error
        if not there:
            alike = [find_alike(self._in_place(target), self._holds) for target in targets]
            there = [each.resolve() for each in alike if self._holds(each) and each.is_file()]
            below += there
        if not below:
            raise ValueError(f"path {shorten(name)} is not below {listed}: only files there are opened")
        if not there:
            raise ValueError(f"path {shorten(name)} is no file below {listed}: check its name")
        return there[0]

    def _holds(self, path: Path) -> bool:
        """Whether a path, its links followed, lies below the folders."""
        try:
            return any(path.resolve().is_relative_to(place) for place in self.places)
        except (OSError, RuntimeError):  # a loop of links
            return False

    def _in_place(self, path: Path) -> Path:
        """A path in one of the folders, whose own names it may write otherwise."""
        parts = [plain_name(part) for part in path.parts]
        for place in self.places:
            if parts[: len(place.parts)] == [plain_name(part) for part in place.parts]:
                return place.joinpath(*path.parts[len(place.parts) :])
        return path

    def newest(self, most: int) -> tuple[list[tuple[Path, os.stat_result]], bool]:
        """The newest pictures and PDFs, at most `most`, and whether they are all there are.

        Hidden ones and links are left out; at most MAX_SEEN files are looked at.
        """
        files = 0
        more = False

        def pictures() -> Iterator[tuple[Path, os.stat_result]]:
            nonlocal files, more
            for place in dict.fromkeys(self.places):
                for root, folders, names in os.walk(place):  # it follows no links
                    folders[:] = sorted(name for name in folders if not name.startswith("."))
                    for name in names:
                        files += 1
                        if files > MAX_SEEN:
                            more = True
                            return
                        path = Path(root, name)
                        if name.startswith(".") or path.suffix.lower() not in LISTED:
                            continue
                        try:
                            facts = path.lstat()
                        except OSError:  # it is gone
                            continue
                        if stat.S_ISREG(facts.st_mode):
                            yield path, facts

        every = dict(pictures())  # once each, also where one folder lies below another
        newest = nlargest(most, every.items(), key=lambda item: (item[1].st_mtime, str(item[0])))
        return newest, more or len(newest) < len(every)


def _of_address(name: str) -> Path:
    """The path of a file:// address, or that which a name is."""
    if name[:5].lower() != "file:":
        return Path(name)
    host, slash, rest = name[7:].partition("/") if name[5:7] == "//" else ("", "", name[5:])
    if host.lower() not in ("", "localhost"):
        raise ValueError(f"path {shorten(name)} names another machine: give a path on this one")
    return Path(os.fsdecode(unquote_to_bytes(slash + rest)))


class PictureTools:
    """What the tools share: the folders, and a selector, used by one call at a time.

    Args:
        folders: whose files may be opened.
        rule: that counts tokens, as in `find_rule`.
        selector: None: the bundled guide's.
    """

    def __init__(self, folders: Folders, rule: str = "32", selector: Selector | None = None) -> None:
        self.folders, self.rule = folders, find_rule(rule).name
        self.selector = Selector() if selector is None else selector
        self._lock = Lock()
        from cachetools import LRUCache  # here, so that what needs no extra can be imported without

        self._printed: LRUCache[bytes, _Printed] = LRUCache(MAX_READ_BYTES, attrgetter("nbytes"))

    def listed(self, most: int = MAX_LISTED) -> dict[str, Any]:
        """The newest pictures and PDFs below the folders: paths, sizes and when they were changed."""
        if not 1 <= most <= MAX_LISTED:
            raise ValueError(f"most {most} is no count of files: give 1 to {MAX_LISTED}")
        newest, more = self.folders.newest(most)
        files = [
            {
                "path": str(path),
                "bytes": facts.st_size,
                "changed": datetime.fromtimestamp(facts.st_mtime, UTC).isoformat(timespec="seconds"),
            }
            for path, facts in newest
        ]
        return {"files": files, "more": more}

    def picture(self, path: str, page: int | None = None) -> Image.Image:
        """A picture below the folders, or a page of a PDF."""
        content = self.folders.read(path)
        if is_pdf(content):
            return open_page(content, page, shorten(path))
        if page is not None:
            raise ValueError(f"{shorten(path)} is no PDF, so it has no page {page}: leave page out")
        try:
            return open_image(content)
        except ValueError as error:
            raise ValueError(f"{shorten(path)}: {error}") from error

    def look_at(self, path: str, question: str, tokens: int = 400, page: int | None = None) -> Packed:
        """What a question needs of a picture, as pictures of at most `tokens` tokens.

        A photograph without print on which the guide finds nothing goes whole, scaled down.
        """
        if not 1 <= tokens <= MAX_TOKENS:
            raise ValueError(f"tokens {tokens} is no count: give 1 to {MAX_TOKENS:,}, such as 400")
        with self._lock:  # so that one picture at a time is in memory
            picture = self.picture(path, page)
            made = pack_for(picture, question, tokens, rule=self.rule, selector=self.selector)
            if (
                made.confidence is None
                or made.confidence >= SURE
                or is_general(self.selector.guide, question)
            ):
                return made
            if any(one.printed for one in self.selector.decide(picture, question, 1.0).couplings):
                return made
            return pack_for(
                picture, question, tokens, rule=self.rule, layout="shrunk", selector=self.selector
            )

    def where(self, path: str, question: str, page: int | None = None) -> dict[str, Any]:
        """The units of a picture, or of a page of a PDF, that matter to a question, best first.

        Boxes are in px and end where print ends, scores in [0, 1]. "control" is the part of a box to click,
        "header" the line at the head of its column.
        """
        with self._lock:
            picture = self.selector.known(self.picture(path, page))
            decision = self.selector.decide(picture, question)
            layout = self.selector.beside(picture, find_page)
            units = ranked_units(layout, decision.allocations[0])
        coupling = decision.coupling
        boxes = []
        for unit in units:
            one: dict[str, Any] = {"box": list(unit.box), "score": round(unit.score, 4)}
            if unit.control is not None:
                one["control"] = list(unit.control)
            if unit.header >= 0:
                one["header"] = list(around([layout.lines[unit.header]]))
            boxes.append(one)
        result: dict[str, Any] = {"size": list(picture.image.size), "boxes": boxes}
        if coupling is not None:
            result["note"] = sentence(verdict_of(coupling), coupling.confidence, coupling.words)
        return result

    def read(self, path: str, question: str, page: int | None = None) -> list[ReadLine]:
        """The rows of print that a question needs, best first; a ValueError without an OCR.

        A row's cells are joined by " | ", each after the head of its column. A question that asks for all
        print gets all lines, from top to bottom. A picture is read once, by the selector's OCR if it has one.
        """
        with self._lock:
            picture = self.selector.known(self.picture(path, page))
            printed = self._printed.get(picture.key)
            if printed is None:
                view = self.selector.encode(picture).view if self.selector.trained is None else None
                if (lines := lines_of_view(view)) is None:
                    lines = tuple(rapid_ocr()(np.asarray(picture.image)))
                layout = self.selector.beside(picture, find_page)
                boxes = tuple(_trimmed(line.box, layout.boxes) for line in lines)
                printed = _Printed(lines, replace(layout, lines=boxes))
                if printed.nbytes <= MAX_READ_BYTES:
                    self._printed[picture.key] = printed
            if not is_transcription(self.selector.guide, question):
                return printed.needed(self.selector.decide(picture, question).allocations[0])
            lines = sorted(printed.lines, key=lambda line: (line.box[1], line.box[0]))
            return [ReadLine(line.text, around([line.box])) for line in lines]


class _Printed(NamedTuple):
    """What an OCR read on a picture, and the layout of these lines."""

    lines: tuple[PrintedLine, ...]
    page: PrintedPage

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return self.page.nbytes + sum(LINE_BYTES + len(line.text) for line in self.lines)

    def needed(self, allocation: Allocation) -> list[ReadLine]:
        """The rows that hold the units that kept cells show, best first, without heads of these rows."""
        rows, headers = self.page.rows, self.page.headers
        number = {i: n for n, row in enumerate(rows) for i in row}
        scores = line_scores(self.page, allocation)
        wanted: dict[int, None] = {}
        for unit in ranked_units(self.page, allocation):
            own = list(dict.fromkeys(number[i] for i in unit.lines))  # from the top, as wrapped text is read
            if any(len(rows[n]) > 1 for n in own):
                own.sort(key=lambda n: -max(scores[i] for i in rows[n]))
            wanted |= dict.fromkeys(own)
        heads = {number[headers[i]] for n in wanted for i in rows[n] if headers[i] >= 0}
        return [self._row(rows[n]) for n in wanted if n not in heads]

    def _row(self, row: Sequence[int]) -> ReadLine:
        """A row as one line of text, in a table each cell but the first after the head of its column.

        A label with its value has no heads: above it is another label's value rather than a head.
        """
        cells = self._cells(row)
        heads = [max(self.page.headers[i] for i in cell) for cell in cells[1:]]
        kept = [head for head in heads if head >= 0]
        table = len(kept) > 1 and len(set(kept)) == len(kept)
        texts = []
        for cell, head in zip(cells, [-1, *heads], strict=True):
            text = " ".join(self.lines[i].text for i in cell)
            texts.append(f"{self.lines[head].text}: {text}" if table and head >= 0 else text)
        return ReadLine(" | ".join(texts), around([self.lines[i].box for i in row]))

    def _cells(self, row: Sequence[int]) -> list[list[int]]:
        """The cells of a row from the left: stacked lines, from the top, are one cell."""
        cells: list[list[int]] = []
        for i in row:
            x0, y0, _, y1 = self.lines[i].box
            others = [self.lines[k].box for k in cells[-1]] if cells else []
            apart = all(min(y1, box[3]) - max(y0, box[1]) < (y1 - y0) / 2 for box in others)
            if others and apart and x0 < max(box[2] for box in others):
                cells[-1].append(i)
            else:
                cells.append([i])
        return [sorted(cell, key=lambda i: self.lines[i].box[1]) for cell in cells]


def _trimmed(box: Box, lines: NDArray[np.float64]) -> Box:
    """An OCR's box without its margin, at most a third of its height, around lines [L, 4] of ink; in px.

    With it neighbours would overlap, and print look paler than the heads of columns.
    """
    x0, y0, x1, y1 = box
    middle = (lines[:, 1] + lines[:, 3]) / 2
    inside = lines[(lines[:, 0] < x1) & (lines[:, 2] > x0) & (middle > y0) & (middle < y1)]
    if not len(inside):
        return box
    start, end, margin = np.array((x0, y0)), np.array((x1, y1)), (y1 - y0) / 3
    left, top = np.clip(inside[:, :2].min(0), start, start + margin).tolist()
    right, bottom = np.clip(inside[:, 2:].max(0), end - margin, end).tolist()
    return (left, top, right, bottom) if left < right else box


def require_mcp() -> None:
    """Raise a ValueError unless the official SDK is installed."""
    if find_spec("mcp") is None:
        raise ValueError(f"this server needs the MCP SDK, which is not installed: {install_line('mcp')}")


def build_server(folders: Sequence[str | Path], rule: str = "32") -> MCPServer:
    """The server with its four tools, to be run over stdio.

    Args:
        folders: whose files may be opened.
        rule: that counts tokens, as in `find_rule`.

    Raises:
        ValueError: a folder that isn't there, an unknown rule, or no SDK.
    """
    require_mcp()
    import anyio.to_thread
    from mcp.server.mcpserver import Image as McpImage
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.tools import Tool

    from arr_coc import __version__

    tools = PictureTools(Folders(folders), rule)

    class CheckedTool(Tool):
        """A tool that refuses arguments in one line; the SDK has several for each, and drops unknown ones."""

        async def run(self, arguments: dict[str, Any], *rest: Any, **more: Any) -> Any:
            names = self.parameters["properties"]
            try:
                for name in arguments:
                    if name not in names:
                        listed = ", ".join(names)
                        hint = nearest(name, names)
                        raise ValueError(
                            f"{self.name} has no argument {shorten(name)}: it takes {listed}{hint}"
                        )
                checked = self.fn_metadata.pre_parse_json(arguments)
                validated(self.fn_metadata.arg_model, checked, self.name)
            except ValueError as error:
                raise ToolError(str(error)) from error
            return await super().run(arguments, *rest, **more)

    async def away(work: Callable[[], Any]) -> Any:
        """Work off the event loop; a refusal becomes the tool's answer."""
        try:
            return await anyio.to_thread.run_sync(work)
        except ValueError as error:
            raise ToolError(str(error)) from error

    async def listed(most: int = MAX_LISTED) -> dict[str, Any]:
        """List the newest pictures and PDFs that can be asked about: path, bytes and when it was changed."""
        return await away(lambda: tools.listed(most))

    async def look_at(path: str, question: str, tokens: int = 400, page: int | None = None) -> list[Any]:
        """Look at a picture (or a PDF page) for a question: a small overview and the parts that matter,
        enlarged, each with a sentence on what it shows and where it is. Costs at most `tokens` visual tokens.
        """
        packed: Packed = await away(lambda: tools.look_at(path, question, tokens, page))
        width, height = packed.size
        head = f"{width} x {height} px, {packed.tokens:,} of {packed.whole_tokens:,} tokens, {packed.layout}."
        if packed.confidence is not None:
            head += f" That it holds what is asked for: {packed.confidence:.0%}."
        content: list[Any] = [head]
        for number, caption in enumerate(packed.captions):
            content += [caption, McpImage(data=packed.png(number), format="png")]
        return content

    async def read(path: str, question: str, page: int | None = None) -> str:
        """Read the printed rows of a picture (or a PDF page) that a question needs, whole, the most needed
        first, as text with boxes in px; cells of a table as "head of the column: cell".
        """
        lines: list[ReadLine] = await away(lambda: tools.read(path, question, page))
        if not lines:
            return "No printed line was found where the question leads; try look_at."
        return "\n".join(f"{line.text}  [{', '.join(map(str, line.box))}]" for line in lines)

    async def where(path: str, question: str, page: int | None = None) -> dict[str, Any]:
        """Where in a picture (or a PDF page) a question's evidence is: some ten boxes [x0, y0, x1, y1] in its
        own px, best first, with scores in [0, 1]. Where "control" stands beside a box, click that.
        """
        return await away(lambda: tools.where(path, question, page))

    served: list[Tool] = [CheckedTool.from_function(listed, "list"), CheckedTool.from_function(where)]
    served += [CheckedTool.from_function(each, structured_output=False) for each in (look_at, read)]
    return MCPServer(
        "arr-coc", tools=served, version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
    )
