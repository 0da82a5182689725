"""Whether the facts that questions need come out whole, from `runs/results/units.json`."""

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
GROUPS = (  # (set of pages, group, its name in the table)
    ("pages of runs/units", "develop", "own pages, developed on"),
    ("pages of runs/units", "report", "own pages, the other kinds"),
    ("real screenshots", "screenshot", "real screenshots, open half"),
    ("rendered pages", "rendered", "rendered pages"),
)


def units_text() -> str:
    """Two tables: boxes of `where`, and what is packed."""
    tables = json.loads((RESULTS / "units.json").read_bytes())
    where = [
        "| boxes of `where` (what cells gave before) | questions | centre in the first | whole in the first | "
        "whole in one of five |",
        "|---|--:|--:|--:|--:|",
    ]
    packed = [
        "| all evidence whole, at least 11 px high | 64 of 1,024 tokens | shrunk | another question's | "
        "400 tokens | shrunk | another question's |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for pages, group, name in GROUPS:
        rows = tables[pages]["groups"][group]
        units, cells = rows["where"], rows["where, cells"]
        shares = [
            f"{units[key]:.0%} ({cells[key]:.0%})" for key in ("centre in 1", "whole in 1", "whole in 5")
        ]
        where.append(f"| {name} | {units['questions']} | {' | '.join(shares)} |")
        kept = [
            f"{rows[f'{way} @{budget}']['whole']:.0%}"
            for budget in ("64 scaled", "400")
            for way in ("pack", "shrunk", "pack, another question")
        ]
        packed.append(f"| {name} | {' | '.join(kept)} |")
    return "\n".join((
        *where,
        "",
        *packed,
        "",
        "Boxes of evidence come from the DOM of pages that were written for this, from people for real screenshots. 400 tokens are a count, 64 are "
        "scaled to each picture. It is geometry: nobody read the parts. One person wrote the own pages and the rules; the other kinds were seen between "
        "changes. `python runs/units.py`, `runs/results/units.json`.",
    ))  # fmt: skip
