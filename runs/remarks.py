"""What has to be said beside the comparison: where FastV cuts, what favours evidence, and the gray text beside a red square."""

from speeds import RESULTS, read, with_times

from arr_coc_lab.results.table import percent, speed_up

TEXT, SQUARE = "share of the text's cells kept", "share of the distractor's cells kept"
LAW = "pages with more than twice"
SWEEP = ("fastv:1", "fastv:4")
"""Rows that the sweep alone shows."""


def cut_text(summary: dict) -> str:
    """FastV with every cut that the bundled language model has."""
    methods = summary["methods"]
    names = {1: "fastv:1", 2: "fastv", 3: "fastv:3", 4: "fastv:4"}
    lines = [
        "| FastV, 64 tokens kept | reads (mean over layers) | exact match | recall | TTFT speed-up |",
        "|---|--:|--:|--:|--:|",
    ]
    timed = with_times(summary, "times")["methods"]
    for cut, name in names.items():
        if (row := methods.get(f"{name}@64")) is not None:
            speed = speed_up(timed[f"{name}@64"]) or "-"
            lines.append(
                f"| after layer {cut} | {row['tokens']:,.0f} | {percent(row['score'])} | {row['recall']:.2f} | {speed} |"
            )
    ours = methods["arr-coc@64"]
    lines.append(
        f"| **arr-coc@64** | **{ours['tokens']:,.0f}** | **{percent(ours['score'])}** | **{ours['recall']:.2f}** "
        f"| **{speed_up(timed['arr-coc@64']) or '-'}** |"
    )
    return (
        "FastV drops tokens inside the language model, so that how many it keeps is not how many it reads: the layers before the "
        "cut read all. The paper cuts after layer 2; the published code with a key/value cache also after layer 3. The bundled "
        f"model has five layers; where the cut lies decides what the question can find before it ({summary['questions']} questions, "
        "`runs/results/sparse.json`):\n\n" + "\n".join(lines)
    )


def deeper_text() -> str:
    """How near FastV comes with a later cut, on the questions that it was measured on; "" where it was not."""
    small = read("sparse")
    row, ours = (small["methods"].get(name) for name in ("fastv:3@64", "arr-coc@64"))
    if row is None or ours is None:
        return ""
    low, high = (100 * end for end in row["below ours"]["interval"])
    return (
        f"Cut after layer 3 in place of 2, FastV keeps 64 tokens and reads {row['tokens']:,.0f}: on {small['questions']} of these questions it "
        f"answers {percent(row['score'])}, ours {percent(ours['score'])} (difference {low:+.1f} to {high:+.1f} points; "
        "[below](#where-fastv-cuts)). "
    )


def favours_text(study: dict) -> str:
    """What of this comparison favours choosing by evidence."""
    methods = study["methods"]
    text = "*What favours choosing by evidence here.* "
    if (RESULTS / "evidence.json").is_file():
        facts = read("evidence")
        cells, reader, blind = (
            facts["cells that hold evidence"],
            facts["reader"],
            facts["blind, of those that could be asked"],
        )
        text += (
            f"The reader was taught for it: on {reader['share set']:.0%} of the pages of its last stage the base model was shown some of "
            "the cells in place of all, with the evidence always among them. And the pages are sparse, but not so sparse that a "
            f"choice made once for a page would do: {cells['mean']:.0f} of {cells['of']:,} cells hold evidence of some question that the "
            f"page could be asked, and one near-best choice for all of them (`blind oracle`: greedy coverage of whole questions, which "
            "knows where all evidence is and not what is asked) keeps all evidence of "
            f"{blind['64']:.0%} of the questions with 64 cells, {blind['128']:.0%} with 128 and {blind['273']:.0%} with 273 "
            "(`runs/evidence.py`, `runs/results/evidence.json`): with 273 a blind choice can hold nearly everything, with 64 it can't. "
        )
    rows = [(budget, methods.get(f"blind oracle@{budget}")) for budget in (64, 128, 273)]
    if any(row for _, row in rows):
        scores = ", ".join(f"{percent(row['score'])} with {budget}" for budget, row in rows if row)
        text += (
            f"From its cells the model answers {scores}. That is no ceiling of blind methods: encoded tokens carry more than their own "
            "cell, and a rule that spreads its tokens profits from that."
        )
    return text.rstrip()


