"""The laws of time on drawn clips of 30 frames: a pan, cuts, flicker and noise; a figure and a result file.

    python runs/clip_laws.py        -> runs/results/clip-laws.json, docs/video-laws.png

clips       "pan": a drawn page that scrolls by half a cell a frame; "cuts": three pages, ten frames each; "flicker": one page
            whose light changes from frame to frame; "noise": one page with fresh noise of 5 % in every frame
relevance   the guide's logit of each cell of each frame by itself, with normal noise of 2 logits, so that what is smoothed
            has something to smooth; over time: `relevance_over_time`
smoothing   a cell whose content is not new has 0.7 of the frame before, moved along, and 0.3 of its own: the largest
            departure from that, which is rounding; at a cut every cell has its own alone
kept set    of each frame the 12 cells of most relevance over time, and by themselves: the variance of their middle over the
            frames, in shares of the grid (the plan's law: under 0.2), and how many are kept again in the next frame

Cost: seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from arr_coc.choose.motion import OLD
from arr_coc.guide.coupling import couple, view
from arr_coc.guide.guide import load_guide
from arr_coc.video.temporal import Changes, relevance_over_time
from arr_coc_lab.world import draw_page

ROOT = Path(__file__).parents[1]
SIDE, GRID, FRAMES, KEPT, NOISE = 224, (7, 7), 30, 12, 2.0
LAW = 0.2
"""The most that the middle of the kept set may vary."""
OWN, OVER, INK, QUIET = "#b9bcc6", "#2f6fde", "#1f2430", "#6a6a75"


def page(seed: int, height: int = SIDE) -> Tensor:
    """A drawn page, float [3, height, SIDE] in [0, 1]."""
    image = draw_page(seed, (SIDE, height), "test").image
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255


def clips() -> dict[str, list[Tensor]]:
    """The frames [3, SIDE, SIDE] of each clip."""
    tall, still, step = page(5, SIDE + 16 * FRAMES), page(6), 16
    generator = torch.Generator().manual_seed(0)
    noise = [0.05 * torch.randn(still.shape, generator=generator) for _ in range(FRAMES)]
    light = 0.8 + 0.1 * torch.rand(FRAMES, generator=generator)
    pages = [page(8), 0.35 * page(9), page(10)]  # a dark room between two light ones
    return {
        "pan": [tall[:, i * step : i * step + SIDE] for i in range(FRAMES)],
        "cuts": [pages[3 * i // FRAMES] for i in range(FRAMES)],
        "flicker": [(still * factor).clamp(0, 1) for factor in light],
        "noise": [(still * 0.9 + one).clamp(0, 1) for one in noise],
    }


def logits_of(frames: list[Tensor], seed: int) -> Tensor:
    """The guide's logits of each frame by itself with noise, [T, H, W]."""
    guide, question = load_guide(), "What is the total?"
    own = torch.stack([couple(guide, view(guide, frame), question, GRID).logits.float() for frame in frames])
    return own + NOISE * torch.randn(own.shape, generator=torch.Generator().manual_seed(seed))


def over_time(logits: Tensor, changes: Changes) -> tuple[Tensor, Tensor]:
    """Relevance over time, [T, H, W], and the same before what repeats is lowered."""
    ranked = relevance_over_time(logits, changes).sigmoid()
    return ranked, ranked / changes.fresh


def departures(logits: Tensor, smooth: Tensor, changes: Changes) -> dict[str, float]:
    """How far relevance over time lies from the plan's rule at most, within scenes and at cuts."""
    own, within, at_cuts = logits.sigmoid(), [0.0], [0.0]
    for t in range(1, len(own)):
        before = changes.carried(smooth[t - 1], t)
        rule = torch.where(changes.new[t], own[t], OLD * before + (1 - OLD) * own[t])
        apart = (smooth[t] - rule).abs()
        (at_cuts if changes.cuts[t] else within).append(float(apart.max()))
    return {"within scenes": max(within), "at cuts": max(at_cuts)}


