"""Pie and ring charts: figures at the slices or in a legend with swatches."""

from __future__ import annotations

import math

from arr_coc_lab.world.browser.asking import chart_title, finish, labels, put, room
from arr_coc_lab.world.browser.drawing import COLOURS, shade
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

REAL = (
    "Rent", "Food", "Transport", "Savings", "Clothes", "Leisure", "Housing", "Energy", "Health",
    "Education", "Chrome", "Firefox", "Safari",
    "Europe", "Asia", "Africa", "Oceania", "Other", "Gold", "Bonds", "Shares", "Cash", "Oil", "Gas",
    "Water", "Nitrogen", "Oxygen",
)  # fmt: skip
SHARE = (
    "What is the share of {label}?", "How much is {label}?", "What percentage does {label} have?", "{label}?",
    "What does the pie show for {label}?", "How big is the slice of {label}?",
)  # fmt: skip
LARGEST = ("Which slice is largest?", "What has the biggest share?", "Which is the largest part?")
SMALLEST = ("Which slice is smallest?", "What has the smallest share?", "Which is the least?")


@page_type("pie_chart", held_out=True)
def pie_chart(sheet: Sheet) -> str:
    """Return a heading and one pie; its names, swatches and figures are pieces."""
    count = sheet.choose(3, 5 if sheet.style.narrow else 7)
    *names, missing = labels(sheet, count + 1, REAL, high=2, most=18, share=0.55)
    heading = sheet.text(sheet.words.title(2, 6), "h1") if sheet.chance(0.85) else None
    beside = sheet.style.width > 560 and sheet.chance(0.7)
    width, height = room(sheet)
    side = max(120, min(width * (0.45 if beside else 0.75), height * 0.6, 620))
    pie = _Pie(sheet, names, side, at_slices=sheet.chance(0.4))
    rows = "".join(f'<div style="margin:.35em 0">{row}</div>' for row in pie.legend())
    pie.ask()
    chart_title(sheet, heading)
    finish(sheet, heading, put(sheet, SHARE, label=missing))
    layout = "display:flex;align-items:center;gap:2em" if beside else ""
    text = f"<p>{sheet.words.paragraph(1, 3)}</p>" if sheet.chance(0.4) else ""
    return (
        f'{heading or ""}<div class="{sheet.one(("", "card"))}" style="{layout}">{pie.svg}<div>'
        f"{rows}</div></div>{text}"
    )


class _Pie:
    """A pie: its shares in per cent, its colours and its pieces; a slice, too wide for evidence, is none."""

    def __init__(self, sheet: Sheet, names: list[str], side: float, at_slices: bool) -> None:
        self.sheet, self.at_slices = sheet, at_slices
        weights = [sheet.rng.uniform(1, 6) for _ in names]
        self.shares = [round(100 * w / sum(weights)) for w in weights]
        self.shares[0] += 100 - sum(self.shares)
        self.colours = sheet.rng.sample(sorted(set(COLOURS) - {"white", "black"}), len(names))
        fills = [shade(sheet.rng, name) for name in self.colours]
        self.keys = [sheet.text(name) for name in names]
        square = "display:inline-block;width:1em;height:1em;vertical-align:-.1em;border-radius"
        radius = sheet.one(("0", "50%"))
        self.swatches = [
            sheet.block("", "span", f'style="{square}:{radius};background:{fill}"') for fill in fills
        ]
        self.figures: list[Piece] = []
        half, hole = side / 2, sheet.rng.choice((0.0, 0.0, 0.5, 0.62))
        middle, gap = half * (0.5 + hole / 2 + 0.15 * (not hole)), sheet.rng.choice((0, 1, 3))
        angle, parts = sheet.rng.uniform(0, 2 * math.pi) - math.pi / 2, []
        for share, fill in zip(self.shares, fills, strict=True):
            end = angle + 2 * math.pi * share / 100
            route = _sector(half, hole * half, angle, end)
            parts.append(f'<path d="{route}" fill="{fill}" stroke="var(--paper)" stroke-width="{gap}"/>')
            centre = (angle + end) / 2
            x, y = half + middle * math.cos(centre), half + middle * math.sin(centre)
            if at_slices:
                style = 'text-anchor="middle" stroke="var(--paper)" stroke-width="3" paint-order="stroke"'
                self.figures.append(sheet.text(f"{share}%", "text", f'x="{x:.0f}" y="{y + 5:.0f}" {style}'))
            else:
                self.figures.append(sheet.text(f"{share}%", "b"))
            angle = end
        parts += self.figures if at_slices else []
        self.svg = (
            f'<svg width="{side:.0f}" height="{side:.0f}" fill="var(--ink)" style="flex:none">'
            f"{''.join(parts)}</svg>"
        )

    def legend(self) -> list[str]:
        """Rows of swatch, name and, where the slices have none, figure."""
        figures = [""] * len(self.keys) if self.at_slices else self.figures
        return [
            f"{swatch} {key} {figure}"
            for swatch, key, figure in zip(self.swatches, self.keys, figures, strict=True)
        ]

    def ask(self) -> None:
        """Ask for shares, the largest and smallest, pairs, colours and the number of slices."""
        sheet = self.sheet
        evidence = list(zip(self.keys, self.swatches, self.figures, strict=True))
        for i, key in enumerate(self.keys):
            sheet.ask("chart", put(sheet, SHARE, label=key.plain), f"{self.shares[i]}%", *evidence[i])
            sheet.ask(
                "colour",
                put(sheet, ("What colour is {label}?", "Which colour stands for {label}?"), label=key.plain),
                self.colours[i],
                *evidence[i][:2],
            )
            sheet.ask(
                "chart",
                put(
                    sheet,
                    ("What does the {colour} slice stand for?", "What is {colour}?"),
                    colour=self.colours[i],
                ),
                key.plain,
                *evidence[i][:2],
            )
        order = sorted(range(len(self.keys)), key=lambda i: self.shares[i])
        for options, best, rival in ((LARGEST, order[-1], order[-2]), (SMALLEST, order[0], order[1])):
            if self.shares[best] != self.shares[rival]:
                sheet.ask("chart", put(sheet, options), self.keys[best].plain, *evidence[best])
        a, b = sheet.rng.sample(range(len(self.keys)), 2)
        if self.shares[a] != self.shares[b]:
            text = put(
                sheet,
                ("Which is larger, {a} or {b}?", "{a} or {b}: which has more?"),
                a=self.keys[a].plain,
                b=self.keys[b].plain,
            )
            sheet.ask(
                "comparison",
                text,
                self.keys[max(a, b, key=self.shares.__getitem__)].plain,
                *evidence[a],
                *evidence[b],
            )
        sheet.ask(
            "count",
            put(sheet, ("How many slices are there?", "How many parts does the pie have?")),
            str(len(self.keys)),
            *self.keys,
        )


def _sector(radius: float, inner: float, start: float, end: float) -> str:
    """Return the path of a sector of a disc or a ring in a square of side 2 radius."""

    def point(r: float, angle: float) -> str:
        return f"{radius + r * math.cos(angle):.1f} {radius + r * math.sin(angle):.1f}"

    wide = int(end - start > math.pi)
    back = (
        f"L{point(inner, end)}A{inner:.1f} {inner:.1f} 0 {wide} 0 {point(inner, start)}Z"
        if inner
        else f"L{point(0, 0)}Z"
    )
    return f"M{point(radius, start)}A{radius:.1f} {radius:.1f} 0 {wide} 1 {point(radius, end)}{back}"
