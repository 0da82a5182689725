"""Drawing in SVG: colours by name, shapes, icons and the ticks of an axis.

shade(rng, "green")                 some green
figure("star", 40, 40, 20, "#c00")  a path
icon("settings", 24)                an outline in the colour of the text
"""

from __future__ import annotations

import colorsys
import math
import random
from urllib.parse import quote

COLOURS: dict[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    "red": ((352, 366), (0.65, 0.95), (0.38, 0.55)),
    "orange": ((22, 34), (0.85, 1.0), (0.48, 0.58)),
    "yellow": ((48, 56), (0.85, 1.0), (0.48, 0.62)),
    "green": ((105, 148), (0.4, 0.8), (0.28, 0.5)),
    "blue": ((208, 232), (0.6, 0.95), (0.36, 0.58)),
    "purple": ((270, 288), (0.4, 0.8), (0.35, 0.55)),
    "pink": ((322, 340), (0.7, 0.95), (0.68, 0.8)),
    "brown": ((20, 30), (0.4, 0.6), (0.22, 0.33)),
    "black": ((0, 360), (0.0, 0.1), (0.0, 0.1)),
    "white": ((0, 360), (0.0, 0.1), (0.97, 1.0)),
    "grey": ((0, 360), (0.0, 0.04), (0.45, 0.62)),
    "turquoise": ((171, 183), (0.6, 0.9), (0.4, 0.55)),
}
"""Ranges of hue in degrees, of saturation and of lightness, by the colour's name."""
VIVID: tuple[str, ...] = tuple(name for name in COLOURS if name not in ("black", "white", "grey"))
"""Colours that stand out on any paper."""


def shade(rng: random.Random, name: str) -> str:
    """Return a natural shade of a named colour, as #rrggbb."""
    hue, full, light = (rng.uniform(low, high) for low, high in COLOURS[name])
    channels = colorsys.hls_to_rgb(hue % 360 / 360, light, full)
    return "#" + "".join(f"{round(c * 255):02x}" for c in channels)


def ink_on(name: str) -> str:
    """Return the colour of text that is legible on a named colour."""
    return "#111" if name in ("yellow", "orange", "pink", "turquoise", "white") else "#fff"


def _regular(corners: int, inner: float = 0.0) -> str:
    """Return the path of a regular polygon in the unit circle; `inner` > 0: a star's inner radius."""
    count = corners * (2 if inner else 1)
    points = []
    for i in range(count):
        radius = inner if inner and i % 2 else 1.0
        angle = 2 * math.pi * i / count - math.pi / 2
        points.append(f"{radius * math.cos(angle):.3f} {radius * math.sin(angle):.3f}")
    return "M" + "L".join(points) + "Z"


SHAPES: dict[str, str] = {
    "circle": "M-1 0A1 1 0 1 1 1 0A1 1 0 1 1 -1 0Z",
    "square": "M-.86 -.86H.86V.86H-.86Z",
    "triangle": _regular(3),
    "star": _regular(5, 0.42),
    "pentagon": _regular(5),
    "hexagon": _regular(6),
    "octagon": "M-.41 -1H.41L1 -.41V.41L.41 1H-.41L-1 .41V-.41Z",
    "diamond": "M0 -1L.72 0L0 1L-.72 0Z",
    "rectangle": "M-1 -.55H1V.55H-1Z",
    "oval": "M-1 0A1 .6 0 1 1 1 0A1 .6 0 1 1 -1 0Z",
    "cross": "M-.32 -1H.32V-.32H1V.32H.32V1H-.32V.32H-1V-.32H-.32Z",
    "heart": "M0 .92C-1.5 -.05 -.95 -.95 -.5 -.88C-.22 -.84 -.06 -.66 0 -.45C.06 -.66 .22 -.84 .5 "
             "-.88C.95 -.95 1.5 -.05 0 .92Z",
    "arrow": "M-1 -.3H.15V-.78L1 0L.15 .78V.3H-1Z",
    "crescent": "M.45 -.9A.98 .98 0 1 0 .45 .9A.8 .8 0 1 1 .45 -.9Z",
    "ring": "M-1 0A1 1 0 1 1 1 0A1 1 0 1 1 -1 0ZM-.55 0A.55 .55 0 1 0 .55 0A.55 .55 0 1 0 -.55 0Z",
    "semicircle": "M-1 .5A1 1 0 0 1 1 .5Z",
    "trapezoid": "M-.55 -.62H.55L1 .62H-1Z",
}  # fmt: skip
"""Paths within -1 to 1 by the shape's name."""


