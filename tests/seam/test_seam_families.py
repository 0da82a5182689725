"""What is particular to single families: Gemma's windows and dial, the Omni thinkers, images in tiles.

The laws that hold for all of them are in the other files of this folder.
"""

from __future__ import annotations

import ast
import copy
import importlib
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedModel
from transformers import __version__ as VERSION

import house
import tiny_families
from arr_coc import ARRCOCModel
from arr_coc.families import adapter_for, known_families, registry
from arr_coc.families.registry import ABSENT, is_served, model_class
from arr_coc.seam import FamilyAdapter
from arr_coc.seam.base import as_frames
from arr_coc.seam.clips import clip_step_times, with_whole_pixels
from arr_coc.video import open_clip
from each import each
from near import KERNELS, apart, near
from tiny import picture, prompts, save_tiny, some_cells, tiny

THINKERS = ("qwen2_5_omni_thinker", "qwen3_omni_moe_thinker")
GLM = tuple(kind for kind in registry.FAMILIES["glm4v"].model_types if is_served(kind))
GEMMAS = [family for family in ("gemma3", "gemma4", "gemma4_unified") if is_served(family)]


# ---- windows of attention ----------------------------------------------------------------


def narrow(family: str, window: int) -> tuple[PreTrainedModel, Any]:
    """A model whose sliding layers see `window` columns, and its processor."""
    config, processor = tiny_families.BUILDERS[family]()
    config.text_config.sliding_window = window
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager")
    return model.eval().requires_grad_(False), processor


def error_of_dropping(adapter: FamilyAdapter, inputs: dict[str, Any]) -> float:
    """How far the logits with cells dropped are from those with them masked."""
    features = adapter.features(inputs)
    keep = [some_cells(len(cells), 9) for cells in features.cells]
    compacted = adapter.compact(inputs, features, keep, use_cache=False)
    columns = compacted.columns[0]
    real = columns >= 0
    mask = torch.zeros_like(inputs["input_ids"])
    mask[0, columns[real]] = 1
    whole = inputs | {"attention_mask": mask, "position_ids": adapter.positions(inputs)}
    dropped = adapter.model(**compacted.kwargs, use_cache=False).logits[0, real]
    return apart(dropped, adapter.model(**whole, use_cache=False).logits[0, columns[real]])


