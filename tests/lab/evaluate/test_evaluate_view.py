"""What methods see of an image: the model's own encoding, attention and states, cell by cell."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from arr_coc.families import FAMILIES as TABLE
from arr_coc.model import ARRCOCModel
from arr_coc.seam.attention import attention_modules, watch_attention
from arr_coc.session import Session
from arr_coc_lab.evaluate.questions import ImageQueries, Query
from arr_coc_lab.evaluate.view import View, watch_tower
from near import near
from tiny import FAMILIES, picture, tiny

QUESTIONS = ("What is it?", "Where is the word?")
TOWERS = [family for family in FAMILIES if TABLE[family].trait("by_cells")]


def view_of(family: str, size: tuple[int, int] = (48, 32), boxes: tuple = (), base: Any = None) -> View:
    built = tiny(family)
    model = ARRCOCModel.wrap(base or built.model, built.processor, strict=True)
    asked = ImageQueries(
        picture(3, size),
        "test:3",
        tuple(Query(f"3.{i}", q, ("x",), boxes=boxes) for i, q in enumerate(QUESTIONS)),
    )
    session = Session(model, asked.image)
    prompts = [session.inputs(query.text) for query in asked.queries]
    features, tower = watch_tower(model, prompts[0])
    return View(model, asked, prompts, features, tower, size)


@torch.no_grad()
def eager_attention(view: View, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Per layer of the vision tower its attention [H, S, S], noted in an eager copy of the model."""
    base = copy.deepcopy(view.model.base)
    base.set_attn_implementation("eager")
    modules = attention_modules(base, "vision")
    file = sys.modules[type(modules[0]).__module__]
    own, seen = file.eager_attention_forward, []

    def noted(module: Any, *args: Any, **kwargs: Any) -> Any:
        output = own(module, *args, **kwargs)
        if module in modules:
            seen.append(output[1][0])
        return output

    monkeypatch.setattr(file, "eager_attention_forward", noted)
    base(**view.prompts[0])
    return seen


@torch.no_grad()
@pytest.mark.parametrize("layer", [-2, -1])
@pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_vl"])
def test_attention_received_is_the_mean_over_heads_queries_and_patches(
    family: str, layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of(family)
    weights = eager_attention(view, monkeypatch)[layer].mean((0, 1))  # (4 N,)
    expected = torch.stack([weights[4 * cell : 4 * cell + 4].mean() for cell in range(view.total)])
    assert near(view.received(layer), expected)
    assert expected.std() > 1e-4  # else anything would pass


@torch.no_grad()
@pytest.mark.parametrize(
    ("full", "read"), [((2,), {-2: 2, -1: 2}), ((1, 2), {-2: 1, -1: 2}), ((0,), {-2: 0, -1: 0})]
)
def test_a_tower_in_windows_is_read_where_it_sees_the_whole_image(
    full: tuple[int, ...], read: dict[int, int]
) -> None:
    """Else at the next layer that does, as by the published ports; and back in raster order."""
    base = copy.deepcopy(tiny("qwen2_5_vl").model)
    base.model.visual.fullatt_block_indexes = full
    view = view_of("qwen2_5_vl", (96, 64), base=base)
    order = view.model.adapter.tower_order(view.prompts[0])
    assert order is not None
    assert order.tolist() != list(range(view.total))  # else nothing is turned back
    queries: dict[int, Tensor] = {}
    keys: dict[int, Tensor] = {}

    def note(layer: int, query: Tensor, key: Tensor, scaling: float, mask: Tensor | None) -> None:
        queries[layer], keys[layer] = query[0], key[0]

    with watch_attention(view.model.base, "vision", note) as watched:
        view.model.adapter.on(watched).features(view.prompts[0])
    for asked, layer in read.items():
        q, k = queries[layer], keys[layer]  # (H, 4 N, d), windows one after the other
        weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1).mean((0, 1)).view(-1, 4).mean(1)
        metric = k.mean(0).view(view.total, 4, -1).mean(1)
        for place, cell in enumerate(order.tolist()):
            assert near(view.received(asked)[cell], weights[place])
            assert near(view.keys(asked)[cell], metric[place])
    assert view.patches == 4


