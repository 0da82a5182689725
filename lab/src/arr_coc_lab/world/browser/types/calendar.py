"""Calendars: a month as a grid, a week with hours, or a list of days, with events."""

from __future__ import annotations

import calendar as dates

from arr_coc_lab.world.browser.asking import finish, labels, present, put, room
from arr_coc_lab.world.browser.drawing import VIVID, ink_on, shade
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type
from arr_coc_lab.world.browser.vocabulary import MONTHS

REAL = (
    "Dentist", "Team meeting", "Yoga", "Birthday party", "Flight to Rome", "Parents' evening",
    "Piano lesson", "Lunch with Eva", "Gym",
    "Car service", "Interview", "Concert", "Deadline", "Doctor", "Haircut", "Book club", "Rent due",
    "Vaccination", "Bin day", "Webinar",
    "Holiday", "Payday", "Football", "Choir", "Exam", "Workshop", "Moving day", "School trip", "Market",
    "Barbecue",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ON = (
    "What is on {day}?",
    "What happens on {day}?",
    "Which event is on {day}?",
    "What is planned for {day}?",
    "{day}: what is on?",
    "Do I have anything on {day}?",
    "Which event is entered for {day}?",
    "What do I have on {day}?",
    "{day}?",
)
DATES = (
    "{day} {month}", "{day} {month}", "{month} {day}", "the {nth}", "the {nth} of {month}", "{month} {nth}",
)  # fmt: skip
MONTH = (
    "Which month is shown?", "What month is this?", "Which month does the calendar show?", "month?",
    "Of which month is this calendar?", "What is the month?", "Which month am I looking at?",
)  # fmt: skip
WHEN = (
    "When is {label}?",
    "When is the {label}?",
    "On which day is {label}?",
    "What day is {label}?",
    "{label}: when?",
    "Which date is {label} on?",
)


@page_type("calendar")
def calendar(sheet: Sheet) -> str:
    """Return a month or a week with its title and its events."""
    return sheet.rng.choice((_month, _month, _week, _agenda))(sheet)


def _names(sheet: Sheet, count: int) -> list[str]:
    return labels(sheet, count, REAL, high=2, most=18, share=0.55)


def _month(sheet: Sheet) -> str:
    """Seven columns of days, the events in their cells."""
    year, month = sheet.choose(2018, 2034), sheet.choose(1, 12)
    weeks = dates.Calendar(sheet.rng.choice((0, 6))).monthdayscalendar(year, month)
    first = dates.weekday(year, month, 1) if not weeks[0][0] else None
    start = (first - weeks[0].index(1)) % 7 if first is not None else dates.weekday(year, month, weeks[0][0])
    title = sheet.text(
        sheet.one((f"{MONTHS[month - 1]} {year}", f"{MONTHS[month - 1]} {year}", f"{MONTHS[month - 1]}")),
        "h1",
    )
    height = room(sheet)[1]
    size = sheet.style.size * (0.72 if sheet.style.narrow else 0.9)
    letters = 3 if sheet.style.width > 420 else 2
    head = "".join(
        f"<th>{DAYS[(start + i) % 7][: 9 if sheet.style.width > 1000 else letters]}</th>" for i in range(7)
    )
    last = max(weeks[-1])
    events = sheet.rng.sample(range(1, last + 1), sheet.choose(3, 9))
    *names, missing = _names(sheet, len(events) + 1)
    booked = dict(zip(events, names, strict=True))
    today, marks = sheet.choose(1, last), sheet.chance(0.5)
    tall = max(2.6 * size, (height - 6 * sheet.style.size) / len(weeks) * sheet.rng.uniform(0.7, 1))
    rows = []
    for week in weeks:
        cells = []
        for day in week:
            if not day:
                cells.append(f'<td style="{CELL};height:{tall:.0f}px"></td>')
                continue
            number = sheet.text(str(day))
            style = (
                "background:var(--accent);color:var(--paper);border-radius:1em;padding:0 .35em"
                if marks and day == today
                else ""
            )
            event = ""
            if day in booked:
                name = sheet.text(booked[day])
                _both(sheet, name, _day(sheet, day, MONTHS[month - 1]), number)
                colour = _paint(sheet) if sheet.chance(0.6) else "background:var(--card)"
                event = (
                    f'<div style="{colour};border-radius:3px;padding:0 .2em;overflow-wrap:anywhere">'
                    f"{name}</div>"
                )
            cells.append(
                f'<td style="{CELL};height:{tall:.0f}px"><span style="{style}">{number}</span>{event}</td>'
            )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    sheet.ask(
        "title",
        put(sheet, MONTH),
        title.plain,
        title,
    )
    finish(sheet, title, put(sheet, WHEN, label=missing))
    return (
        f'{title}<table style="width:100%;table-layout:fixed;font-size:{size:.1f}px"><tr>{head}</tr>'
        f"{''.join(rows)}</table>"
    )


def _day(sheet: Sheet, day: int, month: str) -> str:
    """Return a day of a month as people write it."""
    ending = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    form = sheet.one(DATES)
    return form.format(day=day, month=month, nth=f"{day}{ending}")


CELL = "border:1px solid var(--line);padding:.2em;overflow:hidden"


def _paint(sheet: Sheet) -> str:
    """CSS of an event on a coloured ground."""
    name = sheet.one(VIVID)
    return f"background:{shade(sheet.rng, name)};color:{ink_on(name)}"


def _both(sheet: Sheet, name: Piece, day: str, *places: Piece) -> None:
    """Ask for the day of an event and for the event of a day."""
    sheet.ask("value", put(sheet, WHEN, label=name.plain), day, name, *places)
    if sheet.chance(0.2):
        present(sheet, name)
    sheet.ask("value", put(sheet, ON, day=day), name.plain, name, *places)


def _week(sheet: Sheet) -> str:
    """Columns of days, rows of hours."""
    days = DAYS[: sheet.choose(3, 4) if sheet.style.narrow else sheet.rng.choice((5, 5, 7))]
    first, hours = sheet.choose(6, 10), sheet.choose(6, 10)
    title = sheet.text(sheet.one((f"Week {sheet.choose(1, 52)}", "This week", sheet.words.title(1, 3))), "h1")
    cells = sheet.rng.sample(
        [(h, d) for h in range(hours) for d in range(len(days))],
        sheet.choose(4, min(12, hours * len(days) - 2)),
    )
    *names, missing = _names(sheet, len(cells) + 1)
    booked = dict(zip(cells, names, strict=True))
    columns = [sheet.text(day if sheet.style.width > 800 else day[:3]) for day in days]
    tall = (room(sheet)[1] - 6 * sheet.style.size) / hours * sheet.rng.uniform(0.5, 1)
    form = sheet.one(("{:02}:00", "{}h", "{}:00"))
    rows = []
    for h in range(hours):
        clock = sheet.text(form.format(first + h))
        line = [f'<td class="muted" style="{CELL};width:4em">{clock}</td>']
        for d, column in enumerate(columns):
            name = sheet.text(booked[h, d]) if (h, d) in booked else None
            if name:
                time = f"{column.plain} at {clock.plain}"
                _both(sheet, name, time, column, clock)
            fill = _paint(sheet) if name and sheet.chance(0.7) else ""
            line.append(f'<td style="{CELL};{fill};overflow-wrap:anywhere">{name or "&nbsp;"}</td>')
        rows.append(f'<tr style="height:{tall:.0f}px">{"".join(line)}</tr>')
    finish(sheet, title, put(sheet, WHEN, label=missing))
    head = f'<th style="width:4em"></th>{"".join(f"<th>{column}</th>" for column in columns)}'
    return (
        f'{title}<table style="width:100%;table-layout:fixed;font-size:.85em"><tr>{head}</tr>'
        f"{''.join(rows)}</table>"
    )


def _agenda(sheet: Sheet) -> str:
    """Days with events below each other, with times and places."""
    month, day = sheet.choose(0, 11), sheet.choose(1, 14)
    title = sheet.text(
        sheet.one(("Agenda", "Upcoming", "Schedule", f"{MONTHS[month]}", sheet.words.title(1, 3))), "h1"
    )
    *names, missing = _names(sheet, 13)
    parts: list[str] = [title]
    used = 4.0
    while names and used < room(sheet)[1] / sheet.style.size - 4:
        date = sheet.text(f"{day} {MONTHS[month]}", "h3")
        parts.append(date)
        used += 2.5
        for _ in range(min(len(names), sheet.choose(1, 2))):
            name, clock, place = (
                sheet.text(names.pop()),
                sheet.text(sheet.words.time()),
                sheet.text(sheet.words.city()),
            )
            sheet.ask(
                "value", put(sheet, WHEN, label=name.plain), f"{date.plain}, {clock.plain}", date, name, clock
            )
            sheet.ask("value", sheet.phrase("place", label=name.plain), place.plain, name, place)
            parts.append(
                f'<div class="row card" style="margin:.3em 0"><span class="muted">{clock}</span><span '
                f'style="flex:1">{name}</span><span>{place}</span></div>'
            )
            used += 3.2
        day += sheet.choose(1, 2)
    finish(sheet, title, put(sheet, WHEN, label=missing))
    return "".join(parts)
