"""Looking without training: evidence recall of `gaze` and of its parts, with the bundled model as if nobody had
trained it.

    python runs/training_free.py OUT.json

Pages of 1024 x 1024 px, 1024 cells, about a hundred questions with evidence of each split; what was to be chosen
(layers, mixture) was chosen on "validation", "test" is the result. The gestalt of 256 tokens is an encoded view of
half the size ("resize"), or the average of each 2x2 encoded cells ("pool4"). Print of such pages is hardly legible at
half the size: what "resize" misses is mostly text (see "by family"). Two and a half minutes of one core.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from arr_coc.choose.balancing import FIXED_MIXTURE
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.texture import generate_texture_array
from arr_coc.data.evidence import evidence_cells
from arr_coc.model import ARRCOCModel
from arr_coc.modes.scoring import question_embeddings
from arr_coc.seam.gaze import coupling, gaze, gaze_layers
from arr_coc.seam.gestalt import compress
from arr_coc.session import Session
from arr_coc_lab.evaluate.questions import world_questions
from arr_coc_lab.results.intervals import bootstrap_interval, paired_interval
from arr_coc_lab.rivals import nulls

SIZE, GRID, BUDGETS = 1024, (32, 32), (273, 64)
GESTALTS = ("resize", "pool4")
MIXTURES = (
    FIXED_MIXTURE, (0.125, 0.125, 0.5), (0.25, 0.0, 0.5), (0.0, 0.25, 0.5), (0.5, 0.5, 0.5),
    (1.0, 1.0, 0.5),
)  # fmt: skip
"""Weights of information, perspectival and participatory logits, the last of gaze."""

model = ARRCOCModel.from_pretrained(strict=True)
adapter = model.adapter
layer = ARRCOCLayer(ARRCOCConfig(dim=model.config.get_text_config().hidden_size)).eval()
depth = model.config.get_text_config().num_hidden_layers
looks = {"": gaze_layers(depth), ", all layers": range(depth)}
looks |= {f", layer {i} alone": range(i, i + 1) for i in range(depth)}
times: dict[str, list[float]] = {}


def timed(name: str, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `work` returns; the milliseconds of processor time that it took are noted."""
    start = time.process_time()
    result = work(*args, **kwargs)
    times.setdefault(name, []).append(1000 * (time.process_time() - start))
    return result


def of_page(session: Session, queries: list, draw: torch.Generator) -> list[dict[str, Tensor | list[Tensor]]]:
    """For each question of a page, by name of the method: a map to take the best cells of, or the cells."""
    inputs = session.inputs("?")
    features = timed("encode 1024 tokens", adapter.features, inputs)
    texture = generate_texture_array(adapter.images(inputs)[0][None], GRID, layer.config.channels)
    gestalts = {name: timed(name, compress, name, adapter, inputs, features) for name in GESTALTS}
    neutral = {}
    results: list[dict[str, Tensor | list[Tensor]]] = []
    for query in queries:
        prompt = session.inputs(query.text)
        words = question_embeddings(adapter, prompt, texture)[0][None]
        vision = features.cell_tokens(0)[None]
        scored = layer.relevance(texture, words, torch.ones(words.shape[:2], dtype=torch.bool), vision)
        parts = [scored.information[0].logit(), scored.perspectival[0].logit()]
        maps: dict[str, Tensor | list[Tensor]] = {
            "random": [nulls.random(1024, k, draw).keep for k in BUDGETS],
            "even grid": [nulls.even(GRID, k).keep for k in BUDGETS],
            "embedding cosine": scored.participatory[0],
            "information": scored.information[0],
            "saliency": scored.perspectival[0],
            "untrained layer (cosine in its mixture)": scored.logits[0],
        }
        for name, gestalt in gestalts.items():
            for suffix, layers in looks.items():
                key = (name, suffix)
                if key not in neutral:
                    first = timed(f"gaze, first question{suffix}", gaze, adapter, prompt, gestalt, layers)
                    neutral[key] = first.neutral
                directed = timed(
                    f"gaze{suffix}", gaze, adapter, prompt, gestalt, layers, neutral=neutral[key]
                )
                maps[f"gaze on {name}{suffix}"] = coupling(directed.maps[0], GRID)
            even = [torch.full_like(n, float(n.mean())) for n in neutral[name, ""]]
            alone = gaze(adapter, prompt, gestalt, neutral=even)
            maps[f"gaze on {name} without the neutral question"] = coupling(alone.maps[0], GRID)
            logits = [*parts, maps[f"gaze on {name}"]]
            for weights in MIXTURES:
                mixed = sum(w * part for w, part in zip(weights, logits, strict=True))
                maps[f"gaze on {name}, mixture {weights}"] = mixed
        results.append(maps)
    return results


