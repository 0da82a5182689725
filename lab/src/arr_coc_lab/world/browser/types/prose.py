"""Pages of plain text in columns, for training word spotting."""

from __future__ import annotations

from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type


@page_type("prose", weight=0.5)
def prose(sheet: Sheet) -> str:
    """Headings and paragraphs in one to three columns, with numbers, names and codes among the words."""
    columns = 1 if sheet.style.narrow else sheet.choose(1, 3)
    heading = sheet.text(sheet.words.title(2, 6), "h1")
    parts: list[str] = [heading]
    total = 0
    while total < sheet.style.width * sheet.style.height / sheet.style.size**2 / 2.2:
        if sheet.chance(0.25):
            parts.append(sheet.text(sheet.words.title(1, 4), "h2"))
        words = [
            sheet.words.value()[1] if sheet.chance(0.12) else sheet.words.word()
            for _ in range(sheet.choose(15, 60))
        ]
        marked = {sheet.choose(0, len(words) - 1) for _ in range(2)}
        pieces = {i: sheet.text(words[i]) for i in sorted(marked)}
        total += sum(len(word) + 1 for word in words)
        for i in marked:
            if sum(words[i] in other for other in words) == 1:
                sheet.ask("word", sheet.phrase("word", label=words[i]), words[i], pieces[i])
        parts.append(f"<p>{' '.join(pieces.get(i, word) for i, word in enumerate(words))}</p>")
    sheet.ask("title", sheet.phrase("title"), heading.plain, heading)
    sheet.ask("global", sheet.phrase("global"), "")
    return f'<div style="columns:{columns};column-gap:2em">{"".join(parts)}</div>'
