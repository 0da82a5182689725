"""Relevance "layout": what other sources find in a region raises the rest of it."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from arr_coc.relevance.boxes import BoxSource, GivenBox
from arr_coc.relevance.conformance import LAWS, SourceScene
from arr_coc.relevance.layout import MAX_REGIONS, LayoutSource, RegionView, open_layout
from arr_coc.relevance.source import SumSource
from arr_coc.relevance.sums import open_relevance
from arr_coc.selector import Selector

GRID = (6, 8)


def rt_detr(name: str) -> tuple[Any, Any]:
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1],
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = getattr(transformers, f"{name}Config")(
        backbone_config=backbone, encoder_hidden_dim=16, encoder_in_channels=[8, 8, 8], encoder_ffn_dim=24,
        encoder_attention_heads=2, d_model=16, num_queries=12, decoder_in_channels=[16, 16, 16],
        decoder_ffn_dim=24, decoder_layers=2, decoder_attention_heads=2, num_denoising=0, num_labels=3,
    )  # fmt: skip
    pictures = transformers.RTDetrImageProcessor(size={"height": 64, "width": 64})
    return getattr(transformers, f"{name}ForObjectDetection")(config), pictures


def table_transformer() -> tuple[Any, Any]:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    config = transformers.TableTransformerConfig(
        use_timm_backbone=False, backbone=None, backbone_config=backbone, d_model=16, num_queries=12,
        encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=24, decoder_ffn_dim=24, num_labels=3,
    )  # fmt: skip
    size = {"shortest_edge": 32, "longest_edge": 64}
    return transformers.TableTransformerForObjectDetection(config), transformers.DetrImageProcessor(size=size)


@cache
def built(kind: str) -> tuple[Any, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return table_transformer() if kind == "TableTransformer" else rt_detr(kind)


def noise(seed: int) -> Tensor:
    return torch.rand(3, 48, 64, generator=torch.Generator().manual_seed(seed))


def with_regions(*boxes: tuple[float, ...]) -> LayoutSource:
    """A source whose model finds given boxes."""
    found = {"scores": torch.ones(len(boxes)), "boxes": torch.tensor(boxes).view(-1, 4)}
    inputs = type("Batch", (dict,), {"to": lambda self, device: self})()

    class Processor:
        def to_dict(self) -> dict[str, Any]:
            return {}

        def __call__(self, **settings: Any) -> Any:
            return inputs

        def post_process_object_detection(self, outputs: object, **settings: Any) -> list[Any]:
            return [found]

    class Finder(torch.nn.Linear):
        device = "cpu"

        def forward(self) -> Any:
            return SimpleNamespace()

    return LayoutSource(Finder(1, 1), Processor())


@pytest.mark.parametrize("kind", ["RTDetrV2", "RTDetr", "TableTransformer"])
def test_random_weights_keep_all_laws_that_ask_for_no_knowledge(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arr_coc.relevance.layout.MIN_SCORE", 0.0)
    source = LayoutSource(*built(kind))
    scenes = [SourceScene(noise(seed), "Which row?", (0, 0, 9, 9)) for seed in (0, 1)]
    laws = ("is described", "keeps views", "fills grids", "repeats", "remembers nothing")
    assert not [what for law in laws for what in LAWS[law](source, scenes)]
    view = source.view(noise(0))
    assert isinstance(view, RegionView)
    assert 0 < len(view.regions) <= MAX_REGIONS
    logits = torch.randn(GRID, generator=torch.Generator().manual_seed(1))
    completed = source.complete(view, logits)
    assert (completed >= logits).all()
    assert completed.max() == logits.max()


def test_a_hit_raises_its_region_the_less_the_larger_it_is() -> None:
    logits = torch.full(GRID, -7.0)
    logits[1, 1], logits[4, 4] = 2.0, 1.0
    source = with_regions((0, 8, 32, 16), (24, 24, 64, 48), (0, 0, 64, 48), (56, 0, 64, 8), (9.0, 9, 3, 3))
    view = source.view(noise(0))
    completed = source.complete(view, logits)
    assert completed[1, 0] == pytest.approx(2 - 0.5 * math.log(4))
    assert completed[3, 7] == pytest.approx(1 - 0.5 * math.log(15))
    assert completed[1, 1] == 2
    assert completed[0, 0] == -7, "the whole page says nothing"
    assert completed[0, 7] == -7


def test_it_completes_what_others_of_a_sum_find() -> None:
    given = BoxSource([GivenBox((8, 8, 16, 16), "total")])
    for parts in ((given, with_regions((0, 8, 32, 16))), (with_regions((0, 8, 32, 16)), given)):
        both, alone = SumSource(parts), SumSource([given])
        couplings = [one.couple(one.view(noise(0)), "What is the total?", GRID) for one in (both, alone)]
        assert couplings[0].confidence == couplings[1].confidence
        assert couplings[0].findings == couplings[1].findings
        changed = couplings[0].logits != couplings[1].logits
        assert changed.nonzero().tolist() == [[1, 0], [1, 2], [1, 3]]
    decision = Selector(relevance=both).decide(
        transformers.image_transforms.to_pil_image(noise(0).numpy()), "What is the total?", 4, GRID
    )
    assert {(int(y), int(x)) for _, y, x in decision.allocations[0].positions} == {(1, x) for x in range(4)}
    with pytest.raises(
        ValueError, match="'layout' completes what others find: use it in a sum, such as guide"
    ):
        SumSource([with_regions()])


def test_models_open_from_folders_of_safetensors_alone(tmp_path: Path) -> None:
    model, processor = built("RTDetrV2")
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    source = open_layout(str(tmp_path))
    assert source.version == LayoutSource(model, processor).version
    assert open_relevance(f"guide+layout:{tmp_path}").name == "guide+layout"
    with pytest.raises(ValueError, match="completes what others find"):
        open_relevance(f"layout:{tmp_path}")
    with pytest.raises(ValueError, match=r"'layout' needs a model: .* layout:docling-project/docling-layout"):
        open_layout()
