"""Methods: each spends its whole budget, reads what it says it reads, and says where it can't run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from arr_coc.data.evidence import evidence_cells
from arr_coc.model import ARRCOCModel
from arr_coc.session import Session
from arr_coc_lab.evaluate.methods import (
    METHODS,
    load_scorer,
    load_variant,
    pick_methods,
    split_allocators,
)
from arr_coc_lab.evaluate.ours import ours
from arr_coc_lab.evaluate.questions import world_questions
from arr_coc_lab.evaluate.scene import Scene, resize_to_grid
from arr_coc_lab.evaluate.view import View
from arr_coc_lab.rivals import (
    Method,
    QueryBlindScorer,
    blind_oracle,
    even,
    find_method,
    mmtok,
    prumerge_plus,
    smaller_grid,
)
from arr_coc_lab.world import draw_page
from each import each
from near import near
from tiny import picture, tiny

SELECTING = [method for method in METHODS.values() if method.select is not None]


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return ARRCOCModel.from_pretrained(strict=True)


@pytest.fixture(scope="module")
def view(model: ARRCOCModel) -> View:
    """A page of 8 x 8 cells with several questions, and those of the next page."""
    first, second = (a for a, _ in zip(world_questions(8, 256, per_page=4), range(2), strict=False))
    torch.manual_seed(0)
    return Scene(model, first, second.queries, watched=True, scorer=QueryBlindScorer(192, 24)).view


def kept(method: Method, view: View, i: int, k: int) -> list[int]:
    assert method.select is not None
    with torch.no_grad():
        return method.select(view, i, k).keep.tolist()


@each("method", SELECTING, ids=lambda m: m.name)
def test_every_selection_keeps_exactly_its_budget(method: Method, view: View) -> None:
    for count in (1, 7, 33, view.total):
        keep = kept(method, view, 0, count)
        assert len(keep) == count
        assert keep == sorted(set(keep))
        assert 0 <= keep[0] <= keep[-1] < view.total


@each("method", SELECTING, ids=lambda m: m.name)
def test_a_method_reads_the_question_only_if_it_says_so(method: Method, view: View) -> None:
    sets = {tuple(kept(method, view, i, 9)) for i in range(len(view.prompts))}
    assert (len(sets) > 1) == method.by_question


def test_merged_tokens_come_from_the_two_that_merge(view: View) -> None:
    with torch.no_grad():
        merging = [
            m.name for m in SELECTING if m.select is not None and m.select(view, 0, 20).tokens is not None
        ]
    assert merging == ["prumerge+", "visionzip"]


@torch.no_grad()
def test_prumerge_reads_each_head_by_itself(view: View) -> None:
    """As published for Qwen2.5-VL: the mean of each head's softmax, the keys side by side."""
    assert view.tower is not None
    query, key, scaling = view.tower.attention[-1]  # (H, 4 N, d)
    attention = (query @ key.transpose(1, 2) * scaling).softmax(-1).mean((0, 1)).view(-1, 4).mean(1)
    keys = torch.cat(list(key), dim=-1).view(view.total, 4, -1).mean(1)
    expected = prumerge_plus(attention, keys, view.tokens, 9)
    for name, alike in (("prumerge+", True), ("prumerge+:joined", False)):
        select = find_method(name).select
        assert select is not None
        got = select(view, 0, 9)
        assert torch.equal(got.keep, expected.keep) is alike or not alike
        assert near(got.tokens, expected.tokens) is alike


@torch.no_grad()
def test_mmtok_as_for_qwen_has_mean_features_and_its_own_temperature(view: View) -> None:
    select = find_method("mmtok:qwen").select
    assert select is not None
    patches = view.states.view(view.total, 4, -1)
    expected = mmtok(view.tokens, view.question(0), sum(patches.unbind(1)) / 4, 9, 0.01)
    assert torch.equal(select(view, 0, 9).keep, expected.keep)


