"""The ablations: what each leaves out, and that its ordinary form keeps the same cells."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, save_layer
from arr_coc.choose.texture import generate_texture_array
from arr_coc.store.checkpoint import load_base, load_layer
from arr_coc.train.recipe import load_recipe
from arr_coc.train.trainer import build_learner
from each import each
from near import near

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "runs" / "ablation.py"))
ABLATIONS: dict[str, type[ARRCOCLayer]] = SCRIPT["ABLATIONS"]
WIDTH = 48
PRESETS = ("net", "linear")
EVERY = [
    (name, preset)
    for name in ABLATIONS
    for preset in PRESETS
    if (name, preset) != ("texture-alone", "linear")
]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def trained(kind: type[ARRCOCLayer], **config: Any) -> Any:
    """The same parameters for every class, away from the start, so that the policy net has a say."""
    layer, generator = kind(ARRCOCConfig(**{"dim": WIDTH} | config)), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.3)
    return layer


def scene(batch: int = 2) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Texture, query, mask and vision tokens of an 8x8 grid."""
    texture = generate_texture_array(torch.rand(batch, 3, 128, 128), (8, 8))
    words = torch.randn(batch, 4, WIDTH), torch.ones(batch, 4, dtype=torch.bool)
    return texture, *words, torch.randn(batch, 64, WIDTH)


@each(("name", "preset"), EVERY)
class TestEvery:
    def test_parameters_and_random_state_are_those_of_the_whole_layer(self, name, preset):
        config = ARRCOCConfig(WIDTH, preset=preset)
        whole, before = ARRCOCLayer(config).state_dict(), torch.get_rng_state()
        state = ABLATIONS[name](config).state_dict()
        assert torch.equal(torch.get_rng_state(), before)
        assert list(state) == list(whole)
        assert all(torch.equal(state[key], whole[key]) for key in whole)

    def test_its_ordinary_form_keeps_the_same_cells(self, name, preset):
        """And so does the ordinary form of that; the whole layer with the same weights keeps others."""
        layer, inputs = trained(ABLATIONS[name], preset=preset), scene()
        ordinary = layer.ordinary()
        again = ABLATIONS[name](layer.config)
        again.load_state_dict(ordinary.state_dict())
        assert type(ordinary) is ARRCOCLayer
        assert ordinary.trained == layer.trained
        expected = layer.relevance(*inputs)
        for other in (ordinary, again.ordinary()):
            r = other.relevance(*inputs)
            assert near(r.logits, expected.logits)
            assert near(r.weights, expected.weights)
            assert near(r.tensions, expected.tensions)
            assert [a.keep.tolist() for a in other.allocate(r, 9)] == [
                a.keep.tolist() for a in layer.allocate(expected, 9)
            ]
        whole = trained(ARRCOCLayer, preset=preset).relevance(*inputs)
        assert not torch.allclose(whole.logits, expected.logits, atol=1e-3)


def test_learned_pooling_needs_the_scorer_that_pools():
    config = ARRCOCConfig(WIDTH, pooling="learned")
    with pytest.raises(ValueError, match="pooling 'learned' is by the participatory scorer"):
        ABLATIONS["no-participatory"](config)
    ABLATIONS["no-information"](config)


class TestTextureAlone:
    def test_scores_as_before_encoding(self):
        texture, q, m, vision = scene()
        alone, whole = trained(ABLATIONS["texture-alone"]), trained(ARRCOCLayer)
        r = alone.relevance(texture, q, m, vision, gestalt=torch.randn(2, WIDTH))
        assert torch.equal(r.logits, whole.relevance(texture, q, m).logits)
        assert not torch.allclose(r.logits, whole.relevance(texture, q, m, vision).logits, atol=1e-2)
        r.logits.square().mean().backward()
        assert alone.participatory.cell.grad is None
        assert alone.participatory.paint.grad.abs().sum() > 0

    def test_linear_has_no_such_form(self):
        with pytest.raises(ValueError, match="texture-alone is of preset 'net'"):
            ABLATIONS["texture-alone"](ARRCOCConfig(WIDTH, preset="linear"))


class TestScript:
    def test_trains_and_leaves_an_ordinary_allocator(self, base: Path, tmp_path: Path) -> None:
        settings = (f"model={base}", "sizes=256", "questions=2", "steps=2", "workers=0")
        command = ["no-information", "relevance", *settings, "--out", str(tmp_path)]
        SCRIPT["main"](command)
        model, _ = load_base(base)
        layer = load_layer(tmp_path, model)
        assert type(layer) is ARRCOCLayer
        assert layer.trained
        dim = layer.config.dim
        texture = generate_texture_array(torch.rand(1, 3, 128, 128), (8, 8))
        query, mask = torch.randn(1, 4, dim), torch.ones(1, 4, dtype=torch.bool)
        r = layer.relevance(texture, query, mask, torch.randn(1, 64, dim))
        assert r.weights[0, 0] == 0
        assert (r.weights[0, 1:] > 0).all()
        start = ARRCOCLayer(layer.config)
        assert torch.equal(layer.information.weight, start.information.weight)
        assert not torch.equal(layer.participatory.cell, start.participatory.cell)
        before = (tmp_path / "arr_coc.safetensors").read_bytes()
        SCRIPT["main"](command)  # finished: nothing is trained, and rewriting changes nothing
        assert (tmp_path / "arr_coc.safetensors").read_bytes() == before

    def test_goes_on_from_an_allocator_that_was_trained(self, base: Path, tmp_path: Path) -> None:
        model, _ = load_base(base)
        start = trained(ARRCOCLayer, dim=model.config.get_text_config().hidden_size)
        start.trained = True
        facts = {"base_model": str(base), "base_model_type": model.config.model_type}
        save_layer(start, tmp_path, facts | {"base_dim": start.config.dim})
        recipe = load_recipe("relevance", {"model": str(base), "init": str(tmp_path)})
        layer: Any = build_learner(recipe, ABLATIONS["balancer-without-image"]).layer
        assert type(layer) is ABLATIONS["balancer-without-image"]
        assert layer.trained
        assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), start.parameters(), strict=True))

    @each(
        ("changes", "message"),
        [(("eyes=stem", "init=none"), "an ablation is of the layer itself"),
         (("allocator=query-blind",), "an ablation is of the layer itself"),
         (("layer.scorers=information,",), "layer has 'scorers', which is unknown")],
    )  # fmt: skip
    def test_refusals(self, changes, message, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            SCRIPT["main"](["fixed-mixture", "relevance", *changes, "--out", str(tmp_path)])
        assert message in capsys.readouterr().err
        assert not list(tmp_path.iterdir())

    def test_the_study_runs_each_of_them(self) -> None:
        study = (ROOT / "runs" / "study.sh").read_text(encoding="utf-8")
        assert [name for name in ABLATIONS if f"\nablate {name} relevance $short\n" not in study] == []
