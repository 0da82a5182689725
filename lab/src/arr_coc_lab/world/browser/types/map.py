"""Street maps: roads with names, a river, parks, and places with pins or symbols."""

from __future__ import annotations

import math
from typing import NamedTuple

from arr_coc_lab.world.browser.asking import finish, labels, put, room
from arr_coc_lab.world.browser.drawing import VIVID, shade, strokes
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

PLACES = (
    "Library",
    "Town Hall",
    "Museum",
    "Post Office",
    "Hospital",
    "School",
    "Bakery",
    "Station",
    "Cinema",
    "Hotel",
    "Pharmacy",
    "Police",
    "Church",
    "Market",
    "Bank",
    "Theatre",
    "Gym",
    "Bus stop",
    "Car park",
    "Castle",
    "Zoo",
    "Harbour",
    "University",
    "Swimming pool",
)
ROADS = (
    "{} Street",
    "{} Road",
    "{} Avenue",
    "{} Lane",
    "{}straße",
    "Rue {}",
    "Via {}",
    "Calle {}",
    "{} Way",
    "{}weg",
)
SYMBOLS = ("book", "flag", "home", "cup", "cart", "star", "music", "bell", "camera", "car", "heart", "key")
WHERE = (
    "Where is the {label}?",
    "Where is {label}?",
    "Find {label} on the map.",
    "Show me {label}.",
    "How do I find {label}?",
)
BESIDE = (
    "Which street is {label} on?",
    "Which street is next to {label}?",
    "On which road does {label} stand?",
    "What street is below {label}?",
)


class Roads(NamedTuple):
    """The streets' lines: positions at the left or upper edge, and how far they slope over the map."""

    across: list[tuple[float, float]]
    down: list[tuple[float, float]]
    width: float
    height: float

    def level(self, i: int, x: float) -> float:
        """Return the y of the i-th street across at x."""
        y, slope = self.across[i]
        return y + slope * x / self.width

    def column(self, i: int, y: float) -> float:
        """Return the x of the i-th street down at y."""
        x, slope = self.down[i]
        return x + slope * y / self.height


