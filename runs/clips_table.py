"""What clips cost, for the pages: from bench/results/clips-*.json, as markdown."""

from __future__ import annotations

from typing import Any


def clips_cost_text(results: list[dict[str, Any]]) -> str:
    """A table per clip of the time to the first token, and one of films.

    Args:
        results: contents of the files of `bench/clips.py`; one of them has films.
    """
    parts = [_first_tokens(result) for result in results if result.get("rows")]
    films = next((result["film"] for result in results if result.get("film")), None)
    return "\n\n".join([*parts, *([_films(films)] if films else [])])


def _first_tokens(result: dict[str, Any]) -> str:
    facts = result["circumstances"]
    t, h, w = facts["grid"]
    lines = [
        f"{facts['shape']}, random weights, a clip of {facts['frames']} frames ({t} steps of {h} x {w} cells, "
        f"{facts['visual tokens']:,} visual tokens, {facts['text tokens']} of text): time to the first token from decoded frames "
        f"({facts['device']}, {facts['threads']} threads, {facts['dtype']}, {facts['rounds']} round(s), beside {facts['beside']}):",
        "",
        "| | visual tokens | seconds | x faster, by round | x fewer processor seconds | x fewer operations |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in result["rows"]:
        ratios = row["ratios"]
        lines.append(
            f"| {row['mode']} | {row['tokens']:,.0f} | {row['ms'] / 1000:.1f} | {min(ratios):.1f}-{max(ratios):.1f} | "
            f"{row['CPU speed']:.1f} | {row['flop_ratio']:.1f} |"
        )
    return "\n".join(lines)


def _films(films: dict[str, Any]) -> str:
    lines = [
        f"Films ({films['film']}, {films['threads']} threads): decoding, and choosing cells by the guide alone, or an answer of one token "
        "from a tenth of the cells by the same model; MB is what each held beyond the most before the clip was opened.",
        "",
        "| | frames read | steps x cells | seconds | MB |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, film in films.items():
        if isinstance(film, dict):
            t, h, w = film["grid"]
            lines.append(
                f"| {name} | {film['frames']} | {t} x {h} x {w} | {film['seconds']:.0f} | {film['MB']:,} |"
            )
    return "\n".join(lines)
