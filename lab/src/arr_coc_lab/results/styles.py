"""How methods are drawn in plots, by their names, so that a plot of a result file needs none of their code.

STYLES["divprune"]          Style("#8c8c2b", "h"); a method that isn't listed brings its own when registered
"""

from __future__ import annotations

from dataclasses import dataclass

from arr_coc_lab.results.kinds import DOWNSAMPLE, OURS, SACCADE, SPARSE

SHUFFLED, AVERAGED = "shuffled question", "averaged patches"
# Colours of ours: choice after the encoder, before it, coarse view.
AFTER, EARLY, GESTALT = "#a3195b", "#d9480f", "#6a1fb8"


@dataclass(frozen=True)
class Style:
    """matplotlib's style of a method, sizes in points; what is None follows from its kind."""

    colour: str | None = None
    marker: str | None = None
    size: float | None = None
    width: float | None = None


STYLES: dict[str, Style] = {
    OURS: Style(AFTER, "o", 8, 3.2),
    SPARSE: Style(EARLY, "o", 7, 2.6),
    SACCADE: Style(EARLY, "*", 15, 0),
    f"{SACCADE} tower4": Style(EARLY, "P", 11, 0),
    f"{SACCADE} tower16": Style(EARLY, "P", 11, 0),
    "coc resize": Style(GESTALT, "s"),
    "coc pool4": Style(GESTALT, "o"),
    "coc pool16": Style(GESTALT, "o"),
    "coc tower4": Style(GESTALT, "D"),
    "coc tower16": Style(GESTALT, "D"),
    "cdpruner+": Style("#a5694f", ">"),
    "cdpruner-": Style("#a5694f", "<"),
    "divprune": Style("#8c8c2b", "h"),
    "fastv": Style("#33508f", "s"),
    "idpruner": Style("#44aa99", "P"),
    "mmtok": Style("#b8860b", "v"),
    "prumerge+": Style("#5f7f78", "p"),
    "scope": Style("#6d5c9e", "X"),
    "visionselector": Style("#117733", "D"),
    "visionzip": Style("#4f9bc4", "^"),
    DOWNSAMPLE: Style(marker="v"),
    "random": Style(marker="o"),
    "even grid": Style(marker="s"),
    "truncation": Style(marker="_"),
    "ink density": Style(marker="d"),
    SHUFFLED: Style(marker="X"),
    f"{SHUFFLED} sparse": Style(marker="x"),
    f"{AVERAGED} 4": Style(marker="+"),
    f"{AVERAGED} 16": Style(marker="+"),
    "crop-black": Style(marker="P"),
    "resolution by question": Style(marker="^"),
    "blind oracle": Style(marker="|"),
    "oracle sparse": Style("#8d8d98"),
}
OF_OTHERS: set[str] = {SHUFFLED, f"{SHUFFLED} sparse"}
"""Controls that decide by another image's question: what they reach isn't reached."""
