"""How many of 10,000 hostile conversations a strict server refuses for their pictures, through the proxy and without it.

    python runs/limits.py --out runs/results/limits.json
    python runs/limits.py --cost --out runs/results/limits.json     # adds what a picture costs that breaks no limit

Conversations and server are those of tests/strict_upstream.py: every API, role and form of base64, and a server that refuses
what its provider's documentation does. The choice is replaced by a quick double, since only what leaves the proxy is looked
at. "refused" and "changed elsewhere" must be 0. Some fifteen minutes of one core.
"""

import argparse
import base64
import io
import json
import logging
import random
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median

from arr_coc.pixels.limits import LIMITS
from arr_coc.proxy import packing
from arr_coc.proxy.fitting import Fitter
from arr_coc.proxy.messages import api_of
from arr_coc.proxy.packing import Packer
from arr_coc.proxy.server import Proxy, ProxySettings, server_config
from arr_coc_lab.world import draw_page

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
    parser.add_argument("--cost", action="store_true", help="measure milliseconds alone")
    settings = parser.parse_args()
    if settings.cost:
        made = json.loads(settings.out.read_text(encoding="utf-8")) | {
            "cpu ms of a picture that fits": cost()
        }
        settings.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        return
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


def cost() -> dict[str, dict[str, float]]:
    """CPU milliseconds of drawn pages that fit, at first sight and when they came before, the median of 20."""
    api = api_of("/v1/messages")
    assert api is not None
    made: dict[str, dict[str, float]] = {}
    for width, height in ((1280, 960), (1920, 1440)):
        file = io.BytesIO()
        draw_page(1, (width, height)).image.save(file, "PNG")
        data = base64.b64encode(file.getvalue()).decode()
        part = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
        body = {"messages": [{"role": "user", "content": [part]}]}
        times: list[list[float]] = [[], []]
        for _ in range(20):
            fitter = Fitter()
            for taken in times:
                start = time.thread_time()
                assert fitter.fitted(api, body, LIMITS["claude"])[0] is body
                taken.append(1000 * (time.thread_time() - start))
        first, again = (round(median(taken), 2) for taken in times)
        made[f"{width} x {height}, {file.tell() // 1000} KB"] = {"first": first, "again": again}
    return made


def written(counts: Counter[str], became: Counter[str], reasons: Counter[str]) -> str:
    """What came of the conversations so far, as JSON."""
    made: dict[str, object] = {name: counts[name] for name in COUNTED}
    return (
        json.dumps(made | {"pictures": dict(sorted(became.items())), "reasons": dict(reasons)}, indent=1)
        + "\n"
    )


if __name__ == "__main__":
    main()
