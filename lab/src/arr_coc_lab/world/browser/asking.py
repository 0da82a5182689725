"""Parts of questions that page types share: distinct labels, wordings, and questions that most pages have.

*names, missing = labels(sheet, 6, REAL)
sheet.ask("chart", put(sheet, ("How high is {label}?",), label=names[0]), ...)
finish(sheet, heading, missing)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from arr_coc_lab.world.browser.drawing import bar_code, square_code
from arr_coc_lab.world.browser.sheet import Piece, Sheet


def labels(
    sheet: Sheet,
    count: int,
    real: Sequence[str] = (),
    low: int = 1,
    high: int = 3,
    most: int = 26,
    share: float = 0.35,
) -> list[str]:
    """`count` distinct labels in random order, none of them inside another.

    A `share` is taken from `real` labels where there are enough; the others are phrases of `low` to `high`
    words. None is longer than `most` characters.
    """
    drawn: list[str] = []
    tries = 0
    while len(drawn) < count:
        tries += 1
        open_one = not real or not sheet.chance(share) or tries > 40 * count
        label = sheet.words.title(low, high) if open_one else sheet.one(real)
        key = label.lower()
        if len(label) <= most and not any(key in other.lower() or other.lower() in key for other in drawn):
            drawn.append(label)
    return drawn


def put(sheet: Sheet, options: Sequence[str], **parts: str) -> str:
    """One of some wordings with its parts filled in; sometimes all in small letters."""
    option = sheet.one(options)
    text = option.format(**parts)
    if "a {" in option:
        text = re.sub(r"\ba (?=[aeiou])", "an ", text)
    return text.lower() if sheet.chance(0.08) else text


PRESENT = (
    "Is {label} on this page?", "Is there an entry called {label}?", "Does {label} appear here?",
    "Is {label} listed?",
    "Do you see {label} anywhere?", "Does the page mention {label}?",
)  # fmt: skip


def present(sheet: Sheet, piece: Piece) -> None:
    """Ask whether a label that is on the page is there."""
    kind = sheet.one(("presence", "yes-no"))
    sheet.ask(kind, put(sheet, PRESENT, label=piece.plain), "yes", piece)


BAR_CODE = ("Where is the bar code?", "Show me the barcode.", "Where can I find the barcode?")
QR_CODE = ("Where is the QR code?", "Where do I scan?", "Show me the QR code.", "Which part can be scanned?")


def code_mark(sheet: Sheet, owner: Piece | None = None, height: float = 0.0) -> Piece:
    """Return a bar code or a QR code, asked for.

    `owner` names whose QR code it is, where the page has several; `height` in CSS px, 0 for a random one.
    """
    bars, tall = not owner and sheet.chance(0.5), height or sheet.style.size * sheet.rng.uniform(3.2, 6.5)
    image = bar_code(sheet.rng, tall * 0.7) if bars else square_code(sheet.rng, tall)
    piece = sheet.block(image, "div", 'style="display:inline-block;line-height:0;flex:none"')
    name = "bar code" if bars else "QR code"
    options = BAR_CODE if bars else QR_CODE
    if owner:
        options = ("Where is the QR code of {owner}?", "Show me {owner}'s QR code.", "QR code of {owner}?")
    text = put(sheet, options, owner=owner.plain if owner else "")
    sheet.ask("shape", text, f"the {name}", *([owner] if owner else []), piece)
    return piece


CHART_TITLE = (
    "What does the chart show?", "What is the chart about?", "What is the title of the chart?",
    "chart title?", "How is the chart headed?", "What is the diagram called?", "How is the diagram headed?",
    "What is plotted here?", "What does the diagram show?", "Which heading stands over the graph?",
    "What is shown in the graph?", "What is the graph about?",
)  # fmt: skip


def chart_title(sheet: Sheet, heading: Piece | None) -> None:
    """Ask for the heading of a chart as such, if it has one."""
    if heading is not None:
        sheet.ask("title", put(sheet, CHART_TITLE), heading.plain, heading)


LEGEND = (
    "What does {colour} stand for?", "What does {colour} mean?", "What is drawn in {colour}?",
    "Which one is shown in {colour}?", "Which series is {colour}?", "What is {colour} in the legend?",
    "What do the {colour} ones stand for?", "Which name belongs to {colour}?", "{colour} is what?",
    "What does the {colour} {mark} mean?", "Which {mark} is {colour}?", "What is the {colour} {mark}?",
)  # fmt: skip


def legend_colours(
    sheet: Sheet, colours: Sequence[str], keys: Sequence[Piece], swatches: Sequence[Piece], mark: str
) -> None:
    """Ask what each colour of a chart's legend stands for.

    Args:
        sheet: of the page.
        colours: by name.
        keys: what each stands for.
        swatches: the colours in the legend.
        mark: what has them in the chart: "bar", "line".
    """
    for colour, key, swatch in zip(colours, keys, swatches, strict=True):
        sheet.ask("colour", put(sheet, LEGEND, colour=colour, mark=mark), key.plain, swatch, key)


def finish(sheet: Sheet, heading: Piece | None, missing: str, kind: str = "value") -> None:
    """Ask for the title, for the entire page, and for something absent (`missing`: a label or a question)."""
    if heading is not None:
        sheet.ask("title", sheet.phrase("title"), heading.plain, heading)
    sheet.ask("global", sheet.phrase("global"), "")
    text = missing if missing[-1] in "?." else sheet.phrase(kind, label=missing)
    sheet.ask("unanswerable", text, "not on the page")


def room(sheet: Sheet) -> tuple[float, float]:
    """Width and height inside the page's margin, CSS px."""
    gap = float(dict(sheet.style.variables)["gap"].removesuffix("px"))
    return sheet.style.width - 2 * gap, sheet.style.height - 2 * gap
