"""Coloured shapes and pictograms on plain, graded or noisy paper, in grids or scattered, some captioned."""

from __future__ import annotations

import math
from typing import NamedTuple

from arr_coc_lab.world.browser.asking import finish, labels, put, room
from arr_coc_lab.world.browser.drawing import COLOURS, SHAPES, backdrop, figure, shade, strokes
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

PICTURES = (
    "home", "sun", "moon", "cloud", "umbrella", "car", "tree", "fish", "boat", "flower", "key", "flag", "cup",
    "bell", "gift", "book", "lock", "camera", "clock", "phone",
)  # fmt: skip
NAMES = {"home": "house"}


class DrawnThing(NamedTuple):
    """A drawn thing: what it is, its colour, its place in the grid, its size in px, and its pieces."""

    shape: str
    colour: str
    column: int
    row: int
    size: float
    piece: Piece
    caption: Piece | None


@page_type("shapes", weight=2.0)
def shapes(sheet: Sheet) -> str:
    """Return a scene of things that differ in shape and colour, or a grid of equal ones with an odd one."""
    odd = sheet.chance(0.3)
    width, height = room(sheet)
    heading = sheet.text(sheet.words.title(1, 4), "h1") if sheet.chance(0.4) else None
    if heading:
        lines = math.ceil(len(heading.plain) * sheet.style.size * 1.1 / width)
        height -= (1.5 + 2.1 * lines) * sheet.style.size
    cells = _grid(sheet, width, height, odd)
    things, svg = (_equal if odd else _mixed)(sheet, cells)
    if odd:
        _ask_odd(sheet, things)
    else:
        _ask_mixed(sheet, things)
    finish(sheet, heading, _absent(sheet, things))
    edge = sheet.one(("", "border:1px solid var(--line)", "border-radius:var(--radius)"))
    if sheet.chance(0.5):
        edge += ";" + backdrop(sheet.rng)
    return (
        f'{heading or ""}<svg width="{width:.0f}" height="{height:.0f}" fill="var(--ink)" '
        f'font-size="{sheet.style.size}" '
        f'style="display:block;{edge}">{svg}</svg>'
    )


def _grid(sheet: Sheet, width: float, height: float, odd: bool) -> list[tuple[int, int, float, float, float]]:
    """Cells to draw in: column, row, centre and radius."""
    count = sheet.choose(9, 42) if odd else sheet.choose(2, 14)
    columns = max(1, min(count, round(math.sqrt(count * width / height) * sheet.rng.uniform(0.8, 1.25))))
    rows = max(1, math.ceil(count / columns))
    w, h = width / columns, height / rows
    radius = min(w, h) * sheet.rng.uniform(0.2, 0.4)
    radius = min(radius, sheet.rng.uniform(30, 220))
    return [(c, r, (c + 0.5) * w, (r + 0.5) * h, radius) for r in range(rows) for c in range(columns)]


def _draw(sheet: Sheet, shape: str, colour: str, x: float, y: float, radius: float, turn: float = 0) -> Piece:
    """Return a shape or a pictogram with an edge that shows on paper of its own colour."""
    fill = shade(sheet.rng, colour)
    edge = {"white": "#777", "black": "#aaa", "brown": "#ccc"}.get(colour, "#0004")
    if shape in SHAPES:
        inner = figure(shape, x, y, radius, fill, turn, f'stroke="{edge}"')
    else:
        where = f"translate({x - radius:.1f} {y - radius:.1f}) scale({radius / 12:.3f})"
        paint = f'fill="{fill}" stroke="{edge}" stroke-width="1" stroke-linejoin="round"'
        inner = f'<g transform="{where}" {paint}>{strokes(shape)}</g>'
    piece = sheet.block(inner, "g")
    sheet.things.append((shape, piece))
    return piece


