"""Dashboards: metric cards of a label, a big number and a change, beside bars and short lists."""

from __future__ import annotations

from arr_coc_lab.world.browser.fields import Entry, Field, Labels, close, columns_of, key_values
from arr_coc_lab.world.browser.parts import across, compare, draw_look, frame, heading, inquire, many, room
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

TITLES = (
    "Dashboard",
    "Overview",
    "Sales report",
    "Analytics",
    "Weekly summary",
    "Performance",
    "Monitoring",
    "Key figures",
    "Status",
    "Energy today",
    "Finance",
)
METRICS = (
    ("Revenue", "amount"), ("Active users", "number"), ("Orders", "number"), ("Conversion rate", "percent"),
    ("Sessions", "number"), ("Bounce rate", "percent"),
    ("New customers", "number"), ("Refunds", "amount"), ("Churn", "percent"), ("Open tickets", "number"),
    ("Page views", "number"), ("Avg. order value", "amount"),
    ("Profit", "amount"), ("Expenses", "amount"), ("Uptime", "percent"), ("CPU load", "percent"),
    ("Memory", "measure"), ("Disk usage", "percent"),
    ("Latency", "measure"), ("Requests", "number"), ("Errors", "number"), ("Temperature", "measure"),
    ("Humidity", "percent"), ("Steps", "number"),
    ("Heart rate", "number"), ("Distance", "measure"), ("Calories", "number"), ("Sleep", "measure"),
    ("Balance", "amount"), ("Savings", "amount"),
    ("Downloads", "number"), ("Subscribers", "number"), ("Followers", "number"), ("Tasks done", "number"),
    ("Stock", "number"), ("Deliveries", "number"),
    ("Power", "measure"), ("Battery", "percent"), ("Pressure", "measure"), ("Satisfaction", "percent"),
    ("Forecast", "amount"), ("Next payout", "date"),
)  # fmt: skip
SINCE = (
    "vs last month",
    "since yesterday",
    "this week",
    "from last year",
    "last 24 hours",
    "on target",
    "YoY",
    "vs Q2",
    "per day",
    "30 days",
)
NAMES = (
    "North",
    "South",
    "East",
    "West",
    "Online",
    "Retail",
    "Europe",
    "Asia",
    "Mobile",
    "Desktop",
    "Direct",
    "Search",
    "Social",
    "E-mail",
    "Partners",
)


@page_type("dashboard", weight=1.5)
def dashboard(sheet: Sheet) -> str:
    """Return a grid of cards; below it bars with values and lists."""
    labels, title = (
        Labels(sheet, METRICS, sorts=("amount", "number", "percent", "measure", "time", "count")),
        heading(sheet, TITLES),
    )
    big = sheet.rng.choice((1.3, 1.5, 1.8, 2.2, 2.8))
    order, changed = sheet.one(("top", "top", "under", "beside")), sheet.chance(0.75)
    em = sheet.rng.uniform(6, 11) + 3 * big
    count = many(sheet, 2, min(24, across(sheet, 6, em) * room(sheet, 0.6, 3.5 + big + changed)))
    cards, fields, looks = (
        [],
        [],
        sheet.one(
            (
                "",
                "font-size:.85em;color:var(--muted)",
                "text-transform:uppercase;font-size:.75em",
                "font-weight:600",
            )
        ),
    )
    align = sheet.one(("left", "left", "center"))
    for label, sort, value in labels.draw(count):
        name = sheet.text(label, attributes=f'style="{looks}"')
        number = sheet.text(
            value,
            attributes=(
                f'style="font-size:{big}em;font-weight:{sheet.one(("400", "600", "700"))};'
                'line-height:1.15;overflow-wrap:break-word"'
            ),
        )
        field = Field(name, number, sort)
        fields.append(field)
        inquire(sheet, field, kind="card")
        change = ""
        if changed and sheet.chance(0.85):
            part = sheet.text(f"{sheet.one(('+', '-', '▲ ', '▼ '))}{sheet.rng.uniform(0, 30):.1f}%")
            text = sheet.one(
                (
                    "How did {} change?",
                    "What is the change of {}?",
                    "By how much did {} rise or fall?",
                    "{} trend?",
                )
            ).format(label)
            sheet.ask("card", text, part.plain, name, part)
            change = (
                f'<div class="muted" style="font-size:.85em"><span class="accent">{part}</span> '
                f"{sheet.one(SINCE)}</div>"
            )
        parts = {
            "top": f"<div>{name}</div><div>{number}</div>{change}",
            "under": f"<div>{number}</div><div>{name}</div>{change}",
        }
        inner = parts.get(order) or f'<div class="row"><div>{name}{change}</div>{number}</div>'
        cards.append(f'<div class="card" style="margin:0;min-width:0;text-align:{align}">{inner}</div>')
    close(sheet, labels, fields, lone=False)
    grid = f'<div style="{columns_of(em)}gap:var(--gap)">{"".join(cards)}</div>'
    extra = "".join(
        part()
        for part in sheet.rng.sample([lambda: _bars(sheet), lambda: _list(sheet, labels)], sheet.choose(0, 2))
    )
    return frame(sheet, f"{title}{extra}{grid}" if sheet.chance(0.2) else f"{title}{grid}{extra}", 0.4)


def _bars(sheet: Sheet) -> str:
    """Return a card of progress bars with percentages."""
    names = list(
        {
            sheet.one(NAMES) if sheet.chance(0.6) else sheet.words.title(1, 2)
            for _ in range(sheet.choose(2, 7))
        }
    )
    names.sort()
    shares = [sheet.choose(2, 99) for _ in names]
    rows, left, right = [], [], []
    for name, share in zip(names, shares, strict=True):
        label, value = sheet.text(name), sheet.text(f"{share}%")
        bar = sheet.block(
            f'<div style="width:{share}%;height:100%;background:var(--accent)"></div>',
            attributes='style="height:.6em;background:var(--line)"',
        )
        sheet.ask("chart", sheet.phrase("value", label=name), value.plain, label, value, bar)
        rows.append(f'<div style="padding:.2em 0"><div class="row">{label}{value}</div>{bar}</div>')
        left.append(label)
        right.append(value)
    most = sheet.chance(0.5)
    text = sheet.one(("Which bar is the {}?", "Which one has the {} share?")).format(
        sheet.one(("longest", "largest")) if most else "smallest"
    )
    compare(sheet, text, left, right, shares, most)
    return f'<div class="card"><h3>{sheet.words.title(1, 3)}</h3>{"".join(rows)}</div>'


def _list(sheet: Sheet, labels: Labels) -> str:
    """Return a card of plain lines."""
    entries = [Entry(labels.open(), *sheet.words.value()) for _ in range(sheet.choose(2, 6))]
    return (
        f'<div class="card"><h3>{sheet.words.title(1, 3)}</h3>'
        f"{key_values(sheet, entries, look=draw_look(sheet, 'spread')).html}</div>"
    )
