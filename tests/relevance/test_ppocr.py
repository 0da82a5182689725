"""Relevance "ppocr": what a detector of transformers marks is cut out level, and its recogniser reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image, ImageDraw
from torch import Tensor

from arr_coc.relevance import ppocr
from arr_coc.relevance.conformance import LAWS, SourceScene
from arr_coc.relevance.ocr import MAX_READ, OcrSource
from arr_coc.relevance.ppocr import (
    DETECTORS,
    EXAMPLE,
    RECOGNISERS,
    PpOcr,
    by_rows,
    cut_out,
    marked,
    open_ppocr,
)
from arr_coc.relevance.sums import open_relevance
from each import each

CHARACTERS = ["blank", *"abcdefghijkl", " "]
BARS = ((40, 40, 140, 52), (200, 44, 260, 56), (40, 120, 300, 140), (40, 200, 70, 212))  # on a page of SIZE
SIZE = (400, 300)  # (width, height)
STAGES = ["stage1", "stage2", "stage3", "stage4"]
WAYS = ("vertical_long_to_small_conv", "horizontal_small_to_long_conv", "symmetric_conv_long")
GAIN = 1.7  # of random weights


def lcnet(strides: Sequence[Any], outputs: Sequence[str]) -> Any:
    stages = [[[3, 8, 8, 1, True]], *([[3, 8, 8, stride, False]] for stride in strides)]
    return transformers.PPLCNetV4Config(stem_channels=[3, 8, 8], block_configs=stages, out_features=outputs)


def lcnet_v3(strides: Sequence[Any]) -> Any:
    stages = [[[3, 8, 8, 1, False]], *([[3, 8, 8, stride, False]] for stride in strides)]
    return transformers.PPLCNetV3Config(
        stem_channels=8, block_configs=stages, conv_symmetric_num=1,
        out_features=["stage2", "stage3", "stage4", "stage5"],
    )  # fmt: skip


def hgnet(**settings: Any) -> Any:
    sizes, ones = [8, 8, 8, 8], [1, 1, 1, 1]
    return transformers.HGNetV2Config(
        stem_channels=[3, 8, 8], stage_in_channels=sizes, stage_mid_channels=sizes, stage_out_channels=sizes,
        hidden_sizes=sizes, stage_num_blocks=ones, stage_numb_of_layers=ones, depths=ones,
        out_features=STAGES, **settings,
    )  # fmt: skip


def backbone(kind: str) -> Any:
    if kind == "pp_ocrv5_server_det":
        return hgnet()
    if kind == "pp_ocrv5_server_rec":
        return hgnet(
            stem_strides=[2, 1, 1, 1, 1], stage_downsample=[True] * 4,
            stage_downsample_strides=[[2, 1], [1, 2], [2, 1], [2, 1]],
        )  # fmt: skip
    if kind.startswith("pp_ocrv5_mobile"):
        return lcnet_v3((2, 2, 2, 2) if kind.endswith("det") else (1, [2, 1], [2, 1], [2, 1]))
    return lcnet((2, 2, 2), STAGES) if kind.endswith("det") else lcnet((1, [2, 1], [2, 1]), STAGES[-1:])


def sizes_of(kind: str) -> dict[str, Any]:
    if kind == "pp_ocrv6_tiny_rec":
        return {"hidden_size": 16, "head_out_channels": len(CHARACTERS)}
    if kind.endswith("rec"):
        heads = {"num_attention_heads": 2, "depth": 1}
        return heads | {"hidden_size": 16, "head_out_channels": len(CHARACTERS)}
    if kind in ("pp_ocrv6_small_det", "pp_ocrv5_mobile_det"):
        return {"neck_out_channels": 16, "layer_list_out_channels": [8] * 4}
    parts = [f"{way}_{length}ratio" for way in WAYS for length in ("long", "mid", "short")]
    blocks = {part: [1, 1, 0] for part in (*parts, "reduce_channel", "return_channel")}
    scales = {"scale_factor_list": [1, 2, 4, 8], "kernel_list": [3, 2, 2]}
    return scales | {"neck_out_channels": 16, "intraclass_block_config": blocks}


@cache
def built(kind: str, seed: int = 3) -> tuple[Any, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = transformers.CONFIG_MAPPING[kind](backbone_config=backbone(kind), **sizes_of(kind))
        model = getattr(transformers, (DETECTORS | RECOGNISERS)[kind])(config)
        for part in model.modules():
            if hasattr(part, "running_mean"):
                part.momentum = 1.0
        for weight in model.parameters():
            if weight.dim() > 1:  # so that what differs is told apart
                torch.nn.init.normal_(weight, std=GAIN / math.sqrt(weight[0].numel()))
        model.train()(torch.randn(4, 3, 48 if kind.endswith("rec") else 64, 320))  # norms of such pictures
    if kind.endswith("det"):
        return model, transformers.PPOCRV5ServerDetImageProcessor()
    family = "PPOCRV6SmallRec" if "v6" in kind else "PPOCRV5ServerRec"
    return model, getattr(transformers, f"{family}ImageProcessor")(character_list=CHARACTERS)


class Dark(torch.nn.Linear):
    """A detector that marks dark px."""

    device, dtype = torch.device("cpu"), torch.float32

    def forward(self, pixels: Tensor) -> Any:
        return SimpleNamespace(last_hidden_state=(pixels.mean(1, keepdim=True) < 0).float())


def dark_reader(kind: str = "pp_ocrv6_small_rec", seed: int = 3) -> PpOcr:
    return PpOcr((Dark(1, 1), built("pp_ocrv6_small_det")[1]), built(kind, seed))


def page(*bars: tuple[int, ...], size: tuple[int, int] = SIZE, scale: int = 1) -> np.ndarray:
    """A white page with dark bars, each of its own pattern, so that each is read as another text."""
    image = Image.new("RGB", size, "white")
    for x0, y0, x1, y1 in bars:
        bar = np.random.default_rng(x0 * y0 + x1).integers(0, 90, (y1 - y0, x1 - x0, 3), dtype=np.uint8)
        image.paste(Image.fromarray(bar), (x0, y0))
    return np.asarray(image.resize((size[0] * scale, size[1] * scale), Image.Resampling.NEAREST))


def noise(seed: int) -> Tensor:
    return torch.rand(3, 48, 64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("detector", "recogniser"), list(zip(DETECTORS, RECOGNISERS, strict=True)))
def test_random_weights_keep_all_laws_that_ask_for_no_knowledge(
    detector: str, recogniser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = {"limit_side_len": 64, "limit_type": "min", "max_side_limit": 320}
    least = {"INKED": 0.5, "SURE": 0.0, "CERTAIN": 0.0, "THIN": 1.0}
    for name, value in ({"SIDES": sides, "MAX_READ": 9} | least).items():
        monkeypatch.setattr(ppocr, name, value)
    read = PpOcr(built(detector), built(recogniser))
    source = OcrSource(read, "table")
    scenes = [SourceScene(noise(seed), "What is the total?", (0, 0, 9, 9)) for seed in (0, 1)]
    laws = ("is described", "keeps views", "fills grids", "repeats", "remembers nothing")
    assert not [what for law in laws for what in LAWS[law](source, scenes)]
    lines = source.view(noise(0)).lines
    assert lines
    for text, (x0, y0, x1, y1) in lines:
        assert text.strip()
        assert 0 <= x0 < x1 <= 64
        assert 0 <= y0 < y1 <= 48


@pytest.mark.parametrize("recogniser", RECOGNISERS)
def test_lines_are_read_where_they_are_and_alike_in_any_company(
    recogniser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CERTAIN", "POOR"):
        monkeypatch.setattr(ppocr, name, 0.0)
    read = dark_reader(recogniser)
    lines = read(page(*BARS))
    assert len({line.text for line in lines}) > 1
    for line, bar in zip(lines, BARS, strict=True):
        assert np.allclose(line.box, bar, atol=0.8 * (bar[3] - bar[1]))
        assert read(page(bar)) == [line]
    assert read(page(*BARS)) == lines


def test_boxes_are_in_px_of_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppocr, "CERTAIN", 0.0)
    read = dark_reader()
    small, large = read(page(*BARS)), read(page(*BARS, scale=8))  # 3,200 px wide, and read at 2,000
    for one, other in zip(small, large, strict=True):
        assert np.allclose(np.multiply(one.box, 8), other.box, atol=16)


def test_uncertain_lines_are_dropped_and_the_surer_way_up_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppocr, "SIDES", ppocr.SIDES | {"limit_side_len": 64})
    read, upright = dark_reader(), page(*BARS)
    kept, levels = {}, [level / 20 for level in range(21)]
    for poor in (0.0, 2.0):  # never, and always, read the other way up
        monkeypatch.setattr(ppocr, "POOR", poor)
        for certain in levels:
            monkeypatch.setattr(ppocr, "CERTAIN", certain)
            kept[poor, certain] = [line.box for line in read(upright)]
            assert set(kept[poor, certain]) <= set(kept[poor, 0.0])
            assert set(kept[0.0, certain]) <= set(kept[poor, certain])
    assert any(kept[0.0, certain] != kept[2.0, certain] for certain in levels)
    assert len(kept[0.0, 0.0]) == len(BARS)
    assert not kept[2.0, 1.0]
    monkeypatch.setattr(ppocr, "CERTAIN", 0.0)
    turned = read(np.ascontiguousarray(upright[::-1, ::-1]))
    assert sorted(line.text for line in turned) == sorted(line.text for line in read(upright))


@each("size", [(1, 1), (1, 700), (700, 1), (9000, 3), (40, 2400), (64, 48)])
def test_empty_and_thin_pictures(size: tuple[int, int]) -> None:
    read = dark_reader()
    assert read(page(size=size)) == []
    assert len(read(np.zeros_like(page(size=size)))) <= 1
    random = np.random.default_rng(0).integers(0, 255, (*size[::-1], 3), dtype=np.uint8)
    for line in read(random):
        assert 0 <= line.box[0] < line.box[2] <= size[0]
        assert 0 <= line.box[1] < line.box[3] <= size[1]


def test_a_line_of_no_text_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppocr, "CERTAIN", 0.0)
    model, processor = built("pp_ocrv6_tiny_rec")
    blank = transformers.PPOCRV6TinyRecForTextRecognition(model.config)
    blank.load_state_dict(model.state_dict())
    blank.head.fc2.bias.data[0] = 1e4
    assert PpOcr((Dark(1, 1), built("pp_ocrv6_small_det")[1]), (blank, processor))(page(*BARS)) == []
    spaces = transformers.PPOCRV6SmallRecImageProcessor(character_list=[" "] * len(CHARACTERS))
    assert PpOcr((Dark(1, 1), built("pp_ocrv6_small_det")[1]), (model, spaces))(page(*BARS)) == []


@each("degrees", [0, 3, 30, 44, -30, 80, 90])
def test_marked_rectangles_are_found_and_cut_out_level(degrees: float) -> None:
    turn = math.radians(degrees)
    across, down = np.array([math.cos(turn), math.sin(turn)]), np.array([-math.sin(turn), math.cos(turn)])
    ends = [(100 + x * across + y * down) for x, y in ((-60, -8), (60, -8), (60, 8), (-60, 8))]
    image = Image.new("L", (200, 200))
    ImageDraw.Draw(image).polygon([tuple(one) for one in ends], fill=255)
    (corners,) = marked(np.asarray(image, np.float32) / 255)
    grown = 121 * 17 * ppocr.UNCLIP / (121 + 17)  # on both sides
    sides = sorted(np.linalg.norm(corners - np.roll(corners, 1, 0), axis=1))
    assert np.allclose(sides, [17 + grown] * 2 + [121 + grown] * 2, atol=5)
    assert np.allclose(corners.mean(0), 100, atol=1)
    cut = np.asarray(cut_out(image, corners)) > 127
    cut = cut if cut.shape[1] > cut.shape[0] else cut.T
    assert np.isclose(cut.any(0).sum(), 120, atol=3)
    assert np.isclose(cut.any(1).sum(), 16, atol=3)
    assert cut[cut.any(1)][:, cut.any(0)].mean() > 0.85


def test_what_is_too_thin_too_weak_or_too_much_is_not_a_line() -> None:
    chances = np.zeros((300, 400), np.float32)
    assert marked(chances).shape == (0, 4, 2)
    chances[10:12, 10:200], chances[40:60, 10:200], chances[80:100, 10:200] = 1, 0.4, 0.6
    ((*_, bottom_left),) = marked(chances)
    assert bottom_left[1] > 100
    chances[:] = 0
    for y in range(0, 300, 10):
        for x in range(0, 400, 10):
            chances[y : y + 5, x : x + 5] = 1
    assert len(marked(chances)) == MAX_READ


def test_a_level_cut_is_the_picture_itself_and_lines_come_in_rows() -> None:
    image = Image.fromarray(np.random.default_rng(1).integers(0, 255, (50, 60, 3), dtype=np.uint8))
    box = np.array([[10.0, 5], [40, 5], [40, 20], [10, 20]])
    assert np.array_equal(cut_out(image, box), image.crop((10, 5, 40, 20)))
    places = [(200, 3), (10, 100), (90, 0), (50, 98), (0, 8)]
    ordered = by_rows(np.array([box + place for place in places]))
    assert ordered[:, 0].tolist() == [[10, 13], [100, 5], [210, 8], [20, 105], [60, 103]]
    assert len(by_rows(np.zeros((0, 4, 2)))) == 0


def saved(folder: Path, kind: str, seed: int = 3) -> str:
    for part in built(kind, seed):
        part.save_pretrained(folder)
    return str(folder)


def test_models_open_from_folders_of_safetensors_alone(tmp_path: Path) -> None:
    kinds = ("pp_ocrv5_mobile_det", "pp_ocrv6_tiny_rec")
    finder, reader = (saved(tmp_path / kind, kind) for kind in kinds)
    source = open_ppocr(f"{finder}, {reader}")
    own = OcrSource(PpOcr(*map(built, kinds)))
    assert source.version == own.version
    assert open_relevance(f"guide+ppocr:{finder},{reader}").name == "guide+ocr"
    views = [one.view(noise(0)) for one in (source, own)]
    assert views[0].lines == views[1].lines
    others = [(saved(tmp_path / "a", kinds[0], 4), reader), (finder, saved(tmp_path / "b", kinds[1], 4))]
    versions = {open_ppocr(f"{first},{second}").version for first, second in others}
    assert len(versions | {own.version, OcrSource(lambda pixels: []).version}) == 4


def test_what_cannot_be_opened_is_refused_in_a_line(tmp_path: Path) -> None:
    finder, reader = (saved(tmp_path / kind, kind) for kind in ("pp_ocrv6_small_det", "pp_ocrv6_small_rec"))
    with pytest.raises(ValueError, match="'pp_ocrv6_small_rec' and none of pp_ocrv6_small_det, pp_ocrv6_med"):
        open_ppocr(f"{reader},{finder}")
    for argument in (finder, f"{finder},{reader},{reader}"):
        with pytest.raises(ValueError, match="is no pair of models: give a detector and a recogniser"):
            open_ppocr(argument)
    with pytest.raises(ValueError, match=f"'ppocr' needs a model: .* ppocr:{EXAMPLE}"):
        open_ppocr(f"{finder},")
    model, processor = built("pp_ocrv6_small_rec")
    for number, part in enumerate(
        (
            transformers.PPOCRV6SmallRecImageProcessor(character_list=CHARACTERS[:-1]),
            transformers.PPOCRV5ServerDetImageProcessor(),
        )
    ):
        folder = tmp_path / f"{number}"
        model.save_pretrained(folder)
        part.save_pretrained(folder)
        with pytest.raises(ValueError, match="characters of 14, are processors of other models"):
            open_ppocr(f"{finder},{folder}")
    pickled, bare = tmp_path / "pickled", tmp_path / "bare"
    processor.save_pretrained(pickled)
    model.config.save_pretrained(pickled)
    torch.save(model.state_dict(), pickled / "pytorch_model.bin")
    model.save_pretrained(bare)
    for folder in (pickled, bare, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match=r"can't be (loaded|reached).*; give a folder or a name"):
            open_ppocr(f"{finder},{folder}")
