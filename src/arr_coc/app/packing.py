"""The card "For any API": what would be sent, its tokens by provider, and a download."""

from __future__ import annotations

import html
import io
import json
import zipfile
from pathlib import Path
from typing import Any

from arr_coc.app.looking import MAX_QUESTION_LENGTH, Looking
from arr_coc.app.state import Tab
from arr_coc.files.atomic import write_atomic
from arr_coc.files.images import ImageSource, open_image
from arr_coc.pixels import LAYOUTS, RULES, Packed, find_rule, pack_for

SQUARE = "32"  # the rule of any model, as the command's default
USUAL_TOKENS, MAX_TOKENS = 400, 10_000
SHOWN = (SQUARE, "gpt-6", "gpt-5.4", "gpt-4o", "claude", "gemini-low", "gemini", "qwen", "gemma-4", "mistral")
FILE = "arr-coc-pictures.zip"
HEAD = "<tr><th>by the rule of</th><th>the picture</th><th>these</th><th>that is</th></tr>"


def rule_choices() -> list[tuple[str, str]]:
    """Return the rules as labels and names, for a dropdown."""
    own = [(f"{rule.name}: {rule.models}", rule.name) for rule in RULES.values()]
    return [("any other model: a token for each 32 x 32 px", SQUARE), *own]


def layout_choices() -> list[str]:
    """Return the layouts by name, for a dropdown."""
    return list(LAYOUTS)


def packed_pictures(
    looking: Looking, tab: Tab, image: ImageSource, question: str, rule: str, tokens: float, layout: str
) -> Packed:
    """Return what would be sent for a question about a tab's picture.

    Raises:
        ValueError: the picture can't be read, the question is missing, or the tokens are too few.
    """
    text = question[:MAX_QUESTION_LENGTH].strip()
    if not text:
        raise ValueError("type what you want to know about the picture")
    if not isinstance(tokens, int | float) or not 1 <= tokens <= MAX_TOKENS:
        raise ValueError(f"tokens must be 1 to {MAX_TOKENS:,}")
    own = find_rule(rule)
    return looking.pack(
        tab, image, lambda record: pack_for(open_image(image), text, int(tokens), own, layout, record)
    )


def sent_line(packed: Packed) -> str:
    """What is sent and its cost, in a sentence."""
    if packed.layout == "whole":
        return f"Any model would be sent the picture itself: {packed.tokens:,} tokens."
    count = len(packed.pictures)
    pictures = "this picture" if count == 1 else f"these {count} pictures"
    cost = f"{packed.tokens:,} tokens in place of {packed.whole_tokens:,}"
    cost += f", {compared(packed.tokens, packed.whole_tokens)}" * (packed.tokens > packed.whole_tokens)
    return f"Any model can be sent {pictures} instead of yours: {cost}. The layout is “{packed.layout}”."


def compared(sent: int, whole: int) -> str:
    """How many fewer or more tokens are sent than the picture itself takes, in words."""
    if sent == whole:
        return "the same"
    if sent < whole:
        return f"{100 - 100 * sent / whole:.0f} % less"
    return f"{sent / whole:.1f} times more" if sent >= 2 * whole else f"{100 * sent / whole - 100:.0f} % more"


def gallery(packed: Packed) -> list[tuple[Any, str]]:
    """Return the pictures with their captions."""
    return list(zip(packed.pictures, packed.captions, strict=True))


def table(packed: Packed) -> str:
    """Return what the picture and what is sent in its place cost by provider, as an HTML table."""
    names = dict.fromkeys((packed.rule.removeprefix("square "), *SHOWN))
    return f"<table>{HEAD}{''.join(map(_row, names, [packed] * len(names)))}</table>"


def _row(name: str, packed: Packed) -> str:
    rule = find_rule(name)
    whole = rule.tokens(*packed.size)
    sent = sum(rule.tokens(*picture.size) for picture in packed.pictures)
    label = rule.models if name == SQUARE else f"{rule.name} ({rule.models})"
    cells = (html.escape(label), f"{whole:,}", f"{sent:,}", compared(sent, whole))
    kind = " class=more" if sent > whole else ""
    return f"<tr{kind}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def archive(packed: Packed, folder: Path) -> str:
    """Write the pictures, and their captions and places as JSON, as one ZIP file; returns its path."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as whole:
        for number in range(len(packed.pictures)):
            whole.writestr(zipfile.ZipInfo(f"packed-{number + 1}.png"), packed.png(number))
        text = json.dumps(packed.json(), indent=1)
        whole.writestr(zipfile.ZipInfo("packed.json"), text)
    write_atomic(file.getvalue(), folder / FILE)
    return str(folder / FILE)


def empty(message: str) -> list[Any]:
    """Return the card without a result: [line, pictures, table, file]."""
    return [message, [], "", None]
