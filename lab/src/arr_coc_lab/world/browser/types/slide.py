"""Slides of a talk: a title with bullets, two columns, one big number, or bullets beside a chart."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, labels, put, room
from arr_coc_lab.world.browser.drawing import ICONS, VIVID, icon, shade
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

REAL = (
    "Agenda",
    "Our team",
    "Key results",
    "Next steps",
    "Roadmap",
    "The problem",
    "The solution",
    "Market",
    "Competition",
    "Pricing",
    "Risks",
    "Milestones",
    "Strengths",
    "Weaknesses",
    "Lessons learned",
    "Questions",
    "Goals",
    "Budget",
    "Timeline",
    "Benefits",
)
NTH = ("first", "second", "third", "fourth", "fifth", "sixth")


@page_type("slide")
def slide(sheet: Sheet) -> str:
    """One slide filling the page."""
    width, height = room(sheet)
    title, *heads, missing = labels(sheet, 5, REAL, low=1, high=4, most=34, share=0.5)
    size = max(sheet.style.size, min(width / 34, height / 15))
    top = sheet.text(title, "h1")
    body = sheet.rng.choice((_bullets, _bullets, _columns, _number, _chart))(sheet, heads, width / size)
    foot = _foot(sheet)
    finish(sheet, top, missing, "section")
    ground = sheet.one(("", "", f"{_band(sheet)}"))
    align = sheet.one(("left", "left", "center"))
    if height > width:  # a slide on a tall page has its own frame
        height = width * sheet.rng.uniform(0.6, 1.2)
    return (
        f'<div style="font-size:{size:.1f}px;min-height:{height:.0f}px;display:flex;flex-direction:column">'
        f'<div style="{ground};text-align:{align}">{top}</div><div style="flex:1">{body}</div>{foot}</div>'
    )


def _band(sheet: Sheet) -> str:
    return sheet.one(
        (
            "border-bottom:4px solid var(--accent)",
            "background:var(--accent);color:var(--paper);padding:.1em 1em",
            "border-left:.4em solid var(--accent);padding-left:.6em",
        )
    )


def _foot(sheet: Sheet) -> str:
    """Date, speaker and number of the slide."""
    if sheet.chance(0.3):
        return ""
    who, number, date = (
        sheet.text(sheet.words.name()),
        sheet.text(str(sheet.choose(2, 60))),
        sheet.text(sheet.words.date()),
    )
    sheet.ask(
        "value",
        put(sheet, ("Which slide number is this?", "What is the number of the slide?")),
        number.plain,
        number,
    )
    sheet.ask(
        "value", put(sheet, ("Who is the speaker?", "Which name stands at the bottom?")), who.plain, who
    )
    sheet.ask("value", put(sheet, ("Which date is on the slide?", "When was the talk?")), date.plain, date)
    return f'<div class="row muted" style="font-size:.62em">{date}{who}{number}</div>'


def _points(sheet: Sheet, count: int) -> list[Piece]:
    """Distinct short statements."""
    return [sheet.text(sheet.words.sentence(2, 8).rstrip(".?!")) for _ in range(count)]


def _bullets(sheet: Sheet, heads: list[str], _: float) -> str:
    """Return a list, with numbers, bullets or icons."""
    points = _points(sheet, sheet.choose(3, 6))
    for i in sheet.rng.sample(range(len(points)), 2):
        sheet.ask(
            "value",
            put(
                sheet,
                (
                    "What is the {nth} point?",
                    "What does the {nth} bullet say?",
                    "Read the {nth} item of the list.",
                ),
                nth=NTH[i],
            ),
            points[i].plain,
            points[i],
        )
    sheet.ask(
        "count",
        put(sheet, ("How many points are there?", "How many bullets does the slide have?")),
        str(len(points)),
        *points,
    )
    sheet.ask(
        "position",
        put(sheet, ('What comes after "{a}"?', "Which point follows {a}?"), a=points[0].plain),
        points[1].plain,
        points[0],
        points[1],
    )
    sheet.ask(
        "position",
        put(sheet, ("What is the last point?", "Which point comes last?")),
        points[-1].plain,
        points[-1],
    )
    if sheet.chance(0.25):
        names = sheet.rng.sample(list(ICONS), len(points))
        rows = "".join(
            f'<div style="display:flex;gap:.7em;align-items:center;margin:.5em 0">'
            f"{icon(name, sheet.style.size * 2, 'var(--accent)')}{point}</div>"
            for name, point in zip(names, points, strict=True)
        )
        return rows
    tag = sheet.one(("ul", "ul", "ol"))
    return f'<{tag} style="line-height:1.6">{"".join(f"<li>{point}</li>" for point in points)}</{tag}>'


def _columns(sheet: Sheet, heads: list[str], wide: float) -> str:
    """Two or three headings, each with its points."""
    count = sheet.choose(2, 3) if wide > 24 else 2
    parts = []
    for name in heads[:count]:
        head, points = sheet.text(name, "h2"), _points(sheet, sheet.choose(2, 4))
        sheet.ask(
            "section",
            sheet.phrase("section", label=name),
            "; ".join(p.plain for p in points),
            head,
            *points,
        )
        sheet.ask(
            "count",
            put(
                sheet,
                ("How many points stand under {label}?", "How many items does {label} have?"),
                label=name,
            ),
            str(len(points)),
            head,
            *points,
        )
        parts.append(
            f'<div class="{sheet.one(("", "card"))}" style="flex:1;min-width:12em">{head}<ul '
            f'style="padding-left:1.1em">{"".join(f"<li>{p}</li>" for p in points)}</ul></div>'
        )
    return f'<div style="display:flex;flex-wrap:wrap;gap:1.5em">{"".join(parts)}</div>'


def _number(sheet: Sheet, heads: list[str], _: float) -> str:
    """One to three big numbers with their labels."""
    cells = []
    for name in heads[: sheet.choose(1, 3)]:
        figure = sheet.text(
            sheet.words.of(sheet.one(("percent", "price", "count", "measure"))),
            "div",
            'style="font-size:2.3em;font-weight:bold;line-height:1.15" class="accent"',
        )
        label = sheet.text(name)
        sheet.field(label, figure)
        cells.append(f'<div style="flex:1;text-align:center;min-width:9em">{figure}{label}</div>')
    text = sheet.text(sheet.words.paragraph(1, 2))
    sheet.ask(
        "section",
        put(sheet, ("What does the text below the numbers say?", "Read the paragraph.")),
        text.plain,
        text,
    )
    return (
        f'<div style="display:flex;flex-wrap:wrap;gap:1em;margin:.8em 0">{"".join(cells)}</div><p '
        f'style="font-size:.8em">{text}</p>'
    )


def _chart(sheet: Sheet, heads: list[str], wide: float) -> str:
    """Points beside lying bars made of blocks."""
    points = _points(sheet, sheet.choose(2, 3))
    sheet.ask(
        "value",
        put(sheet, ("What is the first point?", "What does the first bullet say?")),
        points[0].plain,
        points[0],
    )
    paint, unit, rows, drawn = shade(sheet.rng, sheet.one(VIVID)), sheet.one(("%", "", "k")), [], []
    values = sheet.rng.sample(range(5, 100), sheet.choose(3, 5))
    for name, value in zip(labels(sheet, len(values), high=1, most=12), values, strict=True):
        bar = sheet.block("", "div", f'style="background:{paint};height:1em;width:{value * 0.09:.2f}em"')
        label, figure = (
            sheet.text(name, "span", 'style="width:7em;overflow-wrap:anywhere"'),
            sheet.text(f"{value}{unit}"),
        )
        drawn.append((value, name, (label, bar, figure)))
        sheet.ask(
            "chart",
            put(
                sheet,
                (
                    "What is the value of {label}?",
                    "How high is {label}?",
                    "{label}?",
                    "What does the bar {label} show?",
                ),
                label=name,
            ),
            figure.plain,
            label,
            bar,
            figure,
        )
        rows.append(
            f'<div style="display:flex;gap:.4em;align-items:center;margin:.35em 0">{label}{bar}{figure}</div>'
        )
    best = max(drawn)
    sheet.ask(
        "chart", put(sheet, ("Which bar is longest?", "What has the highest value?")), best[1], *best[2]
    )
    bullets = f'<ul style="flex:1;min-width:11em">{"".join(f"<li>{p}</li>" for p in points)}</ul>'
    return (
        f'<div style="display:flex;flex-wrap:wrap;gap:1em"><div style="font-size:.8em;flex:1.2">'
        f"{''.join(rows)}</div>{bullets}</div>"
    )
