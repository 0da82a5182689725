"""Tickets: boarding passes, trains, events: a few large values in a card, many small ones, a stub, a code."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import code_mark
from arr_coc_lab.world.browser.fields import Field, Labels, close
from arr_coc_lab.world.browser.parts import across, fill, inquire, room
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

KINDS = {
    "Boarding pass": ("From", "To", (
        ("Passenger", "name"), ("Flight", "code"), ("Gate", "code"), ("Seat", "code"),
        ("Boarding time", "time"), ("Departure", "time"), ("Arrival", "time"),
        ("Terminal", "number"), ("Class", "Economy|Business|First|Premium"), ("Date", "date"),
        ("Group", "A|B|C|D|1|2|3"), ("Booking reference", "code"),
        ("Ticket number", "code"), ("Frequent flyer", "code"), ("Sequence", "number"), ("Carrier", "company"),
        ("Baggage", "measure"), ("Gate closes", "time"),
    )),
    "Train ticket": ("Origin", "Destination", (
        ("Traveller", "name"), ("Train", "code"), ("Coach", "number"), ("Seat", "number"),
        ("Platform", "number"), ("Departs", "time"), ("Arrives", "time"),
        ("Valid on", "date"), ("Fare", "price"), ("Class", "1st|2nd|Standard"), ("Order ID", "code"),
        ("Discount card", "None|25|50"), ("Operator", "company"),
        ("Via", "place"), ("Duration", "1 h 20|45 min|2:15 h|3 h 05"), ("Issued", "date"),
        ("Adults", "count"), ("Children", "count"), ("Payment", "Card|Cash"),
    )),
    "Admission": ("Artist", "Venue", (
        ("Doors open", "time"), ("Starts", "time"), ("Date", "date"), ("Row", "code"), ("Seat", "number"),
        ("Section", "code"), ("Entrance", "North|South|A|B"),
        ("Price", "price"), ("Order", "code"), ("Ticket holder", "name"), ("City", "place"),
        ("Address", "address"), ("Promoter", "company"), ("Hotline", "phone"),
        ("Category", "A|B|VIP|Standing"), ("Ends", "time"), ("Fee", "price"), ("Age limit", "12|16|18|None"),
        ("Level", "Floor|Balcony|Stalls"),
    )),
}  # fmt: skip


@page_type("ticket", held_out=True)
def ticket(sheet: Sheet) -> str:
    """Return a card with two large names, a grid of fields, and a stub or a code at its end or side."""
    kind = sheet.one(tuple(KINDS))
    start, goal, realistic = KINDS[kind]
    labels, words = Labels(sheet, realistic, 0.3), sheet.words
    title = sheet.text(kind if sheet.chance(0.7) else words.title(1, 3), "h1", 'style="margin:0"')
    sheet.ask("title", sheet.phrase("title"), title.plain, title)
    ends = [(start, words.city() if kind != "Admission" else words.name()), (goal, words.city())]
    big = [
        Field(
            sheet.text(name, attributes='class="muted"'),
            sheet.text(value, "div", 'style="font-size:1.6em;font-weight:600"'),
            "",
        )
        for name, value in ends
    ]
    implied = (
        ("Who is performing?", "Where does it take place?")
        if kind == "Admission"
        else ("Where does the trip begin?", "Where does the trip go?")
    )
    for field, text in zip(big, implied, strict=True):
        inquire(sheet, field)
        sheet.ask("implied", text, field.value.plain, field.label, field.value)
    arrow = sheet.one(("→", "✈", "–", "»", "")) if kind != "Admission" else ""
    head = (
        '<div class="row" style="align-items:center;margin:.6em 0"><div>'
        f"{big[0].label}{big[0].value}</div><b>{arrow}</b><div>"
        f"{big[1].label}{big[1].value}</div></div>"
    )
    columns = sheet.choose(2, max(2, across(sheet, 5, 9.0)))
    entries = labels.draw(max(3, min(14, columns * sheet.choose(1, max(1, room(sheet, 0.5, 3.5))))))
    under, looks = sheet.chance(0.2), sheet.one(("font-weight:600", "font-size:1.25em;font-weight:600", ""))
    fields, cells = [], []
    for label, sort, value in entries:
        field = Field(
            sheet.text(label, "div", 'class="muted" style="font-size:.8em"'),
            sheet.text(value, "div", f'style="{looks}"'),
            sort,
        )
        inquire(sheet, field)
        fields.append(field)
        pair = (field.value, field.label) if under else (field.label, field.value)
        cells.append(f'<div style="min-width:0;overflow-wrap:break-word">{"".join(pair)}</div>')
    grid = (
        f'<div style="display:grid;grid-template-columns:repeat({columns},1fr);gap:.7em">'
        f"{''.join(cells)}</div>"
    )
    close(sheet, labels, [*(field._replace(sort="place") for field in big), *fields])
    code, beside = code_mark(sheet), not sheet.style.narrow and sheet.chance(0.5)
    band = sheet.one(
        (
            "background:var(--accent);color:var(--paper);padding:.4em .8em",
            "border-bottom:2px dashed var(--line)",
            "",
        )
    )
    main = f'<div style="{band}">{title}</div>{head}{grid}'
    dash = (
        "border-left:2px dashed var(--line);padding-left:1em"
        if beside
        else "border-top:2px dashed var(--line);padding-top:1em;margin-top:1em"
    )
    inner = f'{main}<div style="{dash}">{code}</div>'
    if beside:
        inner = (
            f'<div style="display:flex;gap:1em"><div style="flex:1">{main}</div><div style="'
            f'{dash}">{code}</div></div>'
        )
    width = "" if sheet.style.narrow else f"max-width:{sheet.choose(36, 70)}em;"
    wrapped = (
        f'<div class="card" style="{width}margin-left:{sheet.one(("auto", "0"))};'
        f'margin-right:auto;border:1px solid var(--line)">{inner}</div>'
    )
    return wrapped + (fill(sheet) if sheet.chance(0.6) else "")