@torch.no_grad()
@pytest.mark.parametrize("layer", [-2, -1])
def test_with_a_class_token_its_row_counts(layer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_of("llava", (24, 24))
    weights = eager_attention(view, monkeypatch)[layer]
    assert weights.shape[1] == view.total + 1
    assert near(view.received(layer), weights[:, 0, 1:].mean(0))


@torch.no_grad()
@pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
def test_joined_heads_are_one_softmax(family: str) -> None:
    view = view_of(family, (24, 24))
    assert view.tower is not None
    query, key, _ = view.tower.attention[-1]
    q, k = (x.permute(1, 0, 2).reshape(x.shape[1], -1) for x in (query, key))
    weights = (q @ k.T / q.shape[1] ** 0.5).softmax(-1)
    row = weights[0, 1:] if family == "llava" else weights.mean(0)
    assert near(view.received(-1, joined=True), row.view(view.total, -1).mean(1))
    keys = k[1:] if family == "llava" else k
    assert near(view.keys(-1, joined=True), keys.view(view.total, -1, k.shape[1]).mean(1))
    assert view.keys(-1).shape == (view.total, key.shape[-1])


@torch.no_grad()
@pytest.mark.parametrize("family", TOWERS)
def test_states_become_the_tokens(family: str) -> None:
    """So they are in the order of the cells, and so is all else that comes in the tower's order."""
    view = view_of(family)
    core = view.model.base.model
    if family == "llava":
        tokens = core.multi_modal_projector(view.states)
    else:
        tokens = core.visual.merger(view.states.reshape(4 * view.total, -1))
    assert near(tokens, view.tokens)


@torch.no_grad()
@pytest.mark.parametrize("family", TOWERS)
def test_watching_changes_nothing_of_the_encoding(family: str) -> None:
    view = view_of(family)
    stock = view.model.adapter.features(view.prompts[0])
    assert torch.equal(stock.tokens[0], view.features.tokens[0])
    assert all(torch.equal(a[0], b[0]) for a, b in zip(stock.levels, view.features.levels, strict=True))


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in TOWERS])
def test_a_tower_on_tiles_is_refused_by_name(family: str) -> None:
    with pytest.raises(ValueError, match=family):
        view_of(family)


def test_an_unwatched_tower_is_missed() -> None:
    view = replace(view_of("qwen3_vl"), tower=None)
    for read in (lambda: view.received(-1), lambda: view.keys(-2), lambda: view.states):
        with pytest.raises(ValueError, match="not watched"):
            read()
    with pytest.raises(ValueError, match="scorer"):
        view.blind_scores()


@torch.no_grad()
def test_a_question_is_its_own_words() -> None:
    view = view_of("qwen3_vl")
    embed = view.model.base.get_input_embeddings()
    for i, text in enumerate(QUESTIONS):
        ids = view.model.processor.tokenizer(text, return_tensors="pt")["input_ids"][0]
        words = [n for n in ids.tolist() if view.model.processor.tokenizer.decode(n).strip()]  # no blanks
        assert torch.equal(view.question(i), embed(torch.tensor(words)))


@torch.no_grad()
def test_what_was_computed_is_kept_and_a_fresh_view_knows_nothing() -> None:
    view = view_of("qwen3_vl")
    layer = view.model.layer
    assert view.received(-1) is view.received(-1)
    assert view.encoded("sparse") is view.encoded("sparse")
    assert view.encoded("sparse") is not view.encoded("saccade")
    view.chosen(layer, 0, 3)
    assert view.encoded("sparse").looked[0].view  # what the guide made of the picture for mode "prune"
    fresh = replace(view)
    assert fresh.received(-1) is not view.received(-1)
    assert torch.equal(fresh.received(-1), view.received(-1))


def test_random_numbers_depend_on_seed_image_question_and_method_alone() -> None:
    view = view_of("qwen3_vl")

    def drawn(view: View, method: str = "random", i: int = 0) -> list[float]:
        return torch.rand(4, generator=view.generator(method, i)).tolist()

    others = [
        drawn(replace(view, seed=1)),
        drawn(replace(view, source=replace(view.source, key="test:4"))),
        drawn(view, i=1),
        drawn(view, method="other"),
    ]
    assert drawn(view) == drawn(replace(view))
    assert len({tuple(numbers) for numbers in [drawn(view), *others]}) == 5


def test_evidence_is_where_the_box_is() -> None:
    view = view_of("qwen3_vl", (48, 32), ((16.0, 8.0, 24.0, 16.0),))  # cells of 8 px: column 2, row 1
    evidence = view.evidence(0)
    assert evidence is not None
    assert view.grid == (1, 4, 6)
    assert evidence.nonzero().tolist() == [[1, 2]]
    assert view_of("qwen3_vl").evidence(0) is None


def test_evidence_is_unknown_where_the_tower_crops() -> None:
    box = ((0.0, 0.0, 24.0, 24.0),)
    assert view_of("llava", (48, 32), box).evidence(0) is None
    square = view_of("llava", (48, 48), box).evidence(0)
    assert square is not None
    assert square.sum() == 9  # a quarter of 6 x 6
