"""Gaze: where an untrained model looks, found by its first layers alone, on every family."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.data.evidence import evidence_cells
from arr_coc.families import adapter_for
from arr_coc.model import ARRCOCModel
from arr_coc.modes.call import EncodedImages
from arr_coc.modes.scoring import gather
from arr_coc.relevance.deciding import score_cells
from arr_coc.seam import GESTALT, FamilyAdapter, VisualFeatures, gather_columns
from arr_coc.seam.attention import attention_modules
from arr_coc.seam.gaze import NEUTRAL, Gaze, coupling, gaze, gaze_layers, gaze_of_words, relative, smooth
from arr_coc.seam.gestalt import compress
from arr_coc_lab.world import draw_page
from eyes import calls_of
from near import near
from tiny import KINDS, apart, picture, prompts, tiny

SPARSE = ("qwen3_vl", "qwen2_5_vl", "qwen2_vl", "qwen3_5")
QUESTION, OTHER = "Where is the word?", "How many red circles are there?"
SMALL, WIDE = (48, 48), (72, 40)

Rows = Sequence[tuple[str, Sequence[Any]]]


def adapter_of(family: str) -> FamilyAdapter:
    built = tiny(family)
    return adapter_for(built.model, built.processor)


def encoded(adapter: FamilyAdapter, inputs: dict[str, Any]) -> tuple[VisualFeatures, VisualFeatures]:
    """All tokens, and a gestalt of them."""
    features = adapter.features(inputs)
    return features, compress("pool4", adapter, inputs, features)


@torch.no_grad()
def look(family: str, rows: Rows, neutral: Sequence[Tensor] | None = None) -> Gaze:
    adapter, inputs = adapter_of(family), prompts(tiny(family), rows)
    features, gestalt = encoded(adapter, inputs)
    return gaze(adapter, inputs, gestalt, features=features, neutral=neutral)


def close(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    return len(a) == len(b) and all(
        torch.allclose(x, y, rtol=1e-3, atol=1e-5) for x, y in zip(a, b, strict=True)
    )


def configured(model: Any) -> list[str]:
    return [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")]


# ---- maps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", KINDS)
def test_every_image_has_a_map_on_its_own_gestalt(family: str) -> None:
    adapter = adapter_of(family)
    rows = [("What?", [picture(1, WIDE)]), (QUESTION, [picture(2), picture(3, WIDE)])]
    inputs = prompts(tiny(family), rows)
    assert (inputs["attention_mask"] == 0).any()  # a padded row
    with torch.no_grad():
        features, gestalt = encoded(adapter, inputs)
    maps, neutral = gaze(adapter, inputs, gestalt, features=features)
    assert [tuple(found.shape) for found in maps] == [grid[1:] for grid in gestalt.grids]
    assert [len(seen) for seen in neutral] == gestalt.counts
    for found in maps:
        assert found.dtype == torch.float32
        assert found.isfinite().all()
        assert (found > 0).all()
        assert found.std() > 5e-4  # of Gemma 3's 0.003; of a map that says nothing 1e-6


@pytest.mark.parametrize("family", apart(KINDS))
def test_another_question_moves_the_map_and_the_neutral_one_has_none(family: str) -> None:
    images = [picture(1, WIDE)]
    one, other = look(family, [(QUESTION, images)]), look(family, [(OTHER, images)])
    assert not torch.allclose(one.maps[0], other.maps[0], rtol=0.02)
    assert close(one.neutral, other.neutral)  # so that a session needs it once
    again = look(family, [(OTHER, images)], neutral=one.neutral)
    assert close(again.maps, other.maps)
    flat = look(family, [(NEUTRAL, images)]).maps[0]
    assert near(flat, torch.ones_like(flat))
    assert coupling(flat, (9, 9)).abs().max() < 1e-2


@pytest.mark.parametrize("family", apart(KINDS))
def test_a_batch_equals_its_rows(family: str) -> None:
    """Rows of other lengths, sizes and numbers of images, one of them without any."""
    # OneVision makes other views of several images, and `prompts` can't group them beside a row without any.
    several = [picture(2), picture(3)][: 1 if family == "llava_onevision" else None]
    rows: Rows = [(QUESTION, [picture(1, WIDE)]), ("Is it so?", []), ("Why?", several)]
    if family == "paligemma":  # its processor takes no row without an image
        del rows[1]
    batch = look(family, rows)
    alone = [look(family, [row]) for row in rows if row[1]]
    assert close(batch.maps, [found for one in alone for found in one.maps])
    assert close(batch.neutral, [seen for one in alone for seen in one.neutral])


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5", "llava_next"])
def test_padding_and_what_stands_behind_the_question_change_nothing(family: str) -> None:
    adapter, inputs = adapter_of(family), prompts(tiny(family), [(QUESTION, [picture(1)])])
    with torch.no_grad():
        features, gestalt = encoded(adapter, inputs)
    expected = gaze(adapter, inputs, gestalt, features=features)
    more = dict(inputs)
    said = adapter.processor.tokenizer(" It is there.", return_tensors="pt")["input_ids"]
    for name in ("input_ids", "attention_mask", "mm_token_type_ids"):
        if name in inputs:
            fill, behind = (
                (adapter.padding_id, said)
                if name == "input_ids"
                else (0, torch.full_like(said, name == "attention_mask"))
            )
            more[name] = torch.cat([torch.full_like(inputs[name][:, :5], fill), inputs[name], behind], dim=1)
    found = gaze(adapter, more, gestalt, features=features)
    assert close(found.maps, expected.maps)
    assert close(found.neutral, expected.neutral)


def test_words_before_the_image_are_heard_by_the_text_behind_it() -> None:
    adapter = adapter_of("qwen3_vl")
    inputs = prompts(tiny("qwen3_vl"), [("Q", [picture(1)])])
    ids = inputs["input_ids"][0].tolist()
    word, image = (
        ids.index(adapter.processor.tokenizer("Q")["input_ids"][0]),
        ids.index(adapter.image_token_id),
    )
    maps = []
    for asked in "AB":
        said = adapter.processor.tokenizer(asked)["input_ids"]
        turned = torch.tensor([ids[: image - 1] + said + ids[image - 1 : word] + ids[word + 1 :]])
        moved = {**inputs, "input_ids": turned, "mm_token_type_ids": (turned == adapter.image_token_id).int()}
        assert bool(adapter.question_mask(turned)[0, image - 1])
        with torch.no_grad():
            _, gestalt = encoded(adapter, moved)
        maps.append(gaze(adapter, moved, gestalt).maps[0])
    assert maps[0].isfinite().all()
    assert not torch.allclose(maps[0], maps[1], rtol=1e-3)


@pytest.mark.parametrize("family", SPARSE)
def test_families_that_encode_cells_alone_need_no_features(family: str) -> None:
    adapter = adapter_of(family)
    inputs = prompts(tiny(family), [(QUESTION, [picture(1, WIDE)]), (OTHER, [picture(2)])])
    with torch.no_grad():
        gestalt = adapter.features(adapter.coarse(inputs, cells=12))
        features = adapter.features(inputs)
    unseen = gaze(adapter, inputs, gestalt)
    assert [tuple(found.shape) for found in unseen.maps] == [grid[1:] for grid in gestalt.grids]
    assert close(unseen.maps, gaze(adapter, inputs, gestalt, features=features).maps)


def test_without_a_tokenizer_attention_is_relative_to_even_attention() -> None:
    adapter, inputs = adapter_of("llava"), prompts(tiny("llava"), [(QUESTION, [picture(1)])])
    with torch.no_grad():
        features, gestalt = encoded(adapter, inputs)
    bare = gaze(adapter_for(tiny("llava").model), inputs, gestalt, features=features)
    assert torch.equal(bare.neutral[0], bare.neutral[0][:1].expand(9))
    assert bare.maps[0].std() > 0.01


@pytest.mark.parametrize("family", apart(KINDS))
def test_words_are_looked_at_one_by_one_in_one_pass(family: str) -> None:
    adapter, inputs = adapter_of(family), prompts(tiny(family), [(QUESTION, [picture(1, WIDE)])])
    with torch.no_grad():
        features, gestalt = encoded(adapter, inputs)
    whole = gaze(adapter, inputs, gestalt, features=features)
    asked = adapter.question_mask(inputs["input_ids"])[0]
    first = asked & (asked.cumsum(0) <= 5)  # "Where"
    sets = torch.stack([asked, first, asked & ~first])
    with calls_of(tiny(family).model.get_decoder().layers[:1]) as ran:
        maps = gaze_of_words(adapter, inputs, sets, gestalt, whole.neutral[0], features=features)
    assert len(ran) == 1
    assert close(maps[:1], whole.maps)
    assert adapter.prefix or close(
        maps[1:2], look(family, [("Where", [picture(1, WIDE)])]).maps
    )  # what follows is not read yet
    assert not torch.allclose(maps[1], maps[2], rtol=0.02)


# ---- the attention that is read ---------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("family", ["qwen3_vl", "llava_next"])
def test_it_is_the_eager_attention_of_the_words(family: str) -> None:
    adapter = adapter_of(family)
    inputs = prompts(tiny(family), [("What?", [picture(1)]), (QUESTION, [picture(2)])])
    features, gestalt = encoded(adapter, inputs)
    none = [torch.zeros(0, dtype=torch.long)] * 2
    rest = features.select(features.tokens_to_keep(none))
    compacted = adapter.assemble(inputs, features.layout, none, rest, gestalt)
    eager = copy.deepcopy(tiny(family).model)
    eager.set_attn_implementation("eager")
    weights = eager(**compacted.kwargs, use_cache=False, output_attentions=True).attentions
    words = gather_columns(
        adapter.question_mask(inputs["input_ids"], inputs["attention_mask"]).int(), compacted.columns, 0
    ).bool()
    usual = [torch.full((count,), 0.01) for count in gestalt.counts]
    found = gaze(adapter, inputs, gestalt, features=features, neutral=usual)
    for row, (one, grid) in enumerate(zip(found.maps, gestalt.grids, strict=True)):
        seen = torch.stack([layer[row][:, words[row]] for layer in weights])  # (layers, heads, words, S')
        asked = seen[..., compacted.columns[row] == GESTALT].mean((0, 1, 2))
        assert torch.allclose(one, smooth(relative(asked, usual[row]).log().view(grid[1:])).exp(), rtol=1e-3)
    adapter_eager = adapter_for(eager, adapter.processor)
    assert close(gaze(adapter_eager, inputs, gestalt, features=features, neutral=usual).maps, found.maps)


@pytest.mark.parametrize("family", apart(KINDS))
def test_only_the_layers_needed_run(family: str) -> None:
    adapter, inputs = adapter_of(family), prompts(tiny(family), [(QUESTION, [picture(1)])])
    model: Any = tiny(family).model
    with torch.no_grad():
        features, gestalt = encoded(adapter, inputs)
    decoder = model.get_decoder()
    ends = ("norm", "embedding_norm", "hyper_connection_mixer")
    last = next(getattr(decoder, name) for name in ends if hasattr(decoder, name))
    with calls_of([*decoder.layers, last]) as ran:
        usual = [torch.full((count,), 0.01) for count in gestalt.counts]
        gaze(adapter, inputs, gestalt, range(1), features=features, neutral=usual)
        needed = [0] if adapter.recurrent else []  # its first layer is recurrent and has no number
        assert ran == needed
        if not adapter.recurrent:
            gaze(adapter, inputs, gestalt, range(1, 2), features=features)
            assert ran == [0, 0]  # once for the question and once for the neutral one


@torch.no_grad()
@pytest.mark.parametrize("family", apart(KINDS))
def test_the_model_is_as_before_also_after_an_error(family: str) -> None:
    adapter, inputs = adapter_of(family), prompts(tiny(family), [(QUESTION, [picture(1)])])
    model: Any = tiny(family).model
    before, stock = configured(model), model(**inputs).logits
    features, gestalt = encoded(adapter, inputs)
    gaze(adapter, inputs, gestalt, features=features)
    assert configured(model) == before
    bent = replace(gestalt, tokens=[tokens[:, :-1] for tokens in gestalt.tokens])
    with pytest.raises((RuntimeError, ValueError)):
        gaze(adapter, inputs, bent, features=features)
    assert configured(model) == before
    assert torch.equal(model(**inputs).logits, stock)


def test_half_precision_gives_finite_float32_maps() -> None:
    built = tiny("qwen3_vl")
    adapter = adapter_for(copy.deepcopy(built.model).bfloat16(), built.processor)
    inputs = prompts(built, [(QUESTION, [picture(1)])])
    with torch.no_grad():
        found = gaze(adapter, inputs, adapter.features(adapter.coarse(inputs, cells=12))).maps[0]
    assert found.dtype == torch.float32
    assert found.isfinite().all()


# ---- layers, relation, coupling ---------------------------------------------------------------------------


def test_the_middle_third_of_the_layers_is_looked_at() -> None:
    assert [gaze_layers(depth) for depth in (1, 2, 5, 28)] == [
        range(0, 1), range(0, 2), range(1, 4), range(9, 19)
    ]  # fmt: skip
    for depth in range(1, 100):
        layers = gaze_layers(depth)
        assert layers
        assert depth / 3 - 1 < layers.start <= depth / 3
        assert 2 * depth / 3 <= layers.stop < 2 * depth / 3 + 1
    with pytest.raises(ValueError, match="depth 0"):
        gaze_layers(0)


def test_relative_attention_is_one_for_sinks_and_for_what_nobody_looks_at() -> None:
    neutral = torch.tensor([0.2, 1e-6, 0.002, 0.002])
    asked = torch.tensor([0.2, 2e-6, 0.002, 0.2])
    found = relative(asked, neutral)
    assert torch.allclose(found[:3], torch.ones(3), atol=1e-3)
    assert found[3] > 3
    assert torch.equal(relative(torch.zeros(3), torch.zeros(3)), torch.ones(3))


def test_coupling_has_one_scale_for_all_models_and_leaves_flat_maps_flat() -> None:
    found = torch.ones(4, 6)
    found[1, 2] = 3.0
    strong, weak = coupling(found**4, (16, 24)), coupling(found**2, (16, 24))
    assert strong.shape == (16, 24)
    assert near(strong, weak)
    assert near(strong.square().mean().sqrt(), torch.tensor(2.0))
    assert abs(float(strong.mean())) < 1e-5
    top = divmod(int(strong.argmax()), 24)
    assert (top[0] // 4, top[1] // 4) == (1, 2)
    assert coupling(found**0.01, (16, 24)).abs().max() < 0.2
    assert torch.equal(coupling(torch.full((3, 3), 2.0), (6, 6)), torch.zeros(6, 6))


def test_bad_input_is_named() -> None:
    adapter, inputs = adapter_of("qwen3_vl"), prompts(tiny("qwen3_vl"), [(QUESTION, [picture(1)])])
    with torch.no_grad():
        _, gestalt = encoded(adapter, inputs)
    depth = len(attention_modules(tiny("qwen3_vl").model, "language"))
    for layers in (range(depth, depth + 1), range(-1, 1), range(0)):
        with pytest.raises(ValueError, match="2 attention layers"):
            gaze(adapter, inputs, gestalt, layers)
    with pytest.raises(ValueError, match="neutral attention to"):
        gaze(adapter, inputs, gestalt, neutral=[torch.ones(1)])
    with pytest.raises(ValueError, match="at least one"):
        gaze(adapter, inputs, gestalt.select([torch.zeros(0, dtype=torch.long)]))


# ---- what it finds ----------------------------------------------------------------------------------------


@pytest.mark.slow
@torch.no_grad()
def test_the_bundled_model_looks_at_the_evidence_untrained() -> None:
    """On a page of 512 px a quarter of the cells hold most of the evidence; cosine finds far less of it."""
    model = ARRCOCModel.from_pretrained(strict=True)
    page = draw_page(2, (512, 512), "validation")
    session, cosine = model.session(page.image), ARRCOCLayer(ARRCOCConfig(dim=192))
    features = model.adapter.features(session.inputs("?"))
    gestalt = compress("pool4", model.adapter, session.inputs("?"), features)
    encoded, neutral = EncodedImages(features), None
    recalls = []
    for question in [q for q in page.questions if q.evidence][:12]:
        inputs = session.inputs(question.text)
        maps, neutral = gaze(model.adapter, inputs, gestalt, features=features, neutral=neutral)
        watch = Stopwatch(model.device)
        cells = [features.cell_tokens(0)]
        cues = gather(model.adapter, cosine, inputs, encoded, features.layout, watch, cells=cells)
        scored = score_cells(cosine, cues)[0].participatory
        evidence = evidence_cells(question.evidence, (16, 16), page.image.size).flatten()
        best = [found.flatten().topk(64).indices for found in (coupling(maps[0], (16, 16)), scored)]
        recalls.append([float(evidence[keep].float().sum() / evidence.sum()) for keep in best])
    found, by_cosine = torch.tensor(recalls).mean(0).tolist()
    assert found > 0.75
    assert found > by_cosine + 0.1
