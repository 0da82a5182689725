"""Icons: toolbars, grids of app icons with labels, rows of a settings list, and docks at the lower edge."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from arr_coc_lab.world.browser.asking import finish, labels, put, room
from arr_coc_lab.world.browser.drawing import ICONS, VIVID, icon, ink_on, shade
from arr_coc_lab.world.browser.icon_sets import CALLED, as_html, is_plain, sets
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

USUAL = {
    "settings": "Settings", "home": "Home", "search": "Search", "user": "Profile", "mail": "Mail",
    "bell": "Alerts", "trash": "Delete",
    "calendar": "Calendar", "camera": "Camera", "lock": "Security", "download": "Download",
    "upload": "Upload", "cart": "Basket",
    "phone": "Phone", "clock": "History", "star": "Favourites", "folder": "Files", "document": "Notes",
    "music": "Music",
    "globe": "Browser", "refresh": "Reload", "printer": "Print", "share": "Share", "pencil": "Edit",
    "picture": "Photos", "pin": "Maps",
    "chart": "Reports", "cloud": "Weather", "book": "Library", "gift": "Rewards", "key": "Passwords",
    "video": "Videos", "play": "Play", "help": "Help", "wifi": "Network", "calculator": "Calculator",
    "terminal": "Terminal", "disk": "Save", "copy": "Copy", "bubble": "Messages", "people": "Contacts",
    "loudspeaker": "Sound", "card": "Payments", "filter": "Filters", "menu": "Menu", "door": "Sign out",
}  # fmt: skip
"""The usual label of an icon."""
WHERE = (
    "Where is the {name} icon?",
    "Where is the {name} symbol?",
    "Find the {name} icon.",
    "Which button shows the {name}?",
    "Where do I see the {name}?",
    "{name}?",
    "Which of the icons is the {name}?",
)
TAP = (
    "Where do I tap for {label}?",
    "Where is {label}?",
    "How do I get to {label}?",
    "Which icon opens {label}?",
    "Find {label}.",
)


OWN = 0.25
"""Share of pages with our own drawings where other icon sets are installed."""


class Icons(NamedTuple):
    """The icons that a page draws from: files by what they show, or None for our own drawings."""

    files: dict[str, tuple[Path, ...]] | None

    @property
    def names(self) -> list[str]:
        """What there is to draw."""
        return list(ICONS if self.files is None else self.files)

    def draw(
        self, sheet: Sheet, name: str, size: float, colour: str, filled: bool = False
    ) -> tuple[str, bool]:
        """HTML of an icon, and whether it has the colour."""
        if self.files is None:
            return icon(name, size, colour, filled, sheet.rng.choice((1.5, 2, 2.5))), True
        path = sheet.rng.choice(self.files[name])
        return as_html(path, size, colour), is_plain(path)


def _icons(sheet: Sheet) -> Icons:
    """Return those of an installed set, or our own."""
    available = sets(sheet.words.split)
    own = not available or sheet.chance(OWN)
    return Icons(None if own else sheet.rng.choice(available).icons)


@page_type("icons")
def icons(sheet: Sheet) -> str:
    """Return a bar of icons over a grid or a list of labelled ones, perhaps a dock below."""
    source = _icons(sheet)
    names = sheet.rng.sample(source.names, len(source.names))
    width, height = room(sheet)
    size = sheet.style.size
    heading = sheet.text(sheet.words.title(1, 3), "h1") if sheet.chance(0.6) else None
    parts = []
    if sheet.chance(0.6):
        parts.append(_bar(sheet, source, names, most=5 if sheet.style.narrow else 10))
    parts.append(heading or "")
    columns = max(2, min(8, int(width / (size * sheet.choose(7, 11)))))
    rows = max(1, min(6, int((height - size * 8) / (size * 7))))
    count = min(len(names) - 13, columns * rows, 24)
    usual = sheet.chance(0.45)
    *titles, missing = labels(sheet, count + 1, high=2, most=14)
    taken = {call for calls in CALLED.values() for call in calls}
    titles = [title for title in titles if title.lower() not in {*ICONS, *taken}]
    if usual:
        names.sort(key=lambda name: name not in USUAL)
        titles = [USUAL.get(name, title) for name, title in zip(names, titles, strict=False)]
    rest = names[count:]
    style = sheet.one(("grid", "grid", "list"))
    build = _grid if style == "grid" else _list
    parts.append(build(sheet, source, names, titles, columns))
    if sheet.chance(0.4):
        dock = _bar(sheet, source, rest, most=5)
        parts.append(
            f'<div style="position:fixed;left:0;right:0;bottom:0;background:var(--paper)">{dock}</div>'
        )
    finish(
        sheet,
        heading,
        put(sheet, WHERE, name=_called(sheet, rest[-1]))
        if sheet.chance(0.5)
        else put(sheet, TAP, label=missing),
    )
    return "".join(parts)


def _called(sheet: Sheet, name: str) -> str:
    """Return what an icon is called; every other time by its usual name."""
    calls = CALLED[name]
    return calls[0] if sheet.chance(0.5) else sheet.one(calls)


def _draw(sheet: Sheet, source: Icons, name: str, size: float, colour: str = "currentColor") -> Piece:
    """Return an icon's piece."""
    html, _ = source.draw(sheet, name, size, colour, sheet.chance(0.25))
    piece = sheet.block(html, "span", 'style="display:inline-block;line-height:0"')
    sheet.things.append((name, piece))
    return piece


