"""The tables of the guide for the pages: from runs/results/guide.json, as markdown."""

from __future__ import annotations

from typing import Any

from arr_coc_lab.results.table import percent

ROWS = (
    ("pages", "all", "rendered pages, every kind of question"),
    ("pages", "fields", "labelled values, crossings, prices, switches, cards, titles"),
    ("pages", "paraphrases", "paraphrases of labels"),
    ("pages", "paraphrases unlisted", "paraphrases in no lexicon"),
    ("pages", "looks and sections", "colours, shapes, charts, sections"),
    ("scenes", "all", "written scenes, questions as people put them"),
    ("icons", "all", "icons of themes held out, every kind of question"),
    ("icons", "words", "the label of an icon that is named by what it shows"),
    ("strangers", "all", "pages by another author, questions as people put them"),
    ("interfaces", "all", "interfaces of nine packages held out, every kind of question"),
    ("interfaces", "fields", "interfaces: labelled values, switches, prices, cards, titles"),
    ("documents", "all", "documents nobody here wrote, every kind"),
    ("documents", "words", "documents: where a word stands"),
    ("documents", "crossings and terms", "documents: tables and terms"),
    ("documents", "looks and sections", "documents: sections"),
)
SHIPPED = "selector"
"""What `Selector` keeps: the row of the result file that the tables are of."""
NULLS = ("ink density", "guide, another page's question", "oracle")
BUDGETS = ("64", "128", "273")


