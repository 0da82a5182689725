"""An MCP server around another one: all passes through, but of screenshots in results what is new is sent.

    run_around("npx @playwright/mcp@latest", "parts", "claude")

It starts the other server, and passes lines from this process's input to it, and from it to this process's
output, byte for byte: whatever either side of the protocol says, or will say in later versions. Only a
result of a tool that has pictures is looked into. What that needs takes seconds to load, meanwhile the rest
passes.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from PIL import Image

from arr_coc.files.paths import shorten

if TYPE_CHECKING:
    from arr_coc.pixels.frames import FrameHistory

MAX_LINE = 64 * 2**20  # bytes of a message that is looked into
MAX_RESULT = 1_000_000  # bytes of a message that clients take; pictures above it become JPEGs
QUALITIES = (85, 70, 50, 30)  # of those, the first that fits
ENDING_SECONDS = 5.0  # for the other server to end once its input has ended
PICTURE = b'"image'

log = logging.getLogger(__name__)


class AroundScreens:
    """The screenshots of one session, in results of tools as lines of JSON.

    Args:
        way: as in `next_file`; "off": nothing is changed.
        rule: by which the agent's model counts, as in `find_rule`.

    Raises:
        ValueError: another way, or an unknown rule.
    """

    def __init__(self, way: str = "unchanged", rule: str = "32") -> None:
        from arr_coc.pixels import frames
        from arr_coc.pixels.rules import find_rule

        if way not in frames.SCREENS:
            raise ValueError(f"screens {shorten(way)} is not known: use one of {', '.join(frames.SCREENS)}")
        self.way, self.rule, self._frames = way, find_rule(rule), frames
        self._history: FrameHistory | None = None

    def passed(self, line: bytes) -> bytes:
        """Return what is passed on of a line of the server; whatever fails passes as it came."""
        if self.way == "off" or PICTURE not in line or len(line) > MAX_LINE:
            return line
        try:
            message = json.loads(line)
            result = message.get("result") if isinstance(message, dict) else None
            if not isinstance(result, dict) or not isinstance(content := result.get("content"), list):
                return line
            made = [one for part in content for one in self._parts(part)]
            result["content"] = made
            if made == content and len(line) <= MAX_RESULT:
                return line
            _shrink(message, made)
            written = json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        except Exception:
            log.exception("a result passes as it came")
            self._history = None
            return line
        if len(written) <= MAX_RESULT:
            return written
        log.warning("a result of %d bytes may be more than the client takes", min(len(written), len(line)))
        return min(line, written, key=len)

    def _parts(self, part: Any) -> list[Any]:
        """Return what takes the place of a part of a result."""
        if not isinstance(part, dict) or part.get("type") != "image":
            return [part]
        try:
            content = base64.b64decode(part["data"], validate=True)
            sent, self._history = self._frames.next_file(self._history, content, self.way, self.rule)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("a tool's picture passes whole: %s", shorten(str(error), 300))
            self._history = None
            return [part]
        if sent.frame.kind == "whole":
            return [part]
        marks = {name: value for name, value in part.items() if name not in ("type", "data", "mimeType")}
        made: list[Any] = []
        for (caption, _), file in zip(sent.frame.parts, sent.files, strict=True):
            made.append({"type": "text", "text": caption} | marks)
            if file:
                data = base64.b64encode(file).decode()
                made.append({"type": "image", "data": data, "mimeType": "image/png"} | marks)
        return made


def _shrink(message: dict[str, Any], content: list[Any]) -> None:
    """Turn the pictures of a message into JPEGs of the same size in px, until it is small enough."""
    pictures = [part for part in content if isinstance(part, dict) and part.get("type") == "image"]
    came = [part["data"] for part in pictures]
    for quality in QUALITIES:
        if len(json.dumps(message)) <= MAX_RESULT:
            return
        for part, data in zip(pictures, came, strict=True):
            file = io.BytesIO()
            with Image.open(io.BytesIO(base64.b64decode(data))) as image:
                image.convert("RGB").save(file, "JPEG", quality=quality)
            if (made := base64.b64encode(file.getvalue()).decode()) and len(made) < len(part["data"]):
                part |= {"data": made, "mimeType": "image/jpeg"}


def read_command(command: str) -> list[str]:
    """Return a command's words; no shell reads them. ValueError if there are none, or a quote has no end."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"around {shorten(command)} is no command ({error}): close its quotes") from error
    if not words:
        raise ValueError(
            'around is empty: give the command of a server, such as "npx @playwright/mcp@latest"'
        )
    return words


def run_around(command: str, way: str = "unchanged", rule: str = "32") -> int:
    """Run another server over stdio until either side ends; return its exit status.

    Raises:
        ValueError: a command that can't be started, another way, or an unknown rule.
    """
    words = read_command(command)
    try:
        # Not a group of its own: Ctrl-C in a terminal reaches both.
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    except OSError as error:
        raise ValueError(
            f"around {shorten(command)} can't be started ({error.strerror}): check the name of its program"
        ) from error
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    threading.Thread(target=_pass_input, args=(process,), daemon=True).start()
    with ThreadPoolExecutor(1) as loader:
        loading = loader.submit(AroundScreens, way, rule)
        loading.add_done_callback(lambda _: loading.exception() and process.terminate())
        try:
            _pass_output(process, loading)
            code = process.wait()
            return code if code >= 0 else 128 - code  # by a signal, as shells have it
        except BrokenPipeError:  # the client has gone
            return 0
        finally:
            _end(process)


def _pass_output(process: subprocess.Popen[bytes], loading: Future[AroundScreens]) -> None:
    """Pass the other server's output on, until it ends."""
    pipe: Any = process.stdout
    for line in io.BufferedReader(pipe):
        _write(1, loading.result().passed(line) if PICTURE in line else line)
    loading.result()  # raises what was wrong with the settings


def _pass_input(process: subprocess.Popen[bytes]) -> None:
    """Pass this process's input on; at its end let the other server end."""
    assert process.stdin is not None
    try:
        while piece := os.read(0, 2**16):
            _write(process.stdin.fileno(), piece)
        process.stdin.close()
    except OSError:  # it has ended before its input has
        return
    try:
        process.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the other server if it hasn't."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
