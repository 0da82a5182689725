"""Price cards: plans side by side, each with a price, a period, features and a button."""

from __future__ import annotations

from arr_coc_lab.world.browser.fields import Entry, Labels, close, columns_of, key_values, make
from arr_coc_lab.world.browser.parts import button, compare, draw_look, frame, heading, prose, purse, room
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

TITLES = (
    "Pricing",
    "Plans and pricing",
    "Choose your plan",
    "Simple pricing",
    "Compare plans",
    "Tariffs",
    "Membership",
    "Tickets",
    "Packages",
    "Our rates",
    "Subscriptions",
)
PLANS = (
    "Basic", "Starter", "Standard", "Plus", "Pro", "Team", "Business", "Premium", "Enterprise",
    "Family", "Student", "Bronze", "Silver", "Gold", "Platinum",
    "Small", "Medium", "Large", "Solo", "Growth", "Scale", "Ultimate", "Essential", "Hobby", "Professional",
    "Personal", "Day pass", "Month pass", "Season",
)  # fmt: skip
FEATURES = (
    ("Storage", "5 GB|10 GB|50 GB|100 GB|1 TB|2 TB"), ("Users", "1|2|5|10|25|100|Unlimited"),
    ("Support", "E-mail|Chat|Phone|24/7|None|Priority"),
    ("Projects", "1|3|10|50|Unlimited"), ("Bandwidth", "measure"), ("API calls", "number"),
    ("Trial", "7 days|14 days|30 days|None"), ("Devices", "1|2|4|6|10"),
    ("Setup fee", "price"), ("Minutes", "100|300|500|Unlimited"), ("Data volume", "2 GB|10 GB|30 GB|100 GB"),
    ("Speed", "16 Mbit/s|50 Mbit/s|250 Mbit/s|1 Gbit/s"),
    ("Contract", "None|1 month|12 months|24 months"), ("Domains", "1|5|10|100"),
    ("Backups", "Daily|Weekly|Monthly|None"), ("Streams", "1|2|3|4"), ("Quality", "HD|Full HD|4K"),
    ("Guests", "0|1|2|4"), ("Classes", "2|4|8|Unlimited"), ("Seats", "1|5|20|50"), ("Discount", "percent"),
    ("Billing", "Monthly|Yearly"), ("Response time", "1 h|4 h|24 h|48 h"),
)  # fmt: skip
PERIODS = (
    "per month",
    "/month",
    "/mo",
    "per year",
    "per user",
    "a week",
    "/yr",
    "per seat and month",
    "once",
    "",
)

EXTREMES = {
    False: (
        "Which plan is cheapest?",
        "Which one costs the least?",
        "What is the cheapest option?",
        "Which has the lowest price?",
    ),
    True: ("Which plan is the most expensive?", "Which one costs the most?", "Which has the highest price?"),
}


