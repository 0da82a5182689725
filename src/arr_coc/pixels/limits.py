"""Hard limits of providers and engines: what they refuse of a picture or of a request, and making it fit.

    limits = LIMITS["claude"]
    fit(content, limits)      the same bytes if nothing breaks a limit, else a file that breaks none;
                              None: no picture that can be opened

A refused picture stays in the history of a chat, and every later request is refused for it. Rows say what a
page of documentation says, with its address; what has no such page is named in `unverified`.
"""

from __future__ import annotations

import io
import math
import struct
import warnings
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from PIL import Image

from arr_coc.files.images import MAX_PIXELS, identify, open_image

READ = "2026-11-29"  # the day on which copies of the pages were read
CLAUDE = "https://platform.claude.com/docs/en/build-with-claude/vision"
OPENAI = "https://developers.openai.com/api/docs/guides/images-vision"
AZURE = "https://learn.microsoft.com/en-us/azure/foundry/openai/quotas-limits"
GEMINI = "https://ai.google.dev/gemini-api/docs/image-understanding"
GROK = "https://docs.x.ai/developers/model-capabilities/images/understanding"
MISTRAL = "https://docs.mistral.ai/capabilities/vision"
GROQ = "https://console.groq.com/docs/vision"
OLLAMA = "https://github.com/ollama/ollama/blob/main/server/prompt.go"
LLAMA_CPP = "https://github.com/cline/cline/issues/8977"

LOSSY = ("JPEG", "MPO", "WEBP", "AVIF", "JPEG2000")  # formats of photographs, which as PNG would grow
QUALITIES = (90, 82, 75, 60, 40, 20)  # of a JPEG, the first that fits
GOOD_QUALITY = 75  # from which on a JPEG may be larger than was wished
SMALLER = 0.75  # by which the sides shrink where no quality fits
MEDIA = {"JPEG": "image/jpeg", "PNG": "image/png", "GIF": "image/gif", "WEBP": "image/webp",
         "HEIF": "image/heic"}  # fmt: skip
HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"hevx", b"mif1", b"msf1")
MOST_PACKED = 1040  # bytes that a byte of a PNG's data can stand for, at most
USUAL_PACKED = 256  # px that a byte of a JPEG stands for, above which its header may lie
PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by type of colour
TAIL = 4096  # bytes at the end of a JPEG, in which it says that it ends


@dataclass(frozen=True)
class Limits:
    """What one provider or engine refuses: a row of the table `LIMITS`. 0 is no limit, or none that is known.

    Attributes:
        name: for `LIMITS`.
        title: whose limits they are, in words.
        source: address of the page that says so.
        kinds: formats that are taken, by Pillow's names.
        side: the most px of a side.
        many: pictures of a request above which `many_side` holds.
        many_side: the most px of a side where there are many pictures.
        pixels: the most px of a picture.
        letters: the most bytes of a picture's base64.
        request: the most bytes of a request.
        pictures: the most pictures of a request, those of its history among them.
        a_turn: the most pictures of a turn.
        least: the fewest px of a side.
        aspect: how many times as long as wide a picture may be.
        unverified: fields whose value no page of the provider's own says.
        date: when the page was read.
    """

    name: str
    title: str
    source: str
    kinds: tuple[str, ...] = ("JPEG", "PNG", "GIF", "WEBP")
    side: int = 0
    many: int = 0
    many_side: int = 0
    pixels: int = 0
    letters: int = 0
    request: int = 0
    pictures: int = 0
    a_turn: int = 0
    least: int = 0
    aspect: int = 0
    unverified: tuple[str, ...] = ()
    date: str = READ

    @property
    def held_side(self) -> int:
        """The most px of a side that `fit` leaves.

        It is that of many pictures, also where there are few: else the one that is one too many would change
        all that were sent before it, which costs more than all of them.
        """
        return self.many_side or self.side

    def broken(self, header: PictureHeader, nbytes: int) -> tuple[str, ...]:
        """Return what a picture of so many bytes breaks, as names of attributes; "animated": it moves."""
        short, long = sorted(header.size)
        checks = {
            "kinds": header.kind not in self.kinds,
            "animated": header.animated,
            "side": 0 < self.held_side < long,
            "pixels": 0 < self.pixels < short * long,
            "letters": 0 < self.letters < base64_length(nbytes),
            "least": short < self.least,
            "aspect": 0 < self.aspect * short < long,
        }
        return tuple(name for name, breaks in checks.items() if breaks)