@torch.no_grad()
def test_the_blind_oracle_chooses_once_for_all_questions_of_the_page(view: View) -> None:
    page = draw_page(int(view.source.key.partition(":")[2]), (256, 256), "test")
    assert len(view.source.possible) == len(page.questions) > len(view.source.queries)
    masks = [evidence_cells(q.evidence, (8, 8), (256, 256)) for q in page.questions if q.evidence]
    assert len(view.possible_evidence()) == len(masks)
    keep = METHODS["blind oracle"].select(view, 0, 20).keep
    assert torch.equal(keep, blind_oracle(masks, 20).keep)
    assert torch.equal(keep, METHODS["blind oracle"].select(view, 1, 20).keep)
    asked = replace(view, source=replace(view.source, possible=()))  # where no others are known: those asked
    assert len(asked.possible_evidence()) <= len(view.source.queries)
    nothing = replace(view, source=replace(view.source, possible=((),)))
    assert torch.equal(METHODS["blind oracle"].select(nothing, 0, 20).keep, even((8, 8), 20).keep)


def test_ours_decides_as_the_model_does(model: ARRCOCModel, view: View) -> None:
    session = Session(model, view.source.image)
    for budget in (5, 16, "auto"):
        look = session.look(view.source.queries[1].text, budget=budget, mode="prune")
        assert METHODS["arr-coc"].select is not None
        with torch.no_grad():
            found = METHODS["arr-coc"].select(view, 1, budget).keep
        assert torch.equal(found, look.keep)


def test_the_shuffled_question_is_another_images(model: ARRCOCModel, view: View) -> None:
    session = Session(model, view.source.image)
    other = view.others[0]
    assert other is not None
    ids = other["input_ids"][0]
    text = model.processor.tokenizer.decode(ids[model.adapter.question_mask(ids[None])[0]]).strip()
    assert text not in [query.text for query in view.source.queries]
    look = session.look(text, budget=9, mode="prune")
    assert kept(METHODS["shuffled question"], view, 0, 9) == look.keep.tolist()
    assert kept(METHODS["shuffled question"], view, 0, 9) != kept(METHODS["arr-coc"], view, 0, 9)


def test_the_oracle_keeps_all_evidence_or_an_even_grid(view: View) -> None:
    seen = 0
    for i in range(len(view.prompts)):
        evidence = view.evidence(i)
        if evidence is None:
            assert kept(METHODS["oracle"], view, i, 9) == kept(METHODS["even grid"], view, i, 9)
            continue
        seen += 1
        cells = set(evidence.flatten().nonzero().flatten().tolist())
        assert cells <= set(kept(METHODS["oracle"], view, i, max(9, len(cells))))
    assert seen


@each(
    ("grid", "count", "expected"),
    [
        ((32, 32), 64, (8, 8)),
        ((32, 32), 128, (11, 11)),
        ((32, 32), 273, (16, 17)),
        ((16, 64), 64, (4, 16)),
        ((64, 16), 64, (16, 4)),
        ((8, 8), 64, (8, 8)),
        ((8, 8), 100, (8, 8)),
        ((3, 50), 5, (1, 5)),
        ((32, 32), 1, (1, 1)),
    ],
)
def test_a_smaller_grid_has_the_most_cells_in_the_images_shape(grid, count, expected) -> None:
    assert smaller_grid(grid, count) == expected


def test_smaller_grids_never_exceed_the_count_or_the_image() -> None:
    for grid in ((20, 30), (32, 32), (5, 40)):
        for count in range(1, 200, 7):
            h, w = smaller_grid(grid, count)
            assert h * w <= count
            assert h <= grid[0]
            assert w <= grid[1]


def test_a_shrunk_image_has_that_grid(model: ARRCOCModel, view: View) -> None:
    for count in (4, 20, 40):
        grid = smaller_grid(view.grid[1:], count)
        small = resize_to_grid(view.source.image, grid, model)
        assert model.adapter.features(Session(model, small).inputs("?")).grids == [(1, *grid)]


