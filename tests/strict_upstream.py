"""Random conversations with hostile pictures, and a server that refuses what a provider's documentation does.

The limits stand here once more, in the words of the documentation, so that the proxy's own table is checked.
"""

from __future__ import annotations

import base64
import io
import json
import random
import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

PATHS = {
    "chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages",
    "count": "/v1/messages/count_tokens", "ollama": "/api/chat", "generate": "/api/generate",
}  # fmt: skip
WEB = {"image/jpeg", "image/png", "image/gif", "image/webp"}
WORDS = ("What is red?", "What is green?", "Thanks!", "fail", "What is absent?", "", "Go on.\n\u2028")
LIES = ("image/png", "image/png", "image/jpeg", "image/jpg", "IMAGE/PNG", "image/webp", "image/bmp",
        "application/octet-stream", "image/png;name=a.png")  # fmt: skip
OURS = re.compile(  # lines that the proxy adds: of the double of packing, and of pictures that had to change
    r"(Picture \d+: )?(?i:All\.|An overview\.|The (red|green) part\.|A strip\.)|"
    r"\[picture \d+ was (left out|scaled from)[^\]]{1,200}\]"
)


class Provider(NamedTuple):
    """What one provider refuses; 0: nothing of that kind."""

    media: frozenset[str]
    side: int = 0
    many_side: int = 0  # of more than 20 pictures
    letters: int = 0
    request: int = 0
    pictures: int = 0
    a_turn: int = 0
    least: int = 1
    aspect: int = 0


BY_MODEL = {
    # "100 per request ... 200k-token context window", "600 ... all other models", "8000x8000 px", more than
    # 20 images: "neither dimension exceeds 2000 px", "5 MB (base64-encoded) on Amazon Bedrock", "32 MB"
    "claude-opus-5": Provider(frozenset(WEB), 8000, 2000, 5 * 2**20, 32_000_000, 600),
    "anthropic/claude-haiku-4-5": Provider(frozenset(WEB), 8000, 2000, 5 * 2**20, 32_000_000, 100),
    # "PNG, JPEG, WEBP, Non-animated GIF", "Up to 1500 individual image inputs per request"
    "gpt-5.4": Provider(frozenset(WEB), pictures=1500),
    # "PNG, JPEG, WEBP, HEIC, HEIF", "total request size ... 20MB"
    "gemini-3-pro": Provider(frozenset(WEB - {"image/gif"}), request=20_000_000, pictures=3600),
    # "Maximum image size: 20MiB", "jpg/jpeg or png"
    "grok-4": Provider(frozenset({"image/jpeg", "image/png"}), letters=20 * 2**20),
    # llama.cpp decodes with stb_image, which knows no WebP; Qwen's processor refuses an aspect above 200
    "qwen3-vl": Provider(frozenset({"image/jpeg", "image/png"}), least=28, aspect=200),
}
OF_OLLAMA = {
    "qwen3-vl:8b": Provider(frozenset(WEB - {"image/gif"}), least=28, aspect=200),
    "llama3.2-vision": Provider(frozenset(WEB - {"image/gif"}), a_turn=1, least=28, aspect=200),
}


# ---- the strict server -----------------------------------------------------------------------------------


def refusal(path: str, content: bytes) -> str:
    """What the provider says that a body's model names: why it refuses its pictures; "" if it doesn't."""
    body = json.loads(content)
    name = next(name for name, one in PATHS.items() if path == one)
    provider = (OF_OLLAMA if name in ("ollama", "generate") else BY_MODEL)[body["model"]]
    if provider.request and len(content) > provider.request:
        return f"a request of {len(content)} bytes"
    pictures = list(pictures_of(name, body))
    if provider.pictures and len(pictures) > provider.pictures:
        return f"{len(pictures)} pictures"
    side = provider.many_side if len(pictures) > 20 and provider.many_side else provider.side
    turns: dict[int, int] = {}
    for turn, media, data in pictures:
        turns[turn] = turns.get(turn, 0) + 1
        if provider.a_turn and turns[turn] > provider.a_turn:
            return "vision model only supports a single image per message"
        if reason := _of_picture(provider, side, media, data):
            return reason
    return ""


