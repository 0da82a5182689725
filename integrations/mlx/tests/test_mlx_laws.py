"""The laws of dropping tokens, on tiny random models of every family that is served."""

from __future__ import annotations

import sys

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_vlm.generate.ar import generate_step

from arr_coc_mlx import FAMILIES as SERVED
from tiny_mlx import (
    FAMILIES,
    IMAGE,
    SOUND,
    dropped,
    embedded,
    hidden_logits,
    inputs_of,
    kept_logits,
    near,
    reader_of,
    tiny,
    wrapped,
)

QUESTION = "What is the title of the page?"
CELLS = (6, 8)


def greedy(model, inputs: dict, count: int = 6, **how) -> list[int]:
    steps = generate_step(
        inputs["input_ids"],
        model,
        inputs["pixel_values"],
        inputs["attention_mask"],
        max_tokens=count,
        temperature=0.0,
        image_grid_thw=inputs["image_grid_thw"],
        **how,
    )
    return [int(token) for token, _ in steps]


def teacher_forced(built, inputs: dict, gone: np.ndarray, hide: bool = True, count: int = 6) -> list[int]:
    """Greedy text of whole passes without a cache: dropped columns are hidden, or were never there."""
    features, ids, found = embedded(built.model, inputs), inputs["input_ids"], []
    if not hide:
        stays, gone = mx.array(np.flatnonzero(~gone)), np.zeros(int((~gone).sum()), dtype=bool)
        ids, features.inputs_embeds = ids[:, stays], features.inputs_embeds[:, stays]
        features.position_ids = features.position_ids[..., stays]
    for _ in range(count):
        found.append(int(hidden_logits(built.model, ids, features, gone)[0, -1].argmax()))
        token, position = mx.array([[found[-1]]]), features.position_ids.max() + 1
        ids, gone = mx.concatenate([ids, token], axis=1), np.append(gone, False)
        embeds = built.model.language_model.model.embed_tokens(token)
        features.inputs_embeds = mx.concatenate([features.inputs_embeds, embeds], axis=1)
        place = mx.full((3, 1, 1), position, dtype=features.position_ids.dtype)
        features.position_ids = mx.concatenate([features.position_ids, place], axis=2)
        if features.visual_pos_masks is not None:
            seen = mx.zeros((1, 1), dtype=mx.bool_)
            features.visual_pos_masks = mx.concatenate([features.visual_pos_masks, seen], axis=1)
        if SERVED[built.family].dense:
            features.deepstack_visual_embeds = mx.pad(
                features.deepstack_visual_embeds, [(0, 0), (0, 1), (0, 0), (0, 0)]
            )
    return found


def test_every_family_of_the_table_is_tried():
    assert set(FAMILIES) == set(SERVED)


@pytest.mark.parametrize("mode", ["full", "prune", "sparse"])
@pytest.mark.parametrize("family", FAMILIES)
def test_with_all_cells_kept_it_is_the_stock_model_to_the_last_bit(family, mode):
    built = tiny(family)
    inputs = inputs_of(built, QUESTION, CELLS)
    model = wrapped(built, budget=10_000, mode=mode)
    stock, own = embedded(built.model, inputs), embedded(model, inputs)
    for name in ("inputs_embeds", "position_ids", "rope_deltas"):
        assert bool((getattr(stock, name) == getattr(own, name)).all()), name
    fields = {k: v for k, v in stock.to_dict().items() if v is not None}
    logits = built.model.language_model(inputs["input_ids"], **fields).logits
    assert bool((logits == kept_logits(model, inputs)).all())
    assert greedy(model, inputs) == greedy(built.model, inputs)


