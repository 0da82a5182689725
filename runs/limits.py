"""How many of 10,000 hostile conversations a strict server refuses for their pictures, through the proxy and without it.

    python runs/limits.py --out runs/results/limits.json

Conversations and server are those of tests/strict_upstream.py: every API, role and form of base64, and a server that refuses
what its provider's documentation does. The choice is replaced by a quick double, since only what leaves the proxy is looked
at. "refused" and "changed elsewhere" must be 0. Some fifteen minutes of one core.
"""

import argparse
import json
import logging
import random
import sys
import time
from collections import Counter
from pathlib import Path

from arr_coc.proxy import packing
from arr_coc.proxy.packing import Packer
from arr_coc.proxy.server import Proxy, ProxySettings, server_config

COUNTED = (
    "conversations",
    "refused without the proxy",
    "refused",
    "changed elsewhere",
    "passed byte for byte",
)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def main() -> None:
    """Ask the server, directly and through the proxy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    from chat_servers import CLIENT, listening, pack_double
    from strict_upstream import PATHS, StrictUpstream, body_of, refusal, rest

    packing.pack_for = pack_double
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    became: Counter[str] = Counter()
    seconds = 0.0
    upstream = StrictUpstream()
    with listening(upstream.config) as address:
        proxy = Proxy(ProxySettings(address, traces=1), Packer(1))
        with listening(server_config(proxy)) as own:
            for seed in range(settings.start, settings.start + settings.conversations):
                rng = random.Random(seed)
                name = rng.choice([*PATHS])
                body = body_of(rng, name)
                content = json.dumps(body).encode()
                counts["conversations"] += 1
                counts["refused without the proxy"] += bool(refusal(PATHS[name], content))
                start = time.perf_counter()
                answer = CLIENT.post(own + PATHS[name], content=content, timeout=120)
                seconds += time.perf_counter() - start
                if answer.status_code != 200:
                    counts["refused"] += 1
                    reasons[f"{name} {body['model']}: {answer.text[:120]}"] += 1
                    print(seed, name, body["model"], answer.text[:200], file=sys.stderr)
                elif rest(json.loads(upstream.last)) != rest(body):
                    counts["changed elsewhere"] += 1
                    print(seed, name, "changed elsewhere", file=sys.stderr)
                counts["passed byte for byte"] += upstream.last == content
                if counts["conversations"] % 1000 == 0 or counts["conversations"] == settings.conversations:
                    for line in CLIENT.get(own + "/arr_coc/metrics").text.splitlines():
                        if line.startswith("arr_coc_fitted_pictures_total"):
                            became[line.split('"')[1]] = int(float(line.split()[-1]))
                    text = written(counts, became, reasons)
                    print(text, f"{1000 * seconds / counts['conversations']:.0f} ms a request", flush=True)
                    if settings.out is not None:
                        settings.out.write_text(text, encoding="utf-8")


def written(counts: Counter[str], became: Counter[str], reasons: Counter[str]) -> str:
    """What came of the conversations so far, as JSON."""
    made: dict[str, object] = {name: counts[name] for name in COUNTED}
    return (
        json.dumps(made | {"pictures": dict(sorted(became.items())), "reasons": dict(reasons)}, indent=1)
        + "\n"
    )


if __name__ == "__main__":
    main()
