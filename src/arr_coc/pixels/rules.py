"""Token rules of providers: how many tokens a picture of some size costs, and at which size a model reads it.

find_rule("claude").tokens(1920, 1080)    2691
find_rule("gpt-4o").seen(4096, 4096)      (768, 768), what the provider scales it to
find_rule(32)                             one token for each 32 x 32 px, for any other model

The table holds what providers have published; the price of a request is what its `usage` says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from arr_coc.files.sizing import Sizing

OPENAI = "https://developers.openai.com/api/docs/guides/images-vision"
CLAUDE = "https://platform.claude.com/docs/en/build-with-claude/vision-coordinates"
GEMINI = "https://ai.google.dev/gemini-api/docs/media-resolution"
GEMINI_TILES = "https://ai.google.dev/gemini-api/docs/image-understanding"
GEMMA = "https://ai.google.dev/gemma/docs/capabilities/vision"
QWEN = "https://huggingface.co/Qwen/Qwen3-VL-2B-Instruct/blob/main/preprocessor_config.json"
QWEN2 = "https://huggingface.co/Qwen/Qwen2.5-VL-7B-Instruct/blob/main/preprocessor_config.json"
MISTRAL = "https://mistralai.github.io/mistral-common/usage/images"
READ = "2026-11-28"  # the day on which the pages were read
SQUARE = re.compile(r"(?:square\s+)?(\d{1,4})")  # "32", "square 32"
SIDES = (4, 4096)  # px, of the squares of a rule by number
Count = tuple[tuple[int, int], int]  # (width, height) that is read, tokens
UNIT = 48  # px of the square that a token of Gemma 4 stands for; Gemini 2's tiles have as many px a token


@dataclass(frozen=True)
class Rule:
    """How one provider counts the tokens of a picture: a row of the table `RULES`.

    Attributes:
        name: for `find_rule`.
        way: the way of counting, a key of `WAYS`.
        source: address of the page that says so.
        date: when that page was read.
        models: which models count so, in words.
        patch: side in px of the square that a token or a tile stands for.
        side: the most px of a side; longer ones are scaled down. 0: no limit.
        least: the fewest patches of a picture; smaller ones are enlarged.
        most: the most patches of a picture; larger ones are scaled down. 0: no limit.
        factor: tokens of a patch or a tile.
        base: tokens of any picture, added to those of its patches.
        approximate: whether the provider calls the count, or the size at which it reads, an estimate.
    """

    name: str
    way: str
    source: str
    date: str = READ
    models: str = ""
    patch: int = 32
    side: int = 0
    least: int = 0
    most: int = 0
    factor: float = 1.0
    base: int = 0
    approximate: bool = False

    def read(self, width: int, height: int) -> Count:
        """Return the size (width, height) in px at which a model reads a picture, and its tokens, at least 1.

        Sides that aren't whole numbers above 0 raise ValueError.
        """
        if not all(isinstance(side, int) and side > 0 for side in (width, height)):
            raise ValueError(
                f"size {width!r} x {height!r} is not that of a picture: give its width and height in px"
            )
        return WAYS[self.way](self, width, height)

    def seen(self, width: int, height: int) -> tuple[int, int]:
        """Return the size (width, height) in px at which a model reads a picture; errors as of `read`."""
        return self.read(width, height)[0]

    def tokens(self, width: int, height: int) -> int:
        """Return the tokens that a picture costs; errors as of `read`."""
        return self.read(width, height)[1]

    @property
    def knob(self) -> str:
        """The setting of a request or a server that changes the price beside the size; "": none does."""
        return KNOBS.get(self.way, "")

    @property
    def fixed(self) -> bool:
        """Whether a picture costs the same whatever its size."""
        return self.way in ("flat", "stretched")

    @property
    def cheapest(self) -> int:
        """The tokens of a small picture of any but a very thin shape."""
        if self.way == "filled":
            return self.most
        return (math.isqrt(self.least) + 1) ** 2 if self.least else self.tokens(1, 1)


def find_rule(name: str | int) -> Rule:
    """Return the rule of a name, or for N or "square N" one token per N x N px; ValueError if unknown."""
    text = str(name).strip().lower()
    if text in RULES:
        return RULES[text]
    if (match := SQUARE.fullmatch(text)) and SIDES[0] <= (patch := int(match[1])) <= SIDES[1]:
        return Rule(f"square {patch}", "squares", "", "", f"{patch} x {patch} px a token", patch)
    raise ValueError(
        f"rule {str(name)!r:.60} is not known: use one of {', '.join(RULES)}, or the side in px of the "
        f"square that a token stands for, {SIDES[0]} to {SIDES[1]}, such as 28"
    )


# ---- ways of counting: (rule, width, height) -> size that is read, tokens ------------------------------


def _squares(rule: Rule, width: int, height: int) -> Count:
    return (width, height), _cells(width, rule.patch) * _cells(height, rule.patch)


def _patches(rule: Rule, width: int, height: int) -> Count:
    """Count as OpenAI's newer models: patches, scaled down to a budget, times a factor, rounded up."""
    width, height = _within(width, height, rule.side)
    if rule.most and _cells(width, rule.patch) * _cells(height, rule.patch) > rule.most:
        # Scaled so that the side that fits worse holds whole patches; in units of a patch.
        shrink = math.sqrt(rule.most * rule.patch**2 / (width * height))
        across, down = width * shrink / rule.patch, height * shrink / rule.patch
        shrink *= min(max(1, math.floor(across)) / across, max(1, math.floor(down)) / down)
        width, height = (max(1, math.floor(side * shrink + 1e-9)) for side in (width, height))
    count = _cells(width, rule.patch) * _cells(height, rule.patch)
    return (width, height), math.ceil(round(min(count, rule.most or count) * rule.factor, 6))