@pytest.mark.parametrize("family", FAMILIES)
def test_dropping_a_token_is_hiding_it(family):
    built = tiny(family)
    inputs, model = inputs_of(built, QUESTION, CELLS), wrapped(built)
    hidden = dropped(model, inputs)
    assert hidden.sum() == 6 * 8 - 10
    whole = embedded(built.model, inputs)
    masked = hidden_logits(built.model, inputs["input_ids"], whole, hidden)
    few = kept_logits(model, inputs)
    assert near(few, masked[:, mx.array(np.flatnonzero(~hidden))])
    unmasked = hidden_logits(built.model, inputs["input_ids"], whole)
    assert not near(few[:, -1], unmasked[:, -1], 1e-3)  # the dropped tokens would have mattered


@pytest.mark.parametrize("family", FAMILIES)
def test_decoding_goes_on_behind_the_whole_prompt(family):
    built = tiny(family)
    inputs, model = inputs_of(built, QUESTION, CELLS), wrapped(built)
    text = teacher_forced(built, inputs, dropped(model, inputs))
    assert len(set(text)) > 1
    for step in (2048, 5, None):
        assert greedy(model, inputs, prefill_step_size=step) == text, step


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_recurrent_layers_read_what_stays_as_if_there_were_no_more(family):
    built = tiny(family, muted=False)
    inputs, model = inputs_of(built, QUESTION, CELLS), wrapped(built)
    text = teacher_forced(built, inputs, dropped(model, inputs), hide=False)
    assert greedy(model, inputs) == greedy(model, inputs, prefill_step_size=5) == text


@pytest.mark.parametrize("family", FAMILIES)
def test_kept_cells_alone_are_those_of_a_tower_in_which_nobody_attends_to_the_others(family, monkeypatch):
    built = tiny(family)
    inputs, model = inputs_of(built, QUESTION, CELLS, (5, 3)), wrapped(built, mode="sparse")
    alone = embedded(model, inputs)
    row, tower = np.array(inputs["input_ids"][0]), reader_of(built.model).vision_tower
    choices, _ = model.choices([row], inputs["pixel_values"], inputs["image_grid_thw"])
    cells = np.concatenate([np.isin(np.arange(c.allocation.total), c.keep) for c in choices])
    if hasattr(tower, "get_window_index"):  # its patches stand in the order of their windows
        cells = cells[np.array(tower.get_window_index(inputs["image_grid_thw"])[0])]
    seen, place, stock = np.repeat(cells, 4), 0, mx.fast.scaled_dot_product_attention
    module = sys.modules[type(tower.blocks[0].attn).__module__]

    def blind(q, k, v, scale, mask=None):
        nonlocal place
        start = place
        if family == "cohere_compass":  # goes through its blocks with one picture after the other
            start = 0 if k.shape[-2] == 6 * 8 * 4 else 6 * 8 * 4
        own = seen[start : start + k.shape[-2]]
        place = (place + len(own)) % len(seen)
        # A dropped patch attends to all, so that no row is without any.
        shown = mx.array(own[None] | ~own[:, None])[None, None]
        shown = shown if mask is None else mx.where(shown, mask, mask.min())  # GLM-4V with experts has one
        return stock(q, k, v, scale=scale, mask=shown)

    if hasattr(module, "ensure_fused_sdpa"):  # compiled: what is called in it is called once
        monkeypatch.setattr(module, "ensure_fused_sdpa", blind)
    else:
        monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", blind)
    whole = embedded(built.model, inputs)
    mx.eval([value for value in whole.to_dict().values() if value is not None])
    monkeypatch.undo()
    assert place == 0
    columns = mx.array(np.flatnonzero(~dropped(model, inputs)))
    assert near(alone.inputs_embeds, whole.inputs_embeds[:, columns])
    assert not near(alone.inputs_embeds, embedded(built.model, inputs).inputs_embeds[:, columns], 1e-3)
    if whole.deepstack_visual_embeds is not None:
        kept = mx.array(
            np.flatnonzero(np.concatenate([np.isin(np.arange(c.allocation.total), c.keep) for c in choices]))
        )
        levels = whole.deepstack_visual_embeds
        if SERVED[family].dense:
            levels = levels[0, mx.array(np.flatnonzero(row == IMAGE))][kept]
        else:
            levels = mx.stack([level[kept] for level in getattr(levels, "embeddings", levels)], axis=1)
        own = alone.deepstack_visual_embeds[0][mx.array(np.flatnonzero(row[np.array(columns)] == IMAGE))]
        assert near(own, levels)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_of_several_images_has_a_budget_of_its_own(family):
    built = tiny(family)
    inputs, model = inputs_of(built, QUESTION, CELLS, (4, 4), (3, 2)), wrapped(built)
    row = np.array(inputs["input_ids"][0])
    choices, _ = model.choices([row], inputs["pixel_values"], inputs["image_grid_thw"])
    assert [len(choice.keep) for choice in choices] == [10, 10, 6]
    assert greedy(model, inputs) == teacher_forced(built, inputs, dropped(model, inputs))


