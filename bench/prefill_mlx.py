"""What a first token costs with MLX: stock, `prune` and `sparse` side by side in one run, on a CPU.

    make .venv-mlx/installed
    .venv-mlx/bin/python bench/prefill_mlx.py --rounds 2 --out bench/results/mlx.json

Random weights in the widths of Qwen/Qwen3-VL-2B-Instruct, float32, cut to --depth layers in the encoder and
in the language model, with the bundled tokenizer's vocabulary: MLX's build for CPUs does some three billion
operations in a second of CPU time, and the whole model would take thirteen times as long as two layers.
Real inputs: a drawn page, another in each round, and a question, through MLX-VLM's own processor and
`generate_step`. The guide encodes each page anew, and its work is in the times.

`cpu_s` are seconds of all threads up to the first token, which other work on the machine hardly touches;
`wall_s` is what a clock says. `peak_mib` is the most that MLX held beyond the weights. The figure is a way's
ratio to stock in the same round; of several rounds the median. No Mac was tried: there the GPU does the work,
and ratios differ.
"""

import argparse
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx
from mlx.utils import tree_reduce
from mlx_vlm.generate.ar import generate_step
from mlx_vlm.models.qwen3_vl import Model, ModelConfig
from mlx_vlm.models.qwen3_vl.config import TextConfig, VisionConfig
from mlx_vlm.models.qwen3_vl.processing_qwen3_vl import Qwen3VLImageProcessor, Qwen3VLProcessor
from mlx_vlm.utils import prepare_inputs
from transformers import AutoTokenizer

from arr_coc import Selector
from arr_coc.files.saved import BUNDLED
from arr_coc.seam.prompt import chat_prompt
from arr_coc_lab.world import draw_page
from arr_coc_mlx import WrappedModel

WAYS = (("stock", None), ("prune", "prune"), ("sparse", "sparse"))


def random_model(depth: int, vocabulary: int) -> Model:
    """Random weights in the widths of Qwen3-VL-2B."""
    text = TextConfig(
        model_type="qwen3_vl_text",
        num_hidden_layers=depth,
        hidden_size=2048,
        intermediate_size=6144,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        rms_norm_eps=1e-6,
        vocab_size=vocabulary,
        max_position_embeddings=32768,
        rope_theta=5e6,
        rope_scaling={"type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True},
        tie_word_embeddings=True,
    )
    vision = VisionConfig(
        depth=depth,
        hidden_size=1024,
        intermediate_size=4096,
        out_hidden_size=2048,
        num_heads=16,
        patch_size=16,
        num_position_embeddings=2304,
        deepstack_visual_indexes=list(range(min(3, depth - 1))),
    )
    ids = {"image_token_id": 5, "video_token_id": 6, "image_token_index": 5, "video_token_index": 6}
    marks = {"vision_start_token_id": 3, "vision_end_token_id": 4}
    config = ModelConfig(text, vision, "qwen3_vl", vocab_size=vocabulary, eos_token_id=[2], **ids, **marks)
    mx.random.seed(0)
    model = Model(config)
    model.eval()
    mx.eval(model.parameters())
    return model


def first_token(model: Any, inputs: dict[str, Any]) -> dict[str, float]:
    """What the first token of an answer costs."""
    mx.clear_cache()
    mx.reset_peak_memory()
    before, wall, cpu = mx.get_active_memory(), time.perf_counter(), time.process_time()
    steps = generate_step(
        inputs["input_ids"],
        model,
        inputs["pixel_values"],
        inputs["attention_mask"],
        max_tokens=1,
        temperature=0.0,
        image_grid_thw=inputs["image_grid_thw"],
    )
    next(steps)
    figures = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    return figures | {"peak_mib": (mx.get_peak_memory() - before) / 2**20}


def summed_up(how: argparse.Namespace, model: Model, load: float, rounds: list[Any]) -> dict[str, Any]:
    """The rounds so far, with their medians and the circumstances."""
    ratios = {
        name: {
            key: round(median(one["stock"][key] / one[name][key] for one in rounds), 2)
            for key in ("cpu_s", "wall_s", "peak_mib")
        }
        for name, _ in WAYS[1:]
    }
    return {
        "command": "python " + " ".join(sys.argv),
        "note": "MLX's build for CPUs; no Mac was tried",
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "threads": os.cpu_count(),
            "device": str(mx.default_device()),
            "load before": round(load, 2),
            "versions": {name: version(name) for name in ("mlx", "mlx-vlm", "torch")},
        },
        "shape": f"widths of Qwen3-VL-2B, {how.depth} layers of 24 and of 28, float32",
        "weights_mib": round(
            tree_reduce(lambda total, one: total + one.nbytes, model.parameters(), 0) / 2**20
        ),
        "visual tokens": (how.size // 32) ** 2,
        "kept": how.budget,
        "stock is times as much": ratios,
        "rounds": rounds,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--depth", type=int, default=2, help="layers of the encoder and of the language model"
    )
    parser.add_argument("--size", type=int, default=384, help="side of the page in px")
    parser.add_argument("--budget", type=int, default=36, help="cells that are kept")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    how = parser.parse_args()
    mx.set_default_device(mx.cpu)
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED / "model")
    template = (BUNDLED / "model" / "chat_template.jinja").read_text()
    pictures = Qwen3VLImageProcessor(max_pixels=how.size**2)
    processor = Qwen3VLProcessor(pictures, tokenizer, chat_template=template)
    model, load = random_model(how.depth, len(tokenizer)), os.getloadavg()[0]
    selector = Selector.from_pretrained()
    rounds: list[dict[str, dict[str, float]]] = []
    for seed in range(how.rounds):
        page = draw_page(seed, (how.size, how.size), "test")
        question = f"{page.questions[0].text} Answer with one word."
        inputs = prepare_inputs(processor, images=[page.image], prompts=chat_prompt(processor, question, 1))
        rounds.append({})
        for name, mode in WAYS:
            selector._records.clear()  # the guide sees the page as if for the first time
            own = model if mode is None else WrappedModel(model, processor, selector, how.budget, mode, True)
            rounds[-1][name] = {key: round(value, 2) for key, value in first_token(own, inputs).items()}
            print(seed, name, rounds[-1][name], file=sys.stderr)
        result = summed_up(how, model, load, rounds)
        if how.out:
            how.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["stock is times as much"], indent=1))


if __name__ == "__main__":
    main()
