"""Bar charts: upright or lying, single, grouped or stacked, with printed values or an axis alone."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import chart_title, finish, labels, legend_colours, put, room
from arr_coc_lab.world.browser.drawing import VIVID, shade, ticks
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

REAL = (
    "North", "South", "East", "West", "Berlin", "Paris", "London", "Tokyo", "Madrid", "Jan", "Feb", "Mar",
    "Apr", "May", "Jun", "Jul",
    "Q1", "Q2", "Q3", "Q4", "2019", "2020", "2021", "2022", "2023", "2024", "Mon", "Tue", "Wed", "Thu",
    "Fri", "Solar", "Wind", "Coal",
    "Gas", "Nuclear", "Apples", "Pears", "Bread", "Milk", "Cats", "Dogs", "Marketing", "Sales", "Support",
    "Research", "Walking", "Bus",
    "Train", "Car", "Bicycle", "Germany", "France", "Spain", "Italy", "Poland", "Sweden", "Brazil",
    "Canada", "India", "Other",
)  # fmt: skip
SERIES = (
    "2022",
    "2023",
    "Men",
    "Women",
    "Online",
    "Stores",
    "Before",
    "After",
    "Plan",
    "Actual",
    "Adults",
    "Children",
    "Budget",
)
UNITS = ("{}", "{}", "{}%", "{} k", "${}", "€{}", "{} t", "{} kWh", "{}M")


@page_type("bar_chart", weight=2.0)
def bar_chart(sheet: Sheet) -> str:
    """Return a title, a chart and sometimes a legend, an axis title and a note."""
    chart = _Chart(sheet)
    heading = sheet.text(sheet.words.title(2, 6), "h1") if sheet.chance(0.85) else None
    note = ""
    if sheet.chance(0.5):
        source = sheet.text(sheet.words.company())
        sheet.ask(
            "value",
            put(
                sheet,
                (
                    "What is the source of the data?",
                    "Where do the numbers come from?",
                    "Which source is named?",
                ),
            ),
            source.plain,
            source,
        )
        note = f'<p class="muted" style="font-size:.85em">Source: {source}</p>'
    if sheet.chance(0.6):
        note += "".join(f"<p>{sheet.words.paragraph(1, 4)}</p>" for _ in range(sheet.choose(1, 3)))
    body = chart.draw()
    chart.ask()
    chart_title(sheet, heading)
    finish(sheet, heading, chart.missing_question())
    card = sheet.one(("", "card", "card"))
    return f'{heading or ""}<div class="{card}">{chart.legend()}{body}</div>{note}'


class _Chart:
    """A chart while it is drawn: its numbers, its pieces and its geometry."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.lying = sheet.chance(0.4)
        self.count = sheet.choose(3, 6 if sheet.style.narrow else 9)
        *self.names, self.missing = labels(sheet, self.count + 1, REAL, high=2, most=14, share=0.6)
        series = 1 if sheet.chance(0.55) else sheet.choose(2, 3)
        self.stacked = series > 1 and sheet.chance(0.4)
        self.printed = sheet.chance(0.65)
        self.unit, self.most = sheet.one(UNITS), sheet.rng.choice((10, 60, 100, 100, 500, 3000, 20000))
        digits = sheet.rng.choice((0, 0, 1)) if self.most < 500 else 0
        free = [name for name in SERIES if name not in (*self.names, self.missing)]
        self.series = labels(sheet, series, free, high=2, most=14, share=0.8) if series > 1 else [""]
        while set(map(str.lower, self.series)) & {name.lower() for name in self.names}:
            self.series = labels(sheet, series, high=2, most=14)
        self.values = [
            [round(self.most * sheet.rng.uniform(0.06, 1), digits) for _ in self.series] for _ in self.names
        ]
        if digits == 0:
            self.values = [[int(v) for v in row] for row in self.values]
        self.paint_names = sheet.rng.sample(VIVID, max(series, 1))
        self.paints = [shade(sheet.rng, name) for name in self.paint_names]
        if series == 1 and sheet.chance(0.4):
            self.paints = ["var(--accent)"]
        self.colours = [""] * self.count
        if series == 1 and sheet.chance(0.3):
            self.colours = [sheet.one(VIVID) for _ in self.names]
        self.keys = [sheet.text(name) for name in self.series]
        self.swatches = [
            sheet.block("", "span", f'style="display:inline-block;width:.9em;height:.9em;background:{paint}"')
            for paint in self.paints
        ]

    def write(self, value: float) -> str:
        """Return a value with its unit."""
        return self.unit.format(f"{value:,}")

    def legend(self) -> str:
        """Return the names of the series beside their colours."""
        if len(self.series) == 1:
            return ""
        inner = " ".join(
            f'<span style="margin-right:1.2em;white-space:nowrap">{s} {k}</span>'
            for s, k in zip(self.swatches, self.keys, strict=True)
        )
        return f'<div style="margin-bottom:.6em">{inner}</div>'

    def draw(self) -> str:
        """Return the chart as SVG; afterwards every bar, label and value is a piece."""
        sheet, size = self.sheet, self.sheet.style.size * 0.88
        width, height = room(sheet)
        margin = sheet.style.width - width + 4
        width = min(width - margin, 1100) * sheet.rng.uniform(0.85, 1)
        height = max(180, min(height * sheet.rng.uniform(0.45, 0.85), 760))
        peak = max(sum(row) if self.stacked else max(row) for row in self.values)
        long = max(len(name) for name in self.names) * size * 0.62
        self.lying = self.lying or long > width * 0.85 / self.count
        rows = self.count * (1 if self.stacked else len(self.series))
        if self.lying:
            height = max(height, rows * size * 1.45 + 4 * size)
        wide = len(self.write(peak)) * size * 0.7
        about = max(1, min(6, int((width * 0.6) / (wide * 1.3)))) if self.lying else 5
        marks = ticks(peak * 1.05, about)
        left = (
            min(long, width * 0.4) + 10
            if self.lying
            else max(len(self.write(marks[-1])), 3) * size * 0.62 + 8
        )
        right, top, bottom = (
            (len(self.write(marks[-1])) * size * 0.62 + 14 if self.lying else 8),
            size * 1.4,
            size * 2,
        )
        long_side = (width - left - right) if self.lying else (height - top - bottom)
        self.scale = long_side / marks[-1]
        step = ((height - top - bottom) if self.lying else (width - left - right)) / self.count
        self.area = (left, top, width - right, height - bottom)
        parts = [self._grid(marks, size)]
        self.bars: list[list[Piece]] = []
        self.texts: list[Piece] = []
        self.figures: list[list[Piece | None]] = []
        share = sheet.rng.uniform(0.5, 0.85)
        for i, name in enumerate(self.names):
            start = (top if self.lying else left) + i * step
            middle = start + step / 2
            x, y = (left - 6, middle + size * 0.35) if self.lying else (middle, height - bottom + size * 1.3)
            anchor = "end" if self.lying else "middle"
            at = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
            self.texts.append(sheet.text(name, "text", at))
            parts += [self.texts[-1], *self._bars(i, start + step * (1 - share) / 2, step * share, size)]
        return (
            f'<svg width="{width:.0f}" height="{height:.0f}" font-size="{size:.1f}" fill="var(--ink)">'
            f"{''.join(parts)}</svg>"
        )

    def _grid(self, marks: list[float], size: float) -> str:
        """Lines and numbers of the value axis."""
        left, top, right, bottom = self.area
        parts, lines = [], self.sheet.chance(0.7)
        self.marks = []
        for mark in marks if not self.printed or self.sheet.chance(0.6) else []:
            text = self.write(int(mark) if mark == int(mark) else mark)
            x, y = left + mark * self.scale, bottom - mark * self.scale
            if self.lying:
                piece = self.sheet.text(
                    text,
                    "text",
                    f'x="{x:.0f}" y="{bottom + size * 1.3:.0f}" text-anchor="middle" fill="var(--muted)"',
                )
                line = f"M{x:.1f} {top}V{bottom}"
            else:
                piece = self.sheet.text(
                    text,
                    "text",
                    f'x="{left - 6:.0f}" y="{y + size * 0.35:.0f}" text-anchor="end" fill="var(--muted)"',
                )
                line = f"M{left} {y:.1f}H{right}"
            self.marks.append((mark, piece))
            parts.append(piece + (f'<path d="{line}" stroke="var(--line)"/>' if lines else ""))
        axis = f"M{left} {top}V{bottom}" if self.lying else f"M{left} {bottom}H{right}"
        return "".join(parts) + f'<path d="{axis}" stroke="var(--ink)"/>'

    def _bars(self, i: int, start: float, thick: float, size: float) -> list[str]:
        """Return the bars of one label and their printed values."""
        left, _, _, bottom = self.area
        parts, level = [], 0.0
        bars, figures = [], []
        for j, value in enumerate(self.values[i]):
            paint = shade(self.sheet.rng, self.colours[i]) if self.colours[i] else self.paints[j]
            each = thick if self.stacked else thick / len(self.series)
            across = start + (0 if self.stacked else j * each)
            length, base = value * self.scale, level * self.scale
            x, y, w, h = (
                (left + base, across, length, each * 0.94)
                if self.lying
                else (across, bottom - base - length, each * 0.94, length)
            )
            bars.append(
                self.sheet.block(
                    "", "rect", f'x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{paint}"'
                )
            )
            parts.append(bars[-1])
            figure = None
            text = self.write(value)
            wide = len(text) * size * 0.6
            fits = (
                (h > size and (not self.stacked or w > wide))
                if self.lying
                else (w > wide * 0.8 and (not self.stacked or h > size * 1.2))
            )
            if self.printed and fits:
                centre = (
                    (x + w / 2, y + h / 2 + size * 0.35)
                    if self.stacked
                    else (x + w + 4, y + h / 2 + size * 0.35)
                    if self.lying
                    else (x + w / 2, y - 4)
                )
                anchor = "start" if self.lying and not self.stacked else "middle"
                edge = ' stroke="var(--paper)" stroke-width="3" paint-order="stroke"' if self.stacked else ""
                figure = self.sheet.text(
                    text, "text", f'x="{centre[0]:.0f}" y="{centre[1]:.0f}" text-anchor="{anchor}"{edge}'
                )
                parts.append(figure)
            figures.append(figure)
            level += value if self.stacked else 0
        self.bars.append(bars)
        self.figures.append(figures)
        return parts

    def _evidence(self, i: int, j: int) -> list[Piece]:
        """Return what shows a value: the label, the bar, the legend and the printed value or the nearest
        marks.
        """
        key = [self.keys[j], self.swatches[j]] if len(self.series) > 1 else []
        figure = self.figures[i][j]
        value = self.values[i][j]
        near = (
            [figure]
            if figure
            else [piece for _, piece in sorted(self.marks, key=lambda m: abs(m[0] - value))[:2]]
        )
        return [self.texts[i], self.bars[i][j], *near, *key]

    def ask(self) -> None:
        """Questions about single bars, the highest and the lowest, pairs, colours and neighbours."""
        sheet = self.sheet
        for i in range(self.count):
            for j, series in enumerate(self.series):
                if (self.figures[i][j] is None and not self.marks) or (
                    len(self.series) > 1 and sheet.chance(0.4)
                ):
                    continue
                options = ONE if not series else TWO
                sheet.ask(
                    "chart",
                    put(sheet, options, label=self.names[i], series=series),
                    self.write(self.values[i][j]),
                    *self._evidence(i, j),
                )
        if len(self.series) > 1:
            legend_colours(sheet, self.paint_names, self.keys, self.swatches, "bar")
            return
        order = sorted(range(self.count), key=lambda k: self.values[k][0])
        for words, best, rival in ((HIGHEST, order[-1], order[-2]), (LOWEST, order[0], order[1])):
            if abs(self.values[best][0] - self.values[rival][0]) > self.most * 0.03:
                sheet.ask(
                    "chart",
                    put(sheet, words),
                    self.names[best],
                    *self._evidence(best, 0)[: 3 if self.figures[best][0] else 2],
                )
        a, b = sheet.rng.sample(range(self.count), 2)
        if abs(self.values[a][0] - self.values[b][0]) > self.most * 0.03:
            more = a if self.values[a][0] > self.values[b][0] else b
            pair = [*self._evidence(a, 0)[:3], *self._evidence(b, 0)[:3]]
            text = put(
                sheet,
                ("Is {a} higher than {b}?", "Does {a} have more than {b}?"),
                a=self.names[a],
                b=self.names[b],
            )
            sheet.ask("yes-no", text, "yes" if more == a else "no", *pair)
            sheet.ask(
                "comparison",
                put(sheet, COMPARED, a=self.names[a], b=self.names[b]),
                self.names[more],
                *pair,
            )
        if self.colours[0]:
            i = sheet.choose(0, self.count - 1)
            sheet.ask(
                "colour",
                put(
                    sheet,
                    ("What colour is the bar of {label}?", "Which colour does {label} have?"),
                    label=self.names[i],
                ),
                self.colours[i],
                self.texts[i],
                self.bars[i][0],
            )
        if self.count <= 8:
            sheet.ask(
                "count",
                put(sheet, ("How many bars are there?", "How many bars does the chart have?")),
                str(self.count),
                *(bars[0] for bars in self.bars),
            )

    def missing_question(self) -> str:
        """Return a question about a bar that is not there."""
        return put(self.sheet, ONE, label=self.missing)


ONE = (
    "What is the value of {label}?", "How high is the bar for {label}?", "What value does {label} have?",
    "What does the chart show for {label}?", "{label}?", "How much is {label}?",
    "Read off the value of {label}.", "What is the figure for {label}?",
)  # fmt: skip
TWO = (
    "What is the value of {series} for "
    "{label}?", "How high is the {series} bar of "
                "{label}?", "{label}: what is {series}?", "What does {label} have for {series}?",
    "In {label}, how much is {series}?",
)  # fmt: skip
HIGHEST = (
    "Which bar is highest?",
    "Which one has the largest value?",
    "What is the maximum?",
    "Which is the longest bar?",
    "Who leads?",
)
LOWEST = (
    "Which bar is lowest?",
    "Which one has the smallest value?",
    "What is the minimum?",
    "Which is the shortest bar?",
)
COMPARED = (
    "Which is larger, {a} or {b}?",
    "Is {a} higher than {b}?",
    "{a} or {b}: which has more?",
    "Compare {a} and {b}.",
)
