"""Parts that page types share: labels, key-value blocks, tables, bars, filler, and questions that fit any page.

labels = Labels(sheet, (("Invoice number", "code"), ("Due date", "date")))
block = key_values(sheet, labels.draw(6))         block.html, block.fields
grid = table(sheet, ("Item", "Price"), rows)      grid.html, grid.head, grid.cells
close(sheet, labels, block.fields)                yes-no, presence, implied, unanswerable, global
frame(sheet, body)                                bars around it, filler below
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from arr_coc.world.browser.phrases import paraphrases, phrase
from arr_coc.world.browser.sheet import Piece, Sheet
from arr_coc.world.browser.vocabulary import CURRENCIES

Known = Sequence[tuple[str, str]]
"""Labels with the sorts of their values: a sort of `Vocabulary.of`, "number", or choices as "Paid|Open"."""

LAYOUTS = ("table", "spread", "dotted", "colon", "grid", "flush", "above", "below", "boxed", "inline")
"""How `key_values` sets labels and values."""
STACKED = frozenset({"table", "spread", "dotted", "colon"})
"""Layouts with one field a line, label left."""
LINKS = (
    "Home", "Products", "Pricing", "About", "Contact", "Help", "Blog", "Account", "Sign in", "Log out", "Cart", "Search", "Support",
    "Docs", "Reports", "Team", "Settings", "Inbox", "Calendar", "Files", "News", "Careers", "Overview", "Billing", "Activity", "Projects",
)  # fmt: skip
ACTIONS = (
    "Save", "Cancel", "Continue", "Pay now", "Download PDF", "Print", "Edit", "Share", "Learn more", "Back", "Submit", "Add to cart",
    "Contact us", "Get started", "Export", "View details", "Apply", "Reset",
)  # fmt: skip
LONE = {
    "email": ("Which e-mail address is on the page?", "Where can I write to?"),
    "phone": ("Which number can I call?", "What number should I ring?"),
    "price": ("How much is it?", "How much money is it about?", "What amount is shown?"),
    "date": ("Which date is on the page?", "Which day is it about?"),
    "time": ("At what time?", "What time is shown?"),
    "name": ("Who is it?", "Which person is named?"),
    "place": ("Which city is named?", "Which town is it about?"),
    "percent": ("What percentage is shown?", "How many percent?"),
    "company": ("Which company is named?", "What firm is it about?"),
    "country": ("Which country is it?", "What country is named?"),
    "address": ("What is the address?", "Which street is it?"),
}
"""Questions that imply the label, by the sort of the value: they fit where one field alone has that sort."""


PLAIN = ("word", "code", "number", "measure")
"""Sorts that filler uses: those of LONE stay alone."""


class Entry(NamedTuple):
    """A label to be printed, the sort of its value, and the value."""

    label: str
    sort: str
    value: str


class Field(NamedTuple):
    """A printed label and its value."""

    label: Piece
    value: Piece
    sort: str


class Block(NamedTuple):
    """HTML and the fields in it."""

    html: str
    fields: tuple[Field, ...]


class Grid(NamedTuple):
    """A table's HTML, header pieces and cell pieces by row."""

    html: str
    head: tuple[Piece, ...]
    cells: tuple[tuple[Piece, ...], ...]


class Labels:
    """The labels of one page, none twice.

    Args:
        sheet: the page.
        known: realistic labels to draw from.
        share: of labels that are random words instead.
    """

    def __init__(self, sheet: Sheet, known: Known, share: float = 0.35) -> None:
        self.sheet, self.known, self.share = sheet, tuple(known), share
        self.used: set[str] = set()

    def draw(self, count: int) -> list[Entry]:
        """Entries with unused labels; the realistic ones in their order or shuffled."""
        sheet = self.sheet
        free = [pair for pair in self.known if pair[0].lower() not in self.used]
        pairs = sheet.rng.sample(free, min(len(free), count))
        if sheet.chance(0.5):
            pairs.sort(key=free.index)
        pairs += [("", "")] * (count - len(pairs))
        entries = []
        for label, sort in pairs:
            if not label or sheet.chance(self.share):
                entries.append(Entry(self.open(), *sheet.words.value()))
            else:
                self.used.add(label.lower())
                entries.append(Entry(label, sort, make(sheet, sort)))
        return entries

    def open(self) -> str:
        """An unused label of random words."""
        while True:
            label = self.sheet.words.title(1, 3)
            if len(label) > 4 and label.lower() not in self.used:
                self.used.add(label.lower())
                return label

    def absent(self) -> str:
        """A label that fits the page and is not on it."""
        free = [label for label, _ in self.known if label.lower() not in self.used]
        return self.sheet.one(free) if free else self.open()