def kept(maps: Tensor) -> tuple[Tensor, float]:
    """The middle of the kept cells of each frame in shares of the grid, [T, 2], and the share kept again."""
    best = maps.flatten(1).argsort(dim=1, descending=True, stable=True)[:, :KEPT]
    middles = torch.stack((best // GRID[1], best % GRID[1]), -1).float().mean(1) / torch.tensor(GRID)
    again = [len(set(a.tolist()) & set(b.tolist())) / KEPT for a, b in itertools.pairwise(best)]
    return middles, sum(again) / len(again)


def measured(name: str, frames: list[Tensor]) -> tuple[dict, dict]:
    """The figures of a clip, and what is drawn of it."""
    changes = Changes.of(frames, GRID)
    logits = logits_of(frames, len(name))
    ranked, smooth = over_time(logits, changes)
    parts = {"over time": ranked, "by themselves": logits}
    middles = {kind: kept(maps) for kind, maps in parts.items()}
    row = {
        "frames": len(frames),
        "cuts": changes.cuts.nonzero().flatten().tolist()[1:],
        "cells that are new": round(float(changes.new[1:].float().mean()), 4),
        "departure from 0.7 old and 0.3 new": {
            k: float(f"{v:.1e}") for k, v in departures(logits, smooth, changes).items()
        },
        "variance of the middle of what is kept": {
            kind: round(float(one.var(0).max()), 5) for kind, (one, _) in middles.items()
        },
        "kept again in the next frame": {kind: round(again, 3) for kind, (_, again) in middles.items()},
    }
    cell = int(logits.sigmoid().mean(0).argmax())
    lines = {"own": logits.sigmoid().flatten(1)[:, cell], "smooth": smooth.flatten(1)[:, cell]}
    return row, {"lines": lines, "middles": {k: one for k, (one, _) in middles.items()}, "changes": changes}


def figure(table: dict[str, dict], drawn: dict[str, dict], path: Path) -> None:
    """Above one cell's relevance over the frames, below the height of the middle of what is kept."""
    canvas = Figure(figsize=(11, 5), dpi=110, layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.subplots(2, len(table), sharex=True, sharey="row")
    for column, (name, row) in enumerate(table.items()):
        top, bottom = axes[:, column]
        lines, middles = drawn[name]["lines"], drawn[name]["middles"]
        top.plot(lines["own"], color=OWN, lw=1.2, label="the frame by itself")
        top.plot(lines["smooth"], color=OVER, lw=2, label="0.7 old, 0.3 new")
        top.set_title(name, loc="left", color=INK, fontsize=12, fontweight="bold")
        bottom.plot(middles["by themselves"][:, 0], color=OWN, lw=1.2, label="frames by themselves")
        bottom.plot(middles["over time"][:, 0], color=OVER, lw=2, label="over time")
        spread = row["variance of the middle of what is kept"]
        bottom.set_title(
            f"variance {spread['over time']:.3f}, by themselves {spread['by themselves']:.3f}",
            loc="left", color=QUIET, fontsize=9,
        )  # fmt: skip
        bottom.set_xlabel("frame", color=QUIET)
        for axis in (top, bottom):
            for cut in row["cuts"]:
                axis.axvline(cut, color=INK, lw=0.8, ls=":")
            axis.set_ylim(0, 1)
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(colors=QUIET, labelsize=8)
    axes[0, 0].set_ylabel("relevance of one cell", color=QUIET)
    axes[1, 0].set_ylabel("middle of the 12 kept\n(share of the height)", color=QUIET)
    for axis in axes[:, 0]:
        axis.legend(frameon=False, fontsize=8, loc="upper left")
    canvas.savefig(path, metadata={"Software": None})


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs/results/clip-laws.json")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs/video-laws.png")
    args = parser.parse_args()
    pairs = {name: measured(name, frames) for name, frames in clips().items()}
    table = {name: row for name, (row, _) in pairs.items()}
    result = {"command": "python runs/clip_laws.py", "law": {"variance under": LAW, "kept cells": KEPT}}
    args.out.write_text(json.dumps(result | {"clips": table}, indent=1) + "\n", encoding="utf-8")
    figure(table, {name: drawn for name, (_, drawn) in pairs.items()}, args.figure)
    for name, row in table.items():
        print(name, json.dumps(row))


if __name__ == "__main__":
    main()