def test_methods_that_cannot_run_are_noted() -> None:
    built = tiny("llava")
    llava = ARRCOCModel.wrap(built.model, built.processor, strict=True)
    found, notes = pick_methods(llava, None, [], None)
    before = {name for name, method in METHODS.items() if "sparse" in method.needs}
    towers = {"coc tower4", "coc tower16"}
    towers |= {"averaged patches 4", "averaged patches 16"}  # its tower has no halves
    resized = {"downsample", "resolution by question", "crop-black"}
    assert set(notes) == {"visionselector", "idpruner"} | resized | before | towers
    assert "llava" in notes["downsample"]
    assert "llava" in notes["arr-coc sparse"]
    assert {m.name for m in found} | set(notes) == set(METHODS)
    tiles = ARRCOCModel.wrap(tiny("llava_next").model, tiny("llava_next").processor)
    _, notes = pick_methods(tiles, ["scope", "random"], [], None)
    assert list(notes) == ["scope"]
    found, notes = pick_methods(llava, ["random", "fastv:1", "fastv:9", "fastv", "mmtok:qwen"], [], None)
    assert [method.name for method in found] == ["fastv", "fastv:1", "mmtok:qwen", "random"]
    assert "a cut after 1 to" in notes["fastv:9"]
    with pytest.raises(ValueError, match="query-blind"):
        pick_methods(llava, ["visionselector"], [], None)
    with pytest.raises(ValueError, match=r"'scoop' is unknown.*scope"):
        pick_methods(llava, ["scoop"], [], None)


def test_a_variant_decides_by_its_own_layer(model: ARRCOCModel, view: View, tmp_path: Path) -> None:
    plain = ARRCOCModel.wrap(model.base, model.processor)  # an untrained layer
    plain.save_pretrained(tmp_path)
    variant = ours("arr-coc:plain", load_variant(str(tmp_path), model))
    assert kept(variant, view, 0, 16) == Session(plain, view.source.image).look(
        view.source.queries[0].text, budget=16
    ).keep.tolist()  # fmt: skip
    assert kept(variant, view, 0, 16) != kept(METHODS["arr-coc"], view, 0, 16)
    found, _ = pick_methods(model, ["random", "arr-coc:plain"], [("plain", model.layer)], None)
    assert [m.name for m in found] == ["random", "arr-coc:plain"]
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="LoRA"):
        load_variant(str(tmp_path), model)


def test_allocators_have_names_but_one() -> None:
    assert split_allocators(["a/b", "x=c/d", "y=e=f"]) == ("a/b", [("x", "c/d"), ("y", "e=f")])
    with pytest.raises(ValueError, match="no name"):
        split_allocators(["a", "b"])
    with pytest.raises(ValueError, match="twice"):
        split_allocators(["x=a", "x=b"])


def test_a_scorer_is_read_and_wrong_ones_are_refused(model: ARRCOCModel, tmp_path: Path) -> None:
    scorer = QueryBlindScorer(192, 8)
    file = tmp_path / "query_blind.safetensors"
    save_file(dict(scorer.state_dict()), file)
    loaded = load_scorer(file, model)
    tokens = torch.randn(6, 192)
    assert loaded is not None
    assert torch.equal(loaded(tokens), scorer(tokens))
    bare = QueryBlindScorer(192, 8, bias=False)  # as version 0.1 learned it
    save_file(dict(bare.state_dict()), file)
    loaded = load_scorer(file, model)
    assert loaded is not None
    assert torch.equal(loaded(tokens), bare(tokens))
    save_file(dict(bare.state_dict()) | {"key.bias": torch.zeros(8)}, file)
    with pytest.raises(ValueError, match="with or without biases"):
        load_scorer(file, model)
    save_file({"query.weight": torch.zeros(8, 5), "key.weight": torch.zeros(8, 5)}, file)
    with pytest.raises(ValueError, match="192"):
        load_scorer(file, model)
    with pytest.raises(ValueError, match="can't be read"):
        load_scorer(tmp_path / "none.safetensors", model)
    built = tiny("qwen3_vl")
    assert load_scorer(None, ARRCOCModel.wrap(built.model, built.processor)) is None


def test_a_picture_of_another_shape_keeps_it(model: ARRCOCModel) -> None:
    wide = picture(1, (512, 128))
    grid = smaller_grid((4, 16), 20)
    assert grid == (2, 8)
    assert resize_to_grid(wide, grid, model).size == (256, 64)
