"""Examples of each command, which its --help ends with; the tests read each as the command line would."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "ask": (
        "arr-coc ask",
        'arr-coc ask page.png "What is the invoice number?" --budget 0.25 --compare',
        'arr-coc ask before.png after.png "What has changed?"',
        'arr-coc ask paper.pdf --page 3 "Who wrote this?"',
        'arr-coc ask scans "What is the total?" --json > totals.jsonl',
        'cat page.png | arr-coc ask - "What is the title?"',
    ),
    "look": (
        "arr-coc look",
        'arr-coc look page.png "Where is the date?" --model bundled --mode sparse --out look.png',
        'arr-coc look scans "What is the total?" --json > cells.jsonl',
    ),
    "info": ("arr-coc info", "arr-coc info --model Qwen/Qwen3-VL-2B-Instruct --dtype bfloat16"),
    "draw": ("arr-coc draw", "arr-coc draw --count 20 --size 1280x960 --seed 100 --out pages"),
    "app": ("arr-coc app", "arr-coc app trace.safetensors --port 8000"),
    "view": ("arr-coc view trace.safetensors --out answer.html",),
    "train": (
        "arr-coc train list",
        "arr-coc train distill steps=200 --out my-allocator",
        "arr-coc train guide --pages pages --out my-guide",
        "arr-coc train guide --stage relevance --from bundled --pages jsonl:mine --out my-guide",
    ),
    "adapt": (
        "arr-coc adapt bundled --data pages --steps 20 --out my-allocator",
        "arr-coc adapt Qwen/Qwen3-VL-2B-Instruct --data mine --minutes 60 --push me/my-allocator",
    ),
    "world": (
        "arr-coc world pages --pages 2000 --documents 500",
        "arr-coc world receipts --type receipt --pages 9 --show 9",
        "arr-coc world mine --html my-app --views 500 --show 9",
    ),
    "eval": (
        "arr-coc eval --questions 100 --methods full,arr-coc,random --budgets 273,64",
        "arr-coc eval --data textvqa:TextVQA --out textvqa",
    ),
    "report": (
        "arr-coc report arr-coc-eval.jsonl",
        "arr-coc report part1.jsonl part2.jsonl --out whole",
    ),
    "bench": ("arr-coc bench", "arr-coc bench --modes stock,prune@64,sparse@64 --rounds 5"),
    "space": ('arr-coc space my-space --title "What it reads"',),
}
"""By the command's name, lines as they are typed."""
