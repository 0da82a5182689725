"""Spoilt copies of JSON values, drawn from a seed, and the law for whatever reads them."""

from __future__ import annotations

import copy
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3.5, 1e308, -1e308, 5e-324, 10**400, float("nan"), float("inf"),
    "", " ", "x", "1", "64", "../../etc/passwd", "/etc/passwd", "\x1b[31m", "a\nb", "a|b", "$\\frac{",
    "\u2028", "\ud800", "\u202eabc", "x" * 3000, [], [1], ["a"], [[]], [None], {}, {"a": 1}, {"full": "1"},
    {"": 1},
    {"full": [1]}, {"full": {}}, {"full": {"a": 0}}, {"\n": 1}, {"x@²": 1}, {"x@64@3": 1}, {"full": -1},
)  # fmt: skip
"""What a field may be replaced by."""
NAMES = ("x\n", "\x1b[2J", "a|b", "full", "@", "x@²", "y" * 500, "\ud800")
"""What the name of a field may be replaced by."""


def spoilt(content: Any, rng: random.Random) -> Any:
    """A copy with one value, anywhere in it, missing, replaced or under another name."""
    made = copy.deepcopy(content)
    place = rng.choice([place for place in _places(made) if place])
    holder = made
    for step in place[:-1]:
        holder = holder[step]
    last = place[-1]
    way = rng.randrange(4)
    if way == 0:
        del holder[last]
    elif way == 1 and isinstance(last, str):
        holder[rng.choice(NAMES)] = holder.pop(last)
    else:
        holder[last] = rng.choice(VALUES)
    return made


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in parts:
        yield from _places(part, (*place, step))


def spoilt_bytes(content: bytes, rng: random.Random) -> bytes:
    """A copy that was cut off, damaged, or saved by something else."""
    at = rng.randrange(len(content))
    return rng.choice(
        (
            content[:at],
            content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :],
            content[:at] + b'"\\ud800"' + content[at:],
            content[:at] + b"\xff" + content[at:],
            content[:at] + b"[" * 100_000 + content[at:],
            content.decode().encode("utf-16"),
            b"\xef\xbb\xbf" + content,
            content.replace(b"\n", b"\r\n"),
            b"\x00" * 100,
        )
    )


def lines_of(rows: Any) -> bytes:
    """JSON lines; half of a character is written as JSON's escape for it, NaN as Python writes it."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def refusal(read: Callable[[], object]) -> str | None:
    """What a reader says of a file: None where it has read it.

    Raises:
        AssertionError: the message is not one printable line. Any error but a ValueError goes on as it is.
    """
    try:
        read()
    except ValueError as error:
        message = str(error)
        if type(error) is ValueError and message and message.isprintable() and len(message) < 1500:
            return message
        raise AssertionError(f"no refusal of one printable line: {error!r}") from error
    return None


def within_bounds(call: Callable[[], object], seconds: int = 60, megabytes: int = 6144) -> str:
    """What a call says in a forked process of bounded time and memory: "" where it holds, or its refusal.

    Raises:
        AssertionError: any error but a ValueError of one printable line, too much time, or too much memory.
    """
    import resource

    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + megabytes * 2**20
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            signal.alarm(seconds)
            try:
                text = "refused: " + message if (message := refusal(call)) else "holds"
            except BaseException as error:  # the parent says so
                text = f"{type(error).__name__}: {error}"
            os.write(writing, text.encode(errors="replace")[:4000])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        text = file.read().decode()
    _, status = os.waitpid(child, 0)
    assert text == "holds" or text.startswith("refused: "), (text, status)
    return text.removeprefix("holds").removeprefix("refused: ")
