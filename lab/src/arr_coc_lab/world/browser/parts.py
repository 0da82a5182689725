"""Parts that page types share: tables, bars, cards, filler, the frame around a page; and those of `fields`.

grid = table(sheet, ("Item", "Price"), rows)      grid.html, grid.head, grid.cells
frame(sheet, body)                                bars around it, filler below
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from arr_coc_lab.world.browser.fields import (
    Block,
    Entry,
    Field,
    Labels,
    Look,
    close,
    columns_of,
    draw_look,
    inquire,
    key_values,
    make,
)
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.vocabulary import CURRENCIES

__all__ = [
    "Block", "Entry", "Field", "Grid", "Labels", "Look", "across", "button", "card", "close", "columns_of",
    "compare", "draw_look", "fill", "footer", "frame",
    "heading", "inquire", "key_values", "make", "many", "nav", "prose", "purse", "room", "section", "sidebar",
    "table",
]  # fmt: skip

LINKS = (
    "Home", "Products", "Pricing", "About", "Contact", "Help", "Blog", "Account", "Sign in", "Log out",
    "Cart", "Search", "Support",
    "Docs", "Reports", "Team", "Settings", "Inbox", "Calendar", "Files", "News", "Careers", "Overview",
    "Billing", "Activity", "Projects",
)  # fmt: skip
ACTIONS = (
    "Save", "Cancel", "Continue", "Pay now", "Download PDF", "Print", "Edit", "Share", "Learn more", "Back",
    "Submit", "Add to cart",
    "Contact us", "Get started", "Export", "View details", "Apply", "Reset",
)  # fmt: skip
PLAIN = ("word", "code", "number", "measure")
"""Sorts that filler uses, without those of LONE."""


class Grid(NamedTuple):
    """A table's HTML, header pieces and cell pieces by row."""

    html: str
    head: tuple[Piece, ...]
    cells: tuple[tuple[Piece, ...], ...]


def purse(sheet: Sheet) -> Callable[[float], str]:
    """Return the page's way to print sums of money: one currency, one way of marking decimals."""
    form = sheet.one(CURRENCIES)
    comma, whole = sheet.chance(0.2), sheet.chance(0.12)

    def money(value: float) -> str:
        text = f"{value:,.0f}" if whole else f"{value:,.2f}"
        return form.format(text.translate(str.maketrans(",.", ".,")) if comma else text)

    return money


def room(sheet: Sheet, share: float = 1.0, spacing: float = 1.6) -> int:
    """Return how many lines of a list or table fit in a share of the page's height; `spacing` in lines of
    text.
    """
    line = sheet.style.size * float(dict(sheet.style.variables)["leading"])
    return max(1, int(sheet.style.height * share / (line * spacing)))


def across(sheet: Sheet, most: int, em: float = 8.0) -> int:
    """Return how many columns of `em` fit side by side, at most `most`."""
    return max(1, min(most, int(sheet.style.width / (sheet.style.size * em))))


def many(sheet: Sheet, low: int, most: int) -> int:
    """Return a random number from `low` to `most` (at least `low`), more often high than low."""
    return low + round(max(0, most - low) * sheet.rng.random() ** 0.45)


def prose(sheet: Sheet, low: int = 1, high: int = 3) -> str:
    """Filler text as HTML."""
    return html.escape(sheet.words.paragraph(low, high))


def heading(sheet: Sheet, options: Sequence[str] = (), tag: str = "h1", share: float = 0.4) -> Piece:
    """Return the page's title, realistic or of random words (`share`), and the question for it."""
    plain = sheet.one(options) if options and not sheet.chance(share) else sheet.words.title(1, 4)
    piece = sheet.text(plain, tag, f'style="text-align:{sheet.one(("left", "left", "left", "center"))}"')
    sheet.ask("title", sheet.phrase("title"), plain, piece)
    return piece