def _mixed(sheet: Sheet, cells: list) -> tuple[list[DrawnThing], str]:
    """Things of several shapes and colours, some cells empty, some with captions."""
    source = list(SHAPES) if sheet.chance(0.65) else list(PICTURES)
    kinds = sheet.rng.sample(source, sheet.choose(2, min(7, len(source))))
    colours = sheet.rng.sample(list(COLOURS), sheet.choose(2, 8))
    captions = labels(sheet, len(cells), high=1, most=12) if sheet.chance(0.35) else []
    jitter, sizes = sheet.rng.choice((0, 0, 0.12)), sheet.rng.choice((0, 0, 0.3, 0.6))
    turn = sheet.rng.choice((0, 0, 0, 25))
    things, parts = [], []
    for i, (column, row, x, y, radius) in enumerate(cells):
        if len(cells) > 4 and sheet.chance(0.1):
            continue
        shape, colour = sheet.one(kinds), sheet.one(colours)
        x += sheet.rng.uniform(-jitter, jitter) * radius
        y += sheet.rng.uniform(-jitter, jitter) * radius
        size = radius * (1 - sheet.rng.uniform(0, sizes))
        caption = None
        if captions and radius > 18:
            y -= sheet.style.size / 2
            attributes = f'x="{x:.0f}" y="{y + size + sheet.style.size * 1.1:.0f}" text-anchor="middle"'
            caption = sheet.text(
                captions[i],
                "text",
                attributes + ' stroke="var(--paper)" stroke-width="3" paint-order="stroke"',
            )
        piece = _draw(sheet, shape, colour, x, y, size, sheet.rng.uniform(-turn, turn))
        things.append(DrawnThing(NAMES.get(shape, shape), colour, column, row, size, piece, caption))
        parts += [piece, caption or ""]
    if len(things) < 2:  # too few to compare: one more try
        return _mixed(sheet, cells)
    return things, "".join(parts)


def _equal(sheet: Sheet, cells: list) -> tuple[list[DrawnThing], str]:
    """Equal things and one that differs in colour, shape, size or turn; it is the first of the list."""
    shape, colour = sheet.one(list(SHAPES)), sheet.one(list(COLOURS))
    at, way = sheet.choose(0, len(cells) - 1), sheet.one(("colour", "shape", "size", "turn"))
    if way == "turn" and shape in ("circle", "ring", "square", "octagon", "cross", "hexagon"):
        way = "colour"
    other = sheet.one([name for name in SHAPES if name != shape and {name, shape} != {"circle", "oval"}])
    hue = sheet.one([name for name in COLOURS if name != colour])
    things, parts = [], []
    for i, (column, row, x, y, radius) in enumerate(cells):
        differs = i == at
        kind, paint = (
            other if differs and way == "shape" else shape,
            hue if differs and way == "colour" else colour,
        )
        if differs and way == "size":
            radius *= sheet.rng.choice((0.45, 0.55, 1.35))
        piece = _draw(sheet, kind, paint, x, y, radius, 90 if differs and way == "turn" else 0)
        things.insert(
            0 if differs else len(things), DrawnThing(kind, paint, column, row, radius, piece, None)
        )
        parts.append(piece)
    return things, "".join(parts)


def _ask_odd(sheet: Sheet, things: list[DrawnThing]) -> None:
    """Ask for the odd one and, where it is odd by it, for its colour or shape."""
    odd, usual = things[0], things[1]
    name = f"the {odd.colour} {odd.shape}"
    for _ in range(2):
        sheet.ask("anomaly", sheet.phrase("anomaly"), name, odd.piece)
    sheet.ask(
        "anomaly",
        put(
            sheet,
            (
                "Which {shape} differs from the others?",
                "Where is the one that is not like the others?",
                "Which one doesn't belong?",
            ),
            shape="thing",
        ),
        name,
        odd.piece,
    )
    if odd.colour != usual.colour:
        sheet.ask(
            "colour",
            put(sheet, ("What colour is the odd one?", "What is the colour of the one that differs?")),
            odd.colour,
            odd.piece,
        )
        sheet.ask(
            "position",
            put(sheet, ("Where is the {name}?", "Show me the {name}."), name=f"{odd.colour} {odd.shape}"),
            _place(things, odd),
            odd.piece,
        )
    if odd.shape != usual.shape:
        sheet.ask(
            "presence",
            put(sheet, ("Is there a {name}?", "Do you see any {name} here?"), name=odd.shape),
            "yes",
            odd.piece,
        )


