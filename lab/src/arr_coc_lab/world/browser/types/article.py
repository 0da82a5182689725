"""Long articles: headings, paragraphs, lists, block quotes and figures, on one sheet or in columns."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, labels, put, room
from arr_coc_lab.world.browser.drawing import ICONS, backdrop, icon
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

REAL = (
    "Introduction", "Background", "Methods", "Results", "Discussion", "Conclusion", "How it works",
    "Getting started", "History",
    "Early life", "Career", "Legacy", "What comes next", "Why it matters", "Key findings",
    "Further reading", "Installation",
    "Requirements", "Frequently asked questions", "Costs and benefits", "Before you begin",
    "Known problems", "Related work",
    "Geography", "Economy", "Climate", "Privacy", "Your rights", "Returns and refunds",
    "Safety instructions", "Maintenance",
)  # fmt: skip
FACTS = (
    "The {label} is {value}.", "In this case the {label} was {value}.", "According to {name}, the "
                                                                        "{label} is {value}.",
    "By {date} the {label} had become {value}.", "It is agreed that the {label} must be {value} from "
                                                 "{date} on.",
    "We chose {value} as the {label}.", "For the {label}, {name} names {value}.",
)  # fmt: skip


@page_type("article", weight=1.5)
def article(sheet: Sheet) -> str:
    """Return a title, a byline, an opening and sections until the page is full."""
    width, height = room(sheet)
    size = sheet.style.size
    columns = 1 if sheet.style.width < 700 or sheet.chance(0.5) else 2
    measure = width if sheet.style.narrow or columns > 1 else min(width, size * sheet.choose(34, 70))
    letters = measure * height / size**2 / 1.1
    names = labels(sheet, 14, REAL, low=2, high=4, most=40, share=0.5)
    heading = sheet.text(sheet.words.title(3, 8), "h1")
    parts = [heading, _byline(sheet)]
    if sheet.chance(0.5):
        parts.append(f'<p style="font-size:1.12em">{sheet.words.paragraph(1, 3)}</p>')
    numbered, total = sheet.chance(0.2), 200.0
    for number, name in enumerate(names[:-1], 1):
        html, length = _section(sheet, name, f"{number} " if numbered else "")
        parts.append(html)
        total += length
        if total > letters:
            break
    finish(sheet, heading, names[-1], "section")
    style = f"columns:{columns};column-gap:2em;" if columns > 1 else f"max-width:{measure:.0f}px;"
    centre = "margin:0 auto" if sheet.chance(0.5) else ""
    side = ' class="card"' if columns == 1 and sheet.chance(0.2) else ""
    align = sheet.one(("", "", "text-align:justify;"))
    return f'<div{side} style="{style}{align}{centre}">{"".join(parts)}</div>'


def _byline(sheet: Sheet) -> str:
    """Author, date and reading time, some of them asked for."""
    if sheet.chance(0.25):
        return ""
    author, date, minutes = (
        sheet.text(sheet.words.name()),
        sheet.text(sheet.words.date()),
        sheet.choose(2, 19),
    )
    sheet.ask(
        "value",
        put(sheet, ("Who wrote this?", "Who is the author?", "By whom is this article?", "Author?")),
        author.plain,
        author,
    )
    sheet.ask(
        "value",
        put(sheet, ("When was this published?", "What is the date of the article?", "Date of publication?")),
        date.plain,
        date,
    )
    length = sheet.text(f"{minutes} min read")
    sheet.ask(
        "value",
        put(sheet, ("How long does it take to read this?", "What is the reading time?")),
        length.plain,
        length,
    )
    joint = sheet.one((" · ", " | ", ", ", " — "))
    return f'<p class="muted" style="font-size:.88em">By {author}{joint}{date}{joint}{length}</p>'


def _section(sheet: Sheet, name: str, number: str) -> tuple[str, float]:
    """Return a heading with paragraphs, a list, a quote or a figure, and about how many letters it takes."""
    heading = sheet.text(name)
    body: list[str] = []
    pieces: list[Piece] = []
    total = 120.0
    for _ in range(sheet.choose(1, 3)):
        kind = sheet.rng.choices(("p", "ul", "blockquote", "figure"), (6, 2, 1, 1))[0]
        if kind == "figure":
            body.append(_figure(sheet))
            total += 400
            continue
        if kind == "p" and sheet.chance(0.35):
            text, length = _fact(sheet)
            body.append(f"<p>{text}</p>")
            total += length
            pieces.append(text)
            continue
        if kind == "ul" and not any("<li>" in other for other in body):
            items = [sheet.text(sheet.words.sentence(3, 10)) for _ in range(sheet.choose(2, 5))]
            tag = sheet.one(("ul", "ol"))
            body.append(f"<{tag}>{''.join(f'<li>{item}</li>' for item in items)}</{tag}>")
            total += sum(len(item.plain) for item in items) + 60
            pieces += items
            if tag == "ol" and number == "" and sheet.chance(0.6):
                place = sheet.choose(0, len(items) - 1)
                question = put(
                    sheet,
                    ("What is point {n} under {name}?", "What is the {n}. item of the list in {name}?"),
                    n=str(place + 1),
                    name=name,
                )
                sheet.ask("value", question, items[place].plain, heading, items[place])
            continue
        text = sheet.text(sheet.words.paragraph(1, 5))
        edge = 'style="border-left:3px solid var(--accent);margin:.6em 0;padding:.1em 1em;font-style:italic"'
        quoted = kind == "blockquote"
        body.append(f"<blockquote {edge}>{text}</blockquote>" if quoted else f"<p>{text}</p>")
        total += len(text.plain)
        pieces.append(text)
    if pieces:
        sheet.ask("section", sheet.phrase("section", label=name), pieces[0].plain, heading, *pieces)
    return f"<{(tag := sheet.one(('h2', 'h2', 'h3')))}>{number}{heading}</{tag}>{''.join(body)}", total


def _fact(sheet: Sheet) -> tuple[Piece, float]:
    """Return a paragraph with a fact in the midst of its sentences, and its length; asks for the fact."""
    sort, value = sheet.words.value()
    label = labels(sheet, 1, low=2, high=2)[0].lower()
    fact = sheet.text(
        put(sheet, FACTS, label=label, value=value, name=sheet.words.company(), date=sheet.words.date())
    )
    if value in fact.plain and label in fact.plain:
        sheet.ask("implied", sheet.phrase("value", sort=sort, label=label), value, fact)
    before, after = sheet.words.paragraph(1, 2), sheet.words.paragraph(1, 2)
    paragraph = sheet.block(f"{before} {fact} {after}", "span", 'style="display:block"')
    paragraph.plain = f"{before} {fact.plain} {after}"
    return paragraph, len(paragraph.plain)


def _figure(sheet: Sheet) -> str:
    """Return a picture made of a background and an icon, with a caption."""
    name = sheet.one(list(ICONS))
    size = sheet.style.size
    style = (
        f"{backdrop(sheet.rng)};height:{size * sheet.rng.uniform(5, 11):.0f}px;display:flex;"
        f"align-items:center;justify-content:center"
    )
    picture = sheet.block(icon(name, size * 3, "#888"), "div", f'style="{style}"')
    caption = sheet.text(sheet.words.sentence(3, 9))
    label = f"Figure {len(sheet.inquiries) + 1}"
    text = put(
        sheet,
        ("What does {label} show?", "Where is {label}?", "What is the caption of {label}?"),
        label=label,
    )
    sheet.ask("section", text, caption.plain, picture, caption)
    return (
        f'<figure style="margin:.8em 0">{picture}<figcaption class="muted" style="font-size:.85em">'
        f"{label}: {caption}</figcaption></figure>"
    )
