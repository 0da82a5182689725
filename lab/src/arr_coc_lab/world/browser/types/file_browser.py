"""File browsers: folders and files as a table, as rows, or as a grid of icons, with a tree at the side."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, put, room
from arr_coc_lab.world.browser.drawing import icon
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

KINDS = {
    "pdf": ("document", "#d03030", "PDF document"),
    "docx": ("document", "#2b62c0", "Word document"),
    "xlsx": ("chart", "#1d8a4a", "Spreadsheet"),
    "jpg": ("picture", "#8a4fd0", "JPEG image"),
    "png": ("picture", "#8a4fd0", "PNG image"),
    "mp3": ("music", "#d0609a", "Audio"),
    "mp4": ("video", "#d07020", "Video"),
    "zip": ("folder", "#777777", "Archive"),
    "txt": ("document", "#777777", "Text"),
    "py": ("document", "#3a78a8", "Python script"),
    "csv": ("chart", "#1d8a4a", "CSV file"),
    "": ("folder", "#e0a020", "Folder"),
}
SIDE = (
    "Home",
    "Desktop",
    "Documents",
    "Downloads",
    "Pictures",
    "Music",
    "Videos",
    "Recent",
    "Starred",
    "Trash",
    "Network",
    "Shared with me",
)
SIZE = (
    "How big is {name}?",
    "What is the size of {name}?",
    "How large is the file {name}?",
    "Size of {name}?",
)
DATE = ("When was {name} changed?", "When was {name} last modified?", "What is the date of {name}?")
KIND = ("What kind of file is {name}?", "Which type does {name} have?", "What is {name}?")


@page_type("file_browser")
def file_browser(sheet: Sheet) -> str:
    """Return a path, a list of files and perhaps a side bar."""
    height = room(sheet)[1]
    files = _files(sheet, max(4, min(18, int((height / sheet.style.size - 6) / 2.2))) + 1)
    missing = files.pop()[0]
    folder = sheet.words.title(1, 2)
    path = [
        sheet.text(part)
        for part in (sheet.one(("Home", "C:", "My Drive", "This PC")), sheet.words.title(1, 1), folder)
    ]
    sheet.ask(
        "title",
        put(sheet, ("Which folder is open?", "What is the name of this folder?", "Where am I?")),
        folder,
        path[-1],
    )
    bar = (
        f'<div style="border-bottom:1px solid var(--line);padding-bottom:.5em;margin-bottom:.5em">'
        f"{icon('home', sheet.style.size)} {sheet.one((' / ', ' › ', ' > ', chr(92))).join(path)}</div>"
    )
    body = (_tiles if sheet.chance(0.3) else _rows)(sheet, files)
    status = sheet.text(f"{len(files)} items")
    sheet.ask(
        "value",
        put(sheet, ("How many items are there?", "How many files does the folder have?")),
        str(len(files)),
        status,
    )
    finish(sheet, None, put(sheet, (*SIZE, *DATE, "Where is {name}?"), name=missing))
    foot = f'<div class="muted" style="font-size:.85em;margin-top:.6em">{status}</div>'
    if sheet.style.width < 700 or sheet.chance(0.3):
        return bar + body + foot
    places = "".join(
        f'<div style="padding:.25em 0;white-space:nowrap">{icon("folder", sheet.style.size)} {place}</div>'
        for place in sheet.rng.sample(SIDE, sheet.choose(4, 8))
    )
    return (
        f'{bar}<div style="display:flex;gap:2em"><div class="muted">{places}</div><div style="flex:1">'
        f"{body}{foot}</div></div>"
    )


def _files(sheet: Sheet, count: int) -> list[tuple[str, str]]:
    """Names and endings; no name is inside another."""
    files: list[tuple[str, str]] = []
    while len(files) < count:
        end = sheet.one(list(KINDS)) if sheet.chance(0.85) else ""
        stem = sheet.one(
            (
                sheet.words.word(),
                f"{sheet.words.word()}_{sheet.words.word()}",
                f"{sheet.words.word()}-{sheet.choose(1, 2030)}",
                sheet.words.title(1, 3),
                f"IMG_{sheet.choose(1000, 9999)}",
            )
        )
        name = f"{stem}.{end}" if end else stem
        if not any(
            stem.lower() in other.lower() or other.rsplit(".", 1)[0].lower() in name.lower()
            for other, _ in files
        ):
            files.append((name, end))
    return sorted(files[:-1], key=lambda file: (file[1] != "", file[0].lower())) + files[-1:]


def _size(sheet: Sheet) -> str:
    """Return the size of a file."""
    return (
        f"{sheet.rng.uniform(1, 999):.{sheet.rng.choice((0, 1))}f} "
        f"{sheet.one(('KB', 'MB', 'MB', 'GB', 'kB'))}"
    )


def _symbol(sheet: Sheet, end: str, size: float) -> Piece:
    """Return the icon of a kind of file."""
    name, colour, _ = KINDS[end]
    return sheet.block(
        icon(name, size, colour, filled=True), "span", 'style="display:inline-block;line-height:0"'
    )


def _rows(sheet: Sheet, files: list[tuple[str, str]]) -> str:
    """Return a table of name, date, kind and size."""
    columns = (
        ["date", "size"]
        if sheet.style.narrow
        else ["date", "kind", "size"]
        if sheet.chance(0.6)
        else ["size", "date"]
    )
    if sheet.style.width < 420:
        columns = ["size"]
    titles = {
        "date": sheet.one(("Modified", "Date", "Last changed")),
        "kind": sheet.one(("Type", "Kind")),
        "size": "Size",
    }
    heads = {column: sheet.text(titles[column]) for column in columns}
    body, weights = "", {"KB": 1, "kB": 1, "MB": 1000, "GB": 1_000_000}
    sized: list[tuple[float, Piece, Piece]] = []
    for name, end in files:
        symbol, label = (
            _symbol(sheet, end, sheet.style.size * 1.2),
            sheet.text(name, "span", 'style="overflow-wrap:anywhere"'),
        )
        texts = {"date": sheet.words.date(), "kind": KINDS[end][2], "size": _size(sheet) if end else "–"}
        cells = {
            column: sheet.text(texts[column], "span", 'style="white-space:nowrap"') for column in columns
        }
        for column, options in (("date", DATE), ("size", SIZE), ("kind", KIND)):
            if column in cells and cells[column].plain != "–":
                head = [heads[column]] if sheet.chance(0.5) else []
                text = put(sheet, options, name=name)
                if head:
                    sheet.crossing(label, heads[column], cells[column])
                else:
                    sheet.ask("value", text, cells[column].plain, label, cells[column])
        if end:
            number, unit = cells["size"].plain.split()
            sized.append((float(number) * weights[unit], label, cells["size"]))
        body += (
            f"<tr><td>{symbol} {label}</td>{''.join(f'<td>{cells[column]}</td>' for column in columns)}</tr>"
        )
    if len(sized) > 1:
        (a, one, first), (b, two, second) = sheet.rng.sample(sized, 2)
        text = put(sheet, ("Which is bigger, {a} or {b}?", "Is {a} or {b} larger?"), a=one.plain, b=two.plain)
        sheet.ask("comparison", text, (one if a > b else two).plain, one, first, two, second)
    head = "".join(f"<th>{heads[column]}</th>" for column in columns)
    return f'<table style="width:100%"><tr><th>Name</th>{head}</tr>{body}</table>'


def _tiles(sheet: Sheet, files: list[tuple[str, str]]) -> str:
    """Large icons over names."""
    cells, size = [], sheet.style.size * sheet.rng.uniform(2.4, 4)
    folders = [name for name, end in files if not end]
    pieces = []
    for name, end in files:
        symbol, label = _symbol(sheet, end, size), sheet.text(name, "span", 'style="overflow-wrap:anywhere"')
        sheet.ask(
            "position",
            put(sheet, ("Where is {name}?", "Find {name}.", "Where is the file {name}?"), name=name),
            f"file {len(pieces) + 1}",
            symbol,
            label,
        )
        pieces.append((symbol, label))
        cells.append(
            f'<div style="text-align:center"><div>{symbol}</div><span style="font-size:.85em">'
            f"{label}</span></div>"
        )
    if 0 < len(folders) <= 5:
        evidence = [
            piece for (name, end), pair in zip(files, pieces, strict=True) if not end for piece in pair
        ]
        sheet.ask(
            "count",
            put(sheet, ("How many folders are there?", "Count the folders.")),
            str(len(folders)),
            *evidence,
        )
    columns = max(2, int(room(sheet)[0] / (size * 3 + 30)))
    return (
        f'<div style="display:grid;grid-template-columns:repeat({min(columns, 7)},1fr);gap:1.2em .6em">'
        f"{''.join(cells)}</div>"
    )
