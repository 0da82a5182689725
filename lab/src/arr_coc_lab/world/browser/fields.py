"""Labels with values on pages: how they are drawn, set and asked for.

labels = Labels(sheet, (("Invoice number", "code"), ("Due date", "date")))
block = key_values(sheet, labels.draw(6))         block.html, block.fields
close(sheet, labels, block.fields)                yes-no, presence, implied, unanswerable, global
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from arr_coc_lab.world.browser.sheet import Piece, Sheet

Known = Sequence[tuple[str, str]]
"""Labels with the sorts of their values: a sort of `Vocabulary.of`, "number", or choices as "Paid|Open"."""

LAYOUTS = ("table", "spread", "dotted", "colon", "grid", "flush", "above", "below", "boxed", "inline")
"""How `key_values` sets labels and values."""
STACKED = frozenset({"table", "spread", "dotted", "colon"})
"""Layouts with one field a line, label left."""
LONE = ("email", "phone", "price", "date", "time", "name", "place", "percent")
"""Sorts of values asked for without a label where only one field has them: "How much is it?"."""


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

    `share` is that of random words instead of `realistic` labels, `sorts` those of their values (none: any).
    """

    def __init__(
        self, sheet: Sheet, realistic: Known, share: float = 0.35, sorts: Sequence[str] = ()
    ) -> None:
        self.sorts = sorts
        self.sheet, self.realistic, self.share = sheet, tuple(realistic), share
        self.used: set[str] = set()

    def draw(self, count: int) -> list[Entry]:
        """Entries with unused labels; the realistic ones in their order or shuffled."""
        sheet = self.sheet
        free = [pair for pair in self.realistic if pair[0].lower() not in self.used]
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
        """Return an unused label of random words."""
        while True:
            label = self.sheet.words.title(1, 3)
            if len(label) > 4 and label.lower() not in self.used:
                self.used.add(label.lower())
                return label

    def absent(self) -> str:
        """Return a label that fits the page and is not on it."""
        free = [label for label, _ in self.realistic if label.lower() not in self.used]
        return self.sheet.one(free) if free else self.open()


def make(sheet: Sheet, sort: str) -> str:
    """Return a value of a sort, of "number", or one of choices "a|b|c"."""
    if "|" in sort:
        return sheet.one(sort.split("|"))
    return sheet.words.number() if sort == "number" else sheet.words.of(sort)


def columns_of(em: float) -> str:
    """CSS of a grid whose columns are at least `em` wide, as many as fit."""
    return f"display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,{em:.1f}em),1fr));"


class Look(NamedTuple):
    """How labels and values of one block are drawn."""

    layout: str  # one of LAYOUTS
    label: str  # CSS of a label
    value: str  # CSS of a value
    colon: str  # behind each label
    line: str  # CSS of a line between rows, or ""
    pad: float  # rows' padding in em
    right: bool  # values at the right, in layouts that have both sides
    mark: str  # between the fields of an "inline" block
    em: int  # least width of the columns of boxes


def draw_look(sheet: Sheet, *layouts: str) -> Look:
    """Draw a look, of one of some layouts or of any that fits the page's width."""
    layout = sheet.one(layouts or [name for name in LAYOUTS if not (sheet.style.narrow and name == "grid")])
    label = sheet.one((
        "", "color:var(--muted)", "font-weight:600", "font-size:.85em;color:var(--muted)",
        "color:var(--accent)",
        "text-transform:uppercase;font-size:.8em;letter-spacing:.04em",
    ))  # fmt: skip
    value = sheet.one(("", "", "font-weight:600", "font-weight:600", "font-size:1.1em"))
    small = layout in ("above", "below", "boxed")
    colon = ":" if layout in ("colon", "inline") or (not small and sheet.chance(0.35)) else ""
    line = "border-bottom:1px solid var(--line);" if sheet.chance(0.4) else ""
    pad, mark = sheet.rng.choice((0.1, 0.2, 0.35, 0.5)), sheet.one((" · ", " | ", " &emsp; ", "; "))
    return Look(
        layout, label, value, colon, line, pad, sheet.chance(0.4), mark, sheet.rng.choice((9, 12, 16, 30))
    )


def key_values(
    sheet: Sheet,
    entries: Sequence[Entry],
    *context: Piece,
    look: Look | None = None,
    kind: str = "value",
    ask: bool = True,
) -> Block:
    """Draw labels with values, and ask for them (unless `ask` is false).

    `context` are headings that the questions name, `look` how fields are drawn (None: at random), `kind` that
    of the questions; "card" asks in the words of "value".
    """
    look = look or draw_look(sheet)
    fields = []
    for label, sort, value in entries:
        name = sheet.text(label + look.colon, attributes=f'style="{look.label}"')
        fields.append(Field(name, sheet.text(value, attributes=f'style="{look.value}"'), sort))
    if ask:
        for field in fields:
            inquire(sheet, field, *context, kind=kind)
        if look.layout in STACKED and len(fields) > 2 and not context:
            _ask_position(sheet, fields)
    return Block(_set(look, fields), tuple(fields))