@cache
def _of_picture(provider: Provider, side: int, media: str | None, data: str) -> str:
    if provider.letters and len(data) > provider.letters:
        return f"a picture of {len(data)} letters"
    try:
        content = base64.b64decode(data, validate=True)
        if base64.b64encode(content).decode() != data:
            return "base64 that isn't plain"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content)) as image:
                kind = {"MPO": "JPEG"}.get(str(image.format), str(image.format))
                animated = kind in ("GIF", "WEBP") and getattr(image, "is_animated", False)
                image.load()
                size = image.size
    except Exception as error:
        return f"could not process image: {error}"[:200]
    own = f"image/{kind.lower()}"
    if own not in provider.media or (media is not None and media != own):
        return f"{media} that is {own}"
    if animated:
        return "an animation"
    short, long = sorted(size)
    if (side and long > side) or short < provider.least or 0 < provider.aspect * short < long:
        return f"a picture of {size} px"
    return ""


def pictures_of(name: str, body: Any) -> Iterator[tuple[int, str | None, str]]:
    """The turn, the media type and the base64 of each picture where an API reads one."""
    if name == "generate":
        yield from ((0, None, data) for data in body.get("images") or ())
        return
    for number, turn in enumerate(body["input" if name == "responses" else "messages"]):
        if name == "ollama":
            yield from ((number, None, data) for data in turn.get("images") or ())
            continue
        for part in _read(turn, 3):
            if part["type"] == "image":
                yield number, part["source"]["media_type"], part["source"]["data"]
            else:
                held = part["image_url"]
                url = held["url"] if isinstance(held, dict) else held
                match = re.match(r"data:(image/[a-z]+);base64,", url)
                yield (number, match[1], url[match.end() :]) if match else (number, "no data URL", "")


def _read(part: Any, depth: int) -> Iterator[dict[str, Any]]:
    kinds = ("image", "image_url", "input_image", "computer_screenshot")
    if not isinstance(part, dict) or not depth:
        return
    if part.get("type") in kinds:
        yield part
        return
    for inside in (part.get("content"), part.get("output")):
        if isinstance(inside, dict):
            yield from _read(inside, depth - 1)
        for one in inside if isinstance(inside, list) else ():
            yield from _read(one, depth - 1)


class StrictUpstream:
    """A server on which every path refuses what `refusal` does; it keeps the last body and all refusals."""

    def __init__(self) -> None:
        self.last, self.refusals = b"", []
        routes = [Route(path, self.answer, methods=["POST"]) for path in PATHS.values()]
        self.config = uvicorn.Config(Starlette(routes=routes), log_level="warning", server_header=False)

    async def answer(self, request: Request) -> Response:
        self.last = await request.body()
        reason = refusal(request.url.path, self.last)
        if not reason:
            return JSONResponse({"done": True})
        self.refusals.append(reason)
        return JSONResponse({"error": {"message": f"refused: {reason}"}}, 403)  # never asked a second time


# ---- hostile conversations -------------------------------------------------------------------------------


def file_of(image: Image.Image, kind: str, **settings: Any) -> bytes:
    """An image as a file."""
    file = io.BytesIO()
    image.save(file, kind, **settings)
    return file.getvalue()


def _noise(size: tuple[int, int], seed: int) -> Image.Image:
    return Image.frombytes("RGB", size, random.Random(seed).randbytes(3 * size[0] * size[1]))


