"""The tables of the learned balance in docs/results.md and docs/strategies.md, from runs/results/balance.json."""

from __future__ import annotations

from typing import Any

BUDGETS = ("64", "128", "273")
FEW = 10  # questions of a kind that are too few for a row
MODES = {"guide": "guide alone", "ocr": "OCR alone", "guide+ocr": "both"}
GRIDS = {"own": "the picture's own grid", "1024": "a grid of 1,024 cells"}
WAYS = {"sum": "sum of log odds", "balance": "**the balance**"}
CURVE = "curve, "  # begins the names of its points
LEARNED = ("information", "saliency", "coupling", "compress", "exploit", "focus")


def kept_cells(facts: dict[str, float]) -> str:
    """Recall at the three budgets, and the share of questions with all evidence at the least and the most."""
    recall = " / ".join(f"{facts[budget]:.2f}" for budget in BUDGETS)
    return f"{recall} | {facts['64 whole']:.0%}, {facts['273 whole']:.0%}"


def balance_text(result: dict[str, Any]) -> str:
    """What the balance keeps of the pictures that nothing was fitted to, beside the plain sum."""
    bundled = result["bundled"]
    lines = [
        "| | "
        + " | ".join(f"{name}: 64 / 128 / 273 | all of it at 64, 273" for name in GRIDS.values())
        + " | `auto`: kept with |",
        "|---|" + "--:|" * (2 * len(GRIDS) + 1),
    ]
    for mode, told in MODES.items():
        for way, name in WAYS.items():
            own = bundled[way]["open half"][mode]
            cells = " | ".join(kept_cells(own[grid]["all"]) for grid in GRIDS)
            auto = own["own"]["all"]
            lines.append(f"| {told}, {name} | {cells} | {auto['auto']:.2f}, {auto['auto cells']:.0%} |")
    if "by the table of meanings" in bundled:
        own = bundled["by the table of meanings"]["guide+ocr"]
        lines.append(
            f"| both, the balance, the OCR judging by the guide's table of meanings | {kept_cells(own)} | | | "
            f"{own['auto']:.2f}, {own['auto cells']:.0%} |"
        )
    photos = {way: bundled[way]["open half"]["guide"]["own"]["photo"] for way in WAYS}
    questions = int(bundled["sum"]["open half"]["guide"]["own"]["all"]["questions"])
    return "\n".join([
        *lines, "",
        f"{questions} questions about pictures of a test set that nothing was fitted to; evidence is every cell that a box touches, a budget a share "
        "of 1,024 (`python runs/balance.py`, `runs/results/balance.json`). Of photographs, by the guide alone, at 64 / 273: "
        f"{photos['sum']['64']:.2f} / {photos['sum']['273']:.2f} by the sum, {photos['balance']['64']:.2f} / {photos['balance']['273']:.2f} by the balance.",
    ])  # fmt: skip


def learned_text(result: dict[str, Any]) -> str:
    """Gates and tensions that the balance learned, by kind of question and of picture."""
    learned = result["bundled"]["learned"]
    lines = [
        "| | questions | gates: information, saliency, coupling | tensions: compress, exploit, focus |",
        "|---|--:|--:|--:|",
    ]
    for name, pictures in (("drawn", "drawn pictures"), ("open half", "real pictures")):
        for by in ("question", "picture"):
            for kind, facts in learned[name][by].items():
                if facts["questions"] < FEW:
                    continue
                gates, tensions = (
                    ", ".join(f"{facts[one]:.2f}" for one in part) for part in (LEARNED[:3], LEARNED[3:])
                )
                lines.append(
                    f"| {pictures}, {by}: {kind} | {int(facts['questions'])} | {gates} | {tensions} |"
                )
    return "\n".join(lines)


def curve_text(result: dict[str, Any]) -> str:
    """What is kept by how many pictures the balance learned on, in as many steps each."""
    rows = {name.removeprefix(CURVE): facts for name, facts in result.items() if name.startswith(CURVE)}
    if not rows:
        return "Not measured yet: `python runs/balance.py EXAMPLES --open FOLDER --curve`."
    sets = {"calibration": "calibration split", "open half": "open half"}
    head = " | ".join(
        f"{text}, {way}: 64 / 128 / 273 | all at 64, 273"
        for text in sets.values()
        for way in ("guide alone", "both")
    )
    lines = [f"| learned on | {head} |", "|---|" + "--:|" * 8]
    for name, facts in rows.items():
        own = [kept_cells(facts["real"][group][mode]) for group in sets for mode in ("guide", "guide+ocr")]
        lines.append(f"| {name} | {' | '.join(own)} |")
    return "\n".join(lines)


def ablations_text(result: dict[str, Any]) -> str:
    """What is kept without each part of the balance, each learned anew."""
    rows = {name: facts for name, facts in result.items() if "real" in facts and not name.startswith(CURVE)}
    if not rows:
        return "Not measured yet: `python runs/balance.py EXAMPLES --open FOLDER --ablations`."
    lines = [
        "| learned on 97 pictures, less | validation split, guide alone: 64 / 128 / 273 | all at 64, 273 | both | all at 64, 273 "
        "| one thing is odd, 64 / 273 | a formula, 64 / 273 |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, facts in rows.items():
        own = facts["real"].get("validation")
        real = (
            " | ".join(kept_cells(own[mode]) for mode in ("guide", "guide+ocr"))
            if own
            else " | ".join([""] * 4)
        )
        drawn = " | ".join(
            f"{facts['drawn'][kind]['64']:.2f} / {facts['drawn'][kind]['273']:.2f}"
            for kind in ("odd", "dense")
        )
        lines.append(f"| {name} | {real} | {drawn} |")
    return "\n".join(lines)