def inquire(sheet: Sheet, field: Field, *context: Piece, kind: str = "value") -> None:
    """Ask for a field as `Sheet.field` does; kind "card" asks in the words of "value"."""
    if kind != "card":
        sheet.field(field.label, field.value, *context, kind=kind, sort=field.sort)
        return
    name, within = field.label.plain.rstrip(" :"), context[0].plain if context else ""
    text = sheet.phrase("value", sort=field.sort, label=name, within=within)
    sheet.ask(kind, text, field.value.plain, *context, field.label, field.value)
    sheet.paraphrase(field.label, field.value, *context, sort=field.sort)


def _set(look: Look, fields: Sequence[Field]) -> str:
    """Return the HTML of fields in a look."""
    row = f"{look.line}padding:{look.pad}em 0"
    side = "right" if look.right else "left"
    if look.layout == "table":
        rows = (f'<tr><td>{f.label}</td><td style="text-align:{side}">{f.value}</td></tr>' for f in fields)
        return f'<table style="{"width:100%" if look.right or look.line else ""}">{"".join(rows)}</table>'
    if look.layout == "spread":
        return "".join(
            f'<div class="row" style="{row}">{f.label}<span class="right">{f.value}</span></div>'
            for f in fields
        )
    if look.layout == "dotted":
        dots = '<span style="flex:1;border-bottom:2px dotted var(--line);margin:0 .4em .3em"></span>'
        return "".join(
            f'<div style="display:flex;padding:{look.pad}em 0">{f.label}{dots}{f.value}</div>' for f in fields
        )
    if look.layout == "colon":
        return "".join(f'<div style="{row}">{f.label} {f.value}</div>' for f in fields)
    if look.layout == "inline":
        return f"<p>{look.mark.join(f'{f.label} {f.value}' for f in fields)}</p>"
    if look.layout in ("grid", "flush"):
        columns = " auto minmax(0,1fr)" * (2 if look.layout == "grid" else 1)
        cells = (
            (
                f'<div style="text-align:{side}">{f.label}</div><div '
                f'style="overflow-wrap:break-word">{f.value}</div>'
            )
            for f in fields
        )
        return (
            f'<div style="display:grid;grid-template-columns:{columns};gap:.4em .9em">{"".join(cells)}</div>'
        )
    box = (
        "border:1px solid var(--line);border-radius:var(--radius);padding:.3em .6em;"
        if look.layout == "boxed"
        else ""
    )
    cells = []
    for f in fields:
        top, low = (f.value, f.label) if look.layout == "below" else (f.label, f.value)
        cells.append(
            f'<div style="min-width:0;overflow-wrap:break-word"><div>{top}</div><div style="'
            f'{box}">{low}</div></div>'
        )
    return f'<div style="{columns_of(look.em)}gap:.6em var(--gap)">{"".join(cells)}</div>'


def _ask_position(sheet: Sheet, fields: Sequence[Field]) -> None:
    """Ask for the neighbour below, above or beside one of the stacked fields."""
    i = sheet.choose(1, len(fields) - 1)
    first, second = fields[i - 1], fields[i]
    upper, lower = first.label.plain.rstrip(" :"), second.label.plain.rstrip(" :")
    match sheet.one(("below", "above", "right")):
        case "below":
            answer = f"{lower}: {second.value.plain}"
            sheet.ask("position", sheet.phrase("below", label=upper), answer, first.label, *second[:2])
        case "above":
            answer = f"{upper}: {first.value.plain}"
            sheet.ask("position", sheet.phrase("above", label=lower), answer, second.label, *first[:2])
        case _:
            sheet.ask("position", sheet.phrase("right", label=lower), second.value.plain, *second[:2])


def close(sheet: Sheet, labels: Labels, fields: Sequence[Field] = (), lone: bool = True) -> None:
    """Ask questions that fit any page: yes-no and presence of fields, lone sorts, an absent label, the entire
    page.

    `lone` tells that `fields` are all of their sorts on the page, so that "How much is it?" may be asked.
    """
    names = Counter(field.label.plain.lower() for field in fields)
    single = [field for field in fields if names[field.label.plain.lower()] == 1]
    for field in sheet.rng.sample(single, min(2, len(single))):
        name, value = field.label.plain.rstrip(" :"), field.value.plain
        claim = value if sheet.chance(0.5) or not field.sort else make(sheet, field.sort)
        text = sheet.phrase("yes-no", label=name, value=claim)
        sheet.ask("yes-no", text, "yes" if claim == value else "no", *field[:2])
    for field in sheet.rng.sample(single, min(1, len(single))):
        name = field.label.plain.rstrip(" :")
        sheet.ask("presence", sheet.phrase("presence", label=name), "yes", *field[:2])
    sorts = Counter(field.sort for field in fields)
    for field in fields if lone else ():
        if sorts[field.sort] == 1 and field.sort in LONE:
            sheet.ask("implied", sheet.phrase(f"implied-{field.sort}"), field.value.plain, *field[:2])
    sheet.ask("unanswerable", sheet.phrase("value", label=labels.absent()), "not on the page")
    sheet.ask("global", sheet.phrase("global"), "")
