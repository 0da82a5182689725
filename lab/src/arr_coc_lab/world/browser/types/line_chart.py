"""Line charts: one to three lines over time, with marks, sometimes printed values, areas and legends."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import chart_title, finish, labels, legend_colours, put, room
from arr_coc_lab.world.browser.drawing import VIVID, shade, ticks
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

SERIES = (
    "Visitors",
    "Revenue",
    "Temperature",
    "Rainfall",
    "Price",
    "Users",
    "Errors",
    "Sales",
    "Weight",
    "Pulse",
    "Plan",
    "Actual",
)
UNITS = ("{}", "{}", "{}%", "{} k", "${}", "{} °C", "{} mm", "{} ms")
TIMES = (
    ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    tuple(f"{hour}:00" for hour in range(6, 24, 2)),
    tuple(str(year) for year in range(1990, 2030)),
    tuple(f"Week {week}" for week in range(1, 53)),
    tuple(f"Day {day}" for day in range(1, 15)),
)
VALUE = (
    "What is the value in {x}?",
    "How high is it in {x}?",
    "What does the line show at {x}?",
    "Read off the value for {x}.",
    "{x}?",
)
VALUE_OF = (
    "What is {y} in {x}?",
    "What is the value of {y} at {x}?",
    "{y} in {x}?",
    "How high is {y} for {x}?",
    "What does the line of {y} show at {x}?",
)
HIGHEST = ("When is {y} highest?", "At which point does {y} peak?", "When does {y} reach its maximum?")
LOWEST = ("When is {y} lowest?", "At which point is {y} at its minimum?")


@page_type("line_chart")
def line_chart(sheet: Sheet) -> str:
    """Return a heading, a chart with a legend, and now and then a paragraph below."""
    times = sheet.rng.choice(TIMES)
    count = sheet.choose(4, 6 if sheet.style.narrow else 10)
    start = sheet.choose(0, max(0, len(times) - count))
    times = times[start : start + count]
    lines = sheet.rng.choice((1, 1, 2, 3))
    *names, missing = labels(sheet, lines + 1, SERIES, high=2, most=18, share=0.6)
    heading = sheet.text(sheet.words.title(2, 6), "h1")
    colours = sheet.rng.sample(VIVID, lines)
    paints = [shade(sheet.rng, colour) for colour in colours]
    keys = [(sheet.text(name), paint) for name, paint in zip(names, paints, strict=True)]
    legend, swatches = "", []
    for key, paint in keys:
        swatches.append(
            sheet.block(
                "",
                "span",
                f'style="display:inline-block;width:1.6em;height:.3em;background:{paint};'
                f'vertical-align:middle"',
            )
        )
        legend += f'<span style="margin-right:1.4em;white-space:nowrap">{swatches[-1]} {key}</span> '
    chart = _chart(sheet, times, keys, swatches)
    text = f"<p>{sheet.words.paragraph(1, 4)}</p>" if sheet.chance(0.5) else ""
    legend_colours(sheet, colours, [key for key, _ in keys], swatches, "line")
    chart_title(sheet, heading)
    finish(sheet, heading, put(sheet, VALUE_OF, x=sheet.one(times), y=missing))
    below = sheet.chance(0.3)
    return (
        f'{heading}<div class="{sheet.one(("", "card"))}">'
        f"{'' if below else legend}{chart}{legend if below else ''}</div>{text}"
    )


def _chart(sheet: Sheet, times: tuple[str, ...], keys: list[tuple[Piece, str]], swatches: list[Piece]) -> str:
    """Return the chart as SVG, and the questions about its points."""
    size = sheet.style.size * 0.88
    width, height = room(sheet)
    width = min(2 * width - sheet.style.width - 4, 1200) * sheet.rng.uniform(0.88, 1)
    height = max(170, min(height * sheet.rng.uniform(0.45, 0.75), 700))
    unit, most = sheet.one(UNITS), sheet.rng.choice((10, 40, 100, 100, 900, 20000))
    marks = ticks(most * 1.02, 5 if height > 220 else 3)
    left, top, bottom = (
        max(len(unit.format(f"{m:,.10g}")) for m in marks) * size * 0.62 + 10,
        size * 1.4,
        height - size * 2,
    )
    right = width - size * 2.2
    scale, step = (bottom - top) / marks[-1], (right - left) / (len(times) - 1)
    parts, scales = [], []
    for mark in marks:
        y = bottom - mark * scale
        scales.append(
            (
                mark,
                sheet.text(
                    unit.format(f"{mark:,.10g}"),
                    "text",
                    f'x="{left - 7:.0f}" y="{y + size / 3:.0f}" text-anchor="end" fill="var(--muted)"',
                ),
            )
        )
        parts += [scales[-1][1], f'<path d="M{left:.0f} {y:.1f}H{right:.0f}" stroke="var(--line)"/>']
    thin = step < max(map(len, times)) * size * 0.66
    axis = []
    for i, time in enumerate(times):
        x = left + i * step
        hidden = thin and i % 2
        axis.append(
            None
            if hidden
            else sheet.text(time, "text", f'x="{x:.0f}" y="{bottom + size * 1.5:.0f}" text-anchor="middle"')
        )
        parts.append(axis[-1] or "")
    printed, area, bend = (
        sheet.chance(0.3) and len(keys) == 1,
        sheet.chance(0.25),
        sheet.one(("circle", "square", "none")),
    )
    for (key, paint), swatch in zip(keys, swatches, strict=True):
        level, values = sheet.rng.uniform(0.2, 0.8), []
        for _ in times:
            level = min(0.98, max(0.04, level + sheet.rng.uniform(-0.25, 0.25)))
            values.append(round(level * most, 1 if most < 200 else 0))
        points = [(left + i * step, bottom - value * scale) for i, value in enumerate(values)]
        route = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        if area:
            parts.append(
                f'<path d="M{route}L{right:.1f} {bottom}L{left:.1f} {bottom}Z" fill="{paint}" opacity=".2"/>'
            )
        parts.append(
            f'<path d="M{route}" fill="none" stroke="{paint}" '
            f'stroke-width="{sheet.rng.uniform(1.5, 3.5):.1f}" stroke-linejoin="round"/>'
        )
        dots = []
        for i, (x, y) in enumerate(points):
            radius = 4 if bend != "none" else 6
            shape = (
                f'<rect x="{x - radius:.1f}" y="{y - radius:.1f}" width="{2 * radius}" '
                f'height="{2 * radius}" rx="{radius if bend == "circle" else 0}"'
            )
            paintwork = f'fill="{paint}"' if bend != "none" else 'fill="none"'
            dots.append(sheet.block(f"{shape} {paintwork}/>", "g"))
            parts.append(dots[-1])
            if printed:
                figure = sheet.text(
                    unit.format(f"{values[i]:,.10g}"),
                    "text",
                    f'x="{x:.0f}" y="{y - 8:.0f}" text-anchor="middle" font-size=".9em"',
                )
                parts.append(figure)
                near = [figure]
            else:
                near = [piece for _, piece in sorted(scales, key=lambda m: abs(m[0] - values[i]))[:2]]
            tick = axis[i]
            if tick:
                legend = [key, swatch] if len(keys) > 1 else []
                sheet.ask(
                    "chart",
                    put(sheet, VALUE_OF if legend or sheet.chance(0.4) else VALUE, x=times[i], y=key.plain),
                    unit.format(f"{values[i]:,.10g}"),
                    tick,
                    dots[-1],
                    *near,
                    *legend,
                    *([] if legend else [key]),
                )
        _extremes(sheet, values, times, axis, dots, key, swatch)
    return (
        f'<svg width="{width:.0f}" height="{height:.0f}" font-size="{size:.1f}" fill="var(--ink)" '
        f'style="display:block">{"".join(parts)}</svg>'
    )


def _extremes(
    sheet: Sheet,
    values: list[float],
    times: tuple[str, ...],
    axis: list[Piece | None],
    dots: list[Piece],
    key: Piece,
    swatch: Piece,
) -> None:
    """Ask when a line is highest and lowest, where that is plain to see."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    for options, best, rival in ((HIGHEST, order[-1], order[-2]), (LOWEST, order[0], order[1])):
        tick = axis[best]
        if tick and abs(values[best] - values[rival]) > 0.03 * max(values):
            sheet.ask("chart", put(sheet, options, y=key.plain), times[best], dots[best], tick, key, swatch)