def _bar(sheet: Sheet, source: Icons, names: list[str], most: int) -> str:
    """Return a toolbar of bare icons, all equally far apart; asks for single ones and their neighbours."""
    count = sheet.choose(3, most)
    chosen = [names.pop() for _ in range(count)]
    size = sheet.style.size * sheet.rng.uniform(1.2, 2)
    pieces = [_draw(sheet, source, name, size) for name in chosen]
    for i, (name, piece) in enumerate(zip(chosen, pieces, strict=True)):
        sheet.ask(
            "position", put(sheet, WHERE, name=_called(sheet, name)), f"{i + 1} of {count} in the bar", piece
        )
    i = sheet.choose(0, count - 2)
    sheet.ask(
        "position",
        put(
            sheet,
            ("What is to the right of the {a} icon?", "Which icon is right of the {a}?"),
            a=_called(sheet, chosen[i]),
        ),
        _called(sheet, chosen[i + 1]),
        pieces[i],
        pieces[i + 1],
    )
    sheet.ask(
        "position",
        put(
            sheet,
            ("What is to the left of the {a} icon?", "Which icon is left of the {a}?"),
            a=_called(sheet, chosen[i + 1]),
        ),
        _called(sheet, chosen[i]),
        pieces[i],
        pieces[i + 1],
    )
    spread = sheet.one(("space-between", "space-around", "flex-start", "flex-end"))
    return (
        f'<div style="display:flex;gap:1.2em;justify-content:{spread};padding:.6em;border-bottom:1px '
        f'solid var(--line)">{"".join(pieces)}</div>'
    )


def _grid(sheet: Sheet, source: Icons, names: list[str], titles: list[str], columns: int) -> str:
    """App icons on coloured tiles or bare, each over its label."""
    size = sheet.style.size * sheet.rng.uniform(1.8, 3)
    tiles, radius, cells = sheet.chance(0.6), sheet.choose(0, 50), []
    for name, title in zip(names, titles, strict=False):
        colour = sheet.one(VIVID)
        html, plain = source.draw(sheet, name, size, ink_on(colour) if tiles else "currentColor")
        tiled = tiles and plain
        tile = "display:inline-block;line-height:0"
        if tiled:
            tile += f";padding:.6em;border-radius:{radius}%;background:{shade(sheet.rng, colour)}"
        picture = sheet.block(html, "span", f'style="{tile}"')
        sheet.things.append((name, picture))
        label = sheet.text(title)
        sheet.ask(
            "position", put(sheet, TAP, label=title), f"the {_called(sheet, name)} icon", picture, label
        )
        below = ("What is written below the {name} icon?", "What is the {name} icon called?",
                 "Which label does the {name} have?")  # fmt: skip
        sheet.ask("word", put(sheet, below, name=_called(sheet, name)), title, picture, label)
        if tiled and sheet.chance(0.5):
            sheet.ask(
                "colour",
                put(
                    sheet,
                    ("What colour is the icon of {label}?", "Which colour does {label} have?"),
                    label=title,
                ),
                colour,
                picture,
                label,
            )
        cells.append(
            f'<div style="text-align:center">{picture}<div style="font-size:.85em;margin-top:.3em">'
            f"{label}</div></div>"
        )
    return (
        f'<div style="display:grid;grid-template-columns:repeat({columns},1fr);gap:1.4em .4em;'
        f'padding-top:1em">{"".join(cells)}</div>'
    )


def _list(sheet: Sheet, source: Icons, names: list[str], titles: list[str], columns: int) -> str:
    """Rows of an icon, a label and a hint."""
    rows = []
    for name, title in zip(names, titles, strict=False):
        picture, label = (
            _draw(sheet, source, name, sheet.style.size * 1.5, sheet.one(("currentColor", "var(--accent)"))),
            sheet.text(title),
        )
        hint = sheet.text(sheet.words.words(2, 5).capitalize())
        sheet.ask(
            "position", put(sheet, TAP, label=title), f"the {_called(sheet, name)} icon", picture, label
        )
        sheet.ask(
            "word",
            put(
                sheet,
                ("Which entry has the {name} icon?", "What is written next to the {name} icon?"),
                name=_called(sheet, name),
            ),
            title,
            picture,
            label,
        )
        sheet.ask(
            "section",
            put(sheet, ("What does it say under {label}?", "Which hint does {label} have?"), label=title),
            hint.plain,
            label,
            hint,
        )
        text = f'<div>{label}<div class="muted" style="font-size:.85em">{hint}</div></div>'
        rows.append(
            f'<div style="display:flex;gap:1em;align-items:center;padding:.5em 0;border-bottom:1px solid '
            f'var(--line)">{picture}{text}</div>'
        )
    return "".join(rows)