def claiming(width: int, height: int) -> bytes:
    """A PNG of some bytes whose header claims any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


@cache
def pool() -> tuple[bytes, ...]:
    """Files of pictures that servers refuse, or nearly."""
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = [Image.new("RGB", (60, 40), name) for name in ("red", "blue")]
    small = Image.new("RGB", (300, 200), "white")
    png, jpeg = file_of(small, "PNG"), file_of(_noise((90, 70), 1), "JPEG")
    return (
        png, jpeg, file_of(small, "WEBP"), file_of(small, "GIF"), file_of(small, "BMP"),
        file_of(small, "TIFF"),
        file_of(Image.new("L", (8100, 40), 9), "PNG"), file_of(Image.new("RGB", (30, 2500), "red"), "JPEG"),
        file_of(Image.new("1", (60_000, 3)), "PNG"), file_of(Image.new("RGB", (2001, 2), "red"), "PNG"),
        file_of(Image.new("RGB", (2560, 1440), "navy"), "PNG"), file_of(Image.new("RGB", (1, 1)), "PNG"),
        file_of(Image.new("RGB", (3, 900)), "PNG"), file_of(Image.new("P", (70, 50), 3), "PNG"),
        file_of(Image.new("CMYK", (120, 90), (9, 99, 0, 20)), "JPEG"),
        file_of(Image.new("LA", (64, 64)), "PNG"),
        file_of(Image.new("I;16", (64, 64), 4000), "PNG"), file_of(small, "JPEG", exif=exif),
        file_of(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        file_of(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
        file_of(frames[0], "PNG", save_all=True, append_images=frames[1:]),
        file_of(_noise((1350, 1350), 2), "PNG"), file_of(_noise((2100, 1700), 3), "JPEG", quality=98),
        png[:-20], png[: len(png) // 2], jpeg[:-30], jpeg[:200], jpeg + b"trailer" * 9, png + b"\0" * 40,
        png[:60] + b"\xff" + png[61:], claiming(2**31 - 1, 2**31 - 1), claiming(40_000, 3),
        claiming(3000, 3000), claiming(0, 0), b"", b"\0" * 12, b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.7", b"GIF89a\xff\xff\xff\xff", b"\xff\xd8\xff\xe0" + b"\0" * 50, b"RIFF\xff\xff\0\0WEBPVP8 ",
        b"\0\0\0\x18ftypheic" + b"\0" * 99, b"\0\0\0\x18ftypavif" + b"\0" * 99,
    )  # fmt: skip


def drawn_file(rng: random.Random) -> bytes:
    """One of the pool, or a small picture of random size, mode and format."""
    if rng.random() < 0.5:
        return rng.choice(pool())
    mode = rng.choice(["RGB", "L", "P", "RGBA", "CMYK", "1"])
    size = rng.choice([1, 2, 30, 64, 200]), rng.choice([1, 5, 40, 100, 300])
    kind = "JPEG" if mode == "CMYK" else rng.choice(["PNG", "PNG", "WEBP", "GIF", "TIFF"])
    return file_of(Image.new(mode, size, rng.randrange(2) if mode == "1" else 0), kind)


def letters(rng: random.Random, content: bytes, calm: bool) -> str:
    """A picture in some form of base64, now and then broken unless all is calm."""
    plain = base64.b64encode(content).decode()
    way = 99 if calm else rng.randrange(12)
    if way == 0:
        return base64.urlsafe_b64encode(content).decode()
    if way == 1:
        return "\n".join(plain[at : at + 76] for at in range(0, len(plain), 76)) + "\r\n"
    if way == 2:
        return plain.rstrip("=")
    if way == 3:
        return f" {plain[:10]} {plain[10:]}\t"
    if way == 4:
        return plain.replace("+", "%2B").replace("=", "%3D")
    if way == 5:
        return rng.choice([plain[:-3], plain + "!", "%%%", "=", "日本", plain + plain[:5], ""])
    return plain


def picture_part(rng: random.Random, name: str, data: str, calm: bool) -> dict[str, Any]:
    """A part with a picture; unless all is calm its media type may lie. Some fields describe the picture."""
    media = "image/png" if calm else rng.choice(LIES)
    more: dict[str, Any] = rng.choice([{}, {}, {"uuid": "u-1"}, {"min_pixels": 9, "max_pixels": 99}])
    if name in ("messages", "count"):
        mark = rng.choice([{}, {}, {"cache_control": {"type": "ephemeral"}}])
        return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}} | mark
    start, end = (
        ("data:", "base64") if calm else (rng.choice(["data:", "DATA:"]), rng.choice(["base64", "BASE64"]))
    )
    url = f"{start}{media};{end},{data}"
    if name == "responses":
        return {"type": "input_image", "image_url": url, "detail": rng.choice(["auto", "low", "high"])}
    held: Any = {"url": url, "detail": rng.choice(["auto", "low", "high"])} | more
    return {"type": "image_url", "image_url": rng.choice([held, held, url])}


def body_of(rng: random.Random, name: str) -> dict[str, Any]:
    """A body of one API with a random conversation."""
    model = rng.choice([*(OF_OLLAMA if name in ("ollama", "generate") else BY_MODEL)])
    calm = rng.random() < 0.2  # nothing to refuse
    if calm:
        files, count = [pool()[0]], rng.randrange(1, 9)
    elif rng.random() < 0.04:  # hundreds of small pictures
        files = [file_of(Image.new("L", (40, 30), shade), "PNG") for shade in range(20)]
        count = rng.choice([25, 101, 260, 610])
    else:
        files, count = [drawn_file(rng) for _ in range(rng.randrange(1, 7))], 0
    count = count or rng.randrange(1, 9)
    many = [letters(rng, rng.choice(files), calm) for _ in range(count)]
    if name == "generate":
        return {"model": model, "prompt": rng.choice(WORDS), "images": many[:40], "stream": False}
    turns: list[dict[str, Any]] = []
    while many:
        taken, many = many[: (size := rng.choice([0, 1, 1, 2, 3]))], many[size:]
        turns.append(_turn(rng, name, taken, calm))
    junk = {"metadata": {"image_url": "data:image/png;base64,AAAA", "deep": [[{"type": "image"}]]}}
    head = {"model": model, "temperature": 0.5} | rng.choice([{}, junk])
    return head | {"input" if name == "responses" else "messages": turns}


def _turn(rng: random.Random, name: str, taken: list[str], calm: bool) -> dict[str, Any]:
    words = rng.choice(WORDS)
    role = rng.choice(["user", "user", "assistant", "tool", "system"])
    if name == "ollama":
        return {"role": role, "content": words} | ({"images": taken} if taken or rng.random() < 0.2 else {})
    kind = "input_text" if name == "responses" else "text"
    parts: list[Any] = [picture_part(rng, name, data, calm) for data in taken]
    if name == "responses" and len(parts) == 1 and rng.random() < 0.2:
        screen = {"type": "computer_screenshot", "image_url": parts[0]["image_url"]}
        return {"type": "computer_call_output", "call_id": "c", "output": screen}
    parts.insert(rng.randint(0, len(parts)), {"type": kind, "text": words})
    parts += rng.choice([[], [], [{"type": "other", "image_url": None}, {"type": ["image"]}, 5, None, "x"]])
    if name == "responses" and rng.random() < 0.3:
        return {"type": "function_call_output", "call_id": "c", "output": parts}
    if name in ("messages", "count") and rng.random() < 0.4:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": parts},
                                            {"type": "text", "text": words}]}  # fmt: skip
    return {"role": role, "content": parts}


def rest(value: Any) -> Any:
    """A body without its pictures and without what the proxy says of them."""
    kinds = ("image", "image_url", "input_image", "computer_screenshot")
    if isinstance(value, dict):
        made = {name: rest(one) for name, one in value.items() if name != "images"}
        if value.get("type") in kinds and isinstance(value.get("type"), str):
            return "a picture"
        for name in ("content", "prompt"):
            if isinstance(made.get(name), str):
                lines = made[name].split("\n")
                made[name] = "\n".join(line for line in lines if not OURS.fullmatch(line))
        return made
    if isinstance(value, list):
        kept = [rest(one) for one in value if not (isinstance(one, dict) and _is_ours(one))]
        return [one for one in kept if one != "a picture"]
    return value


def _is_ours(part: dict[str, Any]) -> bool:
    text = part.get("text")
    return isinstance(text, str) and OURS.fullmatch(text) is not None
