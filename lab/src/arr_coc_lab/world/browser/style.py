"""The style of a page: its size, palette, fonts and density, drawn from a seed, as CSS.

    style = draw_style(rng, split, families)
    style.css()          variables and defaults that every page type builds on

A page type uses the variables (`--paper`, `--ink`, `--muted`, `--accent`, `--line`, `--card`, `--gap`,
`--radius`) and `em`, never a fixed colour or size, so that every type exists in every style.
"""

from __future__ import annotations

import colorsys
import random
from collections.abc import Sequence
from dataclasses import dataclass

SHAPES: tuple[tuple[int, int], ...] = (
    (360, 740), (390, 844), (414, 896), (480, 640), (600, 800), (768, 1024), (800, 600), (820, 1180),
    (1024, 768), (1024, 1024), (1280, 720), (1280, 800), (1366, 768), (1440, 900), (1600, 900), (640, 360),
    (512, 512), (900, 1400), (320, 480), (700, 1000), (1100, 850), (850, 1100), (1920, 1080),
)  # fmt: skip
"""CSS sizes (width, height) of viewports, from phones to desktops."""
LEAST, MOST = 256, 2048
"""Bounds of a picture's sides in px."""
AREA = 2_400_000
"""The most pixels of a picture."""
SCALES: tuple[float, ...] = (0.75, 1.0, 1.0, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Picture px per CSS px."""


@dataclass(frozen=True)
class PageStyle:
    """The look of one page."""

    width: int  # of the viewport, CSS px
    height: int  # of the viewport, CSS px
    scale: float  # picture px per CSS px
    dark: bool  # whether the paper is darker than the ink
    theme: str  # name of the palette and manner
    body: str  # font family of the text
    heading: str  # font family of the headings
    size: float  # of the text, CSS px
    variables: tuple[tuple[str, str], ...]  # CSS variables, name to value
    rules: str  # further CSS

    @property
    def narrow(self) -> bool:
        """Whether the page is a phone's: one column."""
        return self.width < 560

    def css(self) -> str:
        """Return the style sheet."""
        variables = "".join(f"--{name}:{value};" for name, value in self.variables)
        return (
            f":root{{{variables}}}*{{box-sizing:border-box}}"
            f"html,body{{margin:0;background:var(--paper);color:var(--ink);overflow:hidden}}"
            f"body{{font:{self.size:.1f}px/{dict(self.variables)['leading']} '{self.body}',sans-serif;"
            f"padding:var(--gap);min-height:100vh}}"
            f"h1,h2,h3,th{{font-family:'{self.heading}',sans-serif;line-height:1.2}}"
            "h1{font-size:1.7em;margin:.3em 0 .5em}h2{font-size:1.3em;margin:.7em 0 .35em}"
            "h3{font-size:1.08em;margin:.5em 0 .25em}p{margin:.4em 0}table{border-collapse:collapse}"
            "td,th{padding:.3em .6em;text-align:left;vertical-align:top}"
            ".card{background:var(--card);border-radius:var(--radius);padding:var(--gap);margin:var(--gap) 0}"
            ".muted{color:var(--muted)}.row{display:flex;justify-content:space-between;gap:var(--gap)}"
            ".grid{display:grid;gap:var(--gap)}.right{text-align:right}.accent{color:var(--accent)}"
            f"{self.rules}"
        )


MANNERS: dict[str, str] = {
    "flat": ".card{border:0}tr{border-bottom:1px solid var(--line)}",
    "outlined": ".card,td,th{border:1px solid var(--line)}",
    "shadow": ".card{box-shadow:0 1px 5px #0005}th{border-bottom:2px solid var(--accent)}",
    "zebra": "tr:nth-child(even){background:var(--card)}th{background:var(--accent);color:var(--paper)}",
    "bare": "th{font-weight:600;color:var(--muted)}",
    "caps": "th,h3{text-transform:uppercase;letter-spacing:.06em;font-size:.85em}"
    "tr{border-bottom:1px dotted var(--line)}",
    "bar": ".card{border-left:4px solid var(--accent)}h2{border-bottom:1px solid var(--line)}",
    "paper": "body{background-image:linear-gradient(var(--card),var(--paper))}"
    ".card{border:1px dashed var(--line)}",
    "ruled": "p,td{border-bottom:1px solid var(--line)}.card{border-radius:0}",
    "pill": ".card{border-radius:1.2em}th{font-weight:400;font-style:italic}",
}
"""Manners of drawing cards, tables and headings, name to CSS."""
HELD_OUT_MANNERS: frozenset[str] = frozenset({"ruled", "pill"})
"""Manners of the test split alone."""


def draw_style(rng: random.Random, split: str, families: Sequence[str]) -> PageStyle:
    """Draw the style of a page; held-out manners and hues are of "test" alone."""
    manners = [name for name in MANNERS if split == "test" or name not in HELD_OUT_MANNERS]
    manner = rng.choice(manners)
    width, height = rng.choice(SHAPES)
    if rng.random() < 0.3:
        width, height = rng.randint(280, 1500), rng.randint(256, 1400)
    scales = [s for s in SCALES if _fits(width * s, height * s)]
    scale = rng.choice(scales or [1.0])
    dark, hue = rng.random() < 0.33, rng.random()
    if split != "test":  # a sixth of the circle of hues is held out
        hue = (0.30 + hue * 5 / 6) % 1.0
    variables = palette(rng, dark, hue)
    size = rng.choice((11, 12, 13, 14, 14, 15, 16, 16, 17, 18, 20, 22))
    if scale < 1:
        size += 3
    gap = rng.choice((4, 8, 10, 12, 16, 20, 24))
    variables |= {
        "gap": f"{gap}px",
        "radius": f"{rng.choice((0, 0, 3, 6, 10, 16))}px",
        "leading": f"{rng.uniform(1.15, 1.75):.2f}",
    }
    body = rng.choice(families)
    heading = body if rng.random() < 0.6 else rng.choice(families)
    theme = f"{manner}-{'dark' if dark else 'light'}"
    return PageStyle(
        width, height, scale, dark, theme, body, heading, size, tuple(variables.items()), MANNERS[manner]
    )


def _fits(width: float, height: float) -> bool:
    """Return whether a picture's size is within the bounds."""
    return min(width, height) >= LEAST and max(width, height) <= MOST and width * height <= AREA


def palette(rng: random.Random, dark: bool, hue: float) -> dict[str, str]:
    """Colours of a page as CSS variables: paper, ink, muted, line, card and accent (of `hue`, 0 to 1)."""

    def colour(light: float, colourful: float, turn: float = 0.0) -> str:
        r, g, b = colorsys.hls_to_rgb((hue + turn) % 1.0, min(1.0, max(0.0, light)), colourful)
        return f"#{round(r * 255):02x}{round(g * 255):02x}{round(b * 255):02x}"

    tint = rng.choice((0.0, 0.0, 0.1, 0.35))
    if dark:
        lights = {
            "paper": rng.uniform(0.04, 0.2),
            "ink": rng.uniform(0.82, 1.0),
            "muted": rng.uniform(0.55, 0.72),
        }
        lights |= {"line": rng.uniform(0.25, 0.4), "card": rng.uniform(0.12, 0.24)}
        accent = rng.uniform(0.55, 0.75)
    else:
        lights = {
            "paper": rng.uniform(0.93, 1.0),
            "ink": rng.uniform(0.0, 0.22),
            "muted": rng.uniform(0.38, 0.55),
        }
        lights |= {"line": rng.uniform(0.7, 0.88), "card": rng.uniform(0.9, 1.0)}
        accent = rng.uniform(0.25, 0.5)
    colours = {name: colour(light, tint, rng.uniform(-0.04, 0.04)) for name, light in lights.items()}
    return colours | {"accent": colour(accent, rng.uniform(0.5, 1.0))}