def _ask_mixed(sheet: Sheet, things: list[DrawnThing]) -> None:
    """Ask for colours, shapes, counts, presence and neighbours."""
    for thing in things:
        same_shape = [other for other in things if other.shape == thing.shape]
        same_colour = [other for other in things if other.colour == thing.colour]
        both = [other for other in same_shape if other.colour == thing.colour]
        name = f"{thing.colour} {thing.shape}"
        if len(same_shape) == 1:
            sheet.ask(
                "colour",
                put(
                    sheet,
                    (
                        "What colour is the {shape}?",
                        "Which colour does the {shape} have?",
                        "The {shape} is which colour?",
                        "What is the colour of the {shape}?",
                    ),
                    shape=thing.shape,
                ),
                thing.colour,
                thing.piece,
            )
        if len(same_colour) == 1:
            sheet.ask(
                "shape",
                put(
                    sheet,
                    (
                        "Which shape is {colour}?",
                        "What is {colour} here?",
                        "What is the shape of the {colour} one?",
                        "Which one is {colour}?",
                    ),
                    colour=thing.colour,
                ),
                thing.shape,
                thing.piece,
            )
        if len(both) == 1:
            sheet.ask(
                "presence",
                put(
                    sheet,
                    ("Is there a {name}?", "Do you see a {name}?", "Is a {name} in the picture?"),
                    name=name,
                ),
                "yes",
                thing.piece,
            )
            sheet.ask(
                "position",
                put(sheet, ("Where is the {name}?", "Show me the {name}.", "Find the {name}."), name=name),
                _place(things, thing),
                thing.piece,
            )
            _ask_neighbours(sheet, things, thing, name)
        if thing.caption:
            label = thing.caption.plain
            sheet.ask(
                "colour",
                put(
                    sheet,
                    (
                        "What colour is the shape labelled {label}?",
                        "Which colour has {label}?",
                        "What is the colour above {label}?",
                    ),
                    label=label,
                ),
                thing.colour,
                thing.piece,
                thing.caption,
            )
            if len(both) == 1:
                sheet.ask(
                    "word",
                    put(
                        sheet,
                        (
                            "What is written below the {name}?",
                            "What is the {name} called?",
                            "Which caption does the {name} have?",
                        ),
                        name=name,
                    ),
                    label,
                    thing.piece,
                    thing.caption,
                )
    _ask_sizes(sheet, things)
    for key in ("shape", "colour"):
        value = getattr(sheet.rng.choice(things), key)
        alike = [thing.piece for thing in things if getattr(thing, key) == value]
        name = value + ("es" if value == "cross" else "s") if key == "shape" else f"{value} things"
        name = name.replace("fishs", "fish")
        if len(alike) <= 8:
            sheet.ask(
                "count",
                put(
                    sheet,
                    (
                        "How many {name} are there?",
                        "Count the {name}.",
                        "How many {name} do you see?",
                        "Number of {name}?",
                    ),
                    name=name,
                ),
                str(len(alike)),
                *alike,
            )


def _ask_sizes(sheet: Sheet, things: list[DrawnThing]) -> None:
    """Ask for the largest and the smallest thing where that is plain to see, and for the number of all."""
    every = [thing.piece for thing in things]
    if len(every) <= 8:
        text = put(
            sheet, ("How many things are there?", "How many shapes are there in all?", "Count everything.")
        )
        sheet.ask("count", text, str(len(every)), *every)
    order = sorted(things, key=lambda thing: thing.size)
    for words, best, rival in (
        (("largest", "biggest"), order[-1], order[-2]),
        (("smallest", "least big"), order[0], order[1]),
    ):
        if not 0.85 < best.size / rival.size < 1.18 and len({thing.shape for thing in things}) > 1:
            text = put(
                sheet, ("Which one is the {way}?", "What is the {way} thing here?"), way=sheet.one(words)
            )
            sheet.ask("comparison", text, f"the {best.colour} {best.shape}", best.piece)


def _ask_neighbours(sheet: Sheet, things: list[DrawnThing], thing: DrawnThing, name: str) -> None:
    """Ask what stands beside a thing in its grid."""
    steps = {"to the left of": (-1, 0), "to the right of": (1, 0), "above": (0, -1), "below": (0, 1)}
    way = sheet.one(list(steps))
    for other in things:
        if (other.column - thing.column, other.row - thing.row) == steps[way]:
            answer = f"the {other.colour} {other.shape}"
            sheet.ask(
                "position",
                put(
                    sheet,
                    (
                        "What is directly {way} the {name}?",
                        "What stands {way} the {name}?",
                        "Which shape is {way} the {name}?",
                    ),
                    way=way,
                    name=name,
                ),
                answer,
                other.piece,
                thing.piece,
            )


def _place(things: list[DrawnThing], thing: DrawnThing) -> str:
    """Return where a thing stands, in words."""
    columns, rows = (max(getattr(t, axis) for t in things) + 1 for axis in ("column", "row"))
    across = ("left", "centre", "right")[int(3 * (thing.column + 0.5) / columns)]
    down = ("top", "middle", "bottom")[int(3 * (thing.row + 0.5) / rows)]
    return f"{down} {across}"


def _absent(sheet: Sheet, things: list[DrawnThing]) -> str:
    """Return a question about a thing that is not there."""
    pairs = {(thing.colour, thing.shape) for thing in things}
    shapes = sorted({shape for _, shape in pairs} | {sheet.one(list(SHAPES))})
    missing = [(c, s) for c in COLOURS for s in shapes if (c, s) not in pairs]
    colour, shape = sheet.rng.choice(missing)
    return put(
        sheet,
        ("Is there a {name}?", "Where is the {name}?", "How many {name}s are there?"),
        name=f"{colour} {shape}",
    )
