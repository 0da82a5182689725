"""Pruning between layers: all kept is the stock model, dropping is masking, a batch is its rows."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from arr_coc import ARRCOCModel
from arr_coc.seam import VisualFeatures
from arr_coc.session import GREEDY
from arr_coc_lab.evaluate.layer_pruning import (
    layer_families,
    pruned_answers,
    pruned_continuation,
    pruned_prefill,
)
from arr_coc_lab.rivals import fastv
from arr_coc_lab.world import draw_page
from near import near
from tiny import FAMILIES, QWEN_FAMILIES, picture, prompts, tiny

LAYER_FAMILIES = layer_families()
QUESTIONS = ("What?", "Where is the word?", "How many?")


def ready(family: str, questions: Sequence[str] = QUESTIONS) -> tuple[ARRCOCModel, dict, VisualFeatures]:
    """A wrapped tiny model, prompts with one image each (the first row the shortest), and their features."""
    built = tiny(family)
    model = ARRCOCModel.wrap(built.model, built.processor)
    inputs = prompts(built, [(question, [picture(len(question))]) for question in questions])
    with torch.no_grad():
        return model, inputs, model.adapter.features(inputs)


def masked_logits(
    model: ARRCOCModel, inputs: dict[str, Any], keep: Tensor, layer: int, new: list[int]
) -> Tensor:
    """Logits after the prompt and each new id: the stock model, late layers seeing nothing of the dropped."""
    ids = torch.cat([inputs["input_ids"], torch.tensor([new], dtype=torch.long)], dim=1)
    width, length = ids.shape[1], inputs["input_ids"].shape[1]
    longer = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if "mm_token_type_ids" in inputs:
        kinds = inputs["mm_token_type_ids"]
        longer["mm_token_type_ids"] = torch.cat([kinds, kinds.new_zeros(1, len(new))], dim=1)
    visual = (ids[0] == model.adapter.image_token_id).nonzero().flatten()
    seen = torch.ones(width, dtype=torch.bool)
    seen[visual] = False
    seen[visual[keep]] = True
    mask = seen & torch.ones(width, width, dtype=torch.bool).tril()
    # A dropped column may see itself, so that its own row, which nobody reads, is no softmax of nothing.
    mask = (mask | torch.eye(width, dtype=torch.bool))[None, None]
    hooks = [
        block.register_forward_pre_hook(
            lambda _, args, kwargs: (args, kwargs | {"attention_mask": mask}), with_kwargs=True
        )
        for block in model.base.get_decoder().layers[layer:]
    ]
    try:
        with torch.no_grad():
            return model.base(**inputs | longer, use_cache=False).logits[0, length - 1 :]
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("family", LAYER_FAMILIES)
def test_with_all_kept_the_answer_is_the_stock_model_s(family: str) -> None:
    model, inputs, features = ready(family)
    total = len(features.cells[0])
    run = pruned_answers(model, inputs, features, fastv, total, layer=1, max_new_tokens=6)
    stock = model.base.generate(**inputs, **GREEDY, max_new_tokens=6)[:, inputs["input_ids"].shape[1] :]
    assert run.ids == stock.tolist()
    assert all(torch.equal(keep, torch.arange(total)) for keep in run.keep)
    assert run.mean_tokens == total


@pytest.mark.parametrize("family", LAYER_FAMILIES)
def test_dropping_is_masking_in_the_late_layers(family: str) -> None:
    model, inputs, features = ready(family, ["What word is in the title?"])
    start = pruned_prefill(model, inputs, features, fastv, 7, layer=1)
    run = pruned_answers(model, inputs, features, fastv, 7, layer=1, max_new_tokens=5)
    reference = masked_logits(model, inputs, run.keep[0], 1, run.ids[0][:-1])
    assert near(start.logits[0], reference[0])
    assert run.ids[0] == reference.argmax(-1).tolist()
    everything = torch.arange(len(features.cells[0]))
    stock = masked_logits(model, inputs, everything, 1, [])[0]
    assert (stock - reference[0]).abs().max() > 1e-2  # what was dropped would have mattered


def test_deepstack_goes_on_after_the_cut() -> None:
    """In a third layer what deepstack adds after the second, which is past the cut, reaches the text."""
    built = tiny("qwen3_vl")
    config = copy.deepcopy(built.model.config)
    config.text_config.num_hidden_layers = 3
    with torch.random.fork_rng():
        torch.manual_seed(3)
        base = type(built.model)(config).eval()
    base.generation_config = built.model.generation_config
    model = ARRCOCModel.wrap(base, built.processor)
    inputs = prompts(built, [("What?", [picture(1)])])
    with torch.no_grad():
        features = model.adapter.features(inputs)
    for layer in (1, 2):
        start = pruned_prefill(model, inputs, features, fastv, 7, layer=layer)
        reference = masked_logits(model, inputs, start.keep[0], layer, [])
        assert near(start.logits[0], reference[0])


@torch.no_grad()
@pytest.mark.parametrize("family", LAYER_FAMILIES)
def test_it_keeps_what_the_last_token_attends_to(family: str) -> None:
    """By the eager model's own attention weights, in a padded batch."""
    model, inputs, features = ready(family)
    eager = copy.deepcopy(model.base)
    eager.set_attn_implementation("eager")
    weights = eager(**inputs, output_attentions=True).attentions[0]
    run = pruned_answers(model, inputs, features, fastv, 5, layer=1, max_new_tokens=1)
    for row, keep in enumerate(run.keep):
        visual = (inputs["input_ids"][row] == model.adapter.image_token_id).nonzero().flatten()
        scores = weights[row, :, -1, visual].mean(0)
        assert torch.equal(keep, scores.topk(5).indices.sort().values)
    assert not torch.equal(run.keep[0], run.keep[1])


