"""Features of coarse views: those of a model's own encoder, and of towers loaded by name from folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPVisionConfig,
    CLIPVisionModel,
    PreTrainedModel,
    SiglipImageProcessor,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from arr_coc.choose.basis import fit_basis
from arr_coc.choose.texture import generate_texture_array
from arr_coc.families import adapter_for
from arr_coc.seam.gestalt import VisionTower, coarse_features, compress, gestalt_features
from tiny import FAMILIES, picture, prompts, tiny

VISION: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


def tower_folder(kind: str, folder: Path) -> Path:
    """A tiny random tower with its image processor."""
    torch.manual_seed(0)
    model: PreTrainedModel
    if kind == "siglip":
        model = SiglipVisionModel(SiglipVisionConfig(**VISION))
        SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    elif kind == "clip":
        text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        model = CLIPModel(CLIPConfig(text_config={**text, "vocab_size": 99}, vision_config=VISION))
        CLIPImageProcessor().save_pretrained(folder)
    else:
        model = CLIPVisionModel(CLIPVisionConfig(**VISION))
        CLIPImageProcessor().save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_maps_of_every_family_are_the_tokens_of_its_gestalt(family):
    built = tiny(family)
    adapter = adapter_for(built.model, built.processor)
    inputs = prompts(built, [("one", [picture(0, (96, 64))]), ("other", [picture(1)])])
    maps = coarse_features(adapter, inputs)
    gestalt = compress("resize" if adapter.sparse else "pool4", adapter, inputs)
    assert len(maps) == 2
    for features, tokens, (_, h, w) in zip(maps, gestalt.tokens, gestalt.grids, strict=True):
        assert features.shape == (1, tokens.shape[1], h, w)
        assert torch.equal(features[0, :, 0, min(1, w - 1)], tokens[min(1, w - 1)])


def test_a_clip_is_refused():
    from test_gestalt import features

    with pytest.raises(ValueError, match="image 1 is a clip of 2 merged frames"):
        gestalt_features(features([(1, 2, 2), (2, 3, 9)]))


class TestTower:
    @pytest.mark.parametrize("kind", ["clip", "clip_vision", "siglip"])
    def test_by_name_from_pixels_to_channels(self, kind, tmp_path):
        tower = VisionTower.from_pretrained(tower_folder(kind, tmp_path))
        pictures = torch.rand(3, 3, 50, 90)
        features = tower(pictures)
        assert features.shape == (3, 24, 4, 4)
        assert features.dtype == torch.float32
        assert torch.equal(features, tower(pictures))
        basis = fit_basis(features, source=kind)
        array = generate_texture_array(
            pictures, (5, 7), ["components"], coarse_features=features, basis=basis
        )
        assert array.shape == (3, 16, 5, 7)
        assert array[:, 0].std() > 0.05

    def test_patches_stand_in_raster_order(self, tmp_path):
        """What changes in one corner changes that corner's feature most."""
        tower = VisionTower.from_pretrained(tower_folder("clip_vision", tmp_path))
        page = torch.full((1, 3, 64, 64), 0.5)
        other = page.clone()
        other[..., :16, 48:] = 1.0
        change = (tower(other) - tower(page)).norm(dim=1)[0]
        assert change.argmax() == 3

    @pytest.mark.parametrize("case", ["missing", "empty", "no processor", "no weight"])
    def test_what_is_no_tower(self, case, tmp_path):
        folder = tmp_path / "tower"
        if case == "empty":
            folder.mkdir()
        elif case == "no processor":
            tower_folder("siglip", folder)
            (folder / "preprocessor_config.json").unlink()
        elif case == "no weight":
            weights = load_file(tower_folder("siglip", folder) / "model.safetensors")
            save_file(dict(list(weights.items())[1:]), folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(ValueError, match="can't be loaded as a vision tower") as error:
            VisionTower.from_pretrained(folder)
        assert "\n" not in str(error.value)

    def test_a_language_model_is_no_tower(self):
        with pytest.raises(ValueError, match="no vision tower of fixed input size"):
            VisionTower(tiny("qwen3_vl").model, [0.5] * 3, [0.5] * 3)
