"""Specifications: sections of label and value; the same label comes under several headings."""

from __future__ import annotations

from collections import Counter

from arr_coc_lab.world.browser.fields import Entry, Field, Labels, close, key_values, make
from arr_coc_lab.world.browser.parts import draw_look, frame, heading, inquire, many, prose, room
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

TITLES = (
    "Technical data",
    "Specifications",
    "Data sheet",
    "Product specification",
    "Nutrition facts",
    "Vehicle data",
    "Technical specification",
    "Parameters",
    "Fact sheet",
    "Inventory record",
)
HEADINGS = (
    "Engine", "Dimensions", "Display", "Battery", "Camera", "Memory", "Network", "Front", "Rear", "Inside",
    "Outside", "Power supply", "Environment", "Performance", "Motor", "Body", "Input", "Output",
    "Left", "Right", "Packaging", "Sensor", "Audio", "Video", "Wireless", "Storage", "Cooling", "Chassis",
    "Brakes", "Wheels", "General", "Warranty", "Certification", "Transport", "Kitchen", "Garage",
)  # fmt: skip
FIELDS = (
    ("Type", "word"), ("Weight", "measure"), ("Length", "measure"), ("Width", "measure"),
    ("Height", "measure"), ("Capacity", "measure"), ("Voltage", "measure"), ("Power", "measure"),
    ("Resolution", "1920 x 1080|4K|12 MP|48 MP"),
    ("Manufacturer", "company"), ("Model", "code"), ("Colour", "Black|White|Silver|Grey|Blue"),
    ("Material", "Steel|Aluminium|Plastic|Glass|Wood"), ("Temperature range", "measure"),
    ("Noise level", "measure"), ("Serial number", "code"),
    ("Frequency", "measure"), ("Efficiency", "percent"), ("Tolerance", "percent"),
    ("Year", "1998|2007|2015|2021|2024"), ("Price", "price"), ("Part number", "code"), ("Standard", "code"),
    ("Lifetime", "measure"), ("Fuel", "Diesel|Petrol|Electric|Hybrid"),
    ("Top speed", "measure"), ("Torque", "measure"), ("Gears", "5|6|7|8"), ("Doors", "2|3|4|5"),
    ("Seats", "2|4|5|7"), ("Origin", "country"), ("Inspector", "name"), ("Tested on", "date"),
    ("Version", "code"), ("Ports", "2|3|4|8"),
    ("Energy", "measure"), ("Fat", "measure"), ("Protein", "measure"), ("Salt", "measure"),
    ("Sugar", "measure"), ("Diameter", "measure"), ("Pressure", "measure"),
    ("Interface", "USB-C|HDMI|Ethernet|RS-232"), ("Protection", "IP54|IP67|IP68"),
)  # fmt: skip


@page_type("spec_sheet", weight=1.3)
def spec_sheet(sheet: Sheet) -> str:
    """Sections in one to three columns, in one layout; questions for repeated labels name the section."""
    title, look = heading(sheet, TITLES), draw_look(sheet)
    columns = sheet.choose(1, max(1, min(3, int(sheet.style.width / (sheet.style.size * 22)))))
    labels, tops = Labels(sheet, FIELDS), Labels(sheet, tuple((name, "word") for name in HEADINGS))
    pool = labels.draw(sheet.choose(4, 12))
    left, plan = many(sheet, min(12, room(sheet, 0.5)), min(70, columns * room(sheet, 0.85, 1.9))), []
    while left > 0:
        count = min(left, sheet.choose(2, 9), len(pool))
        repeated = [
            Entry(e.label, e.sort, make(sheet, e.sort))
            for e in sheet.rng.sample(pool, sheet.choose(0, count))
        ]
        entries = repeated + labels.draw(count - len(repeated))
        plan.append((tops.draw(1)[0].label, sheet.rng.sample(entries, len(entries))))
        left -= count + 2
    counts = Counter(entry.label for _, entries in plan for entry in entries)
    tag, boxed = sheet.one(("h2", "h3")), sheet.chance(0.4)
    parts, single, repeated_fields = [], [], []
    for name, entries in plan:
        top = sheet.text(name, tag)
        block = key_values(sheet, entries, look=look, ask=False)
        for field in block.fields:
            alone = counts[field.label.plain.rstrip(" :")] == 1
            if not alone:
                repeated_fields.append((top, field))
            elif sheet.chance(0.7):
                inquire(sheet, field)
            else:
                inquire(sheet, field, top)
            single += [field] if alone else []
        parts.append(
            f'<div class="{"card" if boxed else ""}" style="break-inside:avoid;margin:0 0 '
            f'var(--gap)">{top}{block.html}</div>'
        )
        sheet.ask(
            "section",
            sheet.one(
                ("What is listed under {}?", "What does the section {} contain?", "Read the data of {}.")
            ).format(name),
            _all(block.fields),
            top,
            *(p for f in block.fields for p in f[:2]),
        )
    for top, field in sheet.rng.sample(repeated_fields, min(16, len(repeated_fields))):
        inquire(sheet, field, top)
    close(sheet, labels, single, lone=False)
    lead = f"<p>{prose(sheet, 1, 2)}</p>" if sheet.chance(0.3) else ""
    return frame(
        sheet, f'{title}{lead}<div style="columns:{columns};column-gap:1.8em">{"".join(parts)}</div>', 0.3
    )


def _all(fields: tuple[Field, ...]) -> str:
    """Fields as one answer."""
    return "; ".join(f"{field.label.plain.rstrip(' :')}: {field.value.plain}" for field in fields)