def button(sheet: Sheet, label: str = "") -> str:
    """Return a button, filled or outlined."""
    look = sheet.one(
        (
            "background:var(--accent);color:var(--paper)",
            "border:1px solid var(--accent)",
            "border:1px solid var(--line)",
        )
    )
    text = html.escape(label or sheet.one(ACTIONS))
    return (
        f'<span style="{look};border-radius:var(--radius);padding:.35em .9em;'
        f'display:inline-block;margin:.2em .2em">{text}</span>'
    )


def nav(sheet: Sheet) -> str:
    """Return a bar with a brand and links."""
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
        f'<div style="{look};display:flex;gap:1.2em;padding:.5em .8em;align-items:center;'
        "white-space:nowrap;overflow:hidden;"
        f'margin-bottom:var(--gap)">{brand}<span style="flex:1"></span>{inner}</div>'
    )


def sidebar(sheet: Sheet) -> str:
    """Return a column of links."""
    links = [
        sheet.one(LINKS) if sheet.chance(0.6) else sheet.words.title(1, 2) for _ in range(sheet.choose(4, 10))
    ]
    inner = "".join(f'<div style="padding:.3em 0">{html.escape(link)}</div>' for link in dict.fromkeys(links))
    return (
        '<div class="muted" style="flex:0 0 9em;border-right:1px solid var(--line);'
        f'padding-right:1em">{inner}</div>'
    )


def footer(sheet: Sheet) -> str:
    """Return a small line at the end."""
    text = f"© {html.escape(sheet.words.company())} · {html.escape(sheet.words.words(2, 6))}"
    return (
        '<div class="muted" style="font-size:.8em;padding-top:1em;border-top:1px solid '
        f'var(--line)">{text}</div>'
    )


def section(sheet: Sheet, tag: str = "h2", low: int = 1, high: int = 4) -> str:
    """Return a heading over a paragraph, asked for."""
    name, text = sheet.text(sheet.words.title(1, 4), tag), prose(sheet, low, high)
    body = sheet.block(text, "p")
    sheet.ask("section", sheet.phrase("section", label=name.plain), html.unescape(text), name, body)
    return f"<div>{name}{body}</div>"


def fill(sheet: Sheet) -> str:
    """Content below the main part: sections, lists and cards in columns, sometimes more than fit."""
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
            sheet.ask("section", sheet.phrase("section", label=name.plain), "; ".join(points), name, body)
            parts.append(f"<div>{name}{body}</div>")
    return (
        f'<div style="display:grid;grid-template-columns:repeat({columns},1fr);gap:0 '
        f'1.5em;align-items:start">{"".join(parts)}</div>'
    )


def frame(sheet: Sheet, body: str, filler: float = 0.6) -> str:
    """Return a page around a body: bars, a side bar, a width, sections below (with chance `filler`), a
    footer.
    """
    style, main = sheet.style, body
    if sheet.chance(filler):
        main += fill(sheet)
    if sheet.chance(0.4):
        main += footer(sheet)
    if not style.narrow and sheet.chance(0.5):
        width = sheet.choose(42, 80)
        main = f'<div style="max-width:{width}em;margin:0 {sheet.one(("auto", "auto", "0"))}">{main}</div>'
    if not style.narrow and style.width > 40 * style.size and sheet.chance(0.25):
        main = (
            f'<div style="display:flex;gap:1.2em">{sidebar(sheet)}<div style="flex:1;'
            f'min-width:0">{main}</div></div>'
        )
    return (nav(sheet) if sheet.chance(0.35) else "") + main


def card(sheet: Sheet, inner: str, chance: float = 0.6) -> str:
    """Return the HTML in a card, or plain."""
    return (
        f'<div class="card">{inner}</div>'
        if sheet.chance(chance)
        else f'<div style="margin:var(--gap) 0">{inner}</div>'
    )


def table(
    sheet: Sheet,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *context: Piece,
    key: int = 0,
    right: Sequence[int] = (),
    crossings: int = 12,
) -> Grid:
    """Return a table with a header row; some crossings of its rows and columns are asked for.

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
