"""Front pages of news sites: a lead story, cards with teasers and pictures, a list of the most read."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, put, room
from arr_coc_lab.world.browser.drawing import VIVID, figure, shade
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

TOPICS = (
    "World",
    "Politics",
    "Sport",
    "Business",
    "Culture",
    "Science",
    "Local",
    "Opinion",
    "Health",
    "Travel",
    "Technology",
    "Weather",
    "Style",
    "Food",
)
TEASER = (
    'What is the story "{head}" about?',
    "What does the teaser of {head} say?",
    "What is written under the headline {head}?",
    "Summarise {head}.",
)
NAMED = ('Who wrote "{head}"?', "Who is the author of {head}?", "By whom is {head}?")
AGE = ('When was "{head}" published?', "How old is the story {head}?", "From when is {head}?")
TOPIC = ('In which section is "{head}"?', "Which topic does {head} belong to?")


@page_type("news_home", held_out=True)
def news_home(sheet: Sheet) -> str:
    """Return a masthead, a row of topics, a lead story and a grid of cards."""
    height = room(sheet)[1]
    size = sheet.style.size
    paper = sheet.text(
        sheet.one(
            (
                f"The {sheet.words.city()} {sheet.one(('Times', 'Post', 'Herald', 'Courier', 'Observer'))}",
                sheet.words.title(1, 2),
            )
        ),
        "h1",
        f'style="text-align:{sheet.one(("left", "center"))};margin:.1em 0"',
    )
    columns = 1 if sheet.style.width < 620 else sheet.choose(2, 4 if sheet.style.width > 1100 else 3)
    rows = max(1, int((height - 14 * size) / (size * 15)))
    topics = sheet.rng.sample(TOPICS, 4 if sheet.style.narrow else 8)
    links = "".join(f"<span>{topic}</span>" for topic in topics)
    bar = (
        f'<div style="display:flex;gap:1.4em;border-top:1px solid var(--line);border-bottom:1px solid '
        f'var(--line);padding:.35em 0;font-size:.88em;margin-bottom:.8em">{links}</div>'
    )
    heads = _heads(sheet, columns * rows + 7)
    lead = _story(sheet, heads.pop(), 1.7, sheet.chance(0.7), columns > 1)
    pictures = sheet.chance(0.75)
    cards = "".join(
        f'<div class="card" style="margin:0">'
        f"{_story(sheet, heads.pop(), 1.05, pictures and sheet.chance(0.85), False)}</div>"
        for _ in range(columns * rows)
    )
    ranked = ""
    if sheet.chance(0.5):
        ranked = _ranked(sheet, [heads.pop() for _ in range(5)])
    text = put(sheet, TEASER[:1] + NAMED[:2], head=heads.pop())
    finish(sheet, paper, text)
    grid = f'<div class="grid" style="grid-template-columns:repeat({columns},1fr)">{cards}</div>'
    if ranked and sheet.style.width > 900:
        return (
            f'{paper}{bar}<div style="display:flex;gap:1.5em"><div style="flex:3">{lead}{grid}</div>'
            f'<div style="flex:1">{ranked}</div></div>'
        )
    order = [lead, ranked, grid] if sheet.chance(0.3) else [lead, grid, ranked]
    return f"{paper}{bar}{''.join(order)}"


def _heads(sheet: Sheet, count: int) -> list[str]:
    """Distinct headlines."""
    heads: list[str] = []
    while len(heads) < count:
        words = sheet.words.words(3, 8)
        if not any(words in other.lower() or other.lower() in words for other in heads):
            heads.append(words.title() if sheet.chance(0.2) else words.capitalize())
    return heads


def _picture(sheet: Sheet, tall: float) -> str:
    """Return a stand-in for a photograph, no piece: hills, a sun or blots on a gradient."""
    names = sheet.rng.sample(VIVID, 3)
    one, two, three = (shade(sheet.rng, name) for name in names)
    blots = "".join(
        figure(
            sheet.one(("circle", "triangle", "oval", "square")),
            sheet.choose(0, 100),
            sheet.choose(20, 70),
            sheet.choose(8, 40),
            sheet.one((two, three)),
            sheet.choose(0, 60),
            'opacity=".6"',
        )
        for _ in range(sheet.choose(2, 6))
    )
    art = (
        f'<svg viewBox="0 0 100 60" preserveAspectRatio="xMidYMid slice" width="100%" '
        f'height="{tall:.0f}" style="display:block">{blots}</svg>'
    )
    return (
        f'<div style="background:linear-gradient({sheet.choose(0, 180)}deg,{one},{two});'
        f'border-radius:var(--radius);overflow:hidden">{art}</div>'
    )


def _story(sheet: Sheet, title: str, big: float, pictured: bool, wide: bool) -> str:
    """Return a headline with a teaser, perhaps a topic, a picture, an author and an age; asks about each."""
    size = sheet.style.size
    head = sheet.text(title, "span", f'style="font-size:{big:.2f}em;font-weight:bold;line-height:1.2"')
    teaser = sheet.text(sheet.words.paragraph(1, 2 if big > 1.5 else 1))
    sheet.ask("section", put(sheet, TEASER, head=title), teaser.plain, head, teaser)
    above = below = ""
    if sheet.chance(0.6):
        topic = sheet.text(
            sheet.one(TOPICS),
            "span",
            'class="accent" style="font-size:.8em;text-transform:uppercase;letter-spacing:.05em"',
        )
        sheet.ask("value", put(sheet, TOPIC, head=title), topic.plain, topic, head)
        above = f"<div>{topic}</div>"
    if sheet.chance(0.6):
        who, age = (
            sheet.text(sheet.words.name()),
            sheet.text(
                sheet.one(
                    (f"{sheet.choose(2, 59)} min ago", f"{sheet.choose(2, 23)} h ago", sheet.words.date())
                )
            ),
        )
        sheet.ask("value", put(sheet, NAMED, head=title), who.plain, head, who)
        sheet.ask("value", put(sheet, AGE, head=title), age.plain, head, age)
        below = f'<div class="muted" style="font-size:.82em;margin-top:.3em">{who} · {age}</div>'
    picture = _picture(sheet, size * (13 if wide else 7)) if pictured else ""
    text = f"{above}<div>{head}</div><p>{teaser}</p>{below}"
    if wide:
        return (
            f'<div style="display:flex;gap:1.2em;margin-bottom:1em"><div style="flex:1">{picture}</div>'
            f'<div style="flex:1">{text}</div></div>'
            if picture
            else f'<div style="margin-bottom:1em">{text}</div>'
        )
    return f'<div style="margin-bottom:.4em">{picture}{text}</div>'


def _ranked(sheet: Sheet, heads: list[str]) -> str:
    """Return the most read stories, numbered."""
    title, rows, pieces = sheet.text(sheet.one(("Most read", "Trending", "Top 5", "In brief")), "h3"), [], []
    for rank, name in enumerate(heads, 1):
        number, head = sheet.text(str(rank), "b"), sheet.text(name)
        pieces.append(head)
        sheet.ask(
            "implied",
            put(
                sheet,
                ("What is number {n} of the list {title}?", "Which story is in place {n} under {title}?"),
                n=str(rank),
                title=title.plain,
            ),
            name,
            title,
            number,
            head,
        )
        rows.append(
            f'<div style="display:flex;gap:.6em;padding:.35em 0;border-bottom:1px solid var(--line)">'
            f'<span class="accent">{number}</span>{head}</div>'
        )
    sheet.ask(
        "section",
        put(sheet, ("What is listed under {title}?", "Which stories are in {title}?"), title=title.plain),
        "; ".join(heads),
        title,
        *pieces,
    )
    return f"<div>{title}{''.join(rows)}</div>"
