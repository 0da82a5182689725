"""Settings: rows of options with switches or values, in cards with headings."""

from __future__ import annotations

import html

from arr_coc_lab.world.browser.fields import Field, Labels, close
from arr_coc_lab.world.browser.parts import frame, heading, inquire, prose, room
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.switches import switch
from arr_coc_lab.world.browser.types import page_type

TITLES = (
    "Settings",
    "Preferences",
    "Options",
    "Privacy",
    "Notifications",
    "Account settings",
    "System",
    "Device settings",
    "Control panel",
    "Configuration",
)
GROUPS = (
    "General",
    "Privacy",
    "Security",
    "Display",
    "Sound",
    "Network",
    "Updates",
    "Advanced",
    "Storage",
    "Battery",
    "Accounts",
    "Accessibility",
    "Sharing",
)
SWITCHES = (
    "Dark mode", "Push notifications", "E-mail alerts", "Auto-save", "Location services", "Bluetooth",
    "Wi-Fi", "Airplane mode", "Two-factor login",
    "Automatic updates", "Night light", "Spell check", "Autoplay", "Subtitles", "Read receipts", "Vibrate",
    "Battery saver", "Hotspot", "Do not disturb",
    "Face unlock", "Show previews", "Backup", "Beta features", "Share usage data", "Offline maps",
    "Keyboard sounds", "High contrast", "Pop-up blocker",
    "Auto-lock", "Motion sensor", "Child lock", "Eco mode", "Mute", "Sync contacts", "Weekly digest",
    "Save history", "Ad tracking", "Remote access",
)  # fmt: skip
VALUES = (
    ("Language", "English|Deutsch|Français|Español|Polski"), ("Time zone", "UTC|CET|EST|PST|GMT+2"),
    ("Font size", "Small|Medium|Large"), ("Volume", "percent"),
    ("Brightness", "percent"), ("Storage used", "measure"), ("Version", "code"), ("Device name", "word"),
    ("Last backup", "date"), ("Theme", "Light|Dark|System"),
    ("Region", "country"), ("Ringtone", "word"), ("Screen timeout", "30 s|1 min|5 min|Never"),
    ("Default browser", "Firefox|Chrome|Safari"), ("Account", "email"),
    ("Recovery phone", "phone"), ("Next update", "date"), ("Refresh rate", "60 Hz|90 Hz|120 Hz"),
    ("Units", "Metric|Imperial"), ("Serial number", "code"),
)  # fmt: skip


@page_type("settings", weight=1.5)
def settings(sheet: Sheet) -> str:
    """Groups of rows; each has a switch or a value, some a description."""
    labels = Labels(sheet, VALUES)
    title, toggle, side = (
        heading(sheet, TITLES),
        _manner(sheet),
        sheet.one(("right", "right", "right", "left", "near")),
    )
    described, line = sheet.chance(0.35), sheet.chance(0.6)
    left, groups, fields, states = max(3, min(26, room(sheet, 0.9, 3.4 if described else 2.6))), [], [], []
    while left > 0:
        count = min(left, sheet.choose(2, 8))
        left -= count + 1
        rows = ""
        for _ in range(count):
            if sheet.chance(0.72):
                label, end, on = _switch(sheet, labels, toggle)
                states.append((label, end, on))
            else:
                (entry,) = labels.draw(1)
                label, end = sheet.text(entry.label), sheet.text(entry.value)
                inquire(sheet, Field(label, end, entry.sort))
                fields.append(Field(label, end, entry.sort))
            note = (
                f'<div class="muted" style="font-size:.82em">{html.escape(sheet.words.sentence(3, 10))}</div>'
                if described and sheet.chance(0.7)
                else ""
            )
            rows += _row(side, f"<div>{label}{note}</div>", end, line)
        name = sheet.one(GROUPS) if sheet.chance(0.6) else sheet.words.title(1, 2)
        top = f"<h2>{html.escape(name)}</h2>" if sheet.chance(0.8) else ""
        groups.append(
            f'<div class="card" style="break-inside:avoid">{top}{rows}</div>'
            if sheet.chance(0.7)
            else f"<div>{top}{rows}</div>"
        )
    on = [(label, end) for label, end, is_on in states if is_on]
    if 1 < len(states) <= 8:
        pieces = [piece for label, end, _ in states for piece in (label, end)]
        sheet.ask(
            "count",
            sheet.one(("How many switches are on?", "How many options are enabled?")),
            str(len(on)),
            *pieces,
        )
    close(sheet, labels, fields)
    lead = f'<p class="muted">{prose(sheet, 1, 1)}</p>' if sheet.chance(0.3) else ""
    columns = 2 if sheet.style.width > 60 * sheet.style.size and sheet.chance(0.5) else 1
    body = f'<div style="columns:{columns};column-gap:1.6em">{"".join(groups)}</div>'
    return frame(sheet, title + lead + body, 0.25)


def _manner(sheet: Sheet) -> str:
    """Return how this page draws a switch."""
    return sheet.one(("pill", "pill", "pill", "square", "text", "word", "check", "segmented"))


def _switch(sheet: Sheet, labels: Labels, manner: str) -> tuple[Piece, Piece, bool]:
    """Return a label, its switch and whether it is on; asked for."""
    free = [text for text in SWITCHES if text.lower() not in labels.used]
    text = sheet.one(free) if free and sheet.chance(0.65) else labels.open()
    labels.used.add(text.lower())
    on, label = sheet.chance(0.5), sheet.text(text)
    end = sheet.block(switch(manner, on), "span", 'style="display:inline-block;flex:none"')
    sheet.ask("switch", sheet.phrase("switch", label=text), "on" if on else "off", label, end)
    return label, end, on


def _row(side: str, label: str, end: str, line: bool) -> str:
    """Return a row of the page: the switch at the right, at the left, or near the label."""
    border = "border-bottom:1px solid var(--line);" if line else ""
    apart = "justify-content:space-between;" if side == "right" else ""
    order = f"{end}{label}" if side == "left" else f"{label}{end}"
    return (
        '<div style="display:flex;gap:1em;align-items:center;'
        f'{apart}{border}padding:.4em 0;break-inside:avoid">{order}</div>'
    )