def make(sheet: Sheet, sort: str) -> str:
    """A value of a sort, of "number", or one of choices "a|b|c"."""
    if "|" in sort:
        return sheet.one(sort.split("|"))
    return sheet.words.number() if sort == "number" else sheet.words.of(sort)


def purse(sheet: Sheet) -> Callable[[float], str]:
    """How this page prints sums of money: one currency, one way of marking decimals."""
    form = sheet.one(CURRENCIES)
    comma, whole = sheet.chance(0.2), sheet.chance(0.12)

    def money(value: float) -> str:
        text = f"{value:,.0f}" if whole else f"{value:,.2f}"
        return form.format(text.translate(str.maketrans(",.", ".,")) if comma else text)

    return money


def room(sheet: Sheet, share: float = 1.0, spacing: float = 1.6) -> int:
    """How many lines of a list or table fit in a share of the page's height; `spacing` in lines of text."""
    line = sheet.style.size * float(dict(sheet.style.variables)["leading"])
    return max(1, int(sheet.style.height * share / (line * spacing)))


def across(sheet: Sheet, most: int, em: float = 8.0) -> int:
    """How many columns of `em` fit side by side, at most `most`."""
    return max(1, min(most, int(sheet.style.width / (sheet.style.size * em))))


def many(sheet: Sheet, low: int, most: int) -> int:
    """How many there are, from `low` to `most` (at least `low`), more often many than few."""
    return low + round(max(0, most - low) * sheet.rng.random() ** 0.6)


def columns_of(em: float) -> str:
    """CSS of a grid whose columns are at least `em` wide, as many as fit."""
    return f"display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,{em:.1f}em),1fr));"


def prose(sheet: Sheet, low: int = 1, high: int = 3) -> str:
    """Filler text as HTML."""
    return html.escape(sheet.words.paragraph(low, high))


def heading(sheet: Sheet, options: Sequence[str] = (), tag: str = "h1", share: float = 0.4) -> Piece:
    """The page's title, realistic or of random words (`share`), and the question for it."""
    plain = sheet.one(options) if options and not sheet.chance(share) else sheet.words.title(1, 4)
    piece = sheet.text(plain, tag, f'style="text-align:{sheet.one(("left", "left", "left", "center"))}"')
    sheet.ask("title", phrase(sheet.rng, "title"), plain, piece)
    return piece


def button(sheet: Sheet, label: str = "") -> str:
    """A button, filled or outlined."""
    look = sheet.one(
        (
            "background:var(--accent);color:var(--paper)",
            "border:1px solid var(--accent)",
            "border:1px solid var(--line)",
        )
    )
    text = html.escape(label or sheet.one(ACTIONS))
    return f'<span style="{look};border-radius:var(--radius);padding:.35em .9em;display:inline-block;margin:.2em .2em">{text}</span>'


def nav(sheet: Sheet) -> str:
    """A bar with a brand and links."""
    links = [
        sheet.one(LINKS) if sheet.chance(0.7) else sheet.words.title(1, 1)
        for _ in range(across(sheet, 7, 9.0))
    ]
    inner = "".join(f"<span>{html.escape(link)}</span>" for link in dict.fromkeys(links))
    brand = f"<b>{html.escape(sheet.words.company())}</b>"
    look = sheet.one(
        (
            "background:var(--accent);color:var(--paper)",
            "border-bottom:1px solid var(--line)",
            "background:var(--card)",
        )
    )
    return (
        f'<div style="{look};display:flex;gap:1.2em;padding:.5em .8em;align-items:center;white-space:nowrap;overflow:hidden;'
        f'margin-bottom:var(--gap)">{brand}<span style="flex:1"></span>{inner}</div>'
    )


def sidebar(sheet: Sheet) -> str:
    """A column of links."""
    links = [
        sheet.one(LINKS) if sheet.chance(0.6) else sheet.words.title(1, 2) for _ in range(sheet.choose(4, 10))
    ]
    inner = "".join(f'<div style="padding:.3em 0">{html.escape(link)}</div>' for link in dict.fromkeys(links))
    return f'<div class="muted" style="flex:0 0 9em;border-right:1px solid var(--line);padding-right:1em">{inner}</div>'


