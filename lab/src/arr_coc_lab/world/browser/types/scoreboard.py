"""Sports: results of matches, league tables, medals, and the score of one running match."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, present, put, room
from arr_coc_lab.world.browser.drawing import VIVID, shade
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

CLUBS = (
    "United",
    "City",
    "Rovers",
    "Athletic",
    "Wanderers",
    "Tigers",
    "Eagles",
    "Sharks",
    "Wolves",
    "FC",
    "SV",
    "Rangers",
    "Lions",
)
STATES = ("FT", "Final", "HT", "62'", "Live", "Postponed", "AET", "Full time", "Q3", "2nd half")
TABLES = {
    "league": ("P", "W", "D", "L", "Pts"),
    "words": ("Played", "Won", "Drawn", "Lost", "Points"),
    "medals": ("Gold", "Silver", "Bronze", "Total"),
    "race": ("Time", "Laps", "Points"),
    "goals": ("GF", "GA", "GD", "Pts"),
}
SCORE = (
    "What was the score of {a} against {b}?",
    "How did {a} play against {b}?",
    "{a} – {b}: what is the result?",
    "What is the score between {a} and {b}?",
)
WON = ("Who won, {a} or {b}?", "Did {a} or {b} win?", "Which team won the match between {a} and {b}?")


@page_type("scoreboard")
def scoreboard(sheet: Sheet) -> str:
    """Return a table of a league or results as cards, under a heading."""
    heading = sheet.text(
        sheet.one(
            (
                sheet.words.title(2, 4),
                "Results",
                "Standings",
                f"Matchday {sheet.choose(1, 38)}",
                "League table",
            )
        ),
        "h1",
    )
    make = sheet.rng.choice((_table, _results, _live))
    return heading + make(sheet, heading)


def _teams(sheet: Sheet, count: int) -> list[str]:
    """Distinct names of teams, none inside another."""
    names: list[str] = []
    while len(names) < count:
        base = sheet.words.city() if sheet.chance(0.4) else sheet.words.title(1, 2)
        name = f"{base} {sheet.one(CLUBS)}" if sheet.chance(0.4) else base
        if len(name) < 22 and not any(
            name.lower() in other.lower() or other.lower() in name.lower() for other in names
        ):
            names.append(name)
    return names


def _badge(sheet: Sheet) -> str:
    """Return a team's colours."""
    one, two = shade(sheet.rng, sheet.one(VIVID)), shade(sheet.rng, sheet.one(VIVID))
    return (
        f'<span style="display:inline-block;width:1em;height:1em;'
        f"border-radius:{sheet.one(('50%', '2px'))};background:linear-gradient(90deg,{one} 50%,{two} "
        f'50%);vertical-align:-.12em;margin-right:.4em"></span>'
    )


