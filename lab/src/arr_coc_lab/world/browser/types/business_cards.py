"""Business cards and lists of contacts: several people with their data."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import code_mark, finish, present, put, room
from arr_coc_lab.world.browser.drawing import VIVID, figure, icon, ink_on, shade
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

QUESTIONS = {
    "job": ("What is the job of {name}?", "What does {name} do?", "What is {name}'s position?"),
    "phone": (
        "What is the phone number of {name}?",
        "How can I call {name}?",
        "{name}'s number?",
        "Which telephone number does {name} have?",
    ),
    "email": ("What is the e-mail of {name}?", "How do I write to {name}?", "{name}'s email address?"),
    "address": ("Where does {name} work?", "What is the address of {name}?", "In which street is {name}?"),
    "company": (
        "Which company does {name} work for?",
        "For whom does {name} work?",
        "What is {name}'s firm?",
    ),
}
WHOSE = {
    "job": ("Who is {value}?", "Who works as {value}?"),
    "phone": ("Whose number is {value}?", "Who has the phone number {value}?"),
    "email": ("Whose e-mail is {value}?", "Who can be reached at {value}?"),
    "address": ("Who works at {value}?", "Whose address is {value}?"),
    "company": ("Who works for {value}?", "Whose company is {value}?"),
}
ICON = {"phone": "phone", "email": "mail", "address": "pin", "job": "user", "company": "home"}


@page_type("business_cards")
def business_cards(sheet: Sheet) -> str:
    """Two to a dozen cards of one design, in a grid."""
    height = room(sheet)[1]
    size = sheet.style.size
    columns = (
        1
        if sheet.style.width < 520
        else sheet.choose(1, 2)
        if sheet.style.width < 1000
        else sheet.choose(2, 3)
    )
    rows = max(1, min(7, int((height - 3 * size) / (size * 9))))
    heading = (
        sheet.text(sheet.one(("Contacts", "Our team", "Staff", sheet.words.title(1, 3))), "h1")
        if sheet.chance(0.5)
        else None
    )
    sorts = [sort for sort in QUESTIONS if sort == "phone" or sheet.chance(0.75)]
    people: list[str] = []
    while len(people) < columns * rows + 1:
        name = sheet.words.name()
        if not any(name in other or other in name for other in people):
            people.append(name)
    missing = people.pop()
    look, colour = sheet.one(("plain", "band", "logo", "initials")), sheet.one(VIVID)
    taken: list[str] = []
    coded = sheet.chance(0.3)
    cards = "".join(_card(sheet, name, sorts, look, colour, taken, coded) for name in people)
    finish(sheet, heading, put(sheet, QUESTIONS[sheet.one(sorts)], name=missing))
    return (
        f'{heading or ""}<div class="grid" style="grid-template-columns:repeat({columns},1fr)">{cards}</div>'
    )


def _card(
    sheet: Sheet, plain: str, sorts: list[str], look: str, colour: str, taken: list[str], coded: bool
) -> str:
    """One card; asks for its data by the name and for the name by its data."""
    size = sheet.style.size
    name = sheet.text(plain, "b", f'style="font-size:{sheet.rng.choice((1.1, 1.25))}em"')
    if sheet.chance(0.25):
        present(sheet, name)
    icons, lines = sheet.chance(0.5), []
    for sort in sorts:
        if sort not in ("phone", "job") and sheet.chance(0.12):
            continue
        value = sheet.text(sheet.words.of(sort), "span", 'style="overflow-wrap:anywhere"')
        if value.plain in taken:
            continue
        sheet.ask("card", put(sheet, QUESTIONS[sort], name=plain), value.plain, name, value)
        if not any(
            value.plain.lower() in other.lower() or other.lower() in value.plain.lower()
            for other in (*taken, plain)
        ):
            sheet.ask("card", put(sheet, WHOSE[sort], value=value.plain), plain, value, name)
        taken.append(value.plain)
        mark = icon(ICON[sort], size, "var(--accent)") + " " if icons and sort != "job" else ""
        lines.append(f'<div class="{"muted" if sort == "job" else ""}">{mark}{value}</div>')
    if coded:
        lines.append(f'<div style="margin-top:.4em">{code_mark(sheet, name, size * 4)}</div>')
    fill = shade(sheet.rng, colour)
    text = f'<div style="min-width:0">{name}{"".join(lines)}</div>'
    if look == "band":
        return f'<div class="card" style="margin:0;border-top:.5em solid {fill}">{text}</div>'
    if look == "logo":
        logo = (
            f'<svg width="{size * 3:.0f}" height="{size * 3:.0f}" viewBox="-1.1 -1.1 2.2 2.2" '
            f'style="flex:none">'
            f"{figure(sheet.one(('circle', 'hexagon', 'diamond', 'star', 'ring')), 0, 0, 1, fill)}</svg>"
        )
        return (
            f'<div class="card" style="margin:0;display:flex;gap:1em;justify-content:space-between">'
            f"{text}{logo}</div>"
        )
    if look == "initials":
        letters = "".join(part[0] for part in plain.split()[:2])
        disc = (
            f'<span style="flex:none;width:3em;height:3em;border-radius:50%;background:{fill};'
            f'color:{ink_on(colour)};display:flex;align-items:center;justify-content:center">'
            f"{letters}</span>"
        )
        return f'<div class="card" style="margin:0;display:flex;gap:1em">{disc}{text}</div>'
    return f'<div class="card" style="margin:0">{text}</div>'