def gray_text(adversarial: dict) -> str:
    """The gray text beside the red square, with few tokens, with some, and with the default budget."""
    shares = "; ".join(
        f"with {budget} tokens {percent(row[TEXT])} of the text's cells are kept and {percent(row[SQUARE])} of the square's, and the "
        f"text has more than twice the square's share on {percent(row[LAW])} of the pages"
        for budget, row in adversarial.items()
        if budget.isdigit()
    )
    return (
        f"Gray text beside a bright red square ({adversarial['pages']} pages, `runs/results/adversarial.json`): {shares}. The default "
        "is 273, a quarter of the page: there all of the text is kept, and much of the square with it."
    )


def gray_claims(adversarial: dict) -> list[dict]:
    """The law of the gray text, with few tokens and with the default budget."""
    return [
        {
            "claim": f"gray text gets more than twice a red square's tokens, cell for cell, {budget} tokens kept",
            "target": "on every page",
            "figure": f"on {percent(adversarial[budget][LAW])}",
            "holds": adversarial[budget][LAW] == 1,
        }
        for budget in ("64", "273")
    ]


def adapt_text() -> str:
    """What `arr-coc adapt` gained where nothing had been taught, and where the bundled allocator went on."""
    result = read("adapt")
    recall = {name: row for name, row in result["gain"]["recall"].items() if name.endswith("@0.0625")}
    ours, sparse = recall["arr-coc@0.0625"], recall["arr-coc sparse@0.0625"]
    beside = {name.partition("@")[0]: row.get("after", row["before"]) for name, row in recall.items()}
    seconds = sum(part["seconds"] for part in result["parts"].values())
    # An older file has none: its questions about one picture count as if they were independent.
    over = result["gain"].get("intervals", "over questions")
    text = (
        f"What `arr-coc adapt` gains where nobody has taught anything: {result['pictures']} drawn pictures of marks with names that no page "
        f"has, a tiny Qwen3-VL of random weights, {result['steps']} steps each of `relevance` and `stem` ({seconds / 60:.0f} "
        f"minutes of a shared core). On the {result['gain']['images']} held-out pictures ({result['gain']['questions']} questions) "
        f"4 of 64 cells hold {percent(ours['before'])} of the evidence before, by the guide, and **{percent(ours['after'])}** after "
        f"(95 % interval of the gain {100 * ours['interval'][0]:.0f} to {100 * ours['interval'][1]:.0f} points, {over}); chosen before the "
        f"encoder {percent(sparse['after'])}. Beside it: the cells with most ink {percent(beside['ink density'])}, our own choice by "
        f"another picture's question {percent(beside['shuffled question'])}, random {percent(beside['random'])}, even "
        f"{percent(beside['even grid'])}, the oracle {percent(beside['oracle'])} (`{result['command']} OUT.json`, "
        "`runs/results/adapt.json`)."
    )
    if not (RESULTS / "adapt-bundled.json").is_file():
        return text
    bundled = read("adapt-bundled")
    row = bundled["gain"]["recall"]["arr-coc@0.0625"]
    return (
        f"{text} The bundled model, whose allocator knows pages and no such marks, goes from {percent(row['before'])} to "
        f"{percent(row['after'])} ({100 * row['interval'][0]:.0f} to {100 * row['interval'][1]:.0f} points, "
        f"{bundled['gain'].get('intervals', 'over questions')}) in {bundled['steps']} "
        f"steps on {bundled['pictures']} pictures (`runs/results/adapt-bundled.json`; what it then still knows of pages was not "
        "measured)."
    )