def guide_text(results: dict[str, Any]) -> str:
    """What the guide keeps of the evidence, beside the nulls."""
    lines = [
        "| evidence recall (all evidence kept) | questions | 64 kept | 128 | 273 | ink density, 64 | another page's question, 64 | oracle, 64 |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for part, group, name in ROWS:
        methods = results.get(part, {}).get("by kind", {}).get(group)
        if methods is None:
            continue
        ours = methods[SHIPPED]
        count = ours["64"]["questions"]
        cells = [f"{ours[b]['recall']:.2f} ({100 * ours[b]['whole']:.0f}%)" for b in BUDGETS]
        nulls = [f"{methods[name]['64']['recall']:.2f}" for name in NULLS]
        lines.append(f"| {name} | {count} | {' | '.join(cells)} | {' | '.join(nulls)} |")
    pages, documents = results["pages"], results["documents"]
    present = pages["calibration"]["present"]
    auto = pages["by kind"]["all"][SHIPPED]["auto"]
    text = (
        f"\n\n{pages['pages']} rendered pages of the test split (page types, fonts, words and wordings held out; "
        f"{pages['cells of a page']:.0f} cells each on average) and {documents['pages']} screenshots of documentation of packages held out "
        f"({documents['cells of a page']:.0f} cells), cells of 32 px, as `Selector` keeps them; budgets are counts of cells whatever the page's size. At `auto` "
        f"{100 * auto['whole']:.0f}% of questions keep all evidence in {auto['cells']:.0f} cells on average. Whether a page answers a question at all it "
        f"tells with an AUC of {present['auc']:.2f}. Command, machine and every other figure: `runs/results/guide.json`."
    )
    if "strangers" in results:
        verdict = results["strangers"]["calibration"]["present"]["auc"]
        text += (
            f" The {results['strangers']['pages']} pages by another author (`runs/strangers`, an AUC of {verdict:.2f} there) are the row to go by "
            "for pages of your own: their questions were put without a look at our wordings."
        )
    return "\n".join(lines) + text


def guide_more_text(results: dict[str, Any], answers: dict[str, Any], fit: dict[str, Any]) -> str:
    """Pictures made worse, the drawn world, answers from what the guide kept, and its verdicts."""
    lines = [
        "| every fourth page, made worse (the guide's own order of cells) | 64 kept | 273 |",
        "|---|--:|--:|",
        *(
            f"| {name} | {each['64']['recall']:.2f} ({100 * each['64']['whole']:.0f}%) | "
            f"{each['273']['recall']:.2f} ({100 * each['273']['whole']:.0f}%) |"
            for name, each in results["effects"].items()
        ),
    ]
    drawn = results["drawn"]["by family"]["all"]
    lines += [
        "",
        f"On {results['drawn']['pages']} drawn pages ({results['drawn']['questions']} questions), which the bundled allocator was taught and "
        "the guide only among others (`runs/results/guide.json`):",
        "",
        "| evidence recall (all evidence kept) | 64 kept | 128 | 273 |",
        "|---|--:|--:|--:|",
        *(
            f"| {name} | "
            + " | ".join(
                f"{drawn[name][b]['recall']:.3f} ({100 * drawn[name][b]['whole']:.0f}%)" for b in BUDGETS
            )
            + " |"
            for name in drawn
        ),
        "",
        f"What the bundled model answers from it ({answers['questions']} questions of {answers['pages']} drawn pages, "
        "`runs/guide_answers.py`, `runs/results/guide-answers.json`), exact match; all tokens "
        f"{percent(answers['exact match']['all tokens'])}:",
        "",
        "| cells chosen by | "
        + " | ".join(f"`{m}`, {b} kept" for m in ("prune", "sparse") for b in ("64", "273"))
        + " |",
        "|---|--:|--:|--:|--:|",
        *(
            f"| {title} | "
            + " | ".join(
                percent(answers["exact match"][f"{m}@{b} {name}"])
                for m in ("prune", "sparse")
                for b in ("64", "273")
            )
            + " |"
            for name, title in (("trained", "its own allocator"), ("guide", "the guide"))
        ),
        "",
        f"On {fit['presence']['yes'] + fit['presence']['no']} questions of validation pages it tells those with an answer from those without with "
        f"an AUC of {fit['presence']['auc']:.2f}; thresholds were chosen there (`runs/guide_calibration.py`, `runs/results/guide-calibration.json`).{_earlier(fit, results)}",
    ]
    return "\n".join(lines)


def _earlier(results: dict[str, Any], now: dict[str, Any]) -> str:
    """A sentence for figures of other weights than those that `now` is of; nothing for figures of the same."""
    same = results.get("guide", {}).get("weights") == now["guide"]["weights"]
    return "" if same else " Measured with the guide's weights before the last that it learned."


def guide_parts_text(results: dict[str, Any], now: dict[str, Any]) -> str:
    """What each part of the guide, and of what is made of its word, is worth where it is left out."""
    folders = [name for name in FOLDERS if name in results]
    lines = [
        "| recall at 64 (all evidence kept) | "
        + " | ".join(FOLDERS[name] for name in folders)
        + " | paraphrases | global: reach |",
        "|---|" + "--:|" * (len(folders) + 2),
    ]
    for part in results[folders[0]]["all"]:
        if part != "questions":
            lines.append(f"| {part} | " + " | ".join(_part_cells(results, folders, part)) + " |")
    counts = ", ".join(f"{results[name]['all']['questions']} {FOLDERS[name]}" for name in folders)
    others, whole = (_count(results, folders, kind) for kind in ("paraphrase", "global"))
    return "\n".join(lines) + (
        f"\n\nOf questions with evidence about held-out pages ({counts}; {others} of them paraphrases), as `Selector` keeps "
        f"cells for them. *Reach*: the share of regions of 4x4 cells of which a cell is kept, at 64, for {whole} questions about all of a page. "
        "Each part was left out where the product runs and nothing was taught again without it: for learned parts (the last five rows) that is more than a guide "
        "without them would lose. Command and machine: `runs/results/guide-ablation.json`."
        + _earlier(results, now)
    )


FOLDERS = {
    "pages": "rendered pages",
    "strangers": "another author's",
    "scenes": "scenes",
    "documents": "documents",
}


def _part_cells(results: dict[str, Any], folders: list[str], part: str) -> list[str]:
    """The cells of a part's row."""
    rows = [results[name]["all"][part] for name in folders]
    cells = [f"{row['recall@64']:.3f} ({100 * row['whole@64']:.0f}%)" for row in rows]
    cells.append(f"{_pooled(results, folders, 'paraphrase', part, 'recall@64'):.3f}")
    return [*cells, f"{_pooled(results, folders, 'global', part, 'reach@64'):.2f}"]


def _pooled(results: dict[str, Any], folders: list[str], kind: str, part: str, figure: str) -> float:
    """The mean of a figure over the questions of one kind in all folders."""
    groups = [results[name][kind] for name in folders if kind in results[name]]
    total = sum(group["questions"] for group in groups)
    return sum(group["questions"] * group[part][figure] for group in groups) / total


def _count(results: dict[str, Any], folders: list[str], kind: str) -> int:
    """How many questions of one kind there are in all folders."""
    return sum(results[name][kind]["questions"] for name in folders if kind in results[name])
