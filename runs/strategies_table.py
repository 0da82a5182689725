"""The tables of docs/strategies.md: from runs/results/strategies.json, as markdown."""

from __future__ import annotations

from typing import Any

NAMES = {
    "fact": "a fact that is printed: *What is the total?*",
    "place": "a place or an object: *Where is the red star?*",
    "unusual": "what is unusual, on scenes where one thing is",
    "busy": "what is unusual, on busy streets",
    "overview": "all of it: *Describe the image.*",
    "dense": "something that holds much: *Read the formula.*",
}
MAP_NAMES = {"information": "information", "perspectival": "saliency", "participatory": "coupling"}
WAY_NAMES = {
    "colour": "another colour",
    "shape": "another shape",
    "size": "another size",
    "turned": "turned",
    "missing": "missing",
}


def strategies_table(result: dict[str, Any]) -> str:
    """Kinds of question by which map leads, the gates and tensions that result, and the evidence kept."""
    lines = [
        "| asked about | questions (wordings) | map that should lead: does | gates: information, saliency, coupling | "
        "compress, exploit, focus | cells for coverage | evidence kept |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, text in NAMES.items():
        kind = result["kinds"][name]
        gates = ", ".join(f"{kind['gates'][one]:.2f}" for one in MAP_NAMES)
        tensions = ", ".join(f"{value:.2f}" for value in kind["tensions"].values())
        kept = "" if kind["kept"] is None else f"{kind['kept']:.2f}"
        leads = f"{MAP_NAMES[kind['right map']]}: {kind['right map leads']:.0%}"
        lines.append(
            f"| {text} | {kind['questions']} ({kind['wordings']}) | {leads} | {gates} | {tensions} | "
            f"{kind['coverage']:.0%} | {kept} |"
        )
    return "\n".join(lines)


def strategies_text(result: dict[str, Any]) -> str:
    """The table of kinds, and what it was measured on."""
    count = sum(kind["questions"] for kind in result["kinds"].values())
    rarely = [name for name, kind in result["kinds"].items() if kind["right map leads"] < 0.5]
    lost = [
        f"*{text}*"
        for name, kind in result["kinds"].items()
        for text in kind["wordings where it does not"]
        if name not in rarely
    ]
    lost += [NAMES[name] for name in rarely]
    return strategies_table(result) + (
        f"\n\n{count} questions on pages and scenes of the lab, the guide alone, {result['budget']} of 1,024 cells; means of each kind "
        "(`python runs/strategies.py`, `runs/results/strategies.json`). Evidence kept: the share of the evidence's cells, of "
        "as many as the budget has; of an overview, whose evidence is everything, the share of the picture's sixteen parts "
        f"that keep a cell. The map that should lead does in {result['right map leads']:.1%} of all questions"
        + (f"; it doesn't, on some pictures, for {', '.join(lost)}" if lost else "")
        + f". With the same gates for every question, their mean, the kept cells would overlap by {result['overlap with fixed gates']:.2f} "
        "with these (IoU, mean of the kinds)."
    )


def maps_table(result: dict[str, Any]) -> str:
    """How much of what is odd is kept by the map of rarity, and by that of local contrast."""
    lines = ["| one thing is | rarity keeps | local contrast keeps |", "|---|--:|--:|"]
    for way, kept in result["odd"]["kept"].items():
        lines.append(f"| {WAY_NAMES[way]} | {kept['rarity']:.2f} | {kept['local contrast']:.2f} |")
    return "\n".join(lines)


def maps_text(result: dict[str, Any]) -> str:
    """The table of maps, and what it was measured on."""
    return maps_table(result) + (
        f"\n\nThe share of the odd one's cells among the {result['budget']} of 1,024 that a map ranks first, by itself: "
        f"{result['odd']['scenes of each']} drawn scenes of each, 16 to 48 like things, some on strong patterns."
    )