@torch.no_grad()
@pytest.mark.parametrize("family", GEMMAS)
def test_dropping_equals_masking_while_the_prompt_fits_the_window(
    family: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Windows count columns, not positions: with tokens dropped they reach further back."""
    _, processor = narrow(family, 8)
    inputs = prompts(tiny(family), [("What is it?", [picture(1, (48, 48))])])
    length = inputs["input_ids"].shape[1]
    for window, fits in ((length, True), (12, False)):
        model, processor = narrow(family, window)
        adapter = adapter_for(model, processor)
        assert adapter.window == window
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            error = error_of_dropping(adapter, inputs)
        assert (error <= KERNELS) == fits
        assert ("they count tokens" in caplog.text) != fits


@torch.no_grad()
@pytest.mark.parametrize("family", GEMMAS)
def test_with_a_narrow_window_and_every_token_kept_nothing_changes(family: str) -> None:
    model, processor = narrow(family, 12)
    adapter = adapter_for(model, processor)
    inputs = prompts(tiny(family), [("What is it?", [picture(1, (48, 48))])])
    features = adapter.features(inputs)
    whole = adapter.compact(inputs, features, [torch.arange(len(cells)) for cells in features.cells])
    assert torch.equal(model(**whole.kwargs).logits, model(**inputs).logits)


@pytest.mark.parametrize(("family", "setting"), [("hy_v4_vl", "index_topk"), ("qwen4_exp", "indexer_budget")])
def test_as_many_tokens_as_one_may_pick_are_a_window(family: str, setting: str) -> None:
    if family not in tiny_families.BUILDERS:
        pytest.skip(f"{family} is {ABSENT}")
    built = tiny(family)
    window = adapter_for(built.model, built.processor).window
    assert window == getattr(built.model.config.text_config, setting)


# ---- Gemma 4's dial ----------------------------------------------------------------


def test_gemma4_cuts_an_image_fine_and_encodes_what_is_needed(tmp_path: Path) -> None:
    save_tiny("gemma4", tmp_path)
    processor = AutoProcessor.from_pretrained(tmp_path, max_soft_tokens=560)
    parts = {"budget": 70, "mode": "sparse", "relevance": "gaze", "strict": True}
    model = ARRCOCModel.wrap(tiny("gemma4").model, processor, **parts)
    tower, patches = model.base.model.vision_tower, []

    def note(module: Any, args: Any, kwargs: Any) -> None:
        patches.append(int(kwargs["attention_mask"].sum()))

    handle = tower.encoder.register_forward_pre_hook(note, with_kwargs=True)
    answer = model.ask(picture(1, (480, 480)), "What is it?", max_new_tokens=2)
    handle.remove()
    assert (answer.mode, answer.kept, answer.total, answer.fallback) == ("sparse", 70, 529, False)
    assert patches == [256 * 9, 70 * 9]  # a coarse view, by which it looks, and the cells that it chose


# ---- Granite Docling's fine route ----------------------------------------------------------------


@pytest.mark.skipif(not is_served("granite_docling"), reason=f"granite_docling is {ABSENT}")
@torch.no_grad()
def test_a_fine_route_has_cells_of_half_the_size() -> None:
    built = tiny("granite_docling")
    model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
    page, text, keep = picture(1, (72, 48)), "<image>What is it?", [torch.arange(7)]
    grids = []
    for fine in (False, True):
        inputs = dict(built.processor(images=[page], text=[text], fine_route=fine, return_tensors="pt"))
        assert torch.equal(model(**inputs, budget=1.0).logits, built.model(**inputs).logits)
        features = model.adapter.features(inputs)
        expected, found = (
            features.select(features.tokens_to_keep(keep)),
            model.adapter.encode_cells(inputs, keep),
        )
        for one, other in zip(
            (expected.tokens, *expected.levels), (found.tokens, *found.levels), strict=True
        ):
            assert near(one[0], other[0])
        (allocation,) = model(**inputs, budget=7, mode="sparse").allocations
        grids.append(allocation.grid)
    assert grids == [(1, 6, 9), (1, 12, 18)]


# ---- the Omni thinkers ----------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("family", THINKERS)
def test_positions_are_those_of_the_thinker(family: str) -> None:
    built = tiny(family)
    adapter = adapter_for(built.model, built.processor)
    rows = [
        ("Which one?", [picture(1, (48, 64)), picture(2, (72, 40))]),
        ("And here, in a longer question?", [picture(3, (40, 72))]),
    ]
    inputs = prompts(built, rows)
    model: Any = built.model
    owner = model if hasattr(model, "get_rope_index") else model.model
    expected, _ = owner.get_rope_index(
        inputs["input_ids"],
        image_grid_thw=inputs["image_grid_thw"],
        attention_mask=inputs["attention_mask"],
    )
    attended = inputs["attention_mask"].bool()
    assert torch.equal(adapter.positions(inputs)[:, attended], expected[:, attended].float())


@torch.no_grad()
@pytest.mark.parametrize("family", THINKERS)
def test_an_image_that_was_left_out_has_no_positions(family: str) -> None:
    """As where each image of a prompt is looked at by itself: its neighbours' begin tokens still stand."""
    built = tiny(family)
    adapter = adapter_for(built.model, built.processor)
    inputs = prompts(built, [("Which one?", [picture(1), picture(2)])])
    image = inputs["input_ids"][0] == adapter.image_token_id
    left = ~image
    left[image.nonzero().flatten()[36:]] = True  # without the first image's
    alone = {name: inputs[name][:, left] for name in ("input_ids", "attention_mask")}
    positions = adapter.positions(alone | {"image_grid_thw": inputs["image_grid_thw"][1:]})
    assert positions.shape == (3, 1, int(left.sum()))
    start = int((alone["input_ids"][0] == adapter.image_token_id).nonzero()[0])
    assert positions[:, 0, start].tolist() == [start] * 3
    assert positions[1:, 0, start + 35].tolist() == [start + 5] * 2


def test_a_model_that_also_speaks_names_its_thinker() -> None:
    whole: Any = SimpleNamespace(config=SimpleNamespace(model_type="qwen3_omni_moe"), thinker=None)
    with pytest.raises(ValueError, match=r"wrap `model\.thinker`"):
        adapter_for(whole)


@torch.no_grad()
def test_sound_beside_an_image_stays_whole() -> None:
    """With sound the thinker's own rule is asked for positions."""
    built = tiny("qwen2_5_omni_thinker")
    adapter = adapter_for(built.model, built.processor)
    inputs = prompts(built, [("?", [picture(1)])])
    calls: list[Any] = []
    model = copy.copy(built.model)

    def own(ids: Tensor, **more: Any) -> tuple[Tensor, None]:
        calls.append(more["audio_seqlens"])
        return torch.zeros(3, *ids.shape), None

    model.__dict__["get_rope_index"] = own
    heard = adapter.on(model).positions(inputs | {"feature_attention_mask": torch.ones(1, 7)})
    assert calls[0].tolist() == [7]
    assert not heard.any()


# ---- GLM's clips ----------------------------------------------------------------


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("family", GLM)
def test_clips_whose_placeholders_are_those_of_images(family: str) -> None:
    built = tiny(family)
    model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
    clip = open_clip([picture(seed, (48, 48)) for seed in range(6)], fps=2.0)
    session = model.session(clip)
    inputs = with_whole_pixels(session.inputs("What is shown?"))
    stock = built.model(**inputs).logits
    assert torch.equal(model(**inputs, budget=1.0, mode="prune").logits, stock)
    output = model(**inputs, budget=20, mode="sparse")
    (allocation,) = output.allocations
    assert (allocation.kept, allocation.grid[0]) == (20, 3)

    adapter = model.adapter
    framed, frames = as_frames(adapter, inputs)
    assert frames == (3,)
    assert clip_step_times(adapter, inputs, frames) == ((0.0, 1.0, 2.0),)
    features = adapter.features(framed)
    keep = [some_cells(count, 7, seed=step) for step, count in enumerate(features.counts)]
    compacted = adapter.compact(framed, features, keep, use_cache=False)
    columns = compacted.columns[0]
    mask = torch.zeros_like(inputs["input_ids"])
    mask[0, columns] = 1
    masked = inputs | {"attention_mask": mask, "position_ids": framed["position_ids"]}
    dropped = built.model(**compacted.kwargs, use_cache=False).logits
    assert near(dropped, built.model(**masked, use_cache=False).logits[:, columns])
    question = adapter.question_mask(inputs["input_ids"], inputs["attention_mask"])[0]
    words = built.processor.tokenizer.decode(inputs["input_ids"][0][question])
    assert words == "Whatisshown?"  # and no time of a step

    for mode in ("prune", "sparse", "saccade"):
        answer = session.ask("What is shown at 2 seconds?", mode=mode, budget=20, max_new_tokens=2)
        assert (answer.mode, answer.fallback) == (mode, False)


def test_a_clip_without_kinds_of_tokens_is_refused() -> None:
    built = tiny("glm4v")
    model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
    clip = open_clip([picture(seed, (48, 48)) for seed in range(4)], fps=2.0)
    inputs = dict(with_whole_pixels(model.session(clip).inputs("What?")))
    del inputs["mm_token_type_ids"]
    with pytest.raises(ValueError, match="mm_token_type_ids are missing"):
        model.generate(**inputs, budget=9, max_new_tokens=1)


# ---- the table of families ----------------------------------------------------------------


def test_every_family_says_what_it_offers() -> None:
    table = {one.title: one for one in known_families()}
    assert len({kind for one in known_families() for kind in one.model_types}) >= 20
    assert all(title and title[0].isupper() for title in table)
    assert table["Gemma 4"].summary.startswith("every mode")
    assert table["InternVL"].summary.startswith("sparse by whole tiles, saccade runs as it; ")
    assert table["LLaVA 1.5"].summary.startswith("saccade by finer crops, sparse runs as prune; ")
    assert table["LLaVA-NeXT"].summary.startswith("sparse and saccade run as prune; ")
    assert table["Qwen3-VL"].summary == "every mode, clips"


@each("family", tiny_families.MADE)
def test_the_installed_release_serves_it(family: str) -> None:
    """Where it doesn't, this says so: the other tests leave the family out."""
    (row,) = (one for one in known_families() if family in one.model_types)
    if not is_served(family):
        assert family in row.lacking
        assert f"{family}: {ABSENT}" in row.summary
        pytest.skip(f"{family} is {ABSENT}")
    assert family not in row.lacking
    assert isinstance(tiny(family).model, model_class(family))


def test_no_other_file_names_a_model_type() -> None:
    """What is particular to a family stands in its row or its adapter."""
    elsewhere = [
        f"{house.place(path)}:{node.lineno}: {node.value}"
        for path in house.modules()
        if path.parent.name != "families"
        for node in ast.walk(house.tree(path))
        if isinstance(node, ast.Constant) and node.value in registry.FAMILIES
    ]
    assert not elsewhere


def test_a_family_that_the_release_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutSeam:
        def forward(self, input_ids: Tensor) -> None: ...

    monkeypatch.setattr(registry, "model_class", lambda kind: None if kind == "smolvlm" else WithoutSeam)
    (row,) = (one for one in known_families() if "smolvlm" in one.model_types)
    assert row.lacking == ("idefics3", "smolvlm")
    with pytest.raises(ValueError, match=r"'smolvlm' is not in this release .*; install a newer one"):
        registry.check_model_type("smolvlm")
    assert row.summary.endswith(f"; idefics3, smolvlm: {ABSENT}")


def test_wrapping_what_the_release_lacks_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    built = tiny("llava")

    def forward(input_ids: Tensor) -> None: ...

    model = copy.copy(built.model)
    model.__dict__["forward"] = forward
    with pytest.raises(ImportError) as refusal:
        ARRCOCModel.wrap(model, built.processor)
    assert str(refusal.value).startswith(f"'llava' takes no encoded images in transformers {VERSION} (")
    assert "\n" not in str(refusal.value)


def test_images_that_are_taken_in_whole_blocks_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SmolVLM's are in transformers 5.20."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, size in (("in_blocks", "self.config.vision_config.patch_size"), ("any_number", "1")):
        method = f"    def inputs_merger(self, features):\n        return features.view(-1, {size}, 32)\n"
        (tmp_path / f"{name}.py").write_text(f"class Model:\n{method}\n\nclass Whole:\n    model = Model\n")
    assert not registry.takes_any_number(importlib.import_module("in_blocks").Whole)
    assert registry.takes_any_number(importlib.import_module("any_number").Whole)


def test_the_page_of_models_has_the_same_table() -> None:
    """As it stands for the newest release, whatever is installed."""
    early = {"cells": "yes", "tiles": "by whole tiles"}
    early |= {"crops": "`saccade` by finer crops", "images": "run as `prune`"}
    rows = []
    for one in known_families():
        kinds = ", ".join(f"`{kind}`" for kind in one.model_types)
        rows.append(
            f"| {one.title} | {kinds} | {early[one.encodes]} | {'yes' if one.clips else '-'} | {one.remark} |"
        )
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    table = text.partition("<!-- offers -->")[2].partition("<!-- /offers -->")[0].strip().splitlines()
    assert table[2:] == rows
