"""The blocks of docs/results about long text: compression of pages, walks over pages, looking again, the order of cells."""

from arr_coc_lab.results.table import percent

NAMES = {
    "all tokens": "all tokens",
    "shrunk": "a smaller picture (`resize`)",
    "mean pooling": "mean pooling of the encoded cells",
    "truncation": "truncation: the first rows",
    "sparse": "**`sparse`**: cells where the question points",
    "saccade": "**`saccade`**: half coarse, half such cells",
    "sparse, of another question": "`sparse` by another label of the page",
    "a page without print": "a page without print (guessing)",
}
KINDS = ("strings", "words")


def cell(row, kind):
    """Exact match and character accuracy of one kind."""
    if row is None:
        return "-"
    return f"{percent(row[kind]['exact'])} / {row[kind]['characters']:.2f}"


def by_method(result):
    """The rows by method and number of tokens."""
    return {(row["method"], row["tokens"]): row for row in result["rows"]}


def compression_table(result, kind):
    """A row per method, a column per number of tokens."""
    rows, tokens = by_method(result), sorted({row["tokens"] for row in result["rows"]}, reverse=True)
    cells = result["cells"]
    heads = [f"{count:,} ({cells / count:.1f}x)" for count in tokens]
    lines = ["| | " + " | ".join(heads) + " |", "|---" + "|--:" * len(tokens) + "|"]
    methods = list(dict.fromkeys(row["method"] for row in result["rows"]))
    for method in [*NAMES, *(name for name in methods if name not in NAMES)]:
        own = [rows.get((method, count)) for count in tokens]
        place = "inside the tower" if method.startswith("tower") else "after the encoder"
        name = NAMES.get(method, f"`{method}`, learned, {place}")
        lines.append(f"| {name} | " + " | ".join(cell(row, kind) for row in own) + " |")
    return "\n".join(lines)


def widest(result, kind):
    """The widest interval of exact match, in points."""
    return f"{max(100 * (row[kind]['interval'][1] - row[kind]['interval'][0]) for row in result['rows']):.0f}"


def critiques(result):
    """What critics of optical compression found, and what came out here."""
    rows, full = by_method(result), by_method(result)["all tokens", result["cells"]]
    shrunk, pooled, learned = (rows[name, 256] for name in ("shrunk", "mean pooling", "conv4"))
    saccade, sparse = rows["saccade", 64], rows["sparse", 64]
    first = rows["truncation", 256]

    def pair(row):
        return f"{percent(row['strings']['exact'])} of strings, {percent(row['words']['exact'])} of words"

    lines = [
        "| what critics found | here |",
        "|---|---|",
        "| mean pooling does as well as optical compression "
        f"| at 4x: pooling {pair(pooled)}; the smaller picture {pair(shrunk)}; the learned compressor {pair(learned)} |",
        "| without a language prior it collapses "
        f"| at 4x the learned compressor answers {percent(learned['words']['exact'])} of words and "
        f"{percent(learned['strings']['exact'])} of strings (all tokens {percent(full['words']['exact'])} and "
        f"{percent(full['strings']['exact'])}) |",
        f"| keeping the first tokens does as well | at 4x: {pair(first)} |",
        "| what is compressed blindly is gone "
        f"| at 16x, blindly: a smaller picture {pair(rows['shrunk', 64])}; pooling {pair(rows['mean pooling', 64])}; learned "
        f"{pair(rows['conv16', 64])}. With cells where the question points: alone {pair(sparse)}, beside a coarse view {pair(saccade)} |",
    ]
    return "\n".join(lines)


def long_text(result):
    """The block about compression."""
    strings, words = (result["rows"][0][kind]["questions"] for kind in KINDS)
    return (
        f"{result['pages']} drawn pages of text of 1024x1024 px, {result['cells']:,} cells each: labelled values between running text, "
        "of common words on half of the pages and of random strings on the others (`arr_coc_lab.world.draw_text_page`). Each "
        "question asks what stands after something that is on the page once, in a wording that the bundled model was taught: "
        f'"What is written next to invoice?" for {strings} *strings* of 2 to 5 random characters, "What does the note say?" for '
        f"{words} notes of two *words*, each one of 16 that the model knows, in print of the same size. "
        f"Exact match / character accuracy (1 - edits / length; `{result['command']}`, `runs/results/long-text.json`). "
        "Pools of 1.9x and 8.5x overlap, for their "
        "sides don't divide. Notes stand on coloured paper, which makes them easy to find. So few questions tell large differences "
        f"alone: the widest 95 % interval of exact match, over questions, is {widest(result, 'strings')} points for strings and {widest(result, 'words')} for words.\n\n"
        "Random strings:\n\n" + compression_table(result, "strings")
        + "\n\nWords:\n\n" + compression_table(result, "words")
        + "\n\n" + critiques(result)
        + "\n\nWhat this does not say: a model that was trained to decompress (DeepSeek-OCR) is another thing than one that was "
        "not, and these pages are asked one thing each. Where everything on a page is wanted, no choice can do (next section)."
    )  # fmt: skip


def transcription_text(result):
    """The block about reading a whole page."""
    names = {
        "fixed set": "a fixed set (`sparse`, 273 cells)",
        "all": "all tokens",
        "walk": f"**a walk** (`transcribe`), {result['parts of a walk']} parts, {result['cells of a walk']:.0f} cells in all",
    }
    lines = ["| | characters | values | evidence of a label whole | read by label |", "|---|--:|--:|--:|--:|"]
    for name, text in names.items():
        row = result["rows"][name]
        lines.append(
            f"| {text} | {row['characters']:.2f} | {percent(row['values'])} "
            f"| {percent(result['by label'][name]['all evidence among the cells'])} | {percent(result['by label'][name]['read'])} |"
        )
    return (
        f"{result['pages']} drawn lists of {result['lines of a page']} labelled values, asked for all of it "
        f"(`{result['command']}`, `runs/results/transcription.json`). *Characters*: accuracy of the whole transcript; *values*: share of the values that "
        f"are in it. *By label*: the same cells, and the model is asked for {result['labels asked for']} labels one by one, which it was taught. The bundled model answers with a few characters whatever it is asked, and was never taught to transcribe: of a line it says "
        f'the value at best, and how it is asked decides that ("{result["question"]}" was chosen on validation pages; the fixed set is the one for that question). With a model that can '
        "transcribe, all tokens is the honest default, and is what `ask` does then.\n\n" + "\n".join(lines)
    )
