"""Forms: inputs with values, labels left, above or inside the boxes, checkboxes, radio buttons."""

from __future__ import annotations

import html

from arr_coc_lab.world.browser.fields import Field, Labels, close
from arr_coc_lab.world.browser.parts import across, button, frame, heading, prose, room
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

TITLES = (
    "Registration", "Contact details", "Application form", "Patient intake", "Shipping address",
    "Booking request", "Tax return",
    "Job application", "New customer", "Survey", "Insurance claim", "Visitor form", "Membership", "Checkout",
    "Travel request", "Edit contact",
)  # fmt: skip
FIELDS = (
    ("First name", "name"), ("Last name", "name"), ("Full name", "name"), ("E-mail", "email"),
    ("Phone number", "phone"), ("Street", "address"),
    ("City", "place"), ("Postcode", "code"), ("Country", "country"), ("Date of birth", "date"),
    ("Nationality", "country"), ("Occupation", "job"),
    ("Employer", "company"), ("Company", "company"), ("Job title", "job"), ("Tax ID", "code"),
    ("Passport number", "code"), ("Username", "code"),
    ("Emergency contact", "name"), ("Policy number", "code"), ("Arrival date", "date"),
    ("Departure date", "date"), ("Number of guests", "number"),
    ("Preferred time", "time"), ("Gender", "Female|Male|Other"),
    ("Marital status", "Single|Married|Divorced"), ("Language", "English|German|French|Spanish"),
    ("Place of birth", "place"), ("Height", "measure"), ("Weight", "measure"), ("Blood type", "A+|B-|0+|AB+"),
    ("Allergies", "word"), ("Doctor", "name"),
    ("Subject", "word"), ("Department", "word"), ("Budget", "price"), ("Salary", "price"),
    ("Start date", "date"), ("Website", "email"),
    ("Licence plate", "code"), ("Account holder", "name"), ("Reason", "word"), ("Size", "XS|S|M|L|XL"),
    ("Delivery method", "Standard|Express|Pickup"),
)  # fmt: skip
BOXES = (
    "I accept the terms", "Subscribe to the newsletter", "Remember me", "Same as billing address",
    "I am over 18", "Smoker", "Pets allowed",
    "Gift wrapping", "Send a copy", "Urgent", "Vegetarian", "Wheelchair access", "First visit", "Need a visa",
    "Share my data", "Print receipt",
)  # fmt: skip


@page_type("form")
def form(sheet: Sheet) -> str:
    """One to three columns of inputs, perhaps in named groups, then checkboxes and buttons."""
    labels = Labels(sheet, FIELDS)
    title = heading(sheet, TITLES)
    way = sheet.one(("left", "above", "above", "inside", "under", "line"))
    columns = sheet.choose(1, across(sheet, 3, 20.0))
    entries = labels.draw(
        sheet.choose(4, max(5, min(26, int(room(sheet, 1.0, 2.9 if way != "left" else 2.2) * columns))))
    )
    fields, rows = [], []
    for entry in entries:
        field = Field(
            sheet.text(entry.label + (":" if way == "left" and sheet.chance(0.5) else "")),
            sheet.text(entry.value),
            entry.sort,
        )
        sheet.field(field.label, field.value, sort=entry.sort)
        fields.append(field)
        rows.append(_input(sheet, field, way))
    half = len(rows) // 2
    groups = [rows[:half], rows[half:]] if len(rows) > 5 and sheet.chance(0.4) else [rows]
    body = ""
    for group in groups:
        name = (
            f"<h2>{html.escape(sheet.words.title(1, 3))}</h2>" if len(groups) > 1 or sheet.chance(0.2) else ""
        )
        inner = (
            f'<div style="display:grid;grid-template-columns:repeat({columns},1fr);gap:.7em '
            f'1.4em">{"".join(group)}</div>'
        )
        body += f'<div class="card">{name}{inner}</div>' if len(groups) > 1 else name + inner
    ticks = "".join(_tick(sheet, labels) for _ in range(sheet.choose(0, 5)))
    if way in ("left", "above") and columns == 1 and len(fields) > 1:
        i = sheet.choose(1, len(fields) - 1)
        upper, lower = fields[i - 1].label.plain.rstrip(" :"), fields[i]
        text = sheet.one(
            (
                "Which box comes after {}?",
                "What stands directly below {}?",
                "What is the next field after {}?",
            )
        ).format(upper)
        if groups == [rows]:
            sheet.ask(
                "position",
                text,
                f"{lower.label.plain.rstrip(' :')}: {lower.value.plain}",
                fields[i - 1].label,
                lower.label,
                lower.value,
            )
    close(sheet, labels, fields)
    lead = f'<p class="muted">{prose(sheet, 1, 2)}</p>' if sheet.chance(0.4) else ""
    buttons = "".join(button(sheet) for _ in range(sheet.choose(1, 3)))
    return frame(sheet, f'{title}{lead}{body}<div style="margin:var(--gap) 0">{ticks}</div>{buttons}', 0.45)


def _input(sheet: Sheet, field: Field, way: str) -> str:
    """Return a label with its input."""
    star = ' <span class="accent">*</span>' if sheet.chance(0.2) else ""
    look = (
        "border:1px solid var(--line);border-radius:var(--radius);padding:.35em .6em;"
        "min-width:0;overflow-wrap:anywhere;background:var(--paper)"
    )
    arrow = '<span style="float:right">▾</span>' if "|" in field.sort else ""
    if way == "left":
        return (
            '<div style="display:grid;grid-template-columns:38% 1fr;gap:.6em;'
            f'align-items:center"><div>{field.label}{star}</div><div style="{look}">'
            f"{field.value}{arrow}</div></div>"
        )
    if way == "inside":
        return (
            f'<div style="{look}"><div class="muted" style="font-size:.75em">'
            f"{field.label}{star}</div>{field.value}{arrow}</div>"
        )
    if way == "under":
        return (
            f'<div><div style="{look}">{field.value}{arrow}</div><div class="muted" '
            f'style="font-size:.8em">{field.label}{star}</div></div>'
        )
    if way == "line":
        return (
            f'<div style="display:flex;gap:.6em;align-items:end">{field.label}<div '
            'style="flex:1;border-bottom:1px solid var(--ink);padding-left:.4em">'
            f"{field.value}</div></div>"
        )
    return f'<div><div>{field.label}{star}</div><div style="{look}">{field.value}{arrow}</div></div>'


def _tick(sheet: Sheet, labels: Labels) -> str:
    """Return a checkbox with a text, asked for as a switch."""
    free = [text for text in BOXES if text.lower() not in labels.used]
    text = sheet.one(free) if free and sheet.chance(0.65) else labels.open()
    labels.used.add(text.lower())
    on = sheet.chance(0.5)
    box = sheet.block(
        "✓" if on else "&nbsp;",
        "span",
        (
            'style="display:inline-block;width:1.25em;line-height:1.15em;text-align:center;'
            'border:1px solid var(--ink)"'
        ),
    )
    name = sheet.text(text)
    question = sheet.one(
        ('Is "{}" ticked?', 'Is the box "{}" checked?', "Is {} selected?", "{}: ticked or not?")
    ).format(text)
    sheet.ask("switch", question, "yes" if on else "no", box, name)
    return f'<div style="padding:.2em 0">{box} {name}</div>'
