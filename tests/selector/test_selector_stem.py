"""The selector of an allocator: the cells of mode "sparse" without its model, and what it refuses."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import arr_coc
from arr_coc import Reason, Selector
from arr_coc.files.saved import BUNDLED
from arr_coc.selector import Sizing, StemScorer
from each import each
from near import near

QUESTIONS = ("What is the invoice number?", "How many red circles are there?", "  wie, é\n ☃ 12-B4? ")
SIZES = ((1024, 1024), (900, 700), (333, 777), (64, 1500))


@cache
def selector() -> Selector:
    return Selector.from_pretrained("bundled")


@cache
def model() -> arr_coc.ARRCOCModel:
    return arr_coc.ARRCOCModel.from_pretrained(device="cpu")


def sample(size: tuple[int, int]) -> Image.Image:
    with Image.open(BUNDLED / "sample.png") as image:
        return image.convert("RGB").resize(size)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
def test_the_same_cells_as_the_model_would_choose(size: tuple[int, int]) -> None:
    image = sample(size)
    session = model().session(image)
    for question in QUESTIONS:
        for budget in (16, 0.25, "auto"):
            ours, theirs = (
                selector()(image, question, budget),
                session.look(question, budget=budget, mode="sparse"),
            )
            assert ours.grid == theirs.grid
            assert torch.equal(ours.keep, theirs.keep), (question, budget)
            assert near(ours.balanced, theirs.balanced)


def test_a_grid_of_ones_own() -> None:
    allocation = selector()(sample((700, 500)), QUESTIONS[0], 20, grid=(9, 13))
    assert allocation.grid == (1, 9, 13)
    assert allocation.kept == 20


@each(
    ("height", "width"),
    [
        (height, width)
        for height in (16, 40, 64, 700, 1024, 2048, 6000)
        for width in (16, 48, 900, 1024, 3000, 8000)
        if max(height, width) <= 200 * min(height, width)  # processors refuse others
    ],
)
def test_sizes_are_those_of_the_image_processor(height: int, width: int) -> None:
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

    grid = Sizing.read(BUNDLED / "model").grid(height, width)
    assert (32 * grid[0], 32 * grid[1]) == smart_resize(height, width, 32, 4096, 4194304)


@pytest.mark.parametrize(("cell", "least", "most"), [(32, 4096, 4194304), (28, 3136, 12845056)])
def test_squares_are_rounded_as_the_image_processor_does(cell: int, least: int, most: int) -> None:
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

    sizing = Sizing(cell, least, most)
    for side in (*range(1, 80), *range(2049, 6000)):
        assert cell * sizing.grid(side, side)[0] == smart_resize(side, side, cell, least, most)[0], side


QWEN2 = {"patch_size": 14, "merge_size": 2, "min_pixels": 3136, "max_pixels": 12845056}
"""What an image processor's file of Qwen2-VL says."""


class TestSizing:
    """Files of models as they are published."""

    def read(self, folder: Path, **files: dict[str, Any]) -> Sizing:
        for name, settings in files.items():
            (folder / f"{name}.json").write_text(json.dumps(settings))
        return Sizing.read(folder)

    @pytest.mark.parametrize("size", [None, {"shortest_edge": 3136, "longest_edge": 999}])
    def test_pixels_by_their_old_names(self, tmp_path: Path, size: Any) -> None:
        sizing = self.read(tmp_path, preprocessor_config=QWEN2 | ({"size": size} if size else {}))
        assert (sizing.cell, sizing.least, sizing.most) == (28, 3136, 12845056)

    def test_old_names_within_the_size(self, tmp_path: Path) -> None:
        size = {"min_pixels": 3136, "max_pixels": 12845056}
        sizing = self.read(tmp_path, preprocessor_config={"patch_size": 14, "merge_size": 2, "size": size})
        assert (sizing.cell, sizing.least, sizing.most) == (28, 3136, 12845056)

    def test_a_processor_file_without_an_image_processor(self, tmp_path: Path) -> None:
        files = {"processor_config": {"processor_class": "P"}, "preprocessor_config": QWEN2}
        assert self.read(tmp_path, **files).cell == 28

    def test_neither_says_it(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"preprocessor_config.json' doesn't say how large cells are"):
            self.read(tmp_path, processor_config={"a": 1}, preprocessor_config={"patch_size": 14})


def test_a_count_above_the_cells_keeps_all() -> None:
    """Also the default, 64."""
    for allocation in (selector()(sample((64, 64)), "What?"), selector()(sample((64, 64)), "What?", 5)):
        assert (allocation.kept, allocation.total) == (4, 4)
        assert (allocation.reasons == Reason.ALL).all()


class TestRefused:
    def test_no_stem(self, tmp_path: Path) -> None:
        folder = shutil.copytree(BUNDLED / "allocator", tmp_path / "allocator")
        (folder / "stem.safetensors").unlink()
        with pytest.raises(ValueError, match="has not a stem"):
            Selector.from_pretrained(folder)

    def test_a_base_model_that_is_not_here(self, tmp_path: Path) -> None:
        folder = shutil.copytree(BUNDLED / "allocator", tmp_path / "allocator")
        settings = json.loads((folder / "arr_coc_config.json").read_text())
        (folder / "arr_coc_config.json").write_text(json.dumps(settings | {"base_model": "you/your-model"}))
        with pytest.raises(ValueError, match="'you/your-model' of the allocator is no folder here"):
            Selector.from_pretrained(folder)
        other = Selector.from_pretrained(folder, base=BUNDLED / "model")
        assert other(sample((64, 64)), "What?", 1).kept == 1

    def test_words_that_were_cut_off(self, tmp_path: Path) -> None:
        base = shutil.copytree(BUNDLED / "model", tmp_path / "base")
        words = base / "tokenizer.json"
        words.write_bytes(words.read_bytes()[:999])
        with pytest.raises(ValueError, match=r"tokenizer.json' can't be read \(.*\); copy it again"):
            Selector.from_pretrained("bundled", base=base)

    def test_nothing_is_kept_of_a_picture(self) -> None:
        with pytest.raises(ValueError, match="keeps nothing of a picture"):
            selector().encode(sample((64, 64)))

    def test_words_of_another_model(self) -> None:
        parts = selector().trained
        assert parts is not None
        with pytest.raises(ValueError, match="different widths"):
            StemScorer(parts.layer, parts.stem, parts.tokenizer, parts.embeddings[:, :7], parts.sizing)
