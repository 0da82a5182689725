"""A vLLM server with the plugin beside a stock one under load, from `bench/results/serve-*.json`."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "bench" / "results"
SHAPES = {
    "mid": "A model of 53 million parameters (a tower of 8 layers of 384, a language model of 8 of 512, random "
    "weights)",
    "bundled": "The bundled model (5 million parameters)",
}


def serve_text() -> str:
    """A table for each shape of model that was measured."""
    parts = []
    for shape, title in SHAPES.items():
        path = RESULTS / f"serve-{shape}.json"
        if path.is_file():
            result = json.loads(path.read_bytes())
            about = result["about"]
            parts.append(
                f"{title}, pictures of {about['side']} x {about['side']} px, {about['cores']} cores, one run:\n\n"
                + _table(result["servers"])
            )
    return "\n\n".join(parts)


def _table(servers: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        f"| clients | requests a second: {' | '.join(_title(name) for name in servers)} | first token, median: "
        f"{' | '.join(_title(name) for name in servers)} |",
        "|--:|" + "--:|" * (2 * len(servers)),
    ]
    for rows in zip(*servers.values(), strict=True):
        cells = [str(rows[0]["clients"])]
        for row in rows:
            ratio = row.get("requests a second, of stock")
            cells.append(f"{row['requests a second']:.2f}" + (f" ({ratio:.1f}x)" if ratio else ""))
        cells += [f"{row['first token']['p50']:.1f} s" for row in rows]
        lines.append(f"| {' | '.join(cells)} |")
    shares = [
        f"{_title(name)} {min(part):.0%} to {max(part):.0%}"
        for name, rows in servers.items()
        if (part := [row["choosing, share of cpu"] for row in rows if row["choosing, share of cpu"]])
    ]
    return "\n".join(lines) + f"\n\nShare of processor time that goes into choosing: {'; '.join(shares)}."


def _title(name: str) -> str:
    """The name of a server for people: "64 worker" -> "64 cells, worker"."""
    budget, _, where = name.partition(" ")
    return name if name == "stock" else f"{budget} cells" + (f", {where}" if where else "")
