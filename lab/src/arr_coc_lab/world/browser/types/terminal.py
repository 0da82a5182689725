"""Terminals: commands with their output: listings, tests, logs, package lists and errors."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, put, room
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type
from arr_coc_lab.world.browser.types.code import FACES

GROUNDS = (
    ("#000", "#ddd"),
    ("#1e1e2e", "#cdd6f4"),
    ("#0c0c0c", "#33ff66"),
    ("#300a24", "#eee"),
    ("#002b36", "#93a1a1"),
    ("#fdf6e3", "#586e75"),
    ("#fff", "#222"),
)
LEVELS = {"INFO": "#4a9", "WARN": "#c90", "ERROR": "#e44", "DEBUG": "#88a"}
ENDS = ("txt", "py", "log", "md", "json", "yaml", "sh", "csv", "tar.gz", "conf")


@page_type("terminal")
def terminal(sheet: Sheet) -> str:
    """Return a window with some commands, each with its output."""
    height = room(sheet)[1]
    size = sheet.style.size * (0.78 if sheet.style.narrow else 0.9)
    ground, ink = sheet.rng.choice(GROUNDS)
    user, host, folder = sheet.words.word(), sheet.words.word(), sheet.words.word()
    prompt = sheet.one(
        (
            f"{user}@{host}:~/{folder}$ ",
            "$ ",
            f"[{user}@{host} {folder}]$ ",
            f"PS C:\\{folder}> ",
            "❯ ",
            f"{folder} % ",
        )
    )
    lines: list[str] = []
    makers = sheet.rng.sample((_listing, _tests, _log, _packages, _error, _values), 6)
    most, used = int((height - 3 * size) / (size * 1.45)), 0
    for make in makers:
        command, output = make(sheet)
        typed = sheet.text(command)
        lines += [
            f'<span style="color:{sheet.one(("#5c5", "#59f", "inherit"))}">{prompt}</span>{typed}',
            *output,
        ]
        sheet.ask("word", sheet.phrase("word", label=command), command, typed)
        used = len(lines)
        if used > most:
            break
    if sheet.chance(0.5) and used < most:
        lines.append(f'{prompt}<span style="background:{ink};color:{ground}">&nbsp;</span>')
    title = (
        sheet.text(
            sheet.one((f"{user}@{host}", "Terminal", f"{folder} — bash", "Command Prompt")),
            "div",
            'style="font-size:.85em;opacity:.75;text-align:center;padding-bottom:.4em"',
        )
        if sheet.chance(0.6)
        else None
    )
    finish(
        sheet,
        title,
        put(
            sheet,
            (
                "What does {name} say?",
                "How big is {name}?",
                "What is the status of {name}?",
                "Which version of {name} is installed?",
            ),
            name=f"{sheet.words.word()}-{sheet.words.word()}",
        ),
    )
    face = f"font:{size:.1f}px/1.45 '{sheet.one(FACES)}',monospace"
    body = "".join(f'<div style="white-space:pre-wrap;overflow-wrap:anywhere">{line}</div>' for line in lines)
    return (
        f'<div style="background:{ground};color:{ink};border-radius:var(--radius);padding:.8em;'
        f'min-height:{height:.0f}px;{face}">{title or ""}{body}</div>'
    )


def _names(sheet: Sheet, count: int) -> list[str]:
    """Distinct names, none inside another."""
    names: list[str] = []
    while len(names) < count:
        name = sheet.words.word() if sheet.chance(0.5) else f"{sheet.words.word()}_{sheet.words.word()}"
        if not any(name in other or other in name for other in names):
            names.append(name)
    return names


def _listing(sheet: Sheet) -> tuple[str, list[str]]:
    """Files with sizes and dates."""
    lines: list[str] = [f"total {sheet.choose(8, 900)}"]
    for stem in _names(sheet, sheet.choose(3, 7)):
        name, length = f"{stem}.{sheet.one(ENDS)}", str(sheet.choose(12, 99999))
        date = (
            f"{sheet.one(('Jan', 'Feb', 'Mar', 'May', 'Jul', 'Oct'))} {sheet.choose(1, 28):>2} "
            f"{sheet.choose(0, 23):02}:{sheet.choose(0, 59):02}"
        )
        one, two, three = sheet.text(f"{length:>6}"), sheet.text(date), sheet.text(name)
        sheet.ask(
            "value",
            put(
                sheet,
                ("How big is {name}?", "How many bytes does {name} have?", "What is the size of {name}?"),
                name=name,
            ),
            length,
            one,
            three,
        )
        sheet.ask(
            "value",
            put(sheet, ("When was {name} changed?", "What is the date of {name}?"), name=name),
            date,
            two,
            three,
        )
        lines.append(f"-rw-r--r-- 1 {one} {two} {three}")
    return "ls -l", lines


def _tests(sheet: Sheet) -> tuple[str, list[str]]:
    """Tests that pass or fail, and their number."""
    lines, states = [], []
    for name in _names(sheet, sheet.choose(3, 7)):
        passed = sheet.chance(0.75)
        label, state = (
            sheet.text(f"test_{name}"),
            sheet.text(
                "PASSED" if passed else "FAILED", "span", f'style="color:{"#3b3" if passed else "#e44"}"'
            ),
        )
        states.append((label, state, passed))
        sheet.ask(
            "value",
            put(
                sheet,
                ("Did {name} pass?", "What is the result of {name}?", "Has {name} failed?"),
                name=label.plain,
            ),
            state.plain,
            label,
            state,
        )
        lines.append(f"{label} ... {state}")
    failed = [piece for label, state, passed in states if not passed for piece in (label, state)]
    if failed:
        sheet.ask(
            "implied",
            put(sheet, ("Which tests failed?", "What failed?", "Which test is broken?")),
            ", ".join(piece.plain for piece in failed[::2]),
            *failed,
        )
    total = sheet.text(
        f"{len(states) - len(failed) // 2} passed, {len(failed) // 2} failed in "
        f"{sheet.rng.uniform(0.1, 90):.2f}s"
    )
    sheet.ask(
        "value",
        put(
            sheet,
            ("How long did the tests take?", "How many tests passed?", "What is the summary of the tests?"),
        ),
        total.plain,
        total,
    )
    return sheet.one(("pytest -v", "npm test", "make test")), [*lines, f"=== {total} ==="]


def _log(sheet: Sheet) -> tuple[str, list[str]]:
    """Lines of a log with times and levels."""
    lines, clock, levels = [], sheet.choose(0, 80000), []
    for _ in range(sheet.choose(3, 7)):
        clock += sheet.choose(1, 400)
        time, level = f"{clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}", sheet.one(list(LEVELS))
        one, two = sheet.text(time), sheet.text(level, "span", f'style="color:{LEVELS[level]}"')
        end = sheet.one(("", f" {sheet.words.code()}", f" {sheet.choose(1, 999)} ms"))
        three = sheet.text(sheet.words.words(2, 6) + end)
        sheet.ask(
            "value",
            put(
                sheet,
                (
                    "What happened at {time}?",
                    "What does the log say at {time}?",
                    "Which message is from {time}?",
                ),
                time=time,
            ),
            three.plain,
            one,
            three,
        )
        levels.append((level, one, two, three))
        lines.append(f"[{one}] {two} {three}")
    for level in ("ERROR", "WARN"):
        alike = [entry for entry in levels if entry[0] == level]
        if len(alike) == 1:
            sheet.ask(
                "implied",
                put(
                    sheet,
                    (
                        "What does the line of level {level} say?",
                        "Is there a message of level {level}?",
                        "Which line has {level}?",
                    ),
                    level=level,
                ),
                alike[0][3].plain,
                *alike[0][2:],
            )
    return f"tail -n {len(lines)} /var/log/{sheet.words.word()}.log", lines


def _packages(sheet: Sheet) -> tuple[str, list[str]]:
    """Packages with versions."""
    lines = []
    for name in _names(sheet, sheet.choose(3, 6)):
        label, version = (
            sheet.text(f"{name:<18}"),
            sheet.text(f"{sheet.choose(0, 24)}.{sheet.choose(0, 30)}.{sheet.choose(0, 12)}"),
        )
        sheet.ask(
            "value",
            put(
                sheet,
                ("Which version of {name} is installed?", "What version is {name}?", "Version of {name}?"),
                name=name,
            ),
            version.plain,
            label,
            version,
        )
        lines.append(f"{label}{version}")
    return sheet.one(("pip list", "brew list --versions", "apt list --installed")), lines


def _error(sheet: Sheet) -> tuple[str, list[str]]:
    """Return a failing program."""
    name, line = f"{sheet.words.word()}.py", sheet.choose(3, 400)
    place = sheet.text(f'File "{name}", line {line}, in {sheet.words.word()}')
    kind = sheet.one(
        ("ValueError", "KeyError", "TypeError", "FileNotFoundError", "IndexError", "RuntimeError")
    )
    error = sheet.text(f"{kind}: {sheet.words.words(2, 6)}", "span", 'style="color:#e55"')
    sheet.ask(
        "value",
        put(sheet, ("What is the error?", "Which error occurred?", "What went wrong?")),
        error.plain,
        error,
    )
    sheet.ask(
        "value",
        put(
            sheet,
            (
                "In which line did the error occur?",
                "Where did the program fail?",
                "In which file is the error?",
            ),
        ),
        f"{name}, line {line}",
        place,
    )
    return f"python {sheet.words.word()}_main.py", [
        "Traceback (most recent call last):",
        f"  {place}",
        f"    {sheet.words.word()} = {sheet.words.word()}()",
        error,
    ]


def _values(sheet: Sheet) -> tuple[str, list[str]]:
    """Names and values, as of a machine's state."""
    lines = []
    for name in _names(sheet, sheet.choose(3, 6)):
        label, value = (
            sheet.text(name),
            sheet.text(sheet.words.of(sheet.one(("measure", "percent", "code", "count", "date")))),
        )
        sheet.ask(
            "value",
            put(
                sheet,
                (
                    "What is {name}?",
                    "What is the value of {name}?",
                    "{name}?",
                    "What does it say for {name}?",
                ),
                name=name,
            ),
            value.plain,
            label,
            value,
        )
        lines.append(f"{label}: {value}")
    return sheet.one(("systemctl status", "cat /proc/info", "env", "git config --list")), lines