def figure(name: str, x: float, y: float, radius: float, fill: str, turn: float = 0.0, more: str = "") -> str:
    """Return a shape of SHAPES around (x, y); `more`: further attributes."""
    where = f"translate({x:.1f} {y:.1f}) rotate({turn:.0f}) scale({radius:.2f})"
    return (
        f'<path d="{SHAPES[name]}" transform="{where}" fill="{fill}" '
        f'vector-effect="non-scaling-stroke" {more}/>'
    )


ICONS: dict[str, str] = {
    "settings": "o12 12 3;M12 2V5M12 19V22M2 12H5M19 12H22M5 5L7 7M17 17L19 19M5 19L7 17M17 7L19 5;o12 12 7",
    "home": "M3 12L12 3L21 12M5 10V21H19V10M10 21V14H14V21",
    "search": "o10 10 7;M15 15L22 22",
    "user": "o12 8 4.5;M3 22C3 16 7 14.5 12 14.5S21 16 21 22Z",
    "mail": "M2 5H22V19H2ZM2 5L12 13L22 5",
    "bell": "M5 17H19C17 15 17 13 17 10A5 5 0 0 0 7 10C7 13 7 15 5 17ZM10 20A2 2 0 0 0 14 20",
    "heart": "M12 21C2 14 2 9 2 8A5 5 0 0 1 12 7A5 5 0 0 1 22 8C22 9 22 14 12 21Z",
    "trash": "M3 6H21M8 6V3H16V6M5 6L6 22H18L19 6M10 10V18M14 10V18",
    "calendar": "M3 5H21V21H3ZM3 10H21M8 2V7M16 2V7",
    "camera": "M2 7H7L9 4H15L17 7H22V20H2Z;o12 13 4",
    "lock": "M4 11H20V22H4ZM7 11V7A5 5 0 0 1 17 7V11",
    "download": "M12 3V16M6 10L12 16L18 10M3 21H21",
    "upload": "M12 16V3M6 9L12 3L18 9M3 21H21",
    "cart": "M1 3H5L8 16H19L22 7H6;o9 20 1.5;o18 20 1.5",
    "phone": "M7 2H17V22H7ZM10.5 19H13.5",
    "clock": "o12 12 10;M12 6V12L16 14",
    "star": "M12 2L15 9L22 9.5L16.5 14L18.5 21.5L12 17.5L5.5 21.5L7.5 14L2 9.5L9 9Z",
    "folder": "M2 5H9L11 8H22V20H2Z",
    "document": "M5 2H14L19 7V22H5ZM14 2V7H19M8 12H16M8 16H16",
    "play": "M6 3L20 12L6 21Z",
    "pause": "M6 4H10V20H6ZM14 4H18V20H14Z",
    "battery": "M1 7H19V17H1ZM22 10V14M4 10V14M8 10V14",
    "sun": "o12 12 5;M12 1V4M12 20V23M1 12H4M20 12H23M4 4L6 6M18 18L20 20M4 20L6 18M18 6L20 4",
    "moon": "M20 15A9 9 0 1 1 10 3A7 7 0 0 0 20 15Z",
    "cloud": "M7 19A5 5 0 0 1 6 9A6.500 6.500 0 0 1 18 10A4.500 4.500 0 0 1 18 19Z",
    "rain": "M7 15A4 4 0 0 1 6 7A6 6 0 0 1 17 7A4 4 0 0 1 18 15ZM8 18L7 22M12 18L11 22M16 18L15 22",
    "snow": "M12 2V22M3 7L21 17M3 17L21 7M9 3L12 6L15 3M9 21L12 18L15 21",
    "lightning": "M13 1L4 14H11L10 23L20 9H13Z",
    "pencil": "M3 21L4 16L17 3L21 7L8 20ZM14 6L18 10",
    "share": "o18 5 3;o6 12 3;o18 19 3;M8.600 10.500L15.400 6.500M8.600 13.500L15.400 17.500",
    "printer": "M6 9V2H18V9M6 18H2V9H22V18H18M6 14H18V22H6Z",
    "menu": "M3 6H21M3 12H21M3 18H21",
    "plus": "M12 4V20M4 12H20",
    "check": "M3 13L9 19L21 5",
    "close": "M5 5L19 19M19 5L5 19",
    "pin": "M12 23C5 15 4 12 4 9A8 8 0 0 1 20 9C20 12 19 15 12 23Z;o12 9 3",
    "chart": "M3 3V21H21M8 18V12M13 18V7M18 18V10",
    "picture": "M2 4H22V20H2ZM2 17L8 11L13 16L17 12L22 17;o16 8 1.500",
    "music": "M9 18V5L20 3V16;o6 18 3;o17 16 3",
    "microphone": "M9 5A3 3 0 0 1 15 5V11A3 3 0 0 1 9 11ZM5 11A7 7 0 0 0 19 11M12 18V22M8 22H16",
    "globe": "o12 12 10;M2 12H22M12 2C7 7 7 17 12 22C17 17 17 7 12 2",
    "refresh": "M20 12A8 8 0 1 1 17 6L20 9M20 3V9H14",
    "bookmark": "M6 2H18V22L12 17L6 22Z",
    "filter": "M2 3H22L14 13V21L10 19V13Z",
    "gift": "M3 8H21V12H3ZM5 12V22H19V12M12 8V22M12 8C6 8 7 2 12 8C17 2 18 8 12 8",
    "key": "o7 16 5;M11 12L21 2M17 6L20 9",
    "flag": "M5 22V3H19L16 8L19 13H5",
    "car": "M2 17V12L5 11L8 6H16L19 11L22 12V17Z;o7 17 2;o17 17 2",
    "tree": "M12 2L4 11H8L3 18H21L16 11H20ZM12 18V23",
    "cup": "M3 6H17V14A5 5 0 0 1 12 19H8A5 5 0 0 1 3 14ZM17 8H20A2 2 0 0 1 20 14H17M2 22H18",
    "book": "M12 6C9 3 5 3 2 4V20C5 19 9 19 12 21C15 19 19 19 22 20V4C19 3 15 3 12 6ZM12 6V21",
    "umbrella": "M2 12A10 10 0 0 1 22 12ZM12 12V20A2 2 0 0 0 16 20",
    "fish": "M2 12C6 5 13 5 17 12C13 19 6 19 2 12ZM17 12L22 7V17Z;o7 11 .8",
    "boat": "M2 16H22L18 21H6ZM12 15V2L20 13H12",
    "flower": "o12 12 3;o12 6 3;o12 18 3;o6 12 3;o18 12 3",
    "eye": "M1 12C6 4 18 4 23 12C18 20 6 20 1 12Z;o12 12 3.500",
    "video": "M2 6H15V18H2ZM15 11L22 7V17L15 13",
    "bulb": "M9 18C9 15 5 14 5 9A7 7 0 0 1 19 9C19 14 15 15 15 18ZM9 21H15",
}
"""Outlines in a square of 24 by the icon's name: paths, and circles as "ox y radius"."""