@pytest.mark.parametrize("family", LAYER_FAMILIES)
def test_a_batch_is_its_rows(family: str) -> None:
    model, inputs, features = ready(family)
    together = pruned_answers(model, inputs, features, fastv, 6, layer=1, max_new_tokens=6)
    for row, question in enumerate(QUESTIONS):
        _, alone_inputs, alone_features = ready(family, [question])
        alone = pruned_answers(model, alone_inputs, alone_features, fastv, 6, layer=1, max_new_tokens=6)
        assert together.ids[row] == alone.ids[0]
        assert torch.equal(together.keep[row], alone.keep[0])
        assert len(alone.ids[0]) == 6


@pytest.mark.parametrize("family", LAYER_FAMILIES)
def test_more_text_at_once_is_token_by_token(family: str) -> None:
    model, inputs, features = ready(family)
    more = torch.tensor([[40, 41, 42], [43, 44, 45], [46, 47, 48]])
    at_once, one_by_one = (pruned_prefill(model, inputs, features, fastv, 5, layer=1) for _ in range(2))
    position = at_once.position
    at_once = pruned_continuation(model, at_once, more, layer=1)
    for i in range(3):
        one_by_one = pruned_continuation(model, one_by_one, more[:, i : i + 1], layer=1)
    assert near(at_once.logits, one_by_one.logits)
    assert torch.equal(at_once.position, position + 3)
    assert [mask.shape[1] for mask in at_once.masks] == [
        layer.keys.shape[2] for layer in at_once.cache.layers
    ]


def test_images_of_different_sizes_in_one_batch() -> None:
    built = tiny("qwen3_vl")
    model = ARRCOCModel.wrap(built.model, built.processor)
    rows = [("What?", [picture(1, (48, 48))]), ("What is it?", [picture(2, (64, 32))])]
    inputs = prompts(built, rows)
    with torch.no_grad():
        features = model.adapter.features(inputs)
    run = pruned_answers(model, inputs, features, fastv, 6, layer=1)
    for row, asked in enumerate(rows):
        single = prompts(built, [asked])
        with torch.no_grad():
            own = model.adapter.features(single)
        alone = pruned_answers(model, single, own, fastv, 6, layer=1)
        assert run.ids[row] == alone.ids[0]
        assert torch.equal(run.keep[row], alone.keep[0])
    assert run.mean_tokens == pytest.approx((36 + 6 + 32 + 6) / 4)


@pytest.mark.parametrize("family", LAYER_FAMILIES)
def test_late_layers_hold_fewer_columns(family: str) -> None:
    model, inputs, features = ready(family)
    start = pruned_prefill(model, inputs, features, fastv, 4, layer=1)
    width, dropped = inputs["input_ids"].shape[1], len(features.cells[0]) - 4
    assert [layer.get_seq_length() for layer in start.cache.layers] == [width, width - dropped]
    text = (inputs["attention_mask"].sum(1) - len(features.cells[0])).tolist()
    assert start.masks[1].sum(1).tolist() == [count + 4 for count in text]  # text is never dropped