def _table(sheet: Sheet, heading: Piece) -> str:
    """Ranks, teams and numbers."""
    height = room(sheet)[1]
    count = max(3, min(14, int((height / sheet.style.size - 6) / 2.3)))
    *teams, missing = _teams(sheet, count + 1)
    names = TABLES[sheet.one(list(TABLES))]
    if sheet.style.narrow:
        names = names[-3:]
    heads = [sheet.text(name) for name in names]
    points = sorted(sheet.rng.sample(range(5, 100), count), reverse=True)
    badges, rows = sheet.chance(0.5), []
    body = ""
    for rank, team in enumerate(teams, 1):
        place, name = sheet.text(str(rank)), sheet.text(team)
        cells = [
            sheet.text(str(sheet.choose(0, 40)) if head != names[-1] else str(points[rank - 1]))
            for head in names
        ]
        for head, cell in zip(heads, cells, strict=True):
            if sheet.chance(0.6):
                sheet.crossing(name, head, cell)
        sheet.ask(
            "implied",
            put(
                sheet,
                ("Who is in place {n}?", "Which team is number {n}?", "Who is ranked {n}?"),
                n=str(rank),
            ),
            team,
            place,
            name,
        )
        sheet.ask(
            "value",
            put(sheet, ("In which place is {team}?", "What is the rank of {team}?"), team=team),
            str(rank),
            place,
            name,
        )
        rows.append((name, place, cells))
        body += (
            f"<tr><td>{place}</td><td>{_badge(sheet) if badges else ''}{name}</td>"
            f"{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        )
    present(sheet, sheet.rng.choice(rows)[0])
    i, j = sorted(sheet.rng.sample(range(count), 2))
    text = put(
        sheet,
        ("Who has more {head}, {a} or {b}?", "Which has the higher {head}, {a} or {b}?"),
        head=names[-1],
        a=teams[j],
        b=teams[i],
    )
    sheet.ask("comparison", text, teams[i], heads[-1], rows[i][0], rows[i][2][-1], rows[j][0], rows[j][2][-1])
    sheet.ask(
        "position",
        put(sheet, ("Who is directly below {team}?", "Who comes after {team}?"), team=teams[0]),
        teams[1],
        rows[0][0],
        rows[1][0],
    )
    sheet.ask(
        "implied",
        put(sheet, ("Who leads?", "Who is first?", "Who is at the top?")),
        teams[0],
        rows[0][1],
        rows[0][0],
    )
    finish(
        sheet,
        heading,
        put(
            sheet,
            ("How many {head} does {team} have?", "In which place is {team}?"),
            head=names[-1],
            team=missing,
        ),
    )
    first = sheet.one(("#", "Pos", "Rank"))
    return (
        f'<table style="width:100%"><tr><th>{first}</th><th>{sheet.one(("Team", "Club", "Name"))}</th>'
        f"{''.join(f'<th>{head}</th>' for head in heads)}</tr>{body}</table>"
    )


def _results(sheet: Sheet, heading: Piece) -> str:
    """Matches with scores, as rows or as cards."""
    height = room(sheet)[1]
    columns = 1 if sheet.style.width < 700 else sheet.choose(1, 3)
    count = max(2, min(18, columns * int((height / sheet.style.size - 6) / 6)))
    *teams, missing = _teams(sheet, 2 * count + 1)
    cards = []
    stacked = sheet.chance(0.5)
    for a, b in zip(teams[::2], teams[1::2], strict=True):
        goals = (
            (sheet.choose(0, 5), sheet.choose(0, 5))
            if sheet.chance(0.7)
            else (sheet.choose(60, 120), sheet.choose(60, 120))
        )
        one, two, left, right = (
            sheet.text(a),
            sheet.text(b),
            sheet.text(str(goals[0]), "b"),
            sheet.text(str(goals[1]), "b"),
        )
        state = sheet.text(
            sheet.one(STATES) if sheet.chance(0.6) else sheet.words.date(),
            "div",
            'class="muted" style="font-size:.85em"',
        )
        sheet.ask("crossing", put(sheet, SCORE, a=a, b=b), f"{goals[0]}:{goals[1]}", one, two, left, right)
        sheet.ask(
            "value",
            put(sheet, ("How much did {a} score?", "What is the score of {a}?"), a=b),
            str(goals[1]),
            two,
            right,
        )
        if goals[0] != goals[1]:
            sheet.ask(
                "comparison",
                put(sheet, WON, a=a, b=b),
                a if goals[0] > goals[1] else b,
                one,
                two,
                left,
                right,
            )
        sheet.ask(
            "value",
            put(sheet, ("Against whom did {a} play?", "Who was the opponent of {a}?"), a=a),
            b,
            one,
            two,
        )
        line = (
            f'<div class="row"><span>{_badge(sheet)}{one}</span>{left}</div><div class="row"><span>'
            f"{_badge(sheet)}{two}</span>{right}</div>"
        )
        if not stacked:
            line = (
                f'<div style="display:grid;grid-template-columns:1fr auto 1fr;gap:.8em;'
                f'align-items:center"><span style="text-align:right">{one}</span><span>{left} : '
                f"{right}</span><span>{two}</span></div>"
            )
        cards.append(f'<div class="card" style="margin:0">{state}{line}</div>')
    finish(
        sheet,
        heading,
        put(sheet, ("How did {a} play?", "Against whom did {a} play?", "Did {a} win?"), a=missing),
    )
    return f'<div class="grid" style="grid-template-columns:repeat({columns},1fr)">{"".join(cards)}</div>'


def _live(sheet: Sheet, heading: Piece) -> str:
    """One match in large type and what happened in it."""
    size = sheet.style.size
    a, b, *others = _teams(sheet, 4)
    one, two = sheet.text(a, "h2"), sheet.text(b, "h2")
    goals = (sheet.choose(0, 6), sheet.choose(0, 6))
    score = sheet.text(
        f"{goals[0]} {sheet.one((':', '–', '-'))} {goals[1]}",
        "div",
        f'style="font-size:{size * 3.2:.0f}px;font-weight:bold;line-height:1.1;white-space:nowrap"',
    )
    state = sheet.text(sheet.one(STATES), "div", 'class="accent"')
    sheet.ask(
        "value",
        put(sheet, ("What is the score?", "How does it stand?", "What is the result?")),
        score.plain,
        score,
    )
    sheet.ask("crossing", put(sheet, SCORE, a=a, b=b), score.plain, one, two, score)
    sheet.ask("value", put(sheet, ("Who is playing?", "Which teams play?")), f"{a} and {b}", one, two)
    sheet.ask(
        "value", put(sheet, ("What is the state of the match?", "How far is the game?")), state.plain, state
    )
    rows, minute = [], 1
    for _ in range(max(2, min(9, int(room(sheet)[1] / size / 3 - 5)))):
        minute += sheet.choose(1, 9)
        time, what, who = (
            sheet.text(f"{minute}'"),
            sheet.text(
                sheet.one(("Goal", "Yellow card", "Substitution", "Red card", "Penalty", "Corner", "Injury"))
            ),
            sheet.text(sheet.words.name()),
        )
        sheet.ask(
            "value",
            put(sheet, ("What happened in minute {n}?", "What happened at {n}'?"), n=str(minute)),
            f"{what.plain}, {who.plain}",
            time,
            what,
            who,
        )
        sheet.ask(
            "value",
            put(sheet, ("What did {who} do or get?", "In which minute is {who} named?"), who=who.plain),
            f"{what.plain} ({minute}')",
            time,
            what,
            who,
        )
        rows.append(
            f'<div style="display:flex;gap:1em;padding:.35em 0;border-bottom:1px solid var(--line)"><b '
            f'style="width:2.4em">{time}</b><span style="width:7em">{what}</span>{who}</div>'
        )
    finish(sheet, heading, put(sheet, ("How did {a} play?", "Who scored for {a}?"), a=others[0]))
    return (
        f'<div class="card" style="display:grid;grid-template-columns:1fr auto 1fr;gap:.6em;'
        f'align-items:center;text-align:center">{one}<div>{score}{state}</div>{two}</div>{"".join(rows)}'
    )
