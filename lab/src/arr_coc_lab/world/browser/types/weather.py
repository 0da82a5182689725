"""Weather: the present state, days and hours to come, and small data."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, labels, put
from arr_coc_lab.world.browser.drawing import icon
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

SKIES = {
    "sun": ("Sunny", "Clear", "Fine"),
    "cloud": ("Cloudy", "Overcast", "Mostly cloudy"),
    "rain": ("Rain", "Showers", "Drizzle"),
    "snow": ("Snow", "Snow showers", "Sleet"),
    "lightning": ("Thunderstorm", "Storms"),
}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PAINTS = {"sun": "#f5a800", "cloud": "#8b98a5", "rain": "#3b82d0", "snow": "#6cc4e8", "lightning": "#8b5cd6"}
DATA = (
    "Humidity",
    "Wind",
    "Pressure",
    "UV index",
    "Visibility",
    "Dew point",
    "Sunrise",
    "Sunset",
    "Air quality",
    "Pollen",
    "Chance of rain",
    "Gusts",
)
HOT = (
    "What is the temperature on {day}?",
    "How warm will it be on {day}?",
    "How hot is it on {day}?",
    "{day}: what temperature?",
)
SKY = (
    "What is the weather on {day}?",
    "What will it be like on {day}?",
    "What is the forecast for {day}?",
    "Will it rain on {day}?",
)


@page_type("weather")
def weather(sheet: Sheet) -> str:
    """Return a place, its weather now, and the days to come as cards, columns or rows."""
    unit = sheet.one(("°", "°C", "°F"))
    base = sheet.choose(-10, 33) if unit != "°F" else sheet.choose(15, 95)
    place = sheet.text(sheet.words.city(), "h1")
    parts = [place, _now(sheet, place, base, unit)]
    days, count = (
        sheet.rng.choice((DAYS, tuple(day[:3] for day in DAYS))),
        sheet.choose(3, 5) if sheet.style.narrow else sheet.choose(4, 7),
    )
    start = sheet.choose(0, 6)
    days = [days[(start + i) % 7] for i in range(count)]
    blocks = [_days(sheet, days, base, unit)]
    if sheet.chance(0.6):
        blocks.append(_hours(sheet, base, unit))
    blocks.append(_data(sheet))
    sheet.rng.shuffle(blocks)
    absent = sheet.one([day for day in DAYS if day not in days and day[:3] not in days] or ["Christmas"])
    finish(
        sheet,
        place,
        put(sheet, (*HOT, *SKY), day=absent)
        if sheet.chance(0.5)
        else put(
            sheet,
            (
                "What is the water temperature?",
                "How high are the waves?",
                "When is full moon?",
                "How deep is the snow?",
            ),
        ),
    )
    sheet.ask(
        "value",
        put(sheet, ("For which place is the forecast?", "Which city is this?", "Where is this weather?")),
        place.plain,
        place,
    )
    return "".join(parts + blocks)


def _sky(sheet: Sheet, size: float) -> tuple[Piece, str]:
    """Return a symbol and the words for it."""
    name = sheet.one(list(SKIES))
    symbol = icon(name, size, PAINTS[name], sheet.chance(0.5), 2)
    return sheet.block(symbol, "span", 'style="display:inline-block;line-height:0"'), sheet.one(SKIES[name])


def _now(sheet: Sheet, place: Piece, base: int, unit: str) -> str:
    """Return the weather now in large type."""
    size = sheet.style.size
    degrees = sheet.text(f"{base}{unit}", "span", f'style="font-size:{size * 3.2:.0f}px;line-height:1.1"')
    symbol, words = _sky(sheet, size * 3)
    sky, feels = sheet.text(words), sheet.text(f"Feels like {base + sheet.choose(-4, 4)}{unit}")
    sheet.ask(
        "value",
        put(
            sheet,
            ("What is the temperature now?", "How warm is it now?", "How many degrees is it in {place}?"),
            place=place.plain,
        ),
        degrees.plain,
        degrees,
    )
    sheet.ask(
        "value",
        put(sheet, ("What is the weather like now?", "How is the weather in {place}?"), place=place.plain),
        words,
        symbol,
        sky,
    )
    sheet.ask(
        "value",
        put(sheet, ("What does it feel like?", "Which temperature does it feel like?")),
        feels.plain.removeprefix("Feels like "),
        feels,
    )
    return (
        f'<div style="display:flex;gap:1em;align-items:center">{symbol}{degrees}<div>{sky}<div '
        f'class="muted">{feels}</div></div></div>'
    )


def _days(sheet: Sheet, days: list[str], base: int, unit: str) -> str:
    """Days with symbol, highest and lowest temperature."""
    across, worded, cells = not sheet.style.narrow and sheet.chance(0.6), sheet.chance(0.5), []
    highs = sheet.rng.sample(range(base - 3, base + 11), len(days))
    drawn = []
    for day, most in zip(days, highs, strict=True):
        name, high, low = (
            sheet.text(day),
            sheet.text(f"{most}{unit}"),
            sheet.text(f"{most - sheet.choose(2, 12)}{unit}"),
        )
        symbol, words = _sky(sheet, sheet.style.size * 1.8)
        sky = sheet.text(words) if worded or not across else None
        extra = [sky] if sky else []
        sheet.ask("value", put(sheet, HOT, day=day), f"{high.plain} / {low.plain}", name, high, low)
        text = put(sheet, SKY, day=day)
        rain = "yes" if words in (*SKIES["rain"], *SKIES["lightning"]) else "no"
        sheet.ask(
            "yes-no" if "ill it rain" in text else "value",
            text,
            rain if "ill it rain" in text else words,
            name,
            symbol,
            *extra,
        )
        drawn.append((most, name, high))
        words_of_sky = sky or ""
        if across:
            cells.append(
                f'<div class="card" style="margin:0;text-align:center"><div>{name}</div>{symbol}<div '
                f'style="font-size:.85em">{words_of_sky}</div><b>{high}</b> <span class="muted">'
                f"{low}</span></div>"
            )
        else:
            cells.append(
                f'<div style="display:grid;grid-template-columns:6em 2.4em 1fr auto auto;gap:.6em;'
                f'align-items:center;padding:.35em 0;border-bottom:1px solid var(--line)">'
                f'{name}{symbol}{words_of_sky}<b>{high}</b><span class="muted">{low}</span></div>'
            )
    for pick, options in (
        (max, ("Which day is warmest?", "When is it hottest?")),
        (min, ("Which day is coldest?", "What is the coolest day?")),
    ):
        best = pick(drawn, key=lambda one: one[0])
        sheet.ask("comparison", put(sheet, options), best[1].plain, *best[1:])
    if across:
        return (
            f'<div class="grid" style="grid-template-columns:repeat({len(days)},1fr);margin:1em 0">'
            f"{''.join(cells)}</div>"
        )
    return f'<div class="card">{"".join(cells)}</div>'


def _hours(sheet: Sheet, base: int, unit: str) -> str:
    """Hours with their temperatures."""
    first, cells = sheet.choose(0, 14), []
    form = sheet.one(("{:02}:00", "{}h", "{:02}"))
    for i in range(4 if sheet.style.narrow else 8):
        time, degrees = (
            sheet.text(form.format(first + i), "div", 'class="muted"'),
            sheet.text(f"{base + sheet.choose(-4, 4)}{unit}", "div"),
        )
        symbol, _ = _sky(sheet, sheet.style.size * 1.4)
        hour = time.plain if ":" in time.plain or "h" in time.plain else f"{time.plain}:00"
        sheet.ask(
            "value",
            put(sheet, ("How warm is it at {time}?", "What is the temperature at {time}?"), time=hour),
            degrees.plain,
            time,
            degrees,
        )
        cells.append(f'<div style="text-align:center">{time}{symbol}{degrees}</div>')
    return f'<div style="display:flex;justify-content:space-between;margin:1em 0">{"".join(cells)}</div>'


def _data(sheet: Sheet) -> str:
    """Labels with values, as tiles."""
    tiles = []
    for name in labels(sheet, sheet.choose(2, 6), DATA, high=2, most=18, share=0.8):
        label, value = (
            sheet.text(name, "div", 'class="muted" style="font-size:.85em"'),
            sheet.text(
                sheet.words.of(
                    "time" if name in ("Sunrise", "Sunset") else sheet.one(("percent", "measure", "count"))
                ),
                "b",
            ),
        )
        sheet.field(label, value)
        tiles.append(f'<div class="card" style="margin:0">{label}{value}</div>')
    return (
        f'<div class="grid" style="grid-template-columns:repeat({2 if sheet.style.narrow else 3},1fr);'
        f'margin:1em 0">{"".join(tiles)}</div>'
    )
