"""Tables with merged cells: groups of columns under one header, groups of rows beside one name."""

from __future__ import annotations

from arr_coc_lab.world.browser.fields import Labels, close, make
from arr_coc_lab.world.browser.parts import across, frame, heading, prose, room
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

COLUMNS = (
    ("Price", "price"), ("Units", "number"), ("Share", "percent"), ("Mean", "number"), ("Cost", "price"),
    ("Max", "number"), ("Min", "number"), ("Date", "date"),
    ("Time", "time"), ("Goals", "number"), ("Weight", "measure"), ("Plan", "number"), ("Actual", "number"),
    ("Score", "number"), ("Rate", "percent"), ("Code", "code"),
    ("Income", "price"), ("Spend", "price"), ("Visitors", "number"), ("Length", "measure"), ("Start", "time"),
    ("Finish", "time"), ("Grade", "A|B|C|D"), ("Lead", "name"),
)  # fmt: skip
TOPS = (
    "2021",
    "2022",
    "2023",
    "2024",
    "Q1",
    "Q2",
    "Q3",
    "Q4",
    "January",
    "February",
    "Men",
    "Women",
    "Before",
    "After",
    "Day",
    "Night",
    "Summer",
    "Winter",
    "Budget",
)
SIDES = (
    "North",
    "South",
    "East",
    "West",
    "Sales",
    "Finance",
    "IT",
    "Marketing",
    "Morning",
    "Evening",
    "Adults",
    "Children",
    "Type A",
    "Type B",
    "Europe",
    "Asia",
)
TITLES = (
    "Results by group",
    "Quarterly figures",
    "Timetable",
    "Comparison",
    "Budget plan",
    "Measurements",
    "Rates",
    "Summary of results",
    "Statistics",
    "Schedule",
)


@page_type("merged_table", weight=1.2)
def merged_table(sheet: Sheet) -> str:
    """Merged headers above, merged names at the left, or both; questions name the group."""
    labels, title = Labels(sheet, COLUMNS), heading(sheet, TITLES)
    wide, tall = sheet.rng.choice(((True, False), (False, True), (True, True)))
    tall = tall or across(sheet, 9, 7.0) < 4
    per = sheet.choose(2, 3) if wide else sheet.choose(2, max(2, across(sheet, 6, 8.0) - 2))
    tops = (
        _names(sheet, labels, TOPS, sheet.choose(2, max(2, min(4, across(sheet, 9, 5.5) // per))))
        if wide
        else [""]
    )
    kinds = [(entry.label, entry.sort) for entry in labels.draw(per)]
    lines = max(4, min(26, room(sheet, 0.8, 2.2)))
    sides, left = [], lines
    for name in _names(sheet, labels, SIDES, sheet.choose(2, 6)) if tall else [""]:
        count = sheet.choose(2, 5) if tall else sheet.choose(3, min(16, lines))
        if left < count and sides:
            break
        left -= count
        sides.append((name, count))
    first = sheet.text(
        sheet.one(("Group", "Name", "Category", "Region", "Item", "Unit")),
        "th",
        f'rowspan="{1 + wide}"{" colspan=2" if tall else ""}',
    )
    centred = ' style="text-align:center"' if sheet.chance(0.7) else ""
    upper = [sheet.text(name, "th", f'colspan="{per}"{centred}') for name in tops] if wide else []
    lower = [[sheet.text(label, "th") for label, _ in kinds] for _ in tops]
    html = f"<tr>{first}{''.join(upper)}</tr><tr>" if wide else f"<tr>{first}"
    html += "".join(cell for group in lower for cell in group) + "</tr>"
    alike, crossings = sheet.chance(0.5), []  # whether every group of rows has the same names
    shared = _names(sheet, labels, (), 5)
    for side, count in sides:
        span = sheet.text(side, "th", f'rowspan="{count}"') if tall else None
        rows = shared[:count] if alike and tall else _names(sheet, labels, (), count)
        for i, name in enumerate(rows):
            row = sheet.text(name, "td")
            html += f"<tr>{span if span and not i else ''}{row}"
            for g in range(len(tops)):
                for c, (_, sort) in enumerate(kinds):
                    cell = sheet.text(make(sheet, sort), "td")
                    html += cell
                    crossings.append(
                        [
                            piece
                            for piece in (span, upper[g] if wide else None, row, lower[g][c], cell)
                            if piece
                        ]
                    )
            html += "</tr>"
    for *names, row, column, cell in sheet.rng.sample(crossings, min(14, len(crossings))):
        within = ", ".join(piece.plain for piece in names)
        text = sheet.one((
            "{within}: what is the {column} of {row}?", "What is the {column} of {row} in {within}?",
            "In {within}, which {column} does {row} have?",
            "{column} of {row} ({within})?", "For {within}, look up {column} of {row}.",
        ))  # fmt: skip
        sheet.ask(
            "crossing",
            text.format(within=within, column=column.plain, row=row.plain),
            cell.plain,
            *names,
            row,
            column,
            cell,
        )
    if wide:
        sheet.ask(
            "count",
            sheet.one(("How many groups of columns are there?", "How many merged headers stand at the top?")),
            str(len(tops)),
            *upper,
        )
    close(sheet, labels)
    small = "font-size:.8em;" if sheet.style.width < (len(tops) * per + 2) * sheet.style.size * 6.5 else ""
    lined = sheet.chance(0.7)
    edge = "<style>td,th{border:1px solid var(--line)}</style>" if lined else ""
    lead = f"<p>{prose(sheet, 1, 2)}</p>" if sheet.chance(0.4) else ""
    return frame(
        sheet,
        (
            f'{edge}{title}{lead}<table style="'
            f'{small}{sheet.one(("width:100%", "width:100%", ""))}">{html}</table>'
        ),
        0.5,
    )


def _names(sheet: Sheet, labels: Labels, realistic: tuple[str, ...], count: int) -> list[str]:
    """Names of rows or groups, none on the page twice."""
    names: list[str] = []
    for _ in range(count):
        free = [name for name in realistic if name.lower() not in labels.used]
        name = sheet.one(free) if free and sheet.chance(0.6) else labels.open()
        labels.used.add(name.lower())
        names.append(name)
    return names
