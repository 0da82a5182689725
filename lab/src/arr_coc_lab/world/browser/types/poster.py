"""Posters: very large type, a date, a place, names and prices, on strong colours and shapes."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import code_mark, finish, put, room
from arr_coc_lab.world.browser.drawing import COLOURS, SHAPES, VIVID, figure, ink_on, shade
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

KINDS = (
    "Concert",
    "Festival",
    "Exhibition",
    "Flea market",
    "Open day",
    "Theatre",
    "Film night",
    "Marathon",
    "Summer fair",
    "Sale",
    "Lecture",
    "Jazz night",
    "Book fair",
    "Workshop",
    "Circus",
    "Quiz night",
)
DATE = ("When does it take place?", "On which day is it?", "What is the date of the event?", "When is it?")
TIME = ("At what time does it start?", "When do the doors open?", "What time is it?")
PLACE = ("Where does it take place?", "Where is it?", "What is the venue?", "In which city is it?")
PRICE = ("How much is a ticket?", "What does it cost?", "What is the entrance fee?")
WHO = ("Who performs?", "Who is the guest?", "Which name is on the poster?")
WEB = ("Where can I get more information?", "Which website is named?", "What is the web address?")
ABSENT = (
    "What is the age limit?",
    "Who is the sponsor?",
    "Where can I park?",
    "Is there a dress code?",
    "What is on the menu?",
    "Who is the moderator?",
)


@page_type("poster")
def poster(sheet: Sheet) -> str:
    """Return a poster that fills the page."""
    width, height = room(sheet)
    name = sheet.one((sheet.one(KINDS), sheet.words.title(1, 3), sheet.words.title(1, 2)))
    longest = max(len(word) for word in name.split())
    big = max(24, min(sheet.choose(40, 110), width / longest / 0.72, height / 4.5))
    colour, plain = sheet.one(list(COLOURS)), sheet.chance(0.25)
    ground = "background:var(--paper)" if plain else f"background:{shade(sheet.rng, colour)}"
    ink = "var(--ink)" if plain else ink_on(colour)
    if not plain and sheet.chance(0.3):
        shades = f"{shade(sheet.rng, colour)},{shade(sheet.rng, colour)}"
        ground = f"background:linear-gradient({sheet.choose(0, 180)}deg,{shades})"
    title = sheet.text(
        name, "div", f'style="font-size:{big:.0f}px;line-height:1.05;font-weight:bold;overflow-wrap:anywhere"'
    )
    mid = max(sheet.style.size * 1.2, min(big * 0.4, height / 16, width / 18))
    facts = _facts(sheet, mid)
    art = _art(sheet, width, height, colour) if sheet.chance(0.6) else ""
    blocks = [f"<div>{title}</div>", art, facts]
    if sheet.chance(0.35):
        blocks.append(f"<div>{code_mark(sheet, height=height * sheet.rng.uniform(0.07, 0.14))}</div>")
    if sheet.chance(0.3):
        sheet.rng.shuffle(blocks)
    text = sheet.text(
        sheet.words.sentence(4, 12), "div", f'style="font-size:{sheet.style.size:.0f}px;opacity:.85"'
    )
    sheet.ask(
        "section",
        put(sheet, ("What does the small print say?", "What is written in small letters?")),
        text.plain,
        text,
    )
    finish(sheet, title, put(sheet, ABSENT))
    place = sheet.one(("left", "center", "center", "right"))
    items = {"left": "flex-start", "center": "center", "right": "flex-end"}[place]
    edge = sheet.one(("", "", f"border:{sheet.choose(2, 14)}px solid currentColor"))
    return (
        f'<div style="position:absolute;inset:0;{ground};color:{ink};{edge};padding:5vmin;display:flex;'
        f"flex-direction:column;"
        f"justify-content:{sheet.one(('space-between', 'center', 'space-around'))};align-items:{items};"
        f'text-align:{place};gap:1em">{"".join(blocks)}{text}</div>'
    )


def _facts(sheet: Sheet, mid: float) -> str:
    """Date, time, place, price, names and address, some of them left out."""
    words = sheet.words
    choices: list[tuple[str, tuple[str, ...]]] = [
        (words.date(), DATE), (sheet.one((words.city(), words.street())), PLACE), (words.time(), TIME),
        (words.price(), PRICE), (words.name(), WHO), (words.domain(), WEB),
    ]  # fmt: skip
    leads = {
        TIME: ("Doors", "Start", "", ""),
        PRICE: ("Tickets", "Entry", "Admission", ""),
        WHO: ("with", "feat.", ""),
    }
    parts = []
    for i, (plain, options) in enumerate(choices):
        if i > 1 and sheet.chance(0.35):
            continue
        piece = sheet.text(
            plain,
            "span",
            f'style="font-size:{mid * sheet.rng.choice((0.7, 1, 1.3)):.0f}px;'
            f'font-weight:{sheet.one(("400", "700"))}"',
        )
        sheet.ask("price" if options is PRICE else "value", put(sheet, options), plain, piece)
        lead = sheet.one(leads.get(options, ("",)))
        parts.append(f'<div style="line-height:1.3">{lead} {piece}</div>')
    return f"<div>{''.join(parts)}</div>"


def _art(sheet: Sheet, width: float, height: float, ground: str) -> str:
    """Some large shapes in other colours; asks for the first one's colour where its shape is alone."""
    tall = height * sheet.rng.uniform(0.18, 0.34)
    names = [name for name in VIVID if name != ground]
    count = sheet.choose(1, 4)
    shapes, colours = sheet.rng.sample(list(SHAPES), count), sheet.rng.sample(names, count)
    parts = []
    for i, (shape, colour) in enumerate(zip(shapes, colours, strict=True)):
        x, radius = (i + 0.5) * 100, 40 * sheet.rng.uniform(0.6, 1)
        piece = sheet.block(figure(shape, x, 50, radius, shade(sheet.rng, colour), 0, 'stroke="#0003"'), "g")
        sheet.ask(
            "colour",
            put(sheet, ("What colour is the {shape}?", "Which colour does the {shape} have?"), shape=shape),
            colour,
            piece,
        )
        sheet.ask(
            "shape",
            put(sheet, ("Which shape is {colour}?", "What is {colour} on the poster?"), colour=colour),
            shape,
            piece,
        )
        parts.append(piece)
    return (
        f'<svg viewBox="0 0 {100 * count} 100" height="{min(tall, width / count):.0f}" '
        f'style="max-width:100%">{"".join(parts)}</svg>'
    )
