"""What ships inside the package: an ordinary model folder, its allocator and the sample."""

from __future__ import annotations

import json

import pytest
from transformers import AutoModelForImageTextToText, AutoProcessor

from arr_coc import ARRCOCQwen
from arr_coc.checkpoint import BUNDLED_ALLOCATOR, BUNDLED_MODEL

SAMPLE = BUNDLED_MODEL.parent / "sample.json"


@pytest.fixture(scope="module")
def model():
    return ARRCOCQwen.from_pretrained(strict=True)


def test_folder_is_an_ordinary_qwen3_vl():
    base = AutoModelForImageTextToText.from_pretrained(BUNDLED_MODEL)
    assert type(base).__name__ == "Qwen3VLForConditionalGeneration"
    vision = base.config.vision_config
    assert (vision.patch_size, vision.spatial_merge_size) == (16, 2)
    assert len(vision.deepstack_visual_indexes) == 1
    assert any(p.abs().max() > 0 for p in base.model.visual.deepstack_merger_list[0].linear_fc2.parameters())
    assert type(AutoProcessor.from_pretrained(BUNDLED_MODEL)).__name__ == "Qwen3VLProcessor"


def test_everything_bundled_fits_into_25_megabytes():
    files = [f for f in BUNDLED_MODEL.parent.rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) <= 25 * 2**20
    assert not [f for f in files if f.suffix in (".bin", ".pt", ".pkl", ".pth")]


def test_allocator_is_trained_and_small(model):
    assert (BUNDLED_ALLOCATOR / "arr_coc.safetensors").is_file()
    assert model.layer.trained
    assert 20_000 <= sum(p.numel() for p in model.layer.parameters()) <= 100_000


def test_the_sample_is_answered_from_a_quarter_of_its_tokens(model):
    sample = json.loads(SAMPLE.read_text())
    answer = model.ask(SAMPLE.with_suffix(".png"), sample["question"])
    assert (answer.kept, answer.total) == (273, 1024)
    assert not answer.fallback
    assert answer.text == sample["answer"]


def test_another_question_moves_the_kept_cells(model):
    session = model.session(SAMPLE.with_suffix(".png"))
    a = session.look("How many red shapes are there?", budget=64)
    b = session.look("What is the title?", budget=64)
    assert a.iou(b) < 0.8
