"""Labels with values on pages: how they are drawn, set and asked for.

labels = Labels(sheet, (("Invoice number", "code"), ("Due date", "date")))
block = key_values(sheet, labels.draw(6))         block.html, block.fields
close(sheet, labels, block.fields)                yes-no, presence, implied, unanswerable, global
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from arr_coc.world.browser.phrases import paraphrases, phrase
from arr_coc.world.browser.sheet import Piece, Sheet

Known = Sequence[tuple[str, str]]
"""Labels with the sorts of their values: a sort of `Vocabulary.of`, "number", or choices as "Paid|Open"."""

LAYOUTS = ("table", "spread", "dotted", "colon", "grid", "flush", "above", "below", "boxed", "inline")
"""How `key_values` sets labels and values."""
STACKED = frozenset({"table", "spread", "dotted", "colon"})
"""Layouts with one field a line, label left."""
LONE = {
    "email": ("Which e-mail address is on the page?", "Where can I write to?"),
    "phone": ("Which number can I call?", "What number should I ring?"),
    "price": ("How much is it?", "How much money is it about?", "What amount is shown?"),
    "date": ("Which date is on the page?", "Which day is it about?"),
    "time": ("At what time?", "What time is shown?"),
    "name": ("Who is it?", "Which person is named?"),
    "place": ("Which city is named?", "Which town is it about?"),
    "percent": ("What percentage is shown?", "How many percent?"),
    "country": ("Which country is it?", "What country is named?"),
    "address": ("What is the address?", "Which street is it?"),
}
"""Questions that imply the label, by the sort of the value: they fit where one field alone has that sort."""


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


class Labels:
    """The labels of one page, none twice.

    Args:
        sheet: the page.
        known: realistic labels to draw from.
        share: of labels that are random words instead.
        sorts: of the values of random labels; none: any.
    """

    def __init__(self, sheet: Sheet, known: Known, share: float = 0.35, sorts: Sequence[str] = ()) -> None:
        self.sorts = sorts
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
                label = self.open()
                sort = sheet.one(self.sorts) if self.sorts else ""
                entries.append(
                    Entry(label, sort, make(sheet, sort)) if sort else Entry(label, *sheet.words.value())
                )
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


def columns_of(em: float) -> str:
    """CSS of a grid whose columns are at least `em` wide, as many as fit."""
    return f"display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,{em:.1f}em),1fr));"


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
        columns = "auto minmax(0,1fr) auto minmax(0,1fr)" if layout == "grid" else "auto minmax(0,1fr)"
        side = "right" if sheet.chance(0.4) else "left"
        inner = "".join(
            f'<div style="text-align:{side}">{f.label}</div><div style="overflow-wrap:break-word">{f.value}</div>'
            for f in fields
        )
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
        claim = value if sheet.chance(0.5) or not field.sort else make(sheet, field.sort)
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