@torch.no_grad()
def measure(split: str, count: int = 100) -> tuple[list[str], dict[str, list[list[float]]]]:
    """The family of each question, and by method the recall of its evidence at each budget."""
    families: list[str] = []
    recalls: dict[str, list[list[float]]] = {}
    draw = torch.Generator().manual_seed(0)
    for page in world_questions(count, SIZE, 8, split):
        queries = [query for query in page.queries if query.boxes]
        for query, maps in zip(queries, of_page(Session(model, page.image), queries, draw), strict=True):
            families.append(query.family)
            evidence = evidence_cells(query.boxes, GRID, page.image.size).flatten()
            for name, choice in maps.items():
                if isinstance(choice, Tensor):
                    order = choice.flatten().argsort(descending=True, stable=True)
                    choice = [order[:k] for k in BUDGETS]
                recall = [float(evidence[keep].sum() / evidence.sum()) for keep in choice]
                recalls.setdefault(name, []).append(recall)
    return families, recalls


def by_family(families: list[str], rows: list[list[float]]) -> dict[str, dict[str, float]]:
    """Mean recall of each family's questions at each budget."""
    means: dict[str, dict[str, float]] = {}
    for family in sorted(set(families)):
        own = [row for name, row in zip(families, rows, strict=True) if name == family]
        columns = zip(*own, strict=True)
        means[family] = {str(k): round(statistics.fmean(c), 3) for k, c in zip(BUDGETS, columns, strict=True)}
    return means


def table(recalls: dict[str, list[list[float]]]) -> dict[str, dict[str, float | list[float]]]:
    """Mean recall of each method at each budget, with its 95 % interval."""
    result = {}
    for name, rows in recalls.items():
        result[name] = {}
        for k, values in zip(BUDGETS, zip(*rows, strict=True), strict=True):
            result[name][str(k)] = round(statistics.fmean(values), 4)
            result[name][f"{k} interval"] = [round(end, 4) for end in bootstrap_interval(values)]
    return result


out = Path(sys.argv[1])
(_, tried), (families, tested) = measure("validation"), measure("test")
ahead = {}
for name in GESTALTS:
    for null in ("random", "even grid", "embedding cosine"):
        pairs = zip(
            BUDGETS,
            zip(*tested[f"gaze on {name}"], strict=True),
            zip(*tested[null], strict=True),
            strict=True,
        )
        ahead[f"gaze on {name} over {null}"] = {
            str(k): [round(end, 4) for end in paired_interval(a, b)] for k, a, b in pairs
        }
result = {
    "command": "python runs/training_free.py runs/results/training-free.json",
    "questions": {"validation": len(tried["random"]), "test": len(tested["random"])},
    "layers": f"{gaze_layers(depth)} of {depth}",
    "median ms, processor time": {
        name: round(statistics.median(ms), 1) for name, ms in times.items() if "alone" not in name
    },
    "threads": torch.get_num_threads(),
    "test": table(tested),
    "test, difference, 95 % interval": ahead,
    "test, by family": {
        f"gaze on {name}": by_family(families, tested[f"gaze on {name}"]) for name in GESTALTS
    },
    "validation": table(tried),
}
out.write_text(json.dumps(result, indent=1) + "\n")
for name, row in result["test"].items():
    print(f"{name:56} {row['273']:.3f} {row['64']:.3f}")
low = min(interval[0] for row in ahead.values() for interval in row.values())
print(json.dumps(result["median ms, processor time"]), f"least lead over a null: {low:+.3f}")
sys.exit(low <= 0)
