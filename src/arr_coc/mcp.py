"""A server of the Model Context Protocol: an agent asks about a picture and gets the parts that matter.

    build_server(["shots"]).run("stdio")

Tools: `look_at` gives an overview and crops, `read` the print of the lines that matter, `where` boxes. Only
files below the folders that are named are opened. Needs the extra `arr-coc[mcp]`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from arr_coc.files.images import open_image
from arr_coc.files.paths import local_path, shorten
from arr_coc.files.pdf import is_pdf, open_page
from arr_coc.files.plugins import install_line
from arr_coc.guide.ocr import rapid_ocr
from arr_coc.guide.selector import Selector
from arr_coc.guide.trust import is_transcription, sentence, verdict_of
from arr_coc.pixels import Packed, find_rule, pack, pack_for

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

MOST_BYTES = 2**28  # of a file
MOST_TOKENS = 100_000
CELL = 32  # px of the squares by which a masked picture is counted
INSTRUCTIONS = (
    "Ask these tools about pictures and PDF pages in place of reading whole files: they give the parts that "
    "a question needs, at a size at which they can be read."
)


class ReadLine(NamedTuple):
    """A printed line that a question needs, and its box (x0, y0, x1, y1) in px of the picture."""

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
            place = local_path(name).resolve()
            if not place.is_dir():
                raise ValueError(
                    f"folder {shorten(name)} is not there: give one whose pictures may be opened"
                )
            self.places.append(place)

    def read(self, name: str) -> bytes:
        """The content of a file below the folders; `name` is a path, relative to here or to one of them.

        Links are followed before it is decided whether the file is below. Of a path that isn't, the message
        doesn't say whether anything is there.

        Raises:
            ValueError: the path leads elsewhere, or to no regular file of at most MOST_BYTES.
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
            if facts.st_size > MOST_BYTES:
                raise ValueError(f"path {shorten(name)} is larger than {MOST_BYTES >> 20} MiB: scale it down")
            # A folder on the way may have become a link since the path was checked.
            if self._resolved(name) != target or not os.path.samestat(facts, os.stat(target)):
                raise ValueError(f"path {shorten(name)} changed while it was opened: ask again")
            return opened.read(MOST_BYTES)

    def _resolved(self, name: str) -> Path:
        listed = ", ".join(map(str, self.places))
        try:
            path = Path(name).expanduser()
            targets = [place / path for place in (Path.cwd(), *self.places)]  # an absolute path stays itself
            below = [
                resolved
                for target in targets
                if any((resolved := target.resolve()).is_relative_to(place) for place in self.places)
            ]
            there = [target for target in below if target.is_file()]
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a zero byte, no such home
            raise ValueError(
                f"path {shorten(name)} can't be followed: give another below {listed}"
            ) from error
        if not below:
            raise ValueError(f"path {shorten(name)} is not below {listed}: only files there are opened")
        if not there:
            raise ValueError(f"path {shorten(name)} is no file below {listed}: check its name")
        return there[0]


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
        """What a question needs of a picture, as pictures of at most `tokens` tokens."""
        if not 1 <= tokens <= MOST_TOKENS:
            raise ValueError(f"tokens {tokens} is no count: give 1 to {MOST_TOKENS:,}, such as 400")
        with self._lock:  # so that one picture at a time is in memory
            picture = self.picture(path, page)
            return pack_for(picture, question, tokens, rule=self.rule, selector=self.selector)

    def where(self, path: str, question: str, page: int | None = None) -> dict[str, Any]:
        """The boxes that matter to a question, in px of the picture, best first, with scores in [0, 1]."""
        with self._lock:
            picture = self.picture(path, page)
            decision = self.selector.decide(picture, question)
        allocation, coupling = decision.allocations[0], decision.couplings[0]
        boxes = allocation.evidence(picture.size)
        result: dict[str, Any] = {
            "size": list(picture.size),
            "boxes": [{"box": list(one.box), "score": round(one.score, 4)} for one in boxes],
        }
        if coupling is not None:
            result["note"] = sentence(verdict_of(coupling), coupling.confidence, coupling.words)
        return result

    def read(self, path: str, question: str, page: int | None = None) -> list[ReadLine]:
        """The print that a question needs, in reading order; a ValueError without an OCR."""
        read = rapid_ocr()
        with self._lock:
            picture = self.picture(path, page)
            if not is_transcription(self.selector.guide, question):
                allocation = self.selector(picture, question, "auto")
                whole = find_rule(CELL).tokens(*picture.size)
                # All but whole lines of what is kept is flat, so that nothing else is read.
                picture = pack(picture, allocation, whole, CELL, "mask").pictures[0]
            lines = read(np.asarray(picture))
        rows = []
        for text, box in lines:
            x0, y0, x1, y1 = map(round, box)
            rows.append(ReadLine(text, (x0, y0, x1, y1)))
        return sorted(rows, key=lambda line: (line.box[1], line.box[0]))


def require_mcp() -> None:
    """Raise a ValueError unless the official SDK is installed."""
    if find_spec("mcp") is None:
        raise ValueError(f"this server needs the MCP SDK, which is not installed: {install_line('mcp')}")


def build_server(
    folders: Sequence[str | Path], rule: str = "32", selector: Selector | None = None
) -> MCPServer:
    """The server with its three tools, to be run over stdio.

    Args:
        folders: whose files may be opened.
        rule: that counts tokens, as in `find_rule`.
        selector: None: the bundled guide's.

    Raises:
        ValueError: a folder that isn't there, an unknown rule, or no SDK.
    """
    require_mcp()
    import anyio.to_thread
    from mcp.server.mcpserver import Image as McpImage
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    from arr_coc import __version__

    tools = PictureTools(Folders(folders), rule, selector)
    server = MCPServer("arr-coc", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")

    async def away(work: Callable[[], Any]) -> Any:
        """Work off the event loop; a refusal becomes the tool's answer."""
        try:
            return await anyio.to_thread.run_sync(work)
        except ValueError as error:
            raise ToolError(str(error)) from error

    @server.tool(structured_output=False)
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

    @server.tool(structured_output=False)
    async def read(path: str, question: str, page: int | None = None) -> str:
        """Read the printed lines of a picture (or a PDF page) that a question needs, as text with boxes in
        px.
        """
        lines: list[ReadLine] = await away(lambda: tools.read(path, question, page))
        if not lines:
            return "No printed line was found where the question leads; try look_at."
        return "\n".join(f"{line.text}  [{', '.join(map(str, line.box))}]" for line in lines)

    @server.tool()
    async def where(path: str, question: str, page: int | None = None) -> dict[str, Any]:
        """Where in a picture (or a PDF page) a question's evidence is: boxes [x0, y0, x1, y1] in its own px,
        best first, with scores in [0, 1].
        """
        return await away(lambda: tools.where(path, question, page))

    return server
