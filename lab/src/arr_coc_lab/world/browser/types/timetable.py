"""Timetables: departure boards, lists of lines and grids of stops and times."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, present, put, room
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

NOTES = (
    "on time",
    "delayed",
    "cancelled",
    "boarding",
    "+5 min",
    "+12 min",
    "gate closed",
    "final call",
    "",
    "",
)
HEADS = {
    "place": ("Destination", "To", "Towards", "Direction"),
    "line": ("Line", "Train", "Flight", "Bus", "No."),
    "time": ("Time", "Departure", "Departs"),
    "track": ("Platform", "Gate", "Track", "Stop"),
    "note": ("Remarks", "Status", "Info"),
}
FIRST = (
    "What is the first departure?",
    "Where does the first one go?",
    "Which destination is first in the list?",
)


@page_type("timetable")
def timetable(sheet: Sheet) -> str:
    """Return a board of departures or a table of stops."""
    return (_board if sheet.chance(0.6) else _stops)(sheet)


def _places(sheet: Sheet, count: int) -> list[str]:
    """Distinct places, none inside another."""
    places: list[str] = []
    while len(places) < count:
        place = sheet.words.city() if sheet.chance(0.6) else sheet.words.title(1, 2)
        if len(place) < 22 and not any(
            place.lower() in other.lower() or other.lower() in place.lower() for other in places
        ):
            places.append(place)
    return places


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}"


def _board(sheet: Sheet) -> str:
    """Departures with line, time, platform and remarks."""
    height = room(sheet)[1]
    count = max(3, min(16, int((height / sheet.style.size - 7) / 2.2)))
    *places, missing = _places(sheet, count + 1)
    columns = ["time", "place", "track"] if sheet.style.narrow else ["time", "line", "place", "track", "note"]
    if sheet.chance(0.3):
        sheet.rng.shuffle(columns)
    station = sheet.text(
        f"{sheet.one(('Departures', 'Next departures', 'Abfahrten', 'Flights'))} {sheet.words.city()}", "h1"
    )
    heads = {name: sheet.text(sheet.one(HEADS[name])) for name in columns}
    minutes, letter = sheet.choose(300, 1200), sheet.one(("ICE ", "S", "U", "Bus ", "RE ", "BA ", "LH ", ""))
    rows, texts = [], []
    for place in places:
        minutes += sheet.choose(1, 22)
        texts.append(
            {
                "time": _clock(minutes),
                "line": f"{letter}{sheet.choose(1, 999)}",
                "place": place,
                "track": sheet.one((str(sheet.choose(1, 24)), sheet.one("ABCDE") + str(sheet.choose(1, 30)))),
                "note": sheet.one(NOTES),
            }
        )
        row = {name: sheet.text(texts[-1][name]) for name in columns}
        for name in columns:
            if name != "place" and row[name].plain:
                sheet.crossing(row["place"], heads[name], row[name])
        sheet.ask(
            "value",
            put(
                sheet,
                (
                    "When does the next one to {place} leave?",
                    "When is the departure to {place}?",
                    "At what time does it go to {place}?",
                ),
                place=place,
            ),
            row["time"].plain,
            row["place"],
            row["time"],
        )
        sheet.ask(
            "value",
            put(
                sheet,
                ("Where does the one at {time} go?", "Which destination leaves at {time}?"),
                time=row["time"].plain,
            ),
            place,
            row["time"],
            row["place"],
        )
        rows.append(row)
    sheet.ask("position", put(sheet, FIRST), places[0], rows[0]["time"], rows[0]["place"])
    present(sheet, sheet.rng.choice(rows)["place"])
    if "note" in columns:
        for note in ("cancelled", "delayed"):
            marked = [row for row in rows if row["note"].plain == note]
            if 0 < len(marked) < 5:
                sheet.ask(
                    "implied",
                    put(
                        sheet,
                        ("What is {note}?", "Which departures are {note}?", "Is anything {note}?"),
                        note=note,
                    ),
                    ", ".join(row["place"].plain for row in marked),
                    *(p for row in marked for p in (row["place"], row["note"])),
                )
    finish(
        sheet,
        station,
        put(
            sheet,
            ("When does it leave for {place}?", "From which platform does {place} leave?"),
            place=missing,
        ),
    )
    board = "background:#111;color:#fc3;padding:.6em" if sheet.chance(0.25) else ""
    head = "".join(f"<th>{heads[name]}</th>" for name in columns)
    body = "".join(
        f"<tr{' style=background:none' if board else ''}>"
        f"{''.join(f'<td>{row[name]}</td>' for name in columns)}</tr>"
        for row in rows
    )
    return f'{station}<table style="width:100%;{board}"><tr>{head}</tr>{body}</table>'


def _stops(sheet: Sheet) -> str:
    """Stops down, journeys across."""
    width, height = room(sheet)
    count = max(3, min(12, int((height / sheet.style.size - 7) / 2.2)))
    *places, missing = _places(sheet, count + 1)
    journeys = max(2, min(8, int((width / sheet.style.size - 11) / 5)))
    kind = sheet.one(("Line", "Bus", "Train", "Route", "Ferry"))
    title = sheet.text(f"{kind} {sheet.choose(1, 299)}", "h1")
    numbers = sheet.rng.sample(range(1, 400), journeys)
    columns = [sheet.text(str(number) if sheet.chance(0.7) else f"{kind[0]}{number}") for number in numbers]
    starts = [sheet.choose(300, 420)]
    for _ in columns[1:]:
        starts.append(starts[-1] + sheet.choose(15, 70))
    gaps = [sheet.choose(2, 15) for _ in places]
    rows: list[tuple[Piece, list[Piece]]] = []
    for i, place in enumerate(places):
        row = sheet.text(place)
        cells = [sheet.text(_clock(start + sum(gaps[:i])) if sheet.chance(0.95) else "–") for start in starts]
        for column, cell in zip(columns, cells, strict=True):
            if cell.plain != "–" and sheet.chance(0.5):
                text = put(
                    sheet,
                    (
                        "When does {column} stop at {row}?",
                        "At what time does {column} reach {row}?",
                        "{row}, {column}: what time?",
                    ),
                    column=f"{kind.lower()} {column.plain}",
                    row=place,
                )
                sheet.ask("crossing", text, cell.plain, row, column, cell)
        rows.append((row, cells))
    i = sheet.choose(0, count - 2)
    sheet.ask(
        "position",
        put(
            sheet,
            ("Which stop comes after {place}?", "What is the next stop after {place}?"),
            place=places[i],
        ),
        places[i + 1],
        rows[i][0],
        rows[i + 1][0],
    )
    ends = put(sheet, ("Where does the journey end?", "What is the last stop?"))
    sheet.ask("position", ends, places[-1], rows[-1][0])
    finish(
        sheet,
        title,
        put(sheet, ("When does it stop at {place}?", "At what time is it in {place}?"), place=missing),
    )
    head = f"<th></th>{''.join(f'<th>{column}</th>' for column in columns)}"
    body = "".join(
        f"<tr><td>{row}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for row, cells in rows
    )
    return f"{title}<table><tr>{head}</tr>{body}</table>"
