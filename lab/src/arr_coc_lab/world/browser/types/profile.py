"""Profiles of people and organisations, and login boxes."""

from __future__ import annotations

import html

from arr_coc_lab.world.browser.fields import Field, Labels, close, columns_of, key_values, make
from arr_coc_lab.world.browser.parts import button, card, draw_look, frame, inquire, many, prose, room
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

FIELDS = (
    ("Profession", "job"), ("Company", "company"), ("Location", "place"), ("E-mail", "email"),
    ("Phone", "phone"), ("Birthday", "date"), ("Member since", "date"), ("Website", "email"),
    ("Nationality", "country"), ("Languages", "English, French|German|Spanish, Italian|Polish"),
    ("Office", "code"), ("Manager", "name"), ("Department", "word"), ("Employee ID", "code"),
    ("Education", "word"), ("Hometown", "place"), ("Spouse", "name"), ("Timezone", "UTC|CET|EST|PST"),
    ("Last seen", "time"), ("Team", "word"), ("Address", "address"), ("Insurance", "company"),
    ("Doctor", "name"), ("Blood group", "A|B|AB|0"), ("Height", "1.62 m|1.75 m|1.80 m|5 ft 9"),
    ("Hourly rate", "price"), ("Role", "Admin|Editor|Viewer|Owner"), ("Plan", "Free|Pro|Team"),
    ("Born", "date"), ("Died", "date"), ("Occupation", "job"), ("Known for", "word"), ("Fax", "phone"),
    ("Mobile", "phone"), ("Supervisor", "name"), ("Status", "Online|Away|Busy|Offline"),
)  # fmt: skip
COUNTS = (
    "Followers",
    "Following",
    "Posts",
    "Projects",
    "Reviews",
    "Friends",
    "Photos",
    "Points",
    "Badges",
    "Stars",
    "Repositories",
    "Answers",
    "Trips",
    "Citations",
)
LOGINS = ("Sign in", "Log in", "Welcome back", "Create account", "Reset password", "Member login", "Register")
INPUTS = (
    ("E-mail", "email"),
    ("Username", "code"),
    ("Phone number", "phone"),
    ("Customer number", "code"),
    ("One-time code", "code"),
    ("Company", "company"),
    ("Name", "name"),
    ("Branch", "place"),
)


@page_type("profile")
def profile(sheet: Sheet) -> str:
    """Return a name with a picture, counts, fields and text; their order and side vary."""
    labels, words = Labels(sheet, FIELDS), sheet.words
    name = sheet.text(words.name() if sheet.chance(0.8) else words.company(), "h1", 'style="margin:.1em 0"')
    sheet.ask(
        "title",
        sheet.one(
            ("Whose profile is this?", "Who is this?", "Who is the page about?", sheet.phrase("title"))
        ),
        name.plain,
        name,
    )
    initials = "".join(part[0] for part in name.plain.split()[:2])
    tall = sheet.choose(4, 9)
    picture = sheet.block(
        html.escape(initials),
        attributes=(
            f'style="width:{tall}em;height:{tall}em;border-radius:'
            f"{sheet.one(('50%', 'var(--radius)'))};background:var(--accent);"
            "color:var(--paper);display:flex;align-items:center;justify-content:center;"
            'flex:none"'
        ),
    )
    sheet.ask(
        "shape", sheet.one(("Where is the profile picture?", "Where is the avatar?")), "the picture", picture
    )
    line = sheet.text(words.job(), attributes='class="muted"')
    sheet.ask(
        "implied",
        sheet.one(
            (
                f"What does {name.plain} do?",
                f"What is the profession of {name.plain}?",
                f"What is {name.plain} by trade?",
            )
        ),
        line.plain,
        name,
        line,
    )
    stats = _counts(sheet, labels) if sheet.chance(0.6) else ""
    blocks, fields, left = [], [], many(sheet, 3, min(16, room(sheet, 0.6)))
    while left > 0:
        count = min(left, sheet.choose(2, 8))
        left -= count
        block = key_values(sheet, labels.draw(count))
        top = f"<h2>{html.escape(words.title(1, 2))}</h2>" if sheet.chance(0.5) else ""
        blocks.append(card(sheet, top + block.html))
        fields += block.fields
    about, text = (
        sheet.text(sheet.one(("About", "Bio", "Summary", "In short")), "h2"),
        sheet.block(prose(sheet, 1, 3), "p"),
    )
    sheet.ask("section", sheet.phrase("section", label=about.plain), "", about, text)
    blocks.insert(sheet.choose(0, len(blocks)), f"<div>{about}{text}</div>")
    close(sheet, labels, fields)
    centre = sheet.chance(0.3)
    head = (
        '<div style="display:flex;gap:1.2em;align-items:center;'
        f'{"flex-direction:column;text-align:center" if centre else ""}">{picture}<div>'
        f"{name}{line}</div></div>"
    )
    ends = "".join(
        button(sheet, label)
        for label in sheet.rng.sample(
            ("Follow", "Message", "Edit profile", "Call", "Share"), sheet.choose(0, 3)
        )
    )
    columns = 2 if sheet.style.width > 48 * sheet.style.size and sheet.chance(0.5) else 1
    body = (
        f'<div style="columns:{columns};column-gap:1.6em">'
        f"{''.join(f'<div style=break-inside:avoid>{block}</div>' for block in blocks)}"
        "</div>"
    )
    return frame(sheet, f"{head}<div>{ends}</div>{stats}{body}", 0.4)