def test_an_answer_ends_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs, features = ready("qwen3_vl")
    whole = pruned_answers(model, inputs, features, fastv, 6, layer=1, max_new_tokens=6).ids
    end = whole[1][2]
    for value in (end, [end, 10**6]):
        monkeypatch.setattr(model.base.generation_config, "eos_token_id", value)
        cut = pruned_answers(model, inputs, features, fastv, 6, layer=1, max_new_tokens=6).ids
        assert cut == [ids[: ids.index(end)] if end in ids else ids for ids in whole]
    assert len(cut[1]) <= 2


def test_the_eager_model_answers_alike() -> None:
    model, inputs, features = ready("llava")
    eager = copy.deepcopy(model.base)
    eager.set_attn_implementation("eager")
    run = pruned_answers(ARRCOCModel.wrap(eager), inputs, features, fastv, 6, layer=1, max_new_tokens=4)
    assert run.ids == pruned_answers(model, inputs, features, fastv, 6, layer=1, max_new_tokens=4).ids
    assert eager.get_decoder().config._attn_implementation == "eager"


class TestBadInput:
    @pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(LAYER_FAMILIES)))
    def test_other_families_are_named(self, family: str) -> None:
        model, inputs, features = ready(family, ["What?"])
        with pytest.raises(ValueError, match=f"'{family}' can't be called one by one; use one of qwen3_vl, "):
            pruned_answers(model, inputs, features, fastv, 4, layer=1)

    @pytest.mark.parametrize("layer", [0, 2, -1])
    def test_a_cut_outside_the_layers(self, layer: int) -> None:
        model, inputs, features = ready("llava", ["What?"])
        with pytest.raises(ValueError, match=f"layer {layer} is no cut inside 2 layers; use 1 to 1"):
            pruned_prefill(model, inputs, features, fastv, 4, layer=layer)

    @pytest.mark.parametrize("count", [0, 37])
    def test_a_count_out_of_range(self, count: int) -> None:
        model, inputs, features = ready("llava", ["What?"])
        with pytest.raises(ValueError, match=f"cannot keep {count} of 36 tokens"):
            pruned_prefill(model, inputs, features, fastv, count, layer=1)

    def test_no_new_tokens(self) -> None:
        model, inputs, features = ready("llava", ["What?"])
        with pytest.raises(ValueError, match="max_new_tokens 0 is below 1"):
            pruned_answers(model, inputs, features, fastv, 4, layer=1, max_new_tokens=0)

    def test_right_padding(self) -> None:
        model, inputs, features = ready("llava")
        flipped = inputs | {"attention_mask": inputs["attention_mask"].flip(1)}
        with pytest.raises(ValueError, match="not left-padded"):
            pruned_prefill(model, flipped, features, fastv, 4, layer=1)

    @pytest.mark.parametrize("family", sorted(set(QWEN_FAMILIES) & set(LAYER_FAMILIES)))
    def test_two_images_in_a_row(self, family: str) -> None:
        built = tiny(family)
        model = ARRCOCModel.wrap(built.model, built.processor)
        inputs = prompts(built, [("What?", [picture(1), picture(2)])])
        with torch.no_grad():
            features = model.adapter.features(inputs)
        with pytest.raises(ValueError, match="2 images in 1 rows; pass rows with exactly one image"):
            pruned_prefill(model, inputs, features, fastv, 4, layer=1)


@pytest.mark.slow
def test_the_bundled_model_runs() -> None:
    """At the paper's cut, after two of its five layers: questions about one page as a batch, and masking."""
    model = ARRCOCModel.from_pretrained()
    page = draw_page(0, (256, 256), "test")
    session = model.session(page.image)
    questions = [question.text for question in page.questions[:3]]
    singles = [session.inputs(question) for question in questions]
    with torch.no_grad():
        features = model.adapter.features(singles[0])
    run = pruned_answers(model, session.batch(questions), features.repeat(len(questions)), fastv, 16)
    assert [len(keep) for keep in run.keep] == [16] * len(questions)
    assert run.mean_tokens == pytest.approx((64 * 2 + 16 * 3) / 5)
    for inputs, keep, ids in zip(singles, run.keep, run.ids, strict=True):
        reference = masked_logits(model, inputs, keep, 2, ids)
        assert ids == reference.argmax(-1).tolist()[: len(ids)]
        logits = pruned_prefill(model, inputs, features, fastv, 16).logits
        assert near(logits[0], reference[0])
