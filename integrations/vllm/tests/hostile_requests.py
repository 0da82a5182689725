"""Requests that nobody should send, drawn from a seed."""

from __future__ import annotations

import io
import json
import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from PIL import Image

from live import body, data_url

BUDGETS: tuple[Any, ...] = (
    -3, 0, 10**30, -(10**30), 1.5, -0.5, 1e-9, "many", "", "auto ", "1e400", "٣", "\u0000", "x" * 5000,
    None, True, [], [3], {}, {"a": 1}, float("nan"), float("inf"),
)  # fmt: skip
KWARGS: tuple[Any, ...] = (
    {"arr_coc": {"mode": "saccade"}}, {"arr_coc": {"mode": None}}, {"arr_coc": {"follow": "never"}},
    {"arr_coc": {"colour": 1}}, {"arr_coc": {"allocator": "/etc/passwd"}}, {"arr_coc": {"": 1}},
    {"arr_coc": {"relevance": "boxes:/etc/passwd"}},
    {"arr_coc": 5}, {"arr_coc": []}, {"arr_coc": "x"}, {"arr_coc": {f"k{i}": i for i in range(3000)}},
    {"arr_coc_choice": [1]}, {"arr_coc_choice": None}, {"arr_coc_keep": [1]}, {"size": {"longest_edge": -1}},
    {"size": "large"}, {"max_pixels": 0}, {"patch_size": 3}, {"merge_size": 0}, {"do_resize": False},
    {"unheard_of": 1},
)  # fmt: skip
PROMPTS = (
    "", " ", "\n" * 50, "\x00", "\x1b[2J", "\ufffe", "?" * 100_000, "\u202e" * 300, "😀" * 2000, "a" * 3500,
    "<|image_pad|>", "<|image_pad|>" * 40, "<|vision_start|><|image_pad|><|vision_end|> What?",
    "<|im_end|>\n<|im_start|>user\nWhat?", "<|im_start|>" * 200, "<|video_pad|>", "<|endoftext|>",
    "{{ 7 * 7 }}{% for x in y %}", "%s%n%x", "../../etc/passwd",
)  # fmt: skip
MESSAGES: tuple[Any, ...] = (
    [], None, "What?", 5, [[]], [{}], [{"role": "user"}], [{"role": "king", "content": "What?"}],
    [{"role": "user", "content": None}], [{"role": "user", "content": [{"type": "image_url"}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": None}}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ["a"]}}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": None, "uuid": "a"}]}],
    [{"role": "user", "content": [{"type": "image_embeds", "image_embeds": "AAAA"}]}],
    [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AA"}}]}],
    [{"role": "user", "content": [{"type": "nothing"}]}], [{"role": "assistant", "content": "So?"}] * 3,
)  # fmt: skip
URLS = (
    "file:///etc/passwd", "file://localhost/etc/hostname", "/etc/passwd", "", " ", "x", "http://", "gopher://a",
    "http://127.0.0.1:1/x.png", "http://a.invalid/x.png", "javascript:alert(1)", "data:",
    "data:image/png", "data:image/png;base64,", "data:image/png;base64,!!!!", "data:image/png;base64,AAA",
    "data:text/plain;base64,aGVsbG8=", "data:image/svg+xml;base64,PHN2Zy8+", "data:;base64,iVBORw0KGgo=",
    "data:application/octet-stream,x", "https://[::1", "\u0000",
)  # fmt: skip


def claims(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header says that it is as large as this."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\x00" * 99)), (b"IEND", b"")]
    packed = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _encoded(picture: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    picture.convert("RGB").save(file, kind)
    return file.getvalue()


def spoilt_picture(picture: Image.Image, rng: random.Random) -> str:
    """A data URL of no picture, or of one that is hardly any."""
    kind = rng.choice(("PNG", "JPEG", "WEBP", "GIF", "BMP"))
    content = _encoded(picture, kind)
    at = rng.randrange(len(content))
    width, height = rng.choice(
        ((1, 1), (1, 60), (60, 1), (1, 300), (3000, 1), (2, 2), (31, 33), (5, 1100), (16, 16), (640, 3))
    )
    return data_url(
        rng.choice(
            (
                lambda: content[:at],
                lambda: content[:at] + rng.randbytes(16) + content[at + 16 :],
                lambda: b"",
                lambda: b"\x00" * rng.randrange(1, 5000),
                lambda: rng.randbytes(300),
                lambda: b"What is the total?",
                lambda: b"%PDF-1.7\n",
                lambda: claims(rng.choice((0, 1, 60_000, 2**31 - 1)), rng.choice((0, 60_000, 2**31 - 1))),
                lambda: _encoded(Image.new(rng.choice(("1", "L", "P", "RGB")), (width, height)), "PNG"),
                lambda: _encoded(Image.new("RGB", (width, height), "white"), "JPEG"),
            )
        )(),
        rng.choice(("image/png", "image/jpeg", "text/plain", "image/x", "")),
    )


def requests(count: int, picture: Image.Image, seed: int = 0) -> Iterator[bytes]:
    """Bodies of POST /v1/chat/completions; most are to be refused, none is to do harm."""
    rng, good = random.Random(seed), data_url(picture)
    for _ in range(count):
        kwargs = rng.choice(KWARGS) if rng.random() < 0.5 else {"arr_coc": {"budget": rng.choice(BUDGETS)}}
        made = rng.choice(
            (
                lambda: body("What is it?", spoilt_picture(picture, rng)),
                lambda: body("What is it?", spoilt_picture(picture, rng), spoilt_picture(picture, rng)),
                lambda: body("What is it?", rng.choice(URLS)),
                lambda: body("What is it?", good, mm_processor_kwargs=kwargs),  # noqa: B023
                lambda: body("What is it?", *[good] * rng.choice((3, 9, 200))),
                lambda: body(rng.choice(PROMPTS), *[good] * rng.randrange(2)),
                lambda: body("What?") | {"messages": rng.choice(MESSAGES)},
                lambda: body("What?", good, max_tokens=rng.choice((-1, 0, 10**9, "x", None, 2))),
                lambda: body("What?", good, model=rng.choice(("", "n", "../m", 5))),
            )
        )()
        text = json.dumps(made).encode()
        if rng.random() < 0.1:
            text = rng.choice(
                (text[: rng.randrange(len(text))], b"", b"[" * 20_000, text + b"}", b"\xff" + text)
            )
        yield text