@page_type("pricing", weight=1.6)
def pricing(sheet: Sheet) -> str:
    """Cards or rows of plans; the same features in each, so a feature's question names the plan."""
    labels = Labels(sheet, FEATURES, sorts=("number", "measure", "percent", "word", "count"))
    money, words, rng = purse(sheet), sheet.words, sheet.rng
    title = heading(sheet, TITLES)
    count = sheet.choose(2, max(2, min(6, room(sheet, 1.0, 7.0) + 1 if sheet.style.narrow else 6)))
    names = [labels.open() if sheet.chance(0.35) else name for name in rng.sample(PLANS, count)]
    features = labels.draw(sheet.choose(0, 6))
    prices = sorted(round(10 ** rng.uniform(0.3, 3), 2) for _ in names)
    if sheet.chance(0.3):
        rng.shuffle(prices)
    free, period, listed = sheet.chance(0.15), sheet.one(PERIODS), sheet.chance(0.5)
    big, align, tagged = (
        rng.choice((1.2, 1.6, 2.0, 2.6)),
        sheet.one(("left", "center")),
        rng.randrange(count) if sheet.chance(0.5) else -1,
    )
    action, blurb, last = (
        sheet.one(("", "Choose", "Buy now", "Start trial", "Select", "Sign up")),
        sheet.chance(0.3),
        sheet.chance(0.15),
    )
    look = draw_look(sheet, "spread", "colon", "table", "dotted", "flush")
    tag, cards, tops, costs = sheet.one(("h2", "h3")), [], [], []
    for i, (name, price) in enumerate(zip(names, prices, strict=True)):
        top = sheet.text(name, tag)
        cost = sheet.text(
            "Free" if free and not i else money(price),
            attributes=f'style="font-size:{big}em;font-weight:700"',
        )
        sheet.ask("price", sheet.phrase("price", label=name), cost.plain, top, cost)
        offered = [entry._replace(value=make(sheet, entry.sort or "word")) for entry in features]
        inner = (
            _listed(sheet, top, offered)
            if listed
            else key_values(sheet, offered, top, look=look, kind="price").html
        )
        badge = ""
        if i == tagged:
            mark = sheet.text(sheet.one(("Most popular", "Best value", "Recommended", "Popular", "New")))
            text = sheet.one(
                ("Which plan is marked {}?", "Which one is labelled {}?", "What carries the badge {}?")
            ).format(mark.plain)
            sheet.ask("implied", text, name, mark, top)
            badge = f'<div class="accent" style="font-size:.85em">{mark}</div>'
        lead = f'<p class="muted" style="font-size:.9em">{words.sentence(3, 9)}</p>' if blurb else ""
        edge = "outline:2px solid var(--accent)" if i == tagged else ""
        end = f"<div>{button(sheet, action)}</div>" if action else ""
        parts = [f'<div>{cost} <span class="muted">{period}</span></div>', lead, inner]
        if last:
            parts.append(parts.pop(0))
        cards.append(
            f'<div class="card" style="margin:0;min-width:0;text-align:{align};{edge}">'
            f"{badge}{top}{''.join(parts)}{end}</div>"
        )
        tops.append(top)
        costs.append(cost)
    numbers, most = [0.0 if free and not i else price for i, price in enumerate(prices)], sheet.chance(0.4)
    compare(sheet, sheet.one(EXTREMES[most]), tops, costs, numbers, most)
    sheet.ask(
        "count",
        sheet.one(
            (
                "How many plans are there?",
                "How many prices are compared?",
                "How many options can I choose from?",
            )
        ),
        str(count),
        *tops,
    )
    if not sheet.style.narrow:
        limit = rng.choice((10, 20, 50, 100))
        i = rng.randrange(count)
        text = sheet.one(("Is {} cheaper than {}?", "Does {} cost less than {}?")).format(names[i], limit)
        sheet.ask("yes-no", text, "yes" if numbers[i] < limit else "no", tops[i], costs[i])
    close(sheet, labels)
    lead = f'<p class="muted">{prose(sheet, 1, 2)}</p>' if sheet.chance(0.4) else ""
    grid = (
        '<div style="'
        f"{columns_of(max(5.5 * big, rng.choice((10, 12, 15))))}gap:var(--gap);"
        f'align-items:{sheet.one(("start", "stretch"))}">{"".join(cards)}</div>'
    )
    return frame(sheet, title + lead + grid, 0.5)


def _listed(sheet: Sheet, top: Piece, features: list[Entry]) -> str:
    """Features as a list of "5 GB storage"; one of them asked for, the whole list as a section."""
    lines = [sheet.text(f"{entry.value} {entry.label.lower()}", "li") for entry in features]
    if lines:
        sheet.ask(
            "section",
            sheet.phrase("section", label=top.plain),
            "; ".join(line.plain for line in lines),
            top,
            *lines,
        )
        i = sheet.choose(0, len(lines) - 1)
        entry = features[i]
        text = sheet.phrase("within", label=entry.label, within=top.plain)
        sheet.ask("price", text, entry.value, top, lines[i])
    mark = sheet.one(("none", "disc", "'✓ '", "'– '"))
    return f'<ul style="list-style:{mark};padding-left:1.2em;margin:.4em 0">{"".join(lines)}</ul>'