@page_type("map", held_out=True)
def map_page(sheet: Sheet) -> str:
    """Return a map under a heading, perhaps with a legend or a field to search in."""
    width, height = room(sheet)
    heading = (
        sheet.text(sheet.words.city() if sheet.chance(0.5) else sheet.words.title(1, 3), "h1")
        if sheet.chance(0.6)
        else None
    )
    size = max(10.0, sheet.style.size * 0.85, width / 75)
    tall = height - (4 * sheet.style.size if heading else 0)
    down = max(2, min(6, int(width / (size * 11))))
    across = max(2, min(6, int(tall / (size * 7))))
    roads = _roads(sheet, width, tall, across, down)
    night = sheet.style.dark
    land, road, ink = (
        ("#242a33", "#4a5260", "#eee")
        if night
        else (sheet.one(("#f2efe9", "#eef0e6", "#f7f3e8")), sheet.one(("#fff", "#ffe9a8", "#fff")), "#222")
    )
    parts = [f'<rect width="100%" height="100%" fill="{land}"/>']
    cells = [(i, j) for i in range(across - 1) for j in range(down - 1)]
    sheet.rng.shuffle(cells)
    if len(cells) > 2 and sheet.chance(0.7):
        parts += _river(sheet, roads, cells.pop(), size, night)
    parks = [
        _park(sheet, roads, cells.pop(), size, night) for _ in range(min(len(cells) // 3, sheet.choose(0, 3)))
    ]
    parts += parks
    names, line = _streets(sheet, roads, size, road, ink, night)
    parts.append(line)
    parts += _places(sheet, roads, cells, names, size, ink, land)
    if len(names) <= 8:
        sheet.ask(
            "count",
            put(sheet, ("How many streets are named?", "How many street names are there?")),
            str(len(names)),
            *names,
        )
    missing = sheet.one(PLACES)
    plain = " ".join(parts).lower()
    while missing.lower() in plain:
        missing = sheet.words.title(1, 2)
    finish(sheet, heading, put(sheet, (*WHERE, *BESIDE), label=missing))
    edge = sheet.one(("", "border:1px solid var(--line)", "border-radius:var(--radius)"))
    return (
        f'{heading or ""}<svg width="{width:.0f}" height="{tall:.0f}" font-size="{size:.1f}" '
        f'fill="{ink}" style="display:block;{edge}">{"".join(parts)}</svg>'
    )


def _roads(sheet: Sheet, width: float, height: float, across: int, down: int) -> Roads:
    """Streets at about equal distances, all a little aslant."""
    tilt, lean = sheet.rng.uniform(-0.08, 0.08) * height, sheet.rng.uniform(-0.06, 0.06) * width
    step, stride = height / across, width / down
    rows = [((i + 0.6) * step - tilt / 2 + sheet.rng.uniform(-0.1, 0.1) * step, tilt) for i in range(across)]
    columns = [
        ((j + 0.4) * stride - lean / 2 + sheet.rng.uniform(-0.12, 0.12) * stride, lean) for j in range(down)
    ]
    return Roads(rows, columns, width, height)


def _middle(roads: Roads, cell: tuple[int, int]) -> tuple[float, float, float, float]:
    """Centre, width and height of the block between two streets each way."""
    i, j = cell
    y = (roads.across[i][0] + roads.across[i + 1][0]) / 2
    x = (roads.column(j, y) + roads.column(j + 1, y)) / 2
    y = (roads.level(i, x) + roads.level(i + 1, x)) / 2
    return x, y, roads.column(j + 1, y) - roads.column(j, y), roads.level(i + 1, x) - roads.level(i, x)


def _river(sheet: Sheet, roads: Roads, cell: tuple[int, int], size: float, night: bool) -> list[str]:
    """Return a river through a block, with its name there."""
    x, y, _, _ = _middle(roads, cell)
    sway = roads.height * sheet.rng.uniform(-0.2, 0.2)
    route = (
        f"M-20 {y + sway:.0f}Q{x / 2:.0f} {y + sway / 2:.0f} {x:.0f} {y:.0f}T{roads.width + 20:.0f} "
        f"{y - sway / 2:.0f}"
    )
    water = "#234a70" if night else "#a9d3ee"
    name = sheet.text(
        f"River {sheet.words.title(1, 1)}",
        "text",
        f'x="{x:.0f}" y="{y + size / 3:.0f}" text-anchor="middle" font-style="italic" '
        f'fill="{"#9cf" if night else "#1c5f96"}"',
    )
    sheet.ask(
        "value",
        put(
            sheet,
            ("What is the river called?", "What is the name of the river?", "Which river is on the map?"),
        ),
        name.plain,
        name,
    )
    return [
        f'<path d="{route}" fill="none" stroke="{water}" '
        f'stroke-width="{size * sheet.rng.uniform(1.8, 2.8):.0f}"/>',
        name,
    ]


def _park(sheet: Sheet, roads: Roads, cell: tuple[int, int], size: float, night: bool) -> str:
    """Return a green block with its name."""
    x, y, wide, high = _middle(roads, cell)
    w, h = wide - size * 2.4, high - size * 2.4
    ground = (
        f'<rect x="{x - w / 2:.0f}" y="{y - h / 2:.0f}" width="{w:.0f}" height="{h:.0f}" '
        f'rx="{sheet.choose(2, 30)}" fill="{"#25452c" if night else "#c5e3b1"}"/>'
    )
    label = sheet.text(
        f"{sheet.words.title(1, 1)} Park",
        "text",
        f'x="{x:.0f}" y="{y + size / 3:.0f}" text-anchor="middle" fill="{"#9d9" if night else "#2b6e2f"}"',
    )
    piece = sheet.block(ground, "g")
    sheet.ask("position", put(sheet, WHERE, label=label.plain), "the green area", piece, label)
    return piece + label


def _streets(
    sheet: Sheet, roads: Roads, size: float, road: str, ink: str, night: bool
) -> tuple[list[Piece], str]:
    """Return all streets, those across first, each with its name; those down are named where there is
    room.
    """
    plain = [
        form.format(word)
        for form, word in zip(
            (sheet.one(ROADS) for _ in range(12)), labels(sheet, 12, high=1, most=12), strict=True
        )
    ]
    casing, lanes, texts, names = "#111" if night else "#d5cfc2", [], [], []
    routes = [
        (f"M0 {roads.level(i, 0):.0f}L{roads.width:.0f} {roads.level(i, roads.width):.0f}", 1.45)
        for i in range(len(roads.across))
    ]
    routes += [
        (f"M{roads.column(j, 0):.0f} 0L{roads.column(j, roads.height):.0f} {roads.height:.0f}", 1.2)
        for j in range(len(roads.down))
    ]
    for wider, paint in ((3, casing), (0, road)):
        lanes += [
            f'<path d="{route}" stroke="{paint}" stroke-width="{size * broad + wider:.1f}"/>'
            for route, broad in routes
        ]
    for i in range(len(roads.across)):
        j = sheet.choose(0, len(roads.down) - 2)
        x = (roads.column(j, roads.height / 2) + roads.column(j + 1, roads.height / 2)) / 2
        y, angle = roads.level(i, x), math.degrees(math.atan2(roads.across[i][1], roads.width))
        names.append(
            sheet.text(
                plain.pop(),
                "text",
                f'x="{x:.0f}" y="{y + size * 0.33:.0f}" text-anchor="middle" font-size=".9em" '
                f'transform="rotate({angle:.1f} {x:.0f} {y:.0f})"',
            )
        )
        texts.append(names[-1])
    for j in range(len(roads.down)):
        i = sheet.choose(0, len(roads.across) - 2)
        y = (roads.across[i][0] + roads.across[i + 1][0]) / 2
        x = roads.column(j, y)
        gap = roads.across[i + 1][0] - roads.across[i][0]
        if gap > len(plain[-1]) * size * 0.62 + size * 2:
            turn = 90 - math.degrees(math.atan2(roads.down[j][1], roads.height))
            names.append(
                sheet.text(
                    plain.pop(),
                    "text",
                    f'x="{x:.0f}" y="{y + size * 0.33:.0f}" text-anchor="middle" font-size=".85em" '
                    f'transform="rotate({turn:.1f} {x:.0f} {y:.0f})"',
                )
            )
            texts.append(names[-1])
    for name in names[: len(roads.across)]:
        sheet.ask(
            "word",
            put(sheet, ("Where is {name}?", "Find {name}.", "Where does {name} run?"), name=name.plain),
            "on the map",
            name,
        )
    return names, "".join(lanes + texts)


def _places(
    sheet: Sheet,
    roads: Roads,
    cells: list[tuple[int, int]],
    streets: list[Piece],
    size: float,
    ink: str,
    land: str,
) -> list[str]:
    """Pins or symbols above the streets across, with labels; asks where they are and on which street."""
    count = min(len(cells), sheet.choose(3, 9))
    if not count:
        return []
    names, parts, marks = labels(sheet, count, PLACES, high=2, most=15, share=0.6), [], []
    style = sheet.one(("pin", "symbol", "dot"))
    for name, (i, j) in zip(names, cells, strict=False):
        x, _, wide, _ = _middle(roads, (i, j))
        x += sheet.rng.uniform(-0.12, 0.12) * wide
        y = roads.level(i + 1, x) - size * 1.9
        colour = sheet.one(VIVID)
        paint = shade(sheet.rng, colour)
        pin = (
            f'<path d="M0 8C-5 1 -6 -2 -6 -4A6 6 0 0 1 6 -4C6 -2 5 1 0 8Z" fill="{paint}" '
            f'stroke="#fff"/><circle cy="-4" r="2.2" fill="#fff"/>'
        )
        symbol = (
            f'<circle r="9" fill="{paint}" stroke="#fff"/><g transform="translate(-6 -6) scale(.5)" '
            f'stroke="#fff" fill="none" stroke-width="2.4">{strokes(sheet.one(SYMBOLS))}</g>'
        )
        art = {
            "pin": pin,
            "symbol": symbol,
            "dot": f'<circle r="6" fill="{paint}" stroke="#fff" stroke-width="1.5"/>',
        }[style]
        mark = sheet.block(f'<g transform="translate({x:.0f} {y:.0f}) scale({size / 11:.2f})">{art}</g>', "g")
        label = sheet.text(
            name,
            "text",
            f'x="{x:.0f}" y="{y - size * 1.1:.0f}" text-anchor="middle" font-weight="600" stroke="{land}" '
            f'stroke-width="3" paint-order="stroke"',
        )
        marks.append(mark)
        parts.append(mark + label)
        sheet.ask("position", put(sheet, WHERE, label=name), f"on {streets[i + 1].plain}", mark, label)
        sheet.ask(
            "position", put(sheet, BESIDE, label=name), streets[i + 1].plain, mark, label, streets[i + 1]
        )
        sheet.ask(
            "colour",
            put(
                sheet,
                ("What colour is the mark of {label}?", "Which colour does {label} have on the map?"),
                label=name,
            ),
            colour,
            mark,
            label,
        )
    if count <= 8:
        sheet.ask(
            "count",
            put(sheet, ("How many places are marked?", "How many marks are on the map?")),
            str(count),
            *marks,
        )
    return parts