def strokes(name: str) -> str:
    """Return an icon's outlines, to stand in any SVG with a stroke."""
    parts = []
    for part in ICONS[name].split(";"):
        if part.startswith("o"):
            x, y, r = part[1:].split()
            parts.append(f'<circle cx="{x}" cy="{y}" r="{r}"/>')
        else:
            parts.append(f'<path d="{part}"/>')
    return "".join(parts)


def icon(
    name: str, size: float, colour: str = "currentColor", filled: bool = False, thick: float = 1.8
) -> str:
    """Return an icon of ICONS as an SVG of its own, `size` px wide and high."""
    fill = f'fill="{colour}" fill-opacity=".35"' if filled else 'fill="none"'
    return (
        f'<svg width="{size:.0f}" height="{size:.0f}" viewBox="0 0 24 24" {fill} stroke="{colour}" '
        f'stroke-width="{thick}" '
        f'stroke-linecap="round" stroke-linejoin="round" style="vertical-align:middle">{strokes(name)}</svg>'
    )


def bar_code(rng: random.Random, height: float) -> str:
    """Return a bar code of an arbitrary content: black bars on white, as SVG."""
    bars, x = [], 6
    for _ in range(rng.randint(24, 44)):
        wide = rng.randint(1, 4)
        bars.append(f"M{x} 4h{wide}v40h-{wide}z")
        x += wide + rng.randint(1, 3)
    size = f'width="{height * (x + 5) / 48:.0f}" height="{height:.0f}" preserveAspectRatio="none"'
    return _code(f"{x + 5} 48", size, "".join(bars))


