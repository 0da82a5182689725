"""Evidence of print: high on words and low beside them, on any picture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from arr_coc import ARRCOCConfig, ARRCOCLayer, ARRCOCModel
from arr_coc.choose.texture import generate_texture_array
from arr_coc.guide.guide import check_channels, load_guide, picture_inputs, text_evidence
from tests.tiny import tiny


def printed(size: int, colour: str = "black", paper: str = "white") -> Tensor:
    """A line of print of some px at (64, 64) of a blank page, [3, 256, 512]."""
    page = Image.new("RGB", (512, 256), paper)
    ImageDraw.Draw(page).text((64, 64), "Total amount 48.20", colour, ImageFont.load_default(size))
    return torch.from_numpy(np.asarray(page).copy()).permute(2, 0, 1).float() / 255


@pytest.mark.parametrize("size", [(96, 160), (101, 333), (5, 7), (17, 1)])
def test_any_picture(size: tuple[int, int]) -> None:
    picture = torch.rand(3, *size, generator=torch.Generator().manual_seed(0))
    evidence = text_evidence(load_guide(), picture)
    assert evidence.shape == (-(-size[0] // 8), -(-size[1] // 8))
    assert evidence.dtype == torch.float32
    assert 0 <= evidence.min() <= evidence.max() <= 1
    assert torch.equal(evidence, text_evidence(load_guide(), picture))


@pytest.mark.parametrize(("size", "colour", "paper"), [
    (14, "black", "white"), (24, "black", "white"), (16, "white", "#203060"), (16, "#909090", "white"),
])  # fmt: skip
def test_print_is_told_from_paper(size: int, colour: str, paper: str) -> None:
    evidence = text_evidence(load_guide(), printed(size, colour, paper))
    line = evidence[8 : 8 + size // 8 + 1, 8:14]
    assert line.amax(0).mean() > 0.4
    assert evidence[16:].max() < 0.1


def test_a_blank_page_has_none() -> None:
    assert text_evidence(load_guide(), torch.full((3, 128, 128), 0.7)).max() < 0.1


def test_the_group_marks_cells_with_print() -> None:
    page = printed(16)
    evidence = text_evidence(load_guide(), page)[None]
    mask = generate_texture_array(page[None], (8, 16), ["text_mask"], text_evidence=evidence)[0, 0]
    assert mask[2, 2:5].min() > 0.4
    assert mask[4:].max() < 0.1


def test_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"picture must be \[3, h, w\], got \(1, 3, 8, 8\)"):
        text_evidence(load_guide(), torch.rand(1, 3, 8, 8))


def test_what_a_picture_alone_gives_to_channels() -> None:
    page = printed(16)
    assert picture_inputs("mvp13", page) == {}
    (evidence,) = picture_inputs(["rgb", "text_mask"], page).values()
    assert torch.equal(evidence[0], text_evidence(load_guide(), page))
    array = generate_texture_array(page[None], (8, 16), ["text_mask"], **picture_inputs(["text_mask"], page))
    assert array.shape == (1, 1, 8, 16)


class TestChannelsThatNobodyMakes:
    def test_a_group_that_needs_an_encoder_is_refused_in_a_line(self) -> None:
        for channels in ("full40", ["rgb", "components"]):
            with pytest.raises(
                ValueError, match="'components' needs basis and coarse_features, which a picture alone"
            ):
                check_channels(channels)
        assert set(picture_inputs("full40", printed(16))) == {"text_evidence"}  # the rest is the caller's

    def test_what_reads_frames_and_questions_does_without(self) -> None:
        for channels in ("mvp13", "fast13", "full20", ["text_mask", "attention_memory", "relevance_memory"]):
            check_channels(channels)

    def test_a_model_is_not_made_with_a_layer_that_lacks_its_basis(self) -> None:
        built = tiny("qwen3_vl")
        layer = ARRCOCLayer(ARRCOCConfig(dim=32, channels="full40"))
        with pytest.raises(ValueError, match="'components' needs a basis of the encoder's features"):
            ARRCOCModel(built.model, built.processor, layer)

    def test_channels_of_time_are_neutral_in_modes(self) -> None:
        """No earlier question is remembered, so no answer depends on another's."""
        built = tiny("qwen3_vl")
        layer = ARRCOCLayer(ARRCOCConfig(dim=32, channels="full20"))
        layer.trained = True
        model = ARRCOCModel(built.model, built.processor, layer, strict=True)
        session = model.session(Image.new("RGB", (64, 64), "white"))
        first = session.look("What?", budget=3, mode="prune").keep
        session.look("Where else?", budget=3, mode="prune")
        assert torch.equal(session.look("What?", budget=3, mode="prune").keep, first)