class PictureHeader(NamedTuple):
    """What a picture's file says of itself."""

    kind: str  # Pillow's name of the format, "JPEG" for "MPO" and "HEIF" where Pillow has none
    size: tuple[int, int]  # (width, height) in px, as stored
    animated: bool = False
    damaged: bool = False  # whether its end is missing or, in a PNG, a checksum is wrong
    doubtful: bool = False  # whether it is too short for so many px, by far


def read_header(content: bytes) -> PictureHeader | None:
    """Return what a picture's first bytes say, without decoding it; None for anything else."""
    if content[4:8] == b"ftyp" and content[8:12] in HEIF_BRANDS and b"meta" in content[:TAIL]:
        return PictureHeader("HEIF", (1, 1))  # its size stands behind all else
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of what is refused here
            with identify(io.BytesIO(content), "the picture") as image:
                kind = "JPEG" if image.format == "MPO" else str(image.format)
                animated = kind in ("GIF", "WEBP") and bool(getattr(image, "is_animated", False))
                size = image.size
    except Exception:  # a damaged file makes a decoder raise anything
        return None
    if min(size) < 1 or size[0] * size[1] > MAX_PIXELS:
        return None
    return PictureHeader(kind, size, animated, *_state(kind, size, content))


def fit(content: bytes, limits: Limits) -> bytes | None:
    """Return a picture's file within limits; the same object where it is, None where it can't be opened.

    What is sound and breaks no limit isn't decoded, unless its header says far more px than its bytes can
    hold. Else it is decoded (of an animation the first frame, turned by its EXIF orientation), scaled to the
    sides that are taken, and written as JPEG if it came as a photograph and as PNG if not, or as JPEG where
    that PNG would be too long.
    Law: equal bytes become equal bytes.
    """
    header = read_header(content)
    if header is None:
        return None
    if header.kind == "HEIF":  # which Pillow doesn't open
        return content if "HEIF" in limits.kinds and not _is_too_long(content, limits) else None
    fits = not header.damaged and not limits.broken(header, len(content))
    if fits and not header.doubtful:
        return content
    try:
        picture = open_image(content)
    except Exception:  # as above
        return None
    if fits:
        return content
    picture, lossy = resized(picture, limits), header.kind in LOSSY
    made = encode_picture(picture, lossy, limits.letters)
    while _is_too_long(made, limits) and max(picture.size) > 16:
        size = max(1, int(picture.width * SMALLER)), max(1, int(picture.height * SMALLER))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
        made = encode_picture(picture, lossy, limits.letters)
    return made


def resized(picture: Image.Image, limits: Limits) -> Image.Image:
    """Return a picture with sides that are taken: reduced smoothly, or enlarged by a whole factor.

    Where neither gives a thin one sides that are long enough, white is added.
    """
    width, height = picture.size
    scale = min(
        1.0,
        limits.held_side / max(width, height) if limits.held_side else 1.0,
        math.sqrt(limits.pixels / (width * height)) if limits.pixels else 1.0,
    )
    if scale < 1:
        size = max(1, math.floor(width * scale + 1e-9)), max(1, math.floor(height * scale + 1e-9))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    short, long = sorted(picture.size)
    if short >= limits.least:
        return picture
    factor = -(-limits.least // short)
    if not limits.held_side or long * factor <= limits.held_side:
        return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
    size = max(picture.width, limits.least), max(picture.height, limits.least)
    padded = Image.new("RGB", size, "white")
    padded.paste(picture)
    return padded


def encode_picture(picture: Image.Image, lossy: bool, most: int = 0, wish: int = 0) -> bytes:
    """Return a picture as a PNG file, or as a JPEG if it is lossy or no PNG fits.

    Args:
        picture: an RGB picture.
        lossy: whether it came as a photograph.
        most: bytes of base64 that it may have; 0: any number. If no JPEG fits, the smallest is returned.
        wish: bytes of base64 that it should not have more of, as long as a JPEG is a good one; 0: as `most`.
    """
    file = io.BytesIO()
    if not lossy:
        picture.save(file, "PNG", compress_level=3)
        if not most or base64_length(file.tell()) <= most:
            return file.getvalue()
    wish = min(filter(None, (wish, most)), default=0)
    for quality in QUALITIES:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality, subsampling=0)  # coloured print stays sharp
        room = wish if quality > GOOD_QUALITY else most
        if not room or base64_length(file.tell()) <= room:
            break
    return file.getvalue()


