"""Source code in a monospace face with line numbers and colours: Python, JavaScript or C."""

from __future__ import annotations

import html
import re
from typing import NamedTuple

from arr_coc_lab.world.browser.asking import finish, put, room
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

FACES = (
    "DejaVu Sans Mono",
    "Liberation Mono",
    "Fira Code",
    "Hack",
    "JetBrains Mono",
    "Inconsolata",
    "Ubuntu Mono",
    "monospace",
)
VERBS = (
    "get",
    "set",
    "load",
    "save",
    "parse",
    "count",
    "find",
    "make",
    "read",
    "write",
    "check",
    "build",
    "send",
    "sort",
    "merge",
    "init",
)
TONES = (
    ("#c678dd", "#98c379", "#d19a66", "#7f8c8d", "#61afef"),
    ("#a71d5d", "#0b7a3e", "#9a5b00", "#808890", "#1f5fbf"),
)
WORDS = r"\b(def|return|if|else|for|in|import|from|while|const|let|function|int|void|char|None|null)\b"


class Line(NamedTuple):
    """A line of code with its number of indents."""

    depth: int
    text: str


@page_type("code")
def code(sheet: Sheet) -> str:
    """Return a file's name over its numbered lines."""
    height = room(sheet)[1]
    size = sheet.style.size * (0.8 if sheet.style.narrow else 0.92)
    count = max(8, int((height - 3 * size) / (size * 1.5)))
    language = sheet.one(("python", "javascript", "c"))
    names = _identifiers(sheet, 40)
    lines, facts = _write(sheet, names, language, count)
    name = sheet.text(names.pop() + {"python": ".py", "javascript": ".js", "c": ".c"}[language])
    first = sheet.rng.choice((1, 1, 1, sheet.choose(2, 900)))
    numbers = [sheet.text(str(first + i)) for i in range(len(lines))]
    tones = TONES[0] if sheet.style.dark else TONES[1]
    texts = [sheet.block(_colour(line.text, tones), "span", 'style="display:inline-block"') for line in lines]
    _ask(sheet, lines, texts, numbers, facts, first)
    sheet.ask(
        "title",
        put(sheet, ("What is the name of the file?", "Which file is this?", "What is the file called?")),
        name.plain,
        name,
    )
    finish(
        sheet,
        None,
        put(
            sheet,
            ("What does {name} return?", "On which line is {name} defined?", "Where is {name} used?"),
            name=names.pop(),
        ),
    )
    indent = sheet.rng.choice((2, 4))
    rows = "".join(
        f'<tr style="border:0;background:none"><td style="{CELL};text-align:right;color:var(--muted);'
        f'padding-right:1em;user-select:none">{number}</td>'
        f'<td style="{CELL};white-space:pre">{" " * (indent * line.depth)}{text}</td></tr>'
        for number, line, text in zip(numbers, lines, texts, strict=True)
    )
    head = f'<div style="padding:.4em .8em;border-bottom:1px solid var(--line)">{name}</div>'
    face = f"font:{size:.1f}px/1.45 '{sheet.one(FACES)}',monospace"
    return f'<div class="{sheet.one(("", "card"))}">{head}<table style="{face}">{rows}</table></div>'


CELL = "padding:0 .3em;border:0"


def _identifiers(sheet: Sheet, count: int) -> list[str]:
    """Distinct names in snake or camel case, none inside another."""
    camel, names = sheet.chance(0.4), []
    while len(names) < count:
        one, two = sheet.one(VERBS), sheet.words.word()
        name = one + two.capitalize() if camel else f"{one}_{two}"
        if name.isascii() and not any(name in other or other in name for other in names):
            names.append(name)
    return names


class CodeFacts(NamedTuple):
    """Where things stand: definitions, returned values, constants and comments, with their lines."""

    definitions: list[tuple[str, int]]
    returns: list[tuple[str, str, int, int]]
    constants: list[tuple[str, str, int]]
    comments: list[tuple[str, int]]


