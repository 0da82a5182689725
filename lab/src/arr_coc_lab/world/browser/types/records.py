"""Cards of one kind side by side: contacts, rooms, jobs, courses; every card has the same labels."""

from __future__ import annotations

import html

from arr_coc_lab.world.browser.fields import Field, Labels, close, columns_of, key_values, make
from arr_coc_lab.world.browser.parts import across, button, draw_look, frame, heading, inquire, many, room
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

KINDS = {
    "Contacts": ("name", (("Phone", "phone"), ("E-mail", "email"), ("Role", "job"), ("Office", "code"),
    ("City", "place"), ("Company", "company"), ("Extension", "number"), ("Birthday", "date"))),
    "Rooms": ("word", (("Price", "price"), ("Guests", "1|2|3|4|6"), ("Size", "measure"),
    ("Bed", "Single|Double|Twin|King"), ("Floor", "1|2|3|4|5"), ("View", "Sea|Garden|City|None"),
    ("Breakfast", "Yes|No"))),
    "Jobs": ("job", (("Employer", "company"), ("Location", "place"), ("Salary", "price"), ("Posted", "date"),
    ("Contract", "Permanent|Temporary|Freelance"), ("Reference", "code"), ("Contact", "name"))),
    "Courses": ("word", (("Teacher", "name"), ("Starts", "date"), ("Time", "time"), ("Room", "code"),
    ("Fee", "price"), ("Level", "A1|A2|B1|Beginner|Advanced"), ("Places left", "number"),
    ("Credits", "3|4|5|6"))),
    "Devices": ("code", (("Status", "Online|Offline|Warning"), ("Battery", "percent"), ("Firmware", "code"),
    ("Last seen", "time"), ("Location", "place"), ("Temperature", "measure"), ("Owner", "name"))),
    "Homes": ("address", (("Rent", "price"), ("Rooms", "1|2|3|4|5"), ("Area", "measure"),
    ("Available", "date"), ("Agent", "name"), ("Built", "1932|1968|1999|2015"), ("Deposit", "price"),
    ("Floor", "0|1|2|3"))),
    "Projects": ("word", (("Lead", "name"), ("Due", "date"), ("Budget", "price"),
    ("Status", "Active|Done|Paused|Late"), ("Progress", "percent"), ("Tasks", "number"),
    ("Client", "company"), ("Code", "code"))),
    "Flights": ("code", (("From", "place"), ("To", "place"), ("Departs", "time"), ("Arrives", "time"),
    ("Gate", "code"), ("Fare", "price"), ("Stops", "0|1|2"), ("Airline", "company"))),
    "Pets": ("word", (("Breed", "word"), ("Age", "1 year|3 years|7 months|5 years"), ("Owner", "name"),
    ("Weight", "measure"), ("Chip", "code"), ("Vet", "name"), ("Next visit", "date"))),
}  # fmt: skip


@page_type("records", weight=1.5)
def records(sheet: Sheet) -> str:
    """Return a grid or a column of cards; a question names the card and the label."""
    kind = sheet.one(tuple(KINDS))
    sort, realistic = KINDS[kind]
    labels, title = (
        Labels(sheet, realistic, 0.3),
        heading(sheet, (kind, f"Our {kind.lower()}", f"All {kind.lower()}", f"{kind} nearby")),
    )
    entries, em = labels.draw(sheet.choose(1, 5)), sheet.rng.choice((11, 14, 18, 26))
    look, tag = draw_look(sheet), sheet.one(("h2", "h3", "b"))
    fits = across(sheet, 5, em + 1.5) * room(sheet, 0.9, 4 + 1.6 * len(entries))
    names = list(
        dict.fromkeys(
            labels.open() if sort == "word" else make(sheet, sort)
            for _ in range(many(sheet, 2, min(20, fits)))
        )
    )
    cards, tops, every = [], [], []
    for name in names:
        top = sheet.text(name, tag)
        block = key_values(
            sheet,
            [entry._replace(value=make(sheet, entry.sort)) for entry in entries],
            look=look,
            ask=False,
        )
        every += [(top, field) for field in block.fields]
        tops.append(top)
        answer = "; ".join(f"{field.label.plain.rstrip(' :')}: {field.value.plain}" for field in block.fields)
        if sheet.chance(0.3):
            pieces = [piece for field in block.fields for piece in field[:2]]
            sheet.ask("section", sheet.phrase("section", label=name), answer, top, *pieces)
        note = (
            f'<div class="muted" style="font-size:.85em">{html.escape(sheet.words.sentence(3, 9))}</div>'
            if sheet.chance(0.25)
            else ""
        )
        end = button(sheet) if sheet.chance(0.2) else ""
        cards.append(
            '<div class="card" style="margin:0;min-width:0;overflow-wrap:break-word">'
            f"{top}{note}{block.html}{end}</div>"
        )
    for top, field in sheet.rng.sample(every, min(20, len(every))):
        inquire(sheet, field, top, kind="card")
    _reverse(sheet, every)
    text = sheet.one(("How many {} are there?", "How many {} does the page list?")).format(kind.lower())
    sheet.ask("count", text, str(len(tops)), *tops)
    close(sheet, labels)
    return frame(
        sheet,
        (
            f'{title}<div style="{columns_of(em)}gap:var(--gap);align-items:'
            f'{sheet.one(("start", "stretch"))}">{"".join(cards)}</div>'
        ),
        0.25,
    )


def _reverse(sheet: Sheet, every: list[tuple[Piece, Field]]) -> None:
    """Ask which card has a value that no other has."""
    values = [field.value.plain for _, field in every]
    single = [(top, field) for top, field in every if values.count(field.value.plain) == 1]
    for top, field in sheet.rng.sample(single, min(3, len(single))):
        text = sheet.one(("Which one has {1} as {0}?", "Whose {0} is {1}?", "Where is the {0} {1}?"))
        sheet.ask(
            "implied",
            text.format(field.label.plain.rstrip(" :").lower(), field.value.plain),
            top.plain,
            top,
            field.label,
            field.value,
        )