def _tiles(rule: Rule, width: int, height: int) -> Count:
    """Count as OpenAI's older models: 512 px tiles of a picture in 2,048 px, 768 px on its shorter side."""
    width, height = _within(width, height, rule.side)
    if (short := min(width, height)) > 768:
        width, height = (max(1, math.floor(side * 768 / short)) for side in (width, height))
    tiles = _cells(width, rule.patch) * _cells(height, rule.patch)
    return (width, height), rule.base + round(rule.factor) * tiles


def _padded(rule: Rule, width: int, height: int) -> Count:
    """Count as Anthropic: the largest size of one shape whose patches, padded to whole, are in limits."""

    def fits(w: int, h: int) -> bool:
        across, down = _cells(w, rule.patch), _cells(h, rule.patch)
        return max(across, down) * rule.patch <= rule.side and across * down <= rule.most

    if fits(width, height):
        return (width, height), _cells(width, rule.patch) * _cells(height, rule.patch)
    longer, shorter = max(width, height), min(width, height)
    low, high = 1, longer  # of the longer side: `low` fits, `high` doesn't
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle, max(1, round(middle * shorter / longer))):
            low = middle
        else:
            high = middle
    size = (low, max(1, round(low * shorter / longer)))
    size = size if width >= height else (size[1], size[0])
    return size, _cells(size[0], rule.patch) * _cells(size[1], rule.patch)


def _crops(rule: Rule, width: int, height: int) -> Count:
    """Count as Gemini 2: one tile to 384 px, else tiles of the shorter side over 1.5, of 256 to 768 px."""
    if max(width, height) <= 384:
        return (width, height), round(rule.factor)
    unit = min(max(math.floor(min(width, height) / 1.5), 256), rule.patch)
    return (width, height), round(rule.factor) * _cells(width, unit) * _cells(height, unit)


def _flat(rule: Rule, width: int, height: int) -> Count:
    """Count as many tokens for every picture; it is read at about UNIT x UNIT px a token."""
    shrink = min(1.0, math.sqrt(rule.base * UNIT**2 / (width * height)))
    return (max(1, math.floor(width * shrink)), max(1, math.floor(height * shrink))), rule.base


def _stretched(rule: Rule, width: int, height: int) -> Count:
    """Count as Gemma 3: every picture is stretched to one square."""
    return (rule.side, rule.side), rule.base