def base64_length(nbytes: int) -> int:
    """Return how many letters of base64 so many bytes take."""
    return -(-nbytes // 3) * 4


def _is_too_long(content: bytes, limits: Limits) -> bool:
    return 0 < limits.letters < base64_length(len(content))


def _state(kind: str, size: tuple[int, int], content: bytes) -> tuple[bool, bool]:
    """Return whether a file is damaged or doubtful, as in `PictureHeader`."""
    if kind == "PNG":
        data = _png_data(content)
        bits = content[24] * PNG_CHANNELS.get(content[25], 4)
        return not data, size[1] * (-(-size[0] * bits // 8) + 1) > MOST_PACKED * data
    if kind == "JPEG":
        return b"\xff\xd9" not in content[-TAIL:], size[0] * size[1] > USUAL_PACKED * len(content)
    if kind == "GIF":
        return content.rstrip(b"\0")[-1:] != b";", False
    if kind == "WEBP":
        return int.from_bytes(content[4:8], "little") + 8 > len(content), False
    return False, True


def _png_data(content: bytes) -> int:
    """Return how many bytes of data a PNG has; 0 if its end is missing or a checksum is wrong."""
    at, data, view = 8, 0, memoryview(content)
    while at + 12 <= len(content):
        length, name = struct.unpack_from(">I4s", content, at)
        end = at + 8 + length
        if end + 4 > len(content) or zlib.crc32(view[at + 4 : end]) != struct.unpack_from(">I", view, end)[0]:
            return 0
        data += length if name == b"IDAT" else 0
        if name == b"IEND":
            return data
        at = end + 4
    return 0


# ---- the table -----------------------------------------------------------------------------------------

LIMITS: dict[str, Limits] = {
    row.name: row
    for row in (
        Limits(
            "openai", "OpenAI", OPENAI, letters=20_000_000, request=512_000_000, pictures=1500,
            unverified=("letters",),
        ),
        Limits(
            "azure", "Azure OpenAI", AZURE, letters=20_000_000, pictures=50,
            unverified=("letters", "kinds", "pictures"),
        ),
        # Of a picture 10 MB on Anthropic's own address, 5 on Bedrock and Google Cloud.
        Limits(
            "claude", "Anthropic, models with more than 200,000 tokens of context", CLAUDE, side=8000,
            many=20, many_side=2000, letters=5 * 2**20, request=32_000_000, pictures=600,
        ),
        Limits(
            "claude-4.6", "Anthropic, models with 200,000 tokens of context", CLAUDE, side=8000, many=20,
            many_side=2000, letters=5 * 2**20, request=32_000_000, pictures=100,
        ),
        # Of this page 3,600 pictures; by the pages of its cloud 3,000, and 7 MB for a file.
        Limits(
            "gemini", "Google", GEMINI, kinds=("PNG", "JPEG", "WEBP", "HEIF"), letters=9_333_333,
            request=20_000_000, pictures=3000, unverified=("letters",),
        ),
        Limits("grok", "xAI", GROK, kinds=("JPEG", "PNG"), letters=20 * 2**20),
        Limits("mistral", "Mistral's own API", MISTRAL, letters=10_000_000, pictures=8),
        Limits(
            "groq", "Groq", GROQ, pixels=33_177_600, letters=3_500_000, request=4_000_000, pictures=5,
            unverified=("kinds", "letters"),
        ),
        # Whoever speaks Anthropic's protocol with a model of unknown name: strict in all.
        Limits(
            "messages", "other servers of Anthropic's Messages", CLAUDE, kinds=("JPEG", "PNG"), side=8000,
            many=20, many_side=2000, letters=5 * 2**20, request=32_000_000, pictures=100, least=28,
            aspect=200,
            unverified=("kinds", "least", "aspect"),
        ),
        Limits(
            "ollama", "Ollama", OLLAMA, kinds=("JPEG", "PNG", "WEBP"), least=28, aspect=200,
            unverified=("kinds", "least", "aspect"),
        ),
        Limits(
            "ollama-mllama", "Ollama, Llama 3.2 Vision", OLLAMA, kinds=("JPEG", "PNG", "WEBP"), a_turn=1,
            least=28, aspect=200, unverified=("kinds", "least", "aspect"),
        ),
        Limits(
            "local", "llama.cpp, LM Studio, vLLM and other servers", LLAMA_CPP, kinds=("JPEG", "PNG"),
            least=28, aspect=200, unverified=("least", "aspect"),
        ),
    )
}  # fmt: skip
"""The limits by name."""