@pytest.mark.parametrize("mode", ["prune", "sparse"])
def test_sound_is_never_dropped(mode):
    built = tiny("qwen3_omni_moe")
    inputs, model = inputs_of(built, QUESTION, CELLS), wrapped(built, mode=mode)
    ids = mx.concatenate([mx.array([[SOUND] * 4]), inputs["input_ids"]], axis=1)
    inputs |= {"input_ids": ids, "attention_mask": mx.ones_like(ids)}
    more = {"image_grid_thw": inputs["image_grid_thw"], "input_features": mx.random.normal((1, 16, 32))}
    stock, own = (
        one.get_input_embeddings(ids, inputs["pixel_values"], mask=inputs["attention_mask"], **more)
        for one in (built.model, model)
    )
    stays = np.flatnonzero(~dropped(model, inputs))
    assert list(stays[:4]) == [0, 1, 2, 3]
    assert bool((own.position_ids == stock.position_ids[..., mx.array(stays)]).all())
    heard = own.inputs_embeds[:, :4]
    assert bool((heard == stock.inputs_embeds[:, :4]).all())
    assert not near(heard, built.model.language_model.model.embed_tokens(ids[:, :4]), 1e-3)
    two = mx.concatenate([ids, ids])
    with pytest.raises(ValueError, match="several prompts at once, one with sound"):
        model.get_input_embeddings(two, inputs["pixel_values"], **more)


@pytest.mark.parametrize("mode", ["prune", "sparse"])
def test_text_is_never_dropped(mode):
    built = tiny("qwen3_vl")
    inputs, model = inputs_of(built, QUESTION, CELLS, (4, 4)), wrapped(built, budget=1, mode=mode)
    gone, row = dropped(model, inputs), np.array(inputs["input_ids"][0])
    assert not gone[row != IMAGE].any()
    stock, own = embedded(built.model, inputs), embedded(model, inputs)
    text = mx.array(np.flatnonzero(row[~gone] != IMAGE))
    of_text = mx.array(np.flatnonzero(row != IMAGE))
    assert bool((own.inputs_embeds[:, text] == stock.inputs_embeds[:, of_text]).all())
    assert bool((own.position_ids[..., text] == stock.position_ids[..., of_text]).all())


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", "qwen3_5", "cohere_compass", "qwen3_omni_moe"])
def test_a_model_of_four_bits_holds_the_laws(family):
    built = tiny(family, seed=1)  # one of its own, for it is changed here
    if not hasattr(built, "quantised"):
        nn.quantize(built.model, group_size=32, bits=4)
        built.quantised = True
    inputs = inputs_of(built, QUESTION, CELLS)
    full, model = wrapped(built, budget=10_000, mode="sparse"), wrapped(built)
    stock = embedded(built.model, inputs)
    assert bool((embedded(full, inputs).inputs_embeds == stock.inputs_embeds).all())
    hidden = dropped(model, inputs)
    masked = hidden_logits(built.model, inputs["input_ids"], stock, hidden)
    assert near(kept_logits(model, inputs), masked[:, mx.array(np.flatnonzero(~hidden))])
    assert greedy(model, inputs) == teacher_forced(built, inputs, dropped(model, inputs))
    assert len(greedy(wrapped(built, mode="sparse"), inputs)) == 6