def _filled(rule: Rule, width: int, height: int) -> Count:
    """Count as Gemma 4: scaled, up or down, to the most whole patches of the same shape within a budget."""
    scale = math.sqrt(rule.most / (width * height))  # to patches
    across, down = math.floor(width * scale), math.floor(height * scale)
    across, down = min(max(across, 1), rule.most), min(max(down, 1), rule.most)
    if math.floor(height * scale) == 0:
        across = min(max(1, width // height), rule.most)
    elif math.floor(width * scale) == 0:
        down = min(max(1, height // width), rule.most)
    return (across * rule.patch, down * rule.patch), across * down


def _rounded(rule: Rule, width: int, height: int) -> Count:
    """Count as Qwen-VL: each side rounded to whole patches, their number within bounds."""
    pixels = rule.patch**2
    rows, columns = Sizing(rule.patch, rule.least * pixels, rule.most * pixels).grid(height, width)
    return (columns * rule.patch, rows * rule.patch), rows * columns


def _rows(rule: Rule, width: int, height: int) -> Count:
    """Count as Mistral: patches of a picture within a side, and a token at the end of each row."""
    ratio = max(width, height) / rule.side
    if ratio > 1:
        width, height = (max(1, math.floor(side / ratio)) for side in (width, height))
    across, down = _cells(width, rule.patch), _cells(height, rule.patch)
    return (across * rule.patch, down * rule.patch), (across + 1) * down


WAYS: dict[str, Callable[[Rule, int, int], Count]] = {
    "squares": _squares,
    "patches": _patches,
    "tiles": _tiles,
    "padded": _padded,
    "crops": _crops,
    "flat": _flat,
    "stretched": _stretched,
    "filled": _filled,
    "rounded": _rounded,
    "rows": _rows,
}
"""The ways in which providers count, by name."""


KNOBS = {
    "patches": "detail",
    "tiles": "detail",
    "crops": "media_resolution",
    "flat": "media_resolution",
    "filled": "max_soft_tokens",
    "rounded": "max_pixels",
}
"""Settings that change the price of a picture, by way of counting."""


def _cells(side: int, patch: int) -> int:
    return -(-side // patch)


def _within(width: int, height: int, side: int) -> tuple[int, int]:
    """Return a size scaled down to a longest side; 0: no limit."""
    longest = max(width, height)
    if not side or longest <= side:
        return width, height
    return max(1, round(width * side / longest)), max(1, round(height * side / longest))


# ---- the table -----------------------------------------------------------------------------------------


def _openai_patches(name: str, models: str, side: int, most: int, factor: float) -> Rule:
    return Rule(name, "patches", OPENAI, models=models, side=side, most=most, factor=factor)


def _openai_tiles(name: str, models: str, base: int, factor: int) -> Rule:
    return Rule(name, "tiles", OPENAI, models=models, patch=512, side=2048, base=base, factor=factor)


def _gemini(name: str, models: str, base: int) -> Rule:
    return Rule(name, "flat", GEMINI, models=models, patch=UNIT, base=base, approximate=True)


def _gemma(name: str, most: int) -> Rule:
    return Rule(name, "filled", GEMMA, models=f"Gemma 4 at {most} tokens", patch=UNIT, most=most)


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        _openai_patches("gpt-6", "gpt-6-astra, detail high", 2048, 2500, 1.2),
        _openai_patches("gpt-5.6", "gpt-5.6 family, detail auto or original", 65535, 0, 1.2),
        _openai_patches("gpt-5.5", "gpt-5.5, detail auto or original", 6000, 10000, 1.2),
        _openai_patches("gpt-5.4", "gpt-5.4 family, detail auto or high", 2048, 2500, 1.2),
        _openai_patches("gpt-5.2", "gpt-5.2", 2048, 6144, 1.2),
        _openai_patches("gpt-5-mini", "gpt-5-mini", 2048, 1536, 1.2),
        _openai_patches("gpt-5-nano", "gpt-5-nano", 2048, 1536, 2.46),
        _openai_patches("gpt-4.1-nano", "gpt-4.1-nano", 2048, 1536, 2.46),
        _openai_patches("gpt-4.1-mini", "gpt-4.1-mini", 2048, 6144, 1.62),
        _openai_patches("o4-mini", "o4-mini", 2048, 1536, 1.72),
        _openai_tiles("gpt-5", "gpt-5 and gpt-5.1, detail auto or high", 70, 140),
        _openai_tiles("gpt-4o", "gpt-4o and gpt-4.1, detail auto or high", 85, 170),
        _openai_tiles("gpt-4o-mini", "gpt-4o-mini, detail auto or high", 2833, 5667),
        _openai_tiles("o3", "o1 and o3, detail auto or high", 75, 150),
        Rule("claude", "padded", CLAUDE, models="Claude 4.7 and later", patch=28, side=2576, most=4784),
        Rule("claude-4.6", "padded", CLAUDE, models="Claude to 4.6", patch=28, side=1568, most=1568),
        _gemini("gemini", "Gemini 3 and later, media resolution not named", 1120),
        _gemini("gemini-low", "Gemini 3 and later, media resolution low", 280),
        _gemini("gemini-medium", "Gemini 3 and later, media resolution medium", 560),
        _gemini("gemini-high", "Gemini 3 and later, media resolution high", 1120),
        _gemini("gemini-ultra", "Gemini 3 and later, media resolution ultra high", 2240),
        Rule(
            "gemini-2.5",
            "crops",
            GEMINI_TILES,
            models="Gemini 2.0 and 2.5",
            patch=768,
            factor=258,
            approximate=True,
        ),
        Rule("qwen", "rounded", QWEN, models="Qwen3-VL and later", least=64, most=16384),
        Rule("qwen2.5", "rounded", QWEN2, models="Qwen2-VL and Qwen2.5-VL", patch=28, least=4, most=16384),
        Rule("gemma-3", "stretched", GEMMA, models="Gemma 3", patch=56, side=896, base=256),
        _gemma("gemma-4", 280),
        _gemma("gemma-4-70", 70),
        _gemma("gemma-4-140", 140),
        _gemma("gemma-4-560", 560),
        _gemma("gemma-4-1120", 1120),
        Rule("mistral", "rows", MISTRAL, models="Mistral Small 3.1, Medium 3 and later", patch=28, side=1540),
        Rule("pixtral", "rows", MISTRAL, models="Pixtral 12B and Large", patch=16, side=1024),
    )
}
"""The rules by name, newest models of a provider first."""
