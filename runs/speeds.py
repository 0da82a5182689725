"""Speeds in words and tables: ranges over several runs of a process, on the bundled model and in the published shapes."""

import json
from pathlib import Path

from claims import claims_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "runs" / "results"
SPEED_TARGETS = ((1024, "sparse@273", 4.8), (1024, "sparse@64", 11.5), (2048, "saccade", 14.0))
CHOOSING = 0.02


def read(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def with_times(summary: dict, name: str) -> dict:
    """The summary with the times of several runs in place of its own.

    A row that those runs lack keeps how much sooner its first token came, as of one run, and no milliseconds: they are
    another machine's. The gain that was realised is left out, which is of the summary's own times.
    """
    times = read(name)["methods"]
    once = {"ttft_ms": None, "one run": True}
    methods = {m: row | {"realised": None} | times.get(m, once) for m, row in summary["methods"].items()}
    return {**summary, "methods": methods}


def machine_text(name: str) -> str:
    """Where the times of several runs were measured, in a sentence."""
    times = read(name)
    machine = times["machine"]
    return (
        f" The times are from {times['runs']} runs of a process, lowest and highest of their medians over "
        f"{times['questions timed in each']} questions asked alone ({machine['device']}, {machine['cores']} cores, "
        f"{machine['threads']} thread(s), {machine['dtype']}; `runs/results/{name}.json`). Other machines have others: what is left "
        "with few tokens is reading the weights, and a machine with slow memory gains less from it."
    )


def bench_text() -> str:
    """What a first token costs in the published shapes, side by side."""
    parts = [
        "Random weights in the published shapes of Qwen3-VL (bfloat16, vocabulary cut), from picture and question to the logits of the first "
        "token, processing and choosing included, all ways side by side (`bench/prefill.py`, `bench/results/`). Where several processes were "
        "run, a speed is the range over them; where one was, it is that one's, and another machine's may be lower. *x fewer*: operations, "
        "and bytes that they read and write (weights, activations, keys and values; `arr_coc_lab.evaluate.work`). Where arithmetic is what "
        "takes the time the first is the limit of a speed-up, where reading the weights is, as with few tokens, the second. *Of the limit*: "
        "the speed-up over the larger of the two.\n"
    ]
    files = (ROOT / "bench" / "results").glob("*-*.json")
    results = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    # Others measure no first token, or that of one question after another.
    results = [
        result
        for result in results
        if result.get("circumstances", {}).get("image") and "mode" in (result.get("rows") or [{}])[0]
    ]
    for result in sorted(
        results,
        key=lambda r: [
            *(r["circumstances"][k] for k in ("shape", "image", "batch")),
            "runs" not in r["circumstances"],
        ],
    ):
        facts = result["circumstances"]
        rounds = f"median of {facts['rounds']} rounds" if facts["rounds"] > 1 else "one round"
        width, height = facts["image"]
        batch = f", batch {facts['batch']}" if facts["batch"] > 1 else ""
        machines = facts.get("machines") or [facts]
        names = "; ".join(
            f"{one['device']}, "
            + (f"{one['cores']} cores, " if one.get("cores") else "")
            + f"{one['threads']} threads"
            for one in machines
        )
        runs = f"{facts['runs']} runs" if "runs" in facts else "one run"
        parts.append(
            f"\n{facts['shape']}, {width}x{height} px{batch} ({runs}, {rounds}, {names}, {facts['dtype']}):\n\n"
            "| | tokens | ms | x stock | TFLOP | x fewer | GB | x fewer | of the limit | choosing | peak MiB |\n"
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
        )
        for row in result["rows"]:
            mine = row["mode"].split("@")[0].split(" ")[0] in ("sparse", "saccade")
            low, high = row.get("range", {}).get("speed", (row["speed"],) * 2)
            bytes_known = row.get("byte_ratio") is not None
            cells = [
                row["mode"],
                f"{row['tokens']:,.0f}",
                f"{row['ms']:,.0f}",
                f"{low:.2f}x" if low == high else f"{low:.2f}-{high:.2f}x",
                f"{row['tflop']:.2f}",
                f"{row['flop_ratio']:.2f}x",
                f"{row['gbyte']:.1f}" if bytes_known else "-",
                f"{row['byte_ratio']:.2f}x" if bytes_known else "-",
                f"{row['of_limit']:.0%}",
                f"{row['select_share']:.1%}",
                f"{row['peak_mb']:,.0f}",
            ]
            parts.append("| " + " | ".join(f"**{cell}**" if mine else cell for cell in cells) + " |")
    return (
        "\n".join(parts)
        + "\n\nThe targets, checked against the slowest run:\n\n"
        + claims_table(bench_claims(results))
    )


def memory_text(results: list[dict]) -> str:
    """What a process's first question takes in memory, by way: a table per shape and machine."""
    parts = [
        "The most memory that a process holds during its first question, from picture and question to the logits of the first token, "
        "beyond what it holds with the model loaded; each way in a process of its own, once (`python bench/prefill.py --memory`, "
        "`bench/results/memory-*.json`). On a CPU that is resident memory: beside torch's tensors (*peak MiB* above) the guide and its word "
        "tables, code that is loaded at its first use, and what the allocator keeps; *stays* is what of it is still held after the question. "
        "Weights are not in it. `prune` reads all of the picture in the vision encoder, where most of this is held; `sparse` doesn't. No GPU "
        "was measured; there the command counts what torch's allocator holds."
    ]
    for result in sorted(
        results, key=lambda one: [one["circumstances"][k] for k in ("shape", "image", "batch")]
    ):
        facts, rows = result["circumstances"], result["rows"]
        width, height = facts["image"]
        batch = f", batch {facts['batch']}" if facts["batch"] > 1 else ""
        parts.append(
            f"\n{facts['shape']}, {width}x{height} px{batch} ({facts['device']}, {facts['cores']} cores, {facts['threads']} threads, "
            f"{facts['dtype']}, torch {facts['versions']['torch']}; {max(row['loaded'] for row in rows):,.0f} MiB with the model loaded):\n\n"
            "| | tokens | peak MiB | x fewer | stays |\n|---|--:|--:|--:|--:|"
        )
        for row in rows:
            fewer = "-" if row["fewer"] is None else f"{row['fewer']:.2f}x"
            parts.append(
                f"| {row['way']} | {row['tokens']:,.0f} | {row['peak']:,.0f} | {fewer} | {row['stays']:,.0f} |"
            )
    return "\n".join(parts)


def choose_text(result: dict) -> str:
    """What choosing costs: operators and waits of each part, and its time, as two tables."""
    lines = [
        "What choosing costs, apart from any model (`bench/choose.py`, `bench/results/choose.json`). Counted are the operators that "
        "compute, each about one kernel that a GPU is told to run, and those whose result the host waits for, as the guide runs off the "
        "CPU. The waits of the texture are checks of a CPU's inputs, which an accelerator goes without. No GPU was tried.\n\n"
        "| 1,024 px | operators | waits | GFLOP |\n|---|--:|--:|--:|"
    ]
    for name, row in result["counts"].items():
        lines.append(f"| {name} | {row['computing']} | {row['waits']} | {row['GFLOP']:.1f} |")
    if times := result.get("times"):
        bfloat16 = "bfloat16 in hardware" if result["bfloat16 in hardware"] else "float32"
        lines.append(
            f"\nMilliseconds, the median of {result['rounds']} rounds ({result['machine']}, {result['device']}, {bfloat16}); "
            "in brackets processor time:\n\n| | " + " | ".join(times) + " |\n|---|" + "--:|" * len(times)
        )
        for name in next(iter(times.values())):
            cells = (f"{rows[name]['ms']:,.0f} ({rows[name]['cpu']:,.0f})" for rows in times.values())
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def bench_claims(results: list[dict]) -> list[dict]:
    """The targets of speed, in the shape of Qwen3-VL-2B with one row."""
    found = []
    for side, mode, least in SPEED_TARGETS:
        wanted = ("Qwen3-VL-2B", [side, side], 1)
        alike = [
            r for r in results if tuple(r["circumstances"][k] for k in ("shape", "image", "batch")) == wanted
        ]
        for result in [
            r for r in alike if "runs" in r["circumstances"]
        ] or alike:  # ranges, where there are some
            rows = {row["mode"]: row for row in result["rows"]}
            if mode not in rows:
                continue
            span = rows[mode].get("range", {})
            speed = span.get("speed", [rows[mode]["speed"]])[0]
            share = span.get("select_share", [rows[mode]["select_share"]])[-1]
            found += [
                {
                    "claim": f"{mode} at {side} px is faster than stock",
                    "target": f"at least {least}x",
                    "figure": f"{speed:.2f}x",
                    "holds": speed >= least,
                },
                {
                    "claim": f"{mode} at {side} px: choosing is little of stock's prefill",
                    "target": f"at most {CHOOSING:.0%}",
                    "figure": f"{share:.1%}",
                    "holds": share <= CHOOSING,
                },
            ]
    return found


def least(row: dict) -> float | None:
    """How many times sooner the first token comes at the least: in the slowest of several runs, or in the one there is."""
    return row["ttft range"][0] if row.get("ttft range") else row["ttft ratio"]