def footer(sheet: Sheet) -> str:
    """A small line at the end."""
    text = f"© {html.escape(sheet.words.company())} · {html.escape(sheet.words.words(2, 6))}"
    return f'<div class="muted" style="font-size:.8em;padding-top:1em;border-top:1px solid var(--line)">{text}</div>'


def section(sheet: Sheet, tag: str = "h2", low: int = 1, high: int = 4) -> str:
    """A heading over a paragraph, asked for."""
    name, text = sheet.text(sheet.words.title(1, 4), tag), prose(sheet, low, high)
    body = sheet.block(text, "p")
    sheet.ask("section", phrase(sheet.rng, "section", label=name.plain), html.unescape(text), name, body)
    return f"<div>{name}{body}</div>"


def fill(sheet: Sheet) -> str:
    """What stands below a page's matter: sections, lists and small cards in columns, more than fit at times."""
    parts = []
    columns = sheet.choose(1, across(sheet, 3, 17.0))
    for _ in range(sheet.choose(1, max(2, columns * room(sheet) // 6))):
        kind = sheet.rng.random()
        if kind < 0.5:
            parts.append(section(sheet, sheet.one(("h2", "h3"))))
        elif kind < 0.75:
            name = sheet.text(sheet.words.title(1, 3), "h3")
            entries = [
                Entry(sheet.words.title(1, 2), "", make(sheet, sheet.one(PLAIN)))
                for _ in range(sheet.choose(2, 5))
            ]
            unique = list({entry.label.lower(): entry for entry in entries}.values())
            parts.append(f'<div class="card">{name}{key_values(sheet, unique, name).html}</div>')
        else:
            name, words = sheet.text(sheet.words.title(1, 3), "h3"), sheet.words
            points = [words.words(2, 7).capitalize() for _ in range(sheet.choose(2, 5))]
            inner = "".join(f"<li>{point}</li>" for point in points)
            body = sheet.block(inner, "ul", 'style="margin:.3em 0;padding-left:1.2em"')
            sheet.ask(
                "section", phrase(sheet.rng, "section", label=name.plain), "; ".join(points), name, body
            )
            parts.append(f"<div>{name}{body}</div>")
    return f'<div style="display:grid;grid-template-columns:repeat({columns},1fr);gap:0 1.5em;align-items:start">{"".join(parts)}</div>'


def frame(sheet: Sheet, body: str, filler: float = 0.6) -> str:
    """A page around a body: bars, a side bar, a width, sections below (with chance `filler`), a footer."""
    style, main = sheet.style, body
    if sheet.chance(filler):
        main += fill(sheet)
    if sheet.chance(0.4):
        main += footer(sheet)
    if not style.narrow and sheet.chance(0.5):
        width = sheet.choose(34, 70)
        main = f'<div style="max-width:{width}em;margin:0 {sheet.one(("auto", "auto", "0"))}">{main}</div>'
    if not style.narrow and style.width > 40 * style.size and sheet.chance(0.25):
        main = f'<div style="display:flex;gap:1.2em">{sidebar(sheet)}<div style="flex:1;min-width:0">{main}</div></div>'
    return (nav(sheet) if sheet.chance(0.35) else "") + main


def card(sheet: Sheet, inner: str, chance: float = 0.6) -> str:
    """The HTML in a card, or plain."""
    return f'<div class="card">{inner}</div>' if sheet.chance(chance) else f"<div>{inner}</div>"


def draw_layout(sheet: Sheet) -> str:
    """One of LAYOUTS that fits the page's width."""
    return sheet.one([name for name in LAYOUTS if not (sheet.style.narrow and name == "grid")])


def key_values(
    sheet: Sheet,
    entries: Sequence[Entry],
    *context: Piece,
    layout: str = "",
    kind: str = "value",
    ask: bool = True,
) -> Block:
    """Labels with values, asked for.

    Args:
        sheet: the page.
        entries: what to print.
        context: headings that the questions name.
        layout: one of LAYOUTS; "": drawn.
        kind: of the questions; "card" asks in the words of "value".
        ask: whether to ask at all.
    """
    layout = layout or draw_layout(sheet)
    small = layout in ("above", "below", "boxed")
    label_look = sheet.one((
        "", "color:var(--muted)", "font-weight:600", "font-size:.85em;color:var(--muted)", "color:var(--accent)",
        "text-transform:uppercase;font-size:.8em;letter-spacing:.04em",
    ))  # fmt: skip
    value_look = sheet.one(("", "", "font-weight:600", "font-weight:600", "font-size:1.1em"))
    colon = ":" if layout in ("colon", "inline") or (not small and sheet.chance(0.35)) else ""
    fields = []
    for label, sort, value in entries:
        name = sheet.text(label + colon, attributes=f'style="{label_look}"')
        fields.append(Field(name, sheet.text(value, attributes=f'style="{value_look}"'), sort))
    if ask:
        for field in fields:
            inquire(sheet, field, *context, kind=kind)
        if layout in STACKED and len(fields) > 2 and not context:
            _ask_position(sheet, fields)
    return Block(_set(sheet, layout, fields), tuple(fields))


def inquire(sheet: Sheet, field: Field, *context: Piece, kind: str = "value") -> None:
    """Ask for a field as `Sheet.field` does; kind "card" too."""
    if kind != "card":
        sheet.field(field.label, field.value, *context, kind=kind, sort=field.sort)
        return
    name, within = field.label.plain.rstrip(" :"), context[0].plain if context else ""
    pieces = (*context, field.label, field.value)
    sheet.ask(
        kind,
        phrase(sheet.rng, "value", sort=field.sort, label=name, within=within),
        field.value.plain,
        *pieces,
    )
    for text in paraphrases(sheet.rng, name, within):
        sheet.ask("paraphrase", text, field.value.plain, *pieces)


def _set(sheet: Sheet, layout: str, fields: Sequence[Field]) -> str:
    """The HTML of fields in a layout."""
    line = "border-bottom:1px solid var(--line);" if sheet.chance(0.4) else ""
    pad = f"padding:{sheet.one(('.1em', '.2em', '.35em', '.5em'))} 0"
    if layout == "table":
        wide = "width:100%" if sheet.chance(0.5) else ""
        side = ' class="right"' if wide and sheet.chance(0.4) else ""
        return (
            f'<table style="{wide}">'
            + "".join(f"<tr><td>{f.label}</td><td{side}>{f.value}</td></tr>" for f in fields)
            + "</table>"
        )
    if layout == "spread":
        return "".join(
            f'<div class="row" style="{line}{pad}">{f.label}<span class="right">{f.value}</span></div>'
            for f in fields
        )
    if layout == "dotted":
        dots = f'<span style="flex:1;border-bottom:2px {sheet.one(("dotted", "dashed"))} var(--line);margin:0 .4em .3em"></span>'
        return "".join(f'<div style="display:flex;{pad}">{f.label}{dots}{f.value}</div>' for f in fields)
    if layout == "colon":
        return "".join(f'<div style="{line}{pad}">{f.label} {f.value}</div>' for f in fields)
    if layout == "inline":
        mark = sheet.one((" · ", " | ", " &emsp; ", "; "))
        return "<p>" + mark.join(f"{f.label} {f.value}" for f in fields) + "</p>"
    if layout in ("grid", "flush"):
        columns = "auto 1fr auto 1fr" if layout == "grid" else "max-content 1fr"
        side = "right" if sheet.chance(0.4) else "left"
        inner = "".join(f'<div style="text-align:{side}">{f.label}</div><div>{f.value}</div>' for f in fields)
        return f'<div style="display:grid;grid-template-columns:{columns};gap:.4em .9em">{inner}</div>'
    box = (
        "border:1px solid var(--line);border-radius:var(--radius);padding:.3em .6em;"
        if layout == "boxed"
        else ""
    )
    cells = []
    for f in fields:
        top, low = (f.value, f.label) if layout == "below" else (f.label, f.value)
        cells.append(
            f'<div style="min-width:0;overflow-wrap:break-word"><div>{top}</div><div style="{box}">{low}</div></div>'
        )
    columns = columns_of(sheet.rng.choice((9, 12, 16, 30)))
    return f'<div style="{columns}gap:.6em var(--gap)">{"".join(cells)}</div>'


def _ask_position(sheet: Sheet, fields: Sequence[Field]) -> None:
    """Ask what stands below or above one of the stacked fields, or beside it."""
    i = sheet.choose(1, len(fields) - 1)
    first, second = fields[i - 1], fields[i]
    upper, lower = first.label.plain.rstrip(" :"), second.label.plain.rstrip(" :")
    pieces = (first.label, second.label, second.value)
    match sheet.choose(0, 2):
        case 0:
            text = sheet.one(
                ("What stands directly below {}?", "What comes right after {}?", "Which entry is under {}?")
            )
            sheet.ask("position", text.format(upper), f"{lower}: {second.value.plain}", *pieces)
        case 1:
            text = sheet.one(
                ("What stands directly above {}?", "What comes right before {}?", "Which line is over {}?")
            )
            sheet.ask(
                "position",
                text.format(lower),
                f"{upper}: {first.value.plain}",
                second.label,
                first.label,
                first.value,
            )
        case _:
            text = sheet.one(
                ("What is to the right of {}?", "What stands beside {}?", "What is written right of {}?")
            )
            sheet.ask("position", text.format(lower), second.value.plain, second.label, second.value)


def table(
    sheet: Sheet,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *context: Piece,
    key: int = 0,
    right: Sequence[int] = (),
    crossings: int = 12,
) -> Grid:
    """A table with a header row; some crossings of its rows and columns are asked for.

    Args:
        sheet: the page.
        head: names of the columns, none twice.
        rows: cells.
        context: headings that the questions need.
        key: the column that names a row; rows whose name comes twice are not asked for.
        right: columns set at the right.
        crossings: how many cells are asked for at most.
    """

    def align(column: int) -> str:
        return 'style="text-align:right"' if column in right else ""

    top = tuple(sheet.text(name, "th", align(i)) for i, name in enumerate(head))
    cells = tuple(tuple(sheet.text(text, "td", align(i)) for i, text in enumerate(row)) for row in rows)
    names = Counter(row[key].lower() for row in rows)
    places = [
        (r, c)
        for r, row in enumerate(rows)
        for c in range(len(head))
        if c != key and row[c] and names[row[key].lower()] == 1
    ]
    for r, c in sheet.rng.sample(places, min(crossings, len(places))):
        sheet.crossing(cells[r][key], top[c], cells[r][c], *context)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    pad = sheet.one(("", "", "line-height:1.15", "line-height:1.8"))
    if sheet.style.width < len(head) * sheet.style.size * 8:
        pad += ";font-size:.8em;overflow-wrap:break-word"
    return Grid(f'<table style="width:100%;{pad}"><tr>{"".join(top)}</tr>{body}</table>', top, cells)


def compare(
    sheet: Sheet,
    text: str,
    names: Sequence[Piece],
    cells: Sequence[Piece],
    numbers: Sequence[float],
    most: bool,
) -> None:
    """Ask which of up to eight names has the most or the least; not where two tie."""
    best = max(numbers) if most else min(numbers)
    if 2 <= len(names) <= 8 and list(numbers).count(best) == 1:
        sheet.ask("comparison", text, names[list(numbers).index(best)].plain, *names, *cells)


def close(sheet: Sheet, labels: Labels, fields: Sequence[Field] = (), lone: bool = True) -> None:
    """Ask what fits any page: yes-no and presence of fields, lone sorts, what is absent, and what the page is.

    Args:
        sheet: the page.
        labels: its labels; an absent one is asked for.
        fields: all of the page.
        lone: whether `fields` are all values of their sorts on the page, so that "How much is it?" may be asked.
    """
    names = Counter(field.label.plain.lower() for field in fields)
    single = [field for field in fields if names[field.label.plain.lower()] == 1]
    for field in sheet.rng.sample(single, min(2, len(single))):
        name, value = field.label.plain.rstrip(" :"), field.value.plain
        claim = (
            value
            if sheet.chance(0.5) or "|" in field.sort
            else sheet.words.of(field.sort)
            if field.sort != "number"
            else value
        )
        text = sheet.one(
            ("Is the {} {}?", "Is it true that the {} is {}?", "Does it say {1} for {0}?")
        ).format(name, claim)
        sheet.ask("yes-no", text, "yes" if claim == value else "no", field.label, field.value)
    if single:
        field = sheet.rng.choice(single)
        text = sheet.one(
            ("Is there a {}?", "Does the page give a {}?", "Is any {} mentioned?", "Is the {} listed?")
        )
        sheet.ask("presence", text.format(field.label.plain.rstrip(" :")), "yes", field.label, field.value)
    sorts = Counter(field.sort for field in fields)
    for field in fields if lone else ():
        if sorts[field.sort] == 1 and field.sort in LONE:
            sheet.ask("implied", sheet.one(LONE[field.sort]), field.value.plain, field.label, field.value)
    sheet.ask("unanswerable", phrase(sheet.rng, "value", label=labels.absent()), "not on the page")
    sheet.ask("global", phrase(sheet.rng, "global"), "")
