"""Writes the tables of README.md and of the pages in docs/ from the result files, between their markers.

With --check it only compares.

python runs/readme.py
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from arr_coc_lab.evaluate import METHODS
from arr_coc_lab.results.kinds import kind
from arr_coc_lab.results.summary import second_view
from arr_coc_lab.results.table import percent, table
from arr_coc_lab.rivals import find_method

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "runs"))  # also where this is not the script that runs

from balance_table import ablations_text, balance_text, curve_text, learned_text  # noqa: E402
from claims import QUERY_BLIND, claims, claims_table, early_claims  # noqa: E402
from clips_table import clips_cost_text  # noqa: E402
from compress_table import compress_text  # noqa: E402
from corpus_table import corpus_text  # noqa: E402
from follow_table import follow_blocks  # noqa: E402
from guide_table import guide_more_text, guide_parts_text, guide_text  # noqa: E402
from labels_table import agreement_text, counts_text, nulls_text  # noqa: E402
from long_table import long_text, transcription_text  # noqa: E402
from magnify_table import magnify_text  # noqa: E402
from offers import offers_table  # noqa: E402
from pixels_table import pixels_text  # noqa: E402
from remarks import SWEEP, adapt_text, cut_text, deeper_text, favours_text, gray_claims, gray_text  # noqa: E402
from serve_table import serve_text  # noqa: E402
from speeds import RESULTS, bench_text, choose_text, least, machine_text, memory_text, read, with_times  # noqa: E402
from strategies_table import maps_text, strategies_text  # noqa: E402
from units_table import units_text  # noqa: E402

ABLATION_NAMES = {
    "all": "all parts (200 steps of stage 1)",
    "no-information": "without the information scorer",
    "no-perspectival": "without the saliency scorer",
    "no-participatory": "without the coupling with the question",
    "fixed-mixture": "without the balancer (fixed mixture)",
    "balancer-without-image": "balancer without the image",
    "texture-alone": "texture and question alone, no encoded tokens",
    "linear": "`linear` preset (weighted sums, 96 parameters)",
    "answers-straight-through": "answers alone from nothing, straight-through",
    "answers-gumbel": "answers alone from nothing, gumbel",
    "answers-reinforce": "answers alone from nothing, reinforce",
    "untrained": "untrained (all that scores-only leaves without boxes)",
    "distilled": "self-distilled on 200 images without labels (120 steps)",
    "stage-1": "stage 1 (800 steps)",
    "stages-1-2": "stages 1 and 2",
    "stages-1-2-3": "stages 1, 2 and 3: what is bundled",
}


def ablation_table(summary: dict) -> str:
    """A row per variant: recall and exact match with 64 tokens, and with auto and its mean."""
    methods = summary["methods"]
    lines = ["| | recall @64 | exact match @64 | auto (tokens) |", "|---|--:|--:|--:|"]
    for name, text in ABLATION_NAMES.items():
        row = {budget: methods.get(f"arr-coc:{name}@{budget}") for budget in ("64", "auto")}
        if row["64"] is None:
            continue
        auto = row["auto"]
        lines.append(
            f"| {text} | {row['64']['recall']:.3f} | {percent(row['64']['score'])} "
            f"| {percent(auto['score'])} ({auto['tokens']:.0f}) |"
        )
    for name in ("random", "oracle"):
        row = methods[f"{name}@64"]
        lines.append(f"| {name} | {row['recall']:.3f} | {percent(row['score'])} | - |")
    return "\n".join(lines)


def channels_text() -> str:
    """What 40 texture channels keep beside the usual 13."""
    summary = read("channels")
    lines = ["| texture channels | recall @64 | @273 | exact match @64 | @273 |", "|---|--:|--:|--:|--:|"]
    for name in ("13", "40"):
        few, many = (summary["methods"][f"arr-coc:{name}@{budget}"] for budget in (64, 273))
        scores = f"{percent(few['score'])} | {percent(many['score'])}"
        lines.append(f"| {name} | {few['recall']:.3f} | {many['recall']:.3f} | {scores} |")
    return (
        f"A layer of 40 texture channels beside the usual 13, both taught as the rows above ({summary['questions']} questions, "
        "`runs/results/channels.json`):\n\n" + "\n".join(lines)
    )


def through_text() -> str:
    """What answers teach the bundled allocator through the prompt of one mode or the other."""
    runs = [read("through-bundled"), read("through-prune"), read("through-saccade")]
    start, by_prune, by_saccade = (
        {way: percent(row["score"]) for way, row in run["methods"].items()} for run in runs
    )
    return (
        f"Taught on by answers alone, 100 steps on pages of 1,024 cells, the bundled allocator answers {by_saccade['arr-coc saccade']} "
        f"in `saccade` where they were read through `saccade`'s prompt, {by_prune['arr-coc saccade']} where through `prune`'s, and "
        f"{start['arr-coc saccade']} before; at 64 cells in `prune` {by_saccade['arr-coc@64']}, {by_prune['arr-coc@64']} "
        f"and {start['arr-coc@64']} ({runs[0]['questions']} questions each, `runs/results/through-*.json`): answers have nothing left to teach it."
    )


def family_table(summary: dict) -> str:
    """The families of all tokens, ours with every budget, and the best query-blind rival, downsampling and oracle at 64."""
    wanted = ["full", "arr-coc@273", "arr-coc@128", "arr-coc@64", "arr-coc@auto", "oracle@64"]
    methods = summary["methods"]
    blind = [f"{name}@64" for name in QUERY_BLIND]
    wanted += [max((m for m in blind if m in methods), key=lambda m: methods[m]["score"]), "downsample@64"]
    return table({**summary, "methods": {m: methods[m] for m in wanted if m in methods}}, "families")


def some(summary: dict, wanted) -> dict:
    """The summary of some of the methods."""
    methods = summary["methods"]
    return {**summary, "methods": {m: row for m, row in methods.items() if wanted(m)}}


def asked(summary: dict) -> str:
    """How much was asked."""
    header, full = summary["header"], summary["methods"]["full"]
    return (
        f"{summary['questions']:,} held-out questions about {summary['images']} drawn pages of "
        f"{header['size']}x{header['size']} px, {full['tokens']:,.0f} visual tokens each, the bundled model"
    )


def once_text(summary: dict) -> str:
    """What times of a single run are worth, in a sentence."""
    machine = summary["header"]["machine"]
    return (
        f"times to first token (TTFT), choosing and encoder included, are of one run, medians of {summary['timed']} questions asked "
        f"alone ({machine['device']}, {machine['threads']} thread(s)); another run has others"
    )


def sparse_text(summary: dict) -> str:
    """Choosing before the encoder, on pages of the usual size."""
    timed = with_times(summary, "times")
    budgeted = some(timed, lambda m: ("@" in m or m == "full") and not m.startswith(SWEEP))
    fixed = some(timed, lambda m: "@" not in m)
    return (
        "Choosing *before* the vision encoder (`sparse`: only the kept cells are encoded), beside choosing after it and all "
        f"else: {asked(summary)} (`runs/results/sparse.json`)."
        f"{machine_text('times')} A dash: not measured.\n\n"
        + table(budgeted, "budgets")
        + "\n\nWhat always reads the same number of tokens: a coarse view and fine cells (`saccade`), and coarse views alone "
        "(`compress`).\n\n"
        + table(fixed, "short")
        + "\n\nAt equal time: the best that each method reaches among its budgets whose first token comes no later than ours, by the medians of the same runs. "
        "A method that needs the whole image encoded first is too late for that, whatever it keeps.\n\n"
        + table(some(timed, lambda m: kind(m, summary["header"]) != "bound"), "time")
        + target_text(summary)
    )


def saccade_text(summary: dict) -> str:
    """Gestalt and saccades, on large pages."""
    methods = summary["methods"]
    shown = ["full", "arr-coc saccade", "arr-coc sparse@273", "coc resize", "downsample@529"]
    families = some(summary, lambda m: m in shown and bool(methods[m]["families"]))
    return (
        f"Large pages: {asked(summary)} (`runs/results/saccade.json`); {once_text(summary)}. `arr-coc saccade` reads a gestalt and saccades, 529 "
        "tokens in all; `downsample@529` is the image shrunk to as many. The bundled model was never taught pages of this size, and "
        f"reads them badly when it is shown all of them ({percent(methods['full']['score'])}): shares of that say little here, the "
        "questions answered do.\n\n"
        + table(summary, "short")
        + "\n\nBy family of question, the weakest of a row in bold:\n\n"
        + table(families, "families")
        + "\n\nAt equal time:\n\n"
        + table(some(summary, lambda m: kind(m, summary["header"]) != "bound"), "time")
        + target_text(summary)
    )


def target_text(summary: dict) -> str:
    """The targets of choosing before the encoder, if the file has rows for any."""
    found = early_claims(summary)
    return f"\n\nThe targets:\n\n{claims_table(found)}" if found else ""


def familiarity_text() -> str:
    """How well pictures of another world are told from drawn pages."""
    result = read("familiarity")
    names = {
        "train": "drawn pages, those that it was fitted to",
        "validation": "drawn pages that set the threshold",
        "test": "drawn pages of the held-out split",
        "foreign": "other pictures, those that it was fitted to",
        "other foreign": "other pictures of the same kinds, of other seeds",
        "browser pages": "pages that a browser lays out (of a kind it never saw)",
        "browser pages, photographed": "the same, as a camera sees them",
        "documentation": "documentation of Debian's packages (of a kind it never saw)",
        "documentation, photographed": "the same, as a camera sees it",
    }
    lines = ["| | pictures | called foreign |", "|---|--:|--:|"]
    lines += [
        f"| {text} | {result[name]['pictures']:,} | {percent(result[name]['called foreign'])} |"
        for name, text in names.items()
    ]
    return (
        "The bundled model's answers about other pictures than its own are mostly wrong. A linear unit over the output of its stem "
        "detects them, and the answer says so (`making/familiarity.py`, `runs/results/familiarity.json`). The other "
        "pictures are plain text, plots, flat shapes, noise and gradients that a script draws. Kinds it never saw are of a cache of "
        "`arr-coc world`, split validation, and neither the fit nor the threshold knows them; photographed ones go through "
        "`arr_coc_lab.world.photograph`. Real photographs were not measured: one of a person is a test, as are an invoice and red "
        "circles of three sizes.\n\n" + "\n".join(lines)
    )


def training_free_text() -> str:
    """The training-free default on the bundled model, without its trained allocator."""
    result = read("training-free")
    rows = {
        "random": "random",
        "even grid": "even grid",
        "embedding cosine": "embedding cosine",
        "saliency": "saliency alone",
        "gaze on resize without the neutral question": "attention, without the neutral question",
        "gaze on resize": "attention, relative to the neutral question",
        "gaze on resize, mixture (0.25, 0.25, 0.5)": "**the default: its mixture with information and saliency**",
        "gaze on pool4, mixture (0.25, 0.25, 0.5)": "the same, in mode `prune` (the view is pooled from encoded tokens)",
    }
    lines = ["| evidence kept (recall) | @273 | @64 |", "|---|--:|--:|"]
    for name, text in rows.items():
        found = result["test"][name]
        lines.append(f"| {text} | {found['273']:.2f} | {found['64']:.2f} |")
    ms = result["median ms, processor time"]
    return (
        f"The bundled model without its trained allocator, {result['questions']['test']} held-out questions, of 1024 cells "
        "(`runs/training_free.py`, `runs/results/training-free.json`):\n\n" + "\n".join(lines) + "\n\n"
        f"It costs {ms['gaze']:.0f} ms a question ({ms['gaze, first question']:.0f} ms the first one) beside {ms['resize']:.0f} ms for the "
        f"coarse view and {ms['encode 1024 tokens']:,.0f} ms for encoding the page, one core."
    )


def recall_text() -> str:
    """What the training-free default finds, in a sentence."""
    test = read("training-free")["test"]
    ours, cosine, even = (
        test[name]["273"]
        for name in ("gaze on resize, mixture (0.25, 0.25, 0.5)", "embedding cosine", "even grid")
    )
    return (
        f"With 273 of 1,024 cells it keeps {ours:.0%} of the evidence, untrained, where the embedding cosine keeps {cosine:.0%} and an "
        f"even grid {even:.0%} ([results](results/guide.md#a-checkpoint-without-a-trained-allocator))."
    )


def runtime(name: str) -> tuple[int, float]:
    """Steps and minutes of a training run, from the last line of its curve."""
    last = json.loads(
        (RESULTS / "curves" / "study" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    )
    return last["step"], last["train_runtime"] / 60


def cost_text() -> str:
    """What training took where these tables were made."""
    stages = [runtime(name) for name in ("relevance", "answers", "allocator")]
    own = " + ".join(f"{steps} steps in {minutes:.0f} min" for steps, minutes in stages)
    steps, minutes = runtime("distilled")
    text = (
        f"The bundled allocator: three stages, {own}, one CPU core. Self-distillation of the bundled model "
        f"on 200 pages: {steps} steps of 6 questions in {minutes:.0f} min."
    )
    if (RESULTS / "distill-cost.json").is_file():
        two = read("distill-cost")
        text += (
            f" For a model in the shape of Qwen3-VL-2B (random weights, bfloat16, {two['device']}): "
            f"{two['seconds a step'][-1]:.0f} s and {two['peak GiB']:.0f} GiB a step of {two['questions a step']} question(s) about a "
            "1024x1024 image (`runs/distill_cost.py`); no GPU was at hand to say what it takes there."
        )
    return text


HEADLINE = {
    "arr-coc": "**arr-coc `prune`**",
    "arr-coc sparse": "**arr-coc `sparse`**",
    "arr-coc saccade": "**arr-coc `saccade`** (529 tokens)",
    "fastv:3": find_method("fastv:3").label,
    **{name: METHODS[name].label for name in ("idpruner", "fastv", "scope", "visionzip", "downsample")},
}
IN_BENCH = {"arr-coc": "prune", "arr-coc sparse": "sparse", "arr-coc saccade": "saccade"}


def headline_text() -> str:
    """Five rows for the README (all tokens, ours twice, the best rival, the shrunk image), and what they say nothing about."""
    sparse, times = read("sparse"), read("times")
    rows, full = with_times(sparse, "times")["methods"], sparse["methods"]["full"]
    rivals = [m for m in rows if m.endswith("@64") and kind(m, sparse["header"]) == "rival"]
    best = max(rivals, key=lambda method: rows[method]["score"])
    shown = {
        "arr-coc sparse@273": "**273: arr-coc, mode `sparse`**",
        "arr-coc sparse@64": "**64: arr-coc, mode `sparse`**",
        best: f"64: {find_method(best.partition('@')[0]).label}, the best rival",
        "downsample@64": "64: the whole image, shrunk",
    }
    lines = [
        "| visual tokens kept | tokens read, mean over layers | right answers | speed-up of the first token |",
        "|---|--:|--:|--:|",
        f"| all 1,024 | 1,024 | {percent(full['score'])} | 1x |",
    ]
    for method, text in shown.items():
        row = rows[method]
        lines.append(f"| {text} | {row['tokens']:,.0f} | {percent(row['score'])} | {least(row):.1f}x |")
    found = real_pictures()["tables"]["all"]["guide"]
    return "\n".join(lines) + (
        f"\n\nMeasured on {sparse['questions']} held-out questions about drawn pages, with the bundled model. Each speed-up is the "
        f"lowest of\n{times['runs']} runs on two CPU cores. **These figures compare methods. They say nothing about Qwen3-VL on photographs.**\n"
        f"On {found['questions']} questions about real pictures, the guide keeps {found['64']['recall']:.0%} of the *evidence* (the "
        f"places that show the answer) in 64 of\n1,024 cells, and {found['273']['recall']:.0%} in 273 ([results](docs/results.md))."
    )


OPEN_HALF = "the open half"
"""Name of the table in real-pictures.json: pictures of a test set that is no part of the project."""
REAL_METHODS = {
    "guide": "**the guide**, the default",
    "ocr": "`ocr`: RapidOCR, sentence vectors, a head over lines",
    "guide+ocr": "**`guide+ocr`**",
    "ocr-words": "null: OCR, literal words",
    "ocr-sentences": "null: OCR, sentence vectors, no head",
    "ink": "null: ink density",
    "guide of another question": "null: the guide, another picture's question",
    "chance": "null: chance",
}
REAL_KINDS = ("screenshot", "chart", "document", "photo", "map", "diagram", "terminal", "scan", "game")


def real_pictures(name: str = OPEN_HALF) -> dict[str, Any]:
    """A table of `runs/real_pictures.py` by its name."""
    return json.loads((RESULTS / "real-pictures.json").read_bytes())[name]


def real_cell(facts: dict[str, Any], budget: int) -> str:
    """Recall and share whole at a budget."""
    return f"{facts[str(budget)]['recall']:.3f} ({facts[str(budget)]['whole']:.0%})"


def real_table(name: str) -> str:
    """What each source of relevance keeps of a set of real pictures, beside nulls, then by kind of picture."""
    every = real_pictures(name)["tables"]
    lines = [
        "| evidence recall (all evidence kept) | 64 of 1,024 cells | 128 | 273 | is it there at all: AUC | "
        "against another picture's questions |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for method, text in REAL_METHODS.items():
        facts = every["all"][method]
        cells = " | ".join(real_cell(facts, budget) for budget in (64, 128, 273))
        told = f"{facts['auc']:.2f}" if "null" not in text else ""
        foreign = f"{facts['auc elsewhere']:.2f}" if "auc elsewhere" in facts else ""
        lines.append(f"| {text} | {cells} | {told} | {foreign} |")
    present = [name for name in REAL_KINDS if name in every]
    lines += ["", "| recall at 64 / 273 | questions | guide | ocr | guide+ocr |", "|---|--:|--:|--:|--:|"]
    for name in present:
        own = every[name]
        cells = [
            f"{own[m]['64']['recall']:.2f} / {own[m]['273']['recall']:.2f}"
            for m in ("guide", "ocr", "guide+ocr")
        ]
        lines.append(f"| {name} | {own['guide']['questions']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def wording_auc() -> float:
    """How well the wording of a question alone tells whether our labels have an answer to it."""
    facts = json.loads((RESULTS / "presence.json").read_bytes())["wording"]
    return max(value for name, value in facts.items() if name.startswith("auc"))


def real_text() -> str:
    """What is kept of real pictures by each source of relevance."""
    half = real_pictures()
    answered = half["tables"]["all"]["guide"]["questions"]
    return (
        f"{answered} questions with evidence about {half['pictures']} pictures of a test set that is no part of the project and "
        "that nothing was fitted to; before the guide had met real pictures it kept 0.455 (24%) at 64 and 0.784 (57%) at 273.\n\n"
        f"{real_table(OPEN_HALF)}\n\n"
        "AUC: how well confidence tells questions that have an answer from those labelled as having none, which the wording alone does "
        f"with {wording_auc():.2f} on our labels (`python runs/presence.py`), and from {half['questions of another picture']} questions that "
        "were asked of another picture of the same kind, which no wording tells.\n\n"
        "`python runs/real_pictures.py`, `runs/results/real-pictures.json`, one core. What a model answers from these cells was not "
        "measured."
    )


SHAPES = (("Qwen3-VL-2B", 1024), ("Qwen3-VL-2B", 2048), ("Qwen3-VL-4B", 1024))
"""Shapes and sizes in px of the short table of times."""


def shapes_text() -> str:
    """How much sooner the first token comes in the published shapes of Qwen3-VL: the lowest of the runs there are."""
    ways = ("prune@273", "sparse@273", "sparse@64", "saccade", "fastv@273")
    results = [
        json.loads(path.read_bytes()) for path in sorted((ROOT / "bench" / "results").glob("[0-9]b-*.json"))
    ]
    lines = [
        f"| times sooner than all tokens | {' | '.join(f'`{way}`' for way in ways)} |",
        "|---|" + "--:|" * len(ways),
    ]
    for shape, side in SHAPES:
        wanted = {"shape": shape, "image": [side, side], "batch": 1}
        found = [r for r in results if wanted.items() <= r["circumstances"].items()]
        speeds: dict[str, list[float]] = {}
        for row in (row for result in found for row in result["rows"]):
            speeds.setdefault(row["mode"], []).append(row.get("range", {}).get("speed", [row["speed"]])[0])
        cells = [f"{min(speeds[way]):.1f}x" if way in speeds else "-" for way in ways]
        lines.append(f"| {shape}, {side}x{side} px | {' | '.join(cells)} |")
    return "\n".join(lines) + (
        "\n\nRandom weights in the published shapes, two threads of a CPU, bfloat16, from picture and question to the logits of the first "
        "token, choosing included; the lowest of the runs there are (`bench/prefill.py`, `bench/results/`). A dash: not measured. No GPU was "
        "measured."
    )


def large_table(summary: dict) -> str:
    """Large pages: ours, the best rival and the shrunk image."""
    rows = summary["methods"]
    shown = {
        "full": "all of them",
        "arr-coc saccade": "**arr-coc `saccade`**",
        "arr-coc sparse@529": "**arr-coc `sparse`**",
        "idpruner@529": METHODS["idpruner"].label,
        "fastv@529": METHODS["fastv"].label,
        "downsample@529": METHODS["downsample"].label,
    }
    full = rows["full"]["tokens"]
    lines = [
        f"| of {full:,.0f} visual tokens | read | right answers | first token sooner by |",
        "|---|--:|--:|--:|",
    ]
    for method, text in shown.items():
        row = rows[method]
        sooner = f"{least(row):.1f}x" if method != "full" else "1x"
        lines.append(f"| {text} | {row['tokens']:,.0f} | {percent(row['score'])} | {sooner} |")
    return (
        "\n".join(lines)
        + "\n\n"
        + large_text(summary).strip()
        + f" {summary['questions']} questions; `runs/results/saccade.json`."
    )


def methods_text() -> str:
    """The methods side by side: right answers, tokens read for them, and how much sooner the first token comes."""
    sparse = read("sparse")
    rows, full = with_times(sparse, "times")["methods"], sparse["methods"]["full"]
    two = json.loads((ROOT / "bench" / "results" / "2b-1024.json").read_text(encoding="utf-8"))
    speeds = {row["mode"]: row.get("range", {}).get("speed", [row["speed"]])[0] for row in two["rows"]}
    lines = [
        "| of 1,024 visual tokens | right, 273 kept | 64 kept | read for it | first token, 273 kept | 64 kept | 273 kept, shape of Qwen3-VL-2B |",
        "|---|--:|--:|--:|--:|--:|--:|",
        f"| all of them | {percent(full['score'])} | | 1,024 | 1x | | 1x |",
    ]
    for method, text in HEADLINE.items():
        some, few = (rows.get(f"{method}@{budget}") for budget in (273, 64))
        fixed, mode = rows.get(method), IN_BENCH.get(method, method)
        if not (some or few or fixed):
            continue
        pair = [some or fixed, few]
        speed = speeds.get(f"{mode}@273", speeds.get(mode))
        right = [percent(row["score"]) if row else "" for row in pair]
        reads = ", ".join(f"{row['tokens']:,.0f}" for row in pair if row)
        sooner = [f"{least(row):.1f}x" if row and least(row) else "" for row in pair]
        lines.append(
            "| " + " | ".join([text, *right, reads, *sooner, f"{speed:.1f}x" if speed else ""]) + " |"
        )
    return "\n".join(lines) + (
        f"\n\nRight: exact match on {sparse['questions']} held-out questions about drawn pages of 1024x1024 px, the bundled model. "
        "*Read*: visual tokens the language model reads, the mean over its layers; FastV drops them inside it. First token: how many times "
        "sooner than with all tokens, choosing and encoding included, side by side on CPU cores, the last column with random weights"
        + f", each the lowest of {read('times')['runs']} runs."
    )


def rounded_text(before: dict, after: dict) -> str:
    """The bundled model before and after its weights were rounded to bfloat16, on the same questions."""
    lines = ["| right of the same questions | weights in float32 | in bfloat16 |", "|---|--:|--:|"]
    for name, row in after["methods"].items():
        scores = " | ".join(percent(each["score"]) for each in (before["methods"][name], row))
        lines.append(f"| `{name.replace('arr-coc@', 'prune@').removeprefix('arr-coc ')}` | {scores} |")
    return "\n".join(lines)


def large_text(summary: dict) -> str:
    """Large pages, in a sentence."""
    rows = summary["methods"]
    ours, full, shrunk = (rows[name] for name in ("arr-coc saccade", "full", "downsample@529"))
    rivals = {name: row for name, row in rows.items() if kind(name, summary["header"]) == "rival"}
    best = max(rivals, key=lambda name: rivals[name]["score"])
    return (
        f" On pages of {summary['header']['size']} px ({full['tokens']:,.0f} tokens) `saccade` answers {percent(ours['score'])} in "
        f"{1 / least(ours):.0%} of the time (one run), all tokens {percent(full['score'])} (the bundled model was never taught pages of that size), "
        f"the best rival there, {best.replace('@', ' with ')}, {percent(rivals[best]['score'])}, and the image shrunk to "
        f"{shrunk['tokens']:,.0f} tokens {percent(shrunk['score'])}."
    )


def yardsticks_text(summary: dict) -> str:
    """A small run with every yardstick: the table, the second view, and the tokens that are needed."""
    second, field = second_view(summary), ("@57", "@114", "@228")
    least = lambda one: table(some(one, lambda m: m == "full" or m.endswith(field)))  # noqa: E731
    return (
        f"A small run with every column: {asked(summary)} (`runs/results/yardsticks.json`); "
        f"{once_text(summary)}. With 57, 114 and 228 tokens, 5.6, 11.1 and 22.2 %:\n\n{least(summary)}\n\n"
        + (
            ""
            if second is None
            else f"Of the questions alone that the shrunk image fails:\n\n{least(second)}\n\n"
        )
        + table(summary, "tokens")
    )


def coverage_text(result: dict) -> str:
    """How well coverage keeps its promise on pictures of another making, by source and share."""
    shares = ("0.8", "0.9", "0.95")
    lines = [
        f"| all evidence kept, in cells (share of the picture) | {' | '.join(shares)} | abstain | of those without an answer |",
        "|---|" + "--:|" * (len(shares) + 2),
    ]
    for name, facts in result.items():
        if (own := facts.get("of another making")) is None:
            continue
        kept = [f"{own[s]['whole']:.0%}, {own[s]['cells']:.0f} ({own[s]['of all']:.0%})" for s in shares]
        last = own["0.9"]
        lines.append(
            f"| `{name}` | {' | '.join(kept)} | {last['abstained']:.0%} | {last['abstained, no answer']:.0%} |"
        )
    return "\n".join(lines)


def blocks() -> dict[str, str]:
    """Every block between markers, by name; those of choosing before the encoder where they were measured."""
    study, ablation, hypothesis, adversarial = (
        read(n) for n in ("study", "ablation", "hypothesis", "adversarial")
    )
    methods = study["methods"]
    ours, full = methods["arr-coc@64"], methods["full"]
    rivals = [m for m in methods if m.endswith("@64") and kind(m, study["header"]) == "rival"]
    rival = max(
        (m for m in rivals if methods[m]["tokens"] <= ours["tokens"]), key=lambda m: methods[m]["score"]
    )
    deep = max(rivals, key=lambda m: methods[m]["score"])
    text = (
        f"Exact match on {study['questions']:,} held-out questions about {study['images']} drawn pages of 1024x1024 px, "
        f"1024 visual tokens each, the bundled model (two processes shared the pages). With all tokens it answers {percent(full['score'])}; from "
        f"64 of them it keeps **{percent(ours['retained'])}** of that, {100 * methods[rival]['below ours']['mean']:.0f} points above "
        f"the next method that *reads* no more than 64 ({rival.partition('@')[0]}). "
        + (
            f"That is not the next of those that *keep* 64: {deep} reads {methods[deep]['tokens']:,.0f} tokens, the mean over layers, and is "
            f"{100 * methods[deep]['below ours']['mean']:.1f} points below. "
            if deep != rival
            else ""
        )
        + (deeper_text() if deep == rival else "[Where FastV cuts](#where-fastv-cuts) decides that. ")
        + "*Reads*: visual tokens the language model reads, the mean over its layers; *@64* are those kept. *Recall*: share of the evidence cells "
        "kept. *Swap IoU*: overlap of what is kept for two questions about one image; 1.00 never looks at the question. *TTFT speed-up*: time to "
        "first token with all tokens over that of the method, selector and encoder included: the encoder is most of it, so "
        "choosing after it saves little here; choosing before it comes next."
        + machine_text("times")
        + " *One run*: no later run repeated it, so it is that of the result file "
        f"({study['timed']} questions, {study['header']['machine']['threads']} thread(s)). A dash: not measured."
        + " The *oracle* keeps the evidence boxes and fills with an even grid.\n\n"
        + favours_text(study)
    )
    families = (
        "Exact match by family of question; the weakest of a row in bold:\n\n"
        + family_table(study)
        + "\n\nThe project's targets, checked against the result file:\n\n"
        + claims_table(claims(study) + gray_claims(adversarial))
        + "\n\n"
        + gray_text(adversarial)
        + f" On boxes alone, selection IoU on held-out pages rises from {hypothesis['untrained IoU']:.3f} untrained to "
        f"{hypothesis['trained IoU']:.3f} in {hypothesis['steps']} steps ({hypothesis['ratio']:.1f}x, `runs/results/hypothesis.json`)."
    )
    ablations = (
        f"What each part is worth ({ablation['questions']} questions; all tokens {percent(ablation['methods']['full']['score'])}; "
        "`runs/results/ablation.json`). The question is matched against the encoded tokens here, "
        "not against what a stem sees.\n\n"
        + ablation_table(ablation)
        + "\n\n"
        + channels_text()
        + "\n\n"
        + through_text()
    )
    found = {
        "headline": headline_text(),
        "yardsticks": yardsticks_text(read("yardsticks")),
        "methods": methods_text(),
        "shapes": shapes_text(),
        "large": large_table(read("saccade")),
        "real": real_text(),
        "labels": counts_text(),
        "labels-agree": agreement_text(),
        "labels-nulls": nulls_text(wording_auc()),
        "pixels": pixels_text(),
        "units": units_text(),
        "cost": cost_text(),
        "offers": offers_table(),
        "study": table(some(with_times(study, "times"), lambda m: not m.startswith(SWEEP)), "budgets"),
        "study-text": text,
        "families": families,
        "ablation": ablations,
        "adapt": adapt_text(),
    }
    if "fastv:3@64" in read("sparse")["methods"]:
        found["fastv"] = cut_text(read("sparse"))
    if list((ROOT / "bench" / "results").glob("*.json")):
        found["bench"] = bench_text()
    choosing = ROOT / "bench" / "results" / "choose.json"
    if choosing.is_file():
        found["choose"] = choose_text(json.loads(choosing.read_bytes()))
    found["serve"] = serve_text()
    found["corpus"] = corpus_text()
    memories = sorted((ROOT / "bench" / "results").glob("memory-*.json"))
    if memories:
        found["memory"] = memory_text([json.loads(path.read_bytes()) for path in memories])
    found |= follow_blocks(ROOT / "bench" / "results")
    clips = sorted((ROOT / "bench" / "results").glob("clips-*.json"))
    if clips:
        found["clips-cost"] = clips_cost_text([json.loads(path.read_bytes()) for path in clips])
    if (RESULTS / "compress-1024.json").is_file():
        works = sorted((ROOT / "bench" / "results" / "gestalts").glob("*.json"))
        found["gestalts"] = compress_text(
            [read("compress-1024"), read("compress-2048")],
            [read("compress-shrunk"), read("compress-shrunk-2048")],
            *map(read, ("saccade-gestalts", "compress-browser")),
            [json.loads(path.read_bytes()) for path in works],
            json.loads((ROOT / "bench" / "results" / "2b-2048.json").read_bytes()),
        )
    found["bfloat16"] = rounded_text(read("sparse"), read("bfloat16"))
    found["familiarity"] = familiarity_text()
    found["training-free"] = training_free_text()
    found["recall"] = recall_text()
    found["strategies"] = strategies_text(read("strategies"))
    found["odd-maps"] = maps_text(read("strategies"))
    balance, coverage = read("balance"), read("coverage")
    found |= {
        "balance": balance_text(balance),
        "learned": learned_text(balance),
        "balance-parts": ablations_text(balance),
        "balance-curve": curve_text(balance),
        "coverage": coverage_text(coverage),
    }
    found["guide"] = guide_text(read("guide"))
    found["guide-more"] = guide_more_text(read("guide"), read("guide-answers"), read("guide-calibration"))
    found["guide-parts"] = guide_parts_text(read("guide-ablation"), read("guide"))
    for name, written in (
        ("sparse", sparse_text),
        ("saccade", saccade_text),
        ("long-text", long_text),
        ("magnify", magnify_text),
        ("transcription", transcription_text),
    ):
        if (RESULTS / f"{name}.json").is_file():
            found[name] = written(read(name))
    return found


def filled(texts: dict[str, str]) -> dict[str, str]:
    """The pages, by name, with every block as the result files say; each stands in one page, and perhaps in cards."""
    found = dict(texts)
    for name, block in blocks().items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        pages = [page for page, text in found.items() if re.search(pattern, text, re.S)]
        assert len([page for page in pages if page not in CARDS]) == (not name.startswith("labels")), (
            name,
            pages,
        )
        new = lambda match, block=block: f"{match[1]}{block}\n{match[2]}"  # noqa: E731
        found |= {page: re.sub(pattern, new, found[page], flags=re.S) for page in pages}
    return found


CARDS = tuple(
    str(path.relative_to(ROOT))
    for part in ("src", "lab/src")
    for path in sorted((ROOT / part).rglob("README.md"))
)
"""Cards of weights and data, which go alone to where their readers are."""


def pages() -> dict[str, str]:
    """The pages and cards that may have tables, as they are."""
    paths = [*(ROOT / name for name in ("README.md", *CARDS)), *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


if __name__ == "__main__":
    before = pages()
    after = filled(before)
    changed = [name for name in after if after[name] != before[name]]
    if "--check" in sys.argv:
        sys.exit(f"{', '.join(changed)} differ from the results: run python runs/readme.py" if changed else 0)
    for name in changed:
        (ROOT / name).write_text(after[name], encoding="utf-8")