def _write(sheet: Sheet, names: list[str], language: str, count: int) -> tuple[list[Line], CodeFacts]:
    """Lines of code and what can be asked about them."""
    end = "" if language == "python" else ";"
    mark = {"python": "# ", "javascript": "// ", "c": "// "}[language]
    lines: list[Line] = []
    facts = CodeFacts([], [], [], [])
    for _ in range(sheet.choose(1, 3)):
        module = names.pop()
        lines.append(
            Line(
                0,
                {
                    "python": f"import {module}",
                    "javascript": f'import {module} from "./{module}";',
                    "c": f"#include <{module}.h>",
                }[language],
            )
        )
    lines.append(Line(0, ""))
    for _ in range(sheet.choose(1, 3)):
        name, value = names.pop().upper(), _literal(sheet)
        lead = {
            "python": f"{name} = {value}",
            "javascript": f"const {name} = {value};",
            "c": f"#define {name} {value}",
        }[language]
        facts.constants.append((name, value, len(lines)))
        lines.append(Line(0, lead))
    while len(lines) < count and len(names) > 8:
        lines.append(Line(0, ""))
        if sheet.chance(0.4):
            comment = sheet.words.words(3, 7)
            facts.comments.append((comment, len(lines)))
            lines.append(Line(0, mark + comment))
        name, one, two = (
            names.pop(),
            sheet.one("abnxyzkt"),
            sheet.one(("limit", "items", "path", "user", "size")),
        )
        start = {
            "python": f"def {name}({one}, {two}):",
            "javascript": f"function {name}({one}, {two}) {{",
            "c": f"int {name}(int {one}, int {two}) {{",
        }
        facts.definitions.append((name, len(lines)))
        at = len(lines)
        lines.append(Line(0, start[language]))
        let = {"python": "", "javascript": "let ", "c": "int "}[language]
        for _ in range(sheet.choose(0, 4)):
            other = (
                sheet.words.word() if sheet.chance(0.3) else sheet.one(("total", "result", "index", "value"))
            )
            if other.isascii():
                sums = (f"{one} + {sheet.choose(1, 99)}", f"{two} * {one}", _literal(sheet))
                lines.append(Line(1, f"{let}{other} = {sheet.one(sums)}{end}"))
        if sheet.chance(0.4):
            test = f"{one} {sheet.one(('<', '>', '=='))} {sheet.choose(0, 50)}"
            lines += [
                Line(1, f"if {test}:" if language == "python" else f"if ({test}) {{"),
                Line(2, f"{one} = {two}{end}"),
            ]
            lines += [] if language == "python" else [Line(1, "}")]
        value = sheet.one(
            (
                _literal(sheet),
                f"{one} + {two}",
                f"{two} * {sheet.choose(2, 99)}",
                f"{one} - {sheet.choose(1, 9)}",
            )
        )
        facts.returns.append((name, value, at, len(lines)))
        lines.append(Line(1, f"return {value}{end}"))
        lines += [] if language == "python" else [Line(0, "}")]
    return lines[:count], facts


def _literal(sheet: Sheet) -> str:
    """Return a number or a string."""
    return sheet.one(
        (
            str(sheet.choose(0, 9999)),
            f'"{sheet.words.word()}"',
            f"{sheet.rng.uniform(0, 10):.2f}",
            f'"{sheet.words.domain()}"',
        )
    )


def _colour(text: str, tones: tuple[str, ...]) -> str:
    """Return a line of code as HTML with its keywords, strings, numbers and comments in colour."""
    word, string, number, comment, call = tones
    if re.match(r"\s*(#|//) ", text):
        return f'<span style="color:{comment}">{html.escape(text)}</span>'
    parts = []
    for token in re.split(r'("[^"]*"|\b\d[\d.]*\b|\b\w+(?=\()|' + WORDS.replace("(", "(?:") + ")", text):
        tone = ""
        if token.startswith('"'):
            tone = string
        elif token[:1].isdigit():
            tone = number
        elif re.fullmatch(WORDS, token):
            tone = word
        elif token.isidentifier() and f"{token}(" in text:
            tone = call
        parts.append(
            f'<span style="color:{tone}">{html.escape(token)}</span>' if tone else html.escape(token)
        )
    return "".join(parts)


def _ask(
    sheet: Sheet, lines: list[Line], texts: list[Piece], numbers: list[Piece], facts: CodeFacts, first: int
) -> None:
    """Ask for definitions, returned values, constants, comments and lines by their number."""
    last = len(lines)
    for name, at in facts.definitions:
        if at < last:
            sheet.ask(
                "value",
                put(
                    sheet,
                    (
                        "On which line is {name} defined?",
                        "Where is {name} defined?",
                        "Which line defines {name}?",
                    ),
                    name=name,
                ),
                str(first + at),
                texts[at],
                numbers[at],
            )
            sheet.ask(
                "value",
                put(
                    sheet,
                    ("Which arguments does {name} take?", "What are the parameters of {name}?"),
                    name=name,
                ),
                lines[at].text.split("(")[1].split(")")[0],
                texts[at],
            )
    for name, value, at, end in facts.returns:
        if end < last:
            sheet.ask(
                "value",
                put(
                    sheet,
                    (
                        "What does {name} return?",
                        "What does the function {name} return?",
                        "Return value of {name}?",
                    ),
                    name=name,
                ),
                value,
                texts[at],
                texts[end],
            )
    for name, value, at in facts.constants:
        sheet.ask(
            "value",
            put(sheet, ("What is the value of {name}?", "What is {name} set to?", "{name}?"), name=name),
            value,
            texts[at],
        )
    for comment, at in facts.comments:
        if at < last - 1:
            sheet.ask(
                "position",
                put(
                    sheet,
                    (
                        'Which line follows the comment "{comment}"?',
                        "What stands below the comment {comment}?",
                    ),
                    comment=comment,
                ),
                lines[at + 1].text,
                texts[at],
                texts[at + 1],
            )
    full = [i for i, line in enumerate(lines) if len(line.text) > 4]
    for i in sheet.rng.sample(full, min(3, len(full))):
        sheet.ask(
            "value",
            put(
                sheet, ("What is on line {n}?", "What does line {n} say?", "Read line {n}."), n=str(first + i)
            ),
            lines[i].text,
            numbers[i],
            texts[i],
        )