def _counts(sheet: Sheet, labels: Labels) -> str:
    """Return a row of numbers with small names."""
    cells = []
    for name in sheet.rng.sample(COUNTS, sheet.choose(2, 4)):
        labels.used.add(name.lower())
        field = Field(
            sheet.text(name, "div", 'class="muted" style="font-size:.85em"'),
            sheet.text(make(sheet, "number"), "b", 'style="font-size:1.2em"'),
            "count",
        )
        inquire(sheet, field, kind="card")
        cells.append(f"<div>{field.value}{field.label}</div>")
    return f'<div style="display:flex;gap:1.6em;margin:var(--gap) 0">{"".join(cells)}</div>'


@page_type("login", weight=0.5)
def login(sheet: Sheet) -> str:
    """Return a box with a few inputs, a tick, links and buttons."""
    labels = Labels(sheet, INPUTS)
    title = sheet.text(sheet.one(LOGINS) if sheet.chance(0.6) else sheet.words.title(1, 4), "h1")
    sheet.ask("title", sheet.phrase("title"), title.plain, title)
    block = key_values(
        sheet, labels.draw(sheet.choose(1, 4)), look=draw_look(sheet, "boxed", "boxed", "flush", "above")
    )
    mark, dots = (
        sheet.text(sheet.one(("Password", "PIN", "Passphrase"))),
        sheet.block(
            "•" * sheet.choose(6, 12), attributes='style="border:1px solid var(--line);padding:.3em .6em"'
        ),
    )
    sheet.ask(
        "presence",
        sheet.one(("Is a {} typed in?", "Has the {} been filled in?")).format(mark.plain),
        "yes",
        mark,
        dots,
    )
    box, on = sheet.text("Keep me signed in" if sheet.chance(0.5) else labels.open()), sheet.chance(0.5)
    tick = sheet.block(
        "✓" if on else "&nbsp;",
        "span",
        (
            'style="display:inline-block;width:1.2em;line-height:1.15em;text-align:center;'
            'border:1px solid var(--ink)"'
        ),
    )
    sheet.ask("switch", sheet.phrase("switch", label=box.plain), "on" if on else "off", tick, box)
    go = sheet.text(sheet.one(("Sign in", "Continue", "Log in", "Next", "Enter")))
    wrapped = sheet.block(
        go,
        "span",
        (
            'style="display:inline-block;background:var(--accent);color:var(--paper);'
            'padding:.4em 1.4em;border-radius:var(--radius)"'
        ),
    )
    sheet.ask(
        "presence", sheet.one(("Which button do I press?", "What does the button say?")), go.plain, wrapped
    )
    close(sheet, labels, block.fields)
    links = (
        '<p class="muted" style="font-size:.85em">'
        f"{sheet.one(('Forgot your password?', 'Need help?', 'No account yet? Sign up'))}"
        "</p>"
    )
    inner = (
        f'{title}{block.html}<div style="margin:.6em 0">{mark}{dots}</div><div>{tick} '
        f"{box}</div><p>{wrapped}</p>{links}"
    )
    width = "100%" if sheet.style.narrow else f"{sheet.choose(18, 30)}em"
    boxed = (
        f'<div class="card" style="width:{width};max-width:100%;margin:'
        f'{sheet.one(("8vh auto", "0", "2vh auto"))}">{inner}</div>'
    )
    return (
        boxed
        if sheet.chance(0.3)
        else (
            f'{boxed}<div style="{columns_of(16)}gap:0 1.5em">'
            f"{''.join(f'<p>{prose(sheet)}</p>' for _ in range(sheet.choose(1, 4)))}</div>"
        )
    )