def square_code(rng: random.Random, side: float) -> str:
    """Return a square code with the three eyes of a QR code, of an arbitrary content, as SVG."""
    count = rng.choice((21, 25, 29))
    eyes = ((0, 0), (count - 7, 0), (0, count - 7))
    dots = [
        f"M{x + 2} {y + 2}h1v1h-1z"
        for y in range(count)
        for x in range(count)
        if not any(-1 <= x - a <= 7 and -1 <= y - b <= 7 for a, b in eyes) and rng.random() < 0.5
    ]
    dots += [f"M{a + 2} {b + 2}h7v7h-7zm1 1v5h5v-5zm1 1h3v3h-3z" for a, b in eyes]
    size = f'width="{side:.0f}" height="{side:.0f}"'
    return _code(f"{count + 4} {count + 4}", size, "".join(dots))


def _code(box: str, size: str, route: str) -> str:
    """Return a white SVG with a black path."""
    return (
        f'<svg viewBox="0 0 {box}" {size} style="background:#fff;display:block" shape-rendering="crispEdges">'
        f'<path d="{route}" fill="#111"/></svg>'
    )


def ticks(most: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to at least `most`, about as many as `about`."""
    rough = most / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    return [round(step * i, 6) for i in range(math.ceil(most / step * 0.999) + 1)]


def backdrop(rng: random.Random, light: bool | None = None) -> str:
    """CSS of a background: plain, a gradient, stripes, dots or noise, all of pale or of deep colours.

    Args:
        rng: of every choice.
        light: pale or deep; None: either.
    """
    level = (
        rng.uniform(0.84, 0.97)
        if (rng.random() < 0.7 if light is None else light)
        else rng.uniform(0.08, 0.2)
    )

    def tone(change: float) -> str:
        channels = colorsys.hls_to_rgb(hue, min(1.0, max(0.0, level + change)), 0.4)
        return "#" + "".join(f"{round(c * 255):02x}" for c in channels)

    hue, angle, step = rng.random(), rng.randrange(0, 180, 15), rng.randint(6, 30)
    one, two = tone(0.0), tone(rng.choice((-0.06, 0.06)))
    ways = ("", "90deg,")
    grid = ",".join(f"linear-gradient({w}{two} 1px,#0000 1px) 0 0/{step}px {step}px" for w in ways)
    return "background:" + rng.choice((
        one, one, f"linear-gradient({angle}deg,{one},{tone(-0.12)})", f"{grid},{one}", f"{NOISE},{one}",
        f"radial-gradient(circle at 30% 30%,{one},{tone(-0.1)})",
        f"repeating-linear-gradient({angle}deg,{one} 0 {step}px,{two} {step}px {2 * step}px)",
        f"radial-gradient({two} 25%,transparent 27%) 0 0/{step}px {step}px,{one}",
    ))  # fmt: skip


_SPECKLES = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='160' height='160'><filter id='n'><feTurbulence "
    "type='fractalNoise' "
    "baseFrequency='.8' numOctaves='2'/></filter><rect width='160' height='160' filter='url(#n)' "
    "opacity='.3'/></svg>"
)
NOISE = f"url(data:image/svg+xml,{quote(_SPECKLES)})"
"""Speckles as a CSS image."""
