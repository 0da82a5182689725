"""Galleries: cards with pictures drawn from shapes and icons, captions and small data."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, labels, present, put, room
from arr_coc_lab.world.browser.drawing import SHAPES, VIVID, backdrop, figure, shade, strokes
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

REAL = (
    "Mug", "Vase", "Chair", "Lamp", "Cushion", "T-shirt", "Scarf", "Backpack", "Notebook", "Teapot", "Bowl",
    "Sofa", "Sneakers", "Watch",
    "Sunset", "Harbour", "Mountains", "Portrait", "Still life", "Untitled", "Study in grey", "Morning",
    "The bridge", "Garden", "Rain",
)  # fmt: skip
PAINTS = (*VIVID, "black", "grey")
THINGS = (
    "home",
    "cup",
    "umbrella",
    "car",
    "tree",
    "fish",
    "boat",
    "flower",
    "gift",
    "book",
    "camera",
    "bulb",
    "key",
    "cloud",
    "sun",
    "bell",
)
NAMES = {"home": "house", "bulb": "light bulb"}


@page_type("gallery")
def gallery(sheet: Sheet) -> str:
    """Return a heading over a grid of pictures with captions."""
    width, height = room(sheet)
    size = sheet.style.size
    columns = 2 if sheet.style.narrow else max(2, min(6, int(width / (size * sheet.choose(11, 18)))))
    tall = width / columns * sheet.rng.uniform(0.5, 0.85)
    rows = max(1, min(4, round((height - 3 * size) / (tall + 5 * size))))
    count = columns * rows
    *titles, missing = labels(sheet, count + 1, REAL, high=2, most=18)
    heading = sheet.text(sheet.words.title(1, 4), "h1") if sheet.chance(0.8) else None
    extra = sheet.one(("price", "name", "date", "none", "none"))
    paints = [sheet.one(PAINTS) for _ in titles]
    shapes = [sheet.one(THINGS if sheet.chance(0.6) else list(SHAPES)) for _ in titles]
    whole = sheet.chance(0.2)
    cells = [
        _cell(sheet, title, paint, shape, tall, extra, whole)
        for title, paint, shape in zip(titles, paints, shapes, strict=True)
    ]
    pictures = [cell[0] for cell in cells]
    captions = [cell[1] for cell in cells]
    _ask(sheet, titles, paints, shapes, pictures, captions, columns, whole)
    finish(
        sheet,
        heading,
        put(
            sheet,
            ("What colour is {label}?", "Where is {label}?", "Which shape does {label} show?"),
            label=missing,
        ),
    )
    return (
        f'{heading or ""}<div class="grid" style="grid-template-columns:repeat({columns},1fr)">'
        f"{''.join(cell[2] for cell in cells)}</div>"
    )


def _cell(
    sheet: Sheet, title: str, paint: str, shape: str, tall: float, extra: str, whole: bool
) -> tuple[Piece, Piece, str]:
    """Return what is drawn, its caption and the card; `whole`: the picture is all of its colour."""
    fill, radius = shade(sheet.rng, paint), tall * 0.34
    edge = 'stroke="#8888"'
    thing = figure(shape, 50, 50, 38, fill, 0, edge) if shape in SHAPES else ""
    if not thing:
        line = f'fill="{fill}" stroke="#5558" stroke-width="1"'
        thing = f'<g transform="translate(12 12) scale(3.16)" {line}>{strokes(shape)}</g>'
    # Evidence is the thing drawn; of a picture all of one colour, a spot in its middle.
    drawn = sheet.block("", "div", 'style="width:2em;height:2em"') if whole else sheet.block(thing, "g")
    if not whole:
        sheet.things.append((shape, drawn))
    ground = (
        f"background:linear-gradient(135deg,{fill},{shade(sheet.rng, paint)})"
        if whole
        else backdrop(sheet.rng, paint not in ("yellow", "turquoise"))
    )
    inner = (
        drawn
        if whole
        else (
            f'<svg viewBox="0 0 100 100" height="{2.4 * radius:.0f}" width="{2.4 * radius:.0f}">{drawn}</svg>'
        )
    )
    style = (
        f"{ground};height:{tall:.0f}px;display:flex;align-items:center;justify-content:center;"
        f"border-radius:var(--radius)"
    )
    picture, caption = f'<div style="{style}">{inner}</div>', sheet.text(title)
    line = ""
    if extra != "none":
        value = sheet.text(sheet.words.of(extra))
        line = f'<div class="muted" style="font-size:.88em">{value}</div>'
        if extra == "price":
            sheet.ask("price", sheet.phrase("price", label=title), value.plain, caption, value)
        else:
            options = (
                ("Who made {label}?", "Who is named under {label}?")
                if extra == "name"
                else ("When was {label} made?", "Which date stands under {label}?")
            )
            sheet.ask("value", put(sheet, options, label=title), value.plain, caption, value)
    return (
        drawn,
        caption,
        f'<div class="card" style="margin:0">{picture}<div style="margin-top:.4em">{caption}</div>'
        f"{line}</div>",
    )


def _ask(
    sheet: Sheet,
    titles: list[str],
    paints: list[str],
    shapes: list[str],
    pictures: list[Piece],
    captions: list[Piece],
    columns: int,
    whole: bool,
) -> None:
    """Ask for the colour of a title, the title of a colour, what a picture shows, and neighbours."""
    for i, title in enumerate(titles):
        thing = NAMES.get(shapes[i], shapes[i])
        sheet.ask(
            "colour",
            put(
                sheet,
                (
                    "What colour is {label}?",
                    "Which colour has the picture of {label}?",
                    "In which colour is {label} shown?",
                ),
                label=title,
            ),
            paints[i],
            pictures[i],
            captions[i],
        )
        if paints.count(paints[i]) == 1:
            sheet.ask(
                "colour",
                put(
                    sheet,
                    (
                        "Which item is {colour}?",
                        "Which picture is {colour}?",
                        "What is the name of the {colour} one?",
                    ),
                    colour=paints[i],
                ),
                title,
                pictures[i],
                captions[i],
            )
        if not whole:
            sheet.ask(
                "shape",
                put(
                    sheet,
                    ("What does the picture of {label} show?", "What is on the picture called {label}?"),
                    label=title,
                ),
                thing,
                pictures[i],
                captions[i],
            )
            if shapes.count(shapes[i]) == 1:
                sheet.ask(
                    "shape",
                    put(
                        sheet,
                        (
                            "Which picture shows a {thing}?",
                            "Where is the {thing}?",
                            "What is the title of the picture with a {thing}?",
                        ),
                        thing=thing,
                    ),
                    title,
                    pictures[i],
                    captions[i],
                )
    i = sheet.choose(0, len(titles) - 1)
    present(sheet, captions[i])
    paint = sheet.one(paints)
    alike = [pictures[i] for i, other in enumerate(paints) if other == paint]
    sheet.ask(
        "count",
        put(sheet, ("How many items are {colour}?", "How many {colour} pictures are there?"), colour=paint),
        str(len(alike)),
        *alike,
    )
    i = sheet.choose(0, len(titles) - 1)
    if (i + 1) % columns and i + 1 < len(titles):
        sheet.ask(
            "position",
            put(
                sheet,
                ("What is to the right of {label}?", "Which picture is right of {label}?"),
                label=titles[i],
            ),
            titles[i + 1],
            captions[i],
            captions[i + 1],
        )
    if i + columns < len(titles):
        sheet.ask(
            "position",
            put(
                sheet,
                ("What is below {label}?", "Which picture stands directly below {label}?"),
                label=titles[i],
            ),
            titles[i + columns],
            captions[i],
            captions[i + columns],
        )
