"""Tables of data: a header row or two, many rows, names in the first column."""

from __future__ import annotations

from arr_coc_lab.world.browser.fields import Labels, close, make
from arr_coc_lab.world.browser.parts import across, compare, frame, heading, many, prose, room, table
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

SUBJECTS = {
    "Employees": ("Name", "name"), "Cities": ("City", "place"), "Orders": ("Order", "code"),
    "Countries": ("Country", "country"), "Suppliers": ("Company", "company"),
    "Products": ("Product", "word"), "Results": ("Athlete", "name"), "Sensors": ("Sensor", "code"),
    "Inventory": ("Article", "word"), "Flights": ("Flight", "code"),
    "Students": ("Student", "name"), "Projects": ("Project", "word"), "Vehicles": ("Plate", "code"),
    "Servers": ("Host", "code"), "Standings": ("Team", "place"),
    "Customers": ("Customer", "company"), "Bookings": ("Guest", "name"), "Stocks": ("Share", "company"),
    "Experiments": ("Run", "code"), "Rooms": ("Room", "code"),
}  # fmt: skip
COLUMNS = (
    ("Price", "price"), ("Date", "date"), ("Status", "Open|Closed|Pending|Done|New"), ("Owner", "name"),
    ("City", "place"), ("Quantity", "number"), ("Weight", "measure"),
    ("Share", "percent"), ("Points", "number"), ("Rank", "number"), ("Start", "time"), ("End", "time"),
    ("E-mail", "email"), ("Phone", "phone"), ("Country", "country"),
    ("Profession", "job"), ("Budget", "price"), ("Cost", "price"), ("Population", "number"),
    ("Area", "measure"), ("Score", "number"), ("Code", "code"), ("Updated", "date"),
    ("Manager", "name"), ("Growth", "percent"), ("Visits", "number"), ("Stock", "number"),
    ("Revenue", "price"), ("Due", "date"), ("Priority", "Low|Medium|High"),
    ("Power", "measure"), ("Length", "measure"), ("Active", "Yes|No"), ("Grade", "A|B|C|D|E"),
    ("Type", "word"), ("Salary", "price"), ("Wins", "number"), ("Losses", "number"),
)  # fmt: skip


@page_type("data_table", weight=1.8)
def data_table(sheet: Sheet) -> str:
    """One table, at times two, with a caption, a search bar or text around them."""
    topic = sheet.one(tuple(SUBJECTS))
    labels, words = Labels(sheet, COLUMNS), sheet.words
    title = heading(
        sheet,
        (topic, f"{topic} {sheet.choose(1998, 2031)}", f"List of {topic.lower()}", f"All {topic.lower()}"),
        share=0.3,
    )
    key, sort = SUBJECTS[topic] if sheet.chance(0.7) else (labels.open(), "word")
    labels.used.add(key.lower())
    columns = [
        (entry.label, entry.sort) for entry in labels.draw(sheet.choose(1, max(1, across(sheet, 9, 7.0) - 1)))
    ]
    rows = many(sheet, 2, min(45, room(sheet, 1.0, 2.0)))
    names = list(dict.fromkeys(make(sheet, sort) for _ in range(rows)))
    cells = [[name, *(make(sheet, kind) for _, kind in columns)] for name in names]
    right = (
        [
            i + 1
            for i, (_, kind) in enumerate(columns)
            if kind in ("price", "number", "percent", "count", "measure")
        ]
        if sheet.chance(0.6)
        else []
    )
    amounts = []
    if sheet.chance(0.6):  # a column of plain numbers that can be compared
        amounts = [sheet.choose(1, 10 ** sheet.choose(2, 4)) for _ in names]
        columns.append(
            (
                sheet.one([c for c in ("Total", "Count", "Amount", "Units") if c.lower() not in labels.used]),
                "number",
            )
        )
        cells = [[*row, str(number)] for row, number in zip(cells, amounts, strict=True)]
        right.append(len(columns))
    numbered = sheet.chance(0.2) and not sheet.style.narrow
    head, shift = [key, *(label for label, _ in columns)], 0
    if numbered:
        head, cells, shift = ["#", *head], [[str(i), *row] for i, row in enumerate(cells, 1)], 1
    grid = table(sheet, head, cells, key=shift, right=[i + shift for i in right], crossings=14)
    keys = [row[shift] for row in grid.cells]
    if amounts:
        most = sheet.chance(0.5)
        text = sheet.one(
            ("Which {} has the {} {}?", "Whose row shows the {1} {2}?", "The {1} {2} belongs to which {0}?")
        )
        text = text.format(key.lower(), "highest" if most else "lowest", grid.head[-1].plain.lower())
        compare(sheet, text, keys, [grid.head[-1], *(row[-1] for row in grid.cells)], amounts, most)
    sheet.ask(
        "count",
        sheet.one(("How many rows does the table have?", "How many {} are listed?")).format(topic.lower()),
        str(len(keys)),
        *keys,
    )
    i = sheet.choose(1, len(keys) - 1) if len(keys) > 1 else 0
    if i:
        text = sheet.one(
            ("Which row comes after {}?", "What stands directly below {}?", "Which entry follows {}?")
        ).format(keys[i - 1].plain)
        sheet.ask("position", text, keys[i].plain, keys[i - 1], keys[i])
    sheet.ask(
        "position",
        sheet.one(("Which {} is first?", "What is the top entry under {}?")).format(key.lower()),
        keys[0].plain,
        grid.head[shift],
        keys[0],
    )
    sheet.ask(
        "unanswerable",
        sheet.phrase("crossing", row=keys[0].plain, column=labels.absent()),
        "not on the page",
    )
    close(sheet, labels)
    lead = f"<p>{prose(sheet, 1, 2)}</p>" if sheet.chance(0.35) else ""
    bar = (
        f'<div class="card muted" style="padding:.3em .8em">⌕ {words.words(1, 2)}</div>'
        if sheet.chance(0.2)
        else ""
    )
    return frame(sheet, f"{title}{lead}{bar}{grid.html}", 0.4)
