"""Glossaries: terms and definitions as lists, tables, cards or run-in entries."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, labels, present, put, room
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

REAL = (
    "Bandwidth", "Latency", "Cache", "Firewall", "Encryption", "Photosynthesis", "Osmosis", "Mitosis",
    "Catalyst", "Isotope",
    "Inflation", "Liquidity", "Dividend", "Collateral", "Amortisation", "Sonata", "Fresco", "Metaphor",
    "Sonnet", "Treaty", "Delta",
    "Moraine", "Estuary", "Tundra", "Plaintiff", "Subpoena", "Escrow", "Keel", "Starboard", "Julienne",
    "Blanching", "Offside",
    "API", "HTML", "GDP", "VAT", "RSVP", "DNA", "CPU", "Annual percentage rate", "Net weight",
    "Working day", "Personal data",
)  # fmt: skip
KINDS = (
    "A",
    "The",
    "An",
    "Any",
    "Describes",
    "Said of",
    "Short for",
    "In law, a",
    "Here, the",
    "Used for",
    "Opposite of",
)


@page_type("glossary")
def glossary(sheet: Sheet) -> str:
    """Return a heading and entries in alphabetical order, as many as the page takes."""
    width, height = room(sheet)
    size = sheet.style.size
    columns = 1 if sheet.style.width < 640 else sheet.choose(1, 3 if sheet.style.width > 1100 else 2)
    count = max(4, min(24, int(width * height / size**2 / 190)))
    *terms, missing = labels(sheet, count + 1, REAL, high=2, share=0.45)
    if sheet.chance(0.7):
        terms.sort(key=str.lower)
    heading = sheet.text(
        sheet.one(
            (
                "Glossary",
                "Terms and definitions",
                "Key terms",
                "Definitions",
                "Vocabulary",
                sheet.words.title(2, 4),
            )
        ),
        "h1",
    )
    look = sheet.one(("dl", "table", "run", "cards"))
    entries = [_entry(sheet, term, look) for term in terms]
    pieces = [entry[0] for entry in entries]
    if columns == 1 and look != "cards" and len(terms) > 3:
        _neighbours(sheet, pieces)
    present(sheet, sheet.rng.choice(pieces))
    finish(sheet, heading, missing, "term")
    body = "".join(entry[1] for entry in entries)
    if look == "table":
        head = (
            f"<tr><th>{sheet.one(('Term', 'Word', 'Name'))}</th><th>"
            f"{sheet.one(('Definition', 'Meaning', 'Explanation'))}</th></tr>"
        )
        return f'{heading}<table style="width:100%">{head}{body}</table>'
    if look == "cards":
        return f'{heading}<div class="grid" style="grid-template-columns:repeat({columns},1fr)">{body}</div>'
    return f'{heading}<div style="columns:{columns};column-gap:2em">{body}</div>'


def _entry(sheet: Sheet, name: str, look: str) -> tuple[Piece, str]:
    """Return a term's piece and its entry as HTML; asks what it means."""
    rest = sheet.words.sentence(4, sheet.choose(6, 26))
    definition = sheet.text(f"{sheet.one(KINDS)} {rest[:1].lower()}{rest[1:]}")
    term = sheet.text(name)
    sheet.ask("term", sheet.phrase("term", label=name), definition.plain, term, definition)
    if look == "table":
        return term, f"<tr><td><b>{term}</b></td><td>{definition}</td></tr>"
    if look == "cards":
        return term, f'<div class="card" style="margin:0"><h3 class="accent">{term}</h3>{definition}</div>'
    if look == "run":
        joint = sheet.one((":", " —", "."))
        return term, f'<p style="break-inside:avoid"><b>{term}</b>{joint} {definition}</p>'
    return (
        term,
        f'<div style="break-inside:avoid;margin-bottom:.6em"><div style="font-weight:bold">{term}</div>'
        f'<div style="margin-left:1.5em">{definition}</div></div>',
    )


def _neighbours(sheet: Sheet, pieces: list[Piece]) -> None:
    """Ask which term comes before or after another."""
    i = sheet.choose(1, min(len(pieces) - 2, 6))
    for step, way in ((-1, "before"), (1, "after")):
        text = put(
            sheet,
            ("Which term comes {way} {name}?", "What is the entry directly {way} {name}?"),
            way=way,
            name=pieces[i].plain,
        )
        sheet.ask("position", text, pieces[i + step].plain, pieces[i], pieces[i + step])
