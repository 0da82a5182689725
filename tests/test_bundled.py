"""What ships inside the package: an ordinary model folder, its allocator and the sample."""

from __future__ import annotations

import json
import zlib

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor

from arr_coc import ARRCOCQwen
from arr_coc.data.evidence import evidence_cells
from arr_coc.store.checkpoint import BUNDLED_ALLOCATOR, BUNDLED_MODEL
from arr_coc_lab.world import draw_page

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


def test_weights_are_saved_in_bfloat16_and_computed_with_in_float32(model):
    saved = load_file(BUNDLED_MODEL / "model.safetensors")
    assert {weight.dtype for weight in saved.values()} == {torch.bfloat16}
    ordinary = AutoModelForImageTextToText.from_pretrained(BUNDLED_MODEL)
    for base in (model.base, ordinary):
        assert {weight.dtype for weight in base.parameters()} == {torch.float32}
        assert all(torch.equal(base.state_dict()[name], weight.float()) for name, weight in saved.items())


def test_everything_bundled_fits_into_16_megabytes_and_the_guide_into_12():
    files = [f for f in BUNDLED_MODEL.parent.rglob("*") if f.is_file()]
    guide = [f for f in files if f.parent.name == "guide"]
    assert 0 < sum(f.stat().st_size for f in guide) <= 12 * 2**20
    assert sum(len(zlib.compress(f.read_bytes())) for f in files if f not in guide) <= 16 * 2**20, (
        "in the wheel"
    )
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


def test_gray_text_gets_more_than_twice_the_share_of_the_red_square_beside_it(model):
    """Adversarial saliency, cell for cell; `runs/adversarial.py` measures it on sixty pages."""
    text, square = [], []
    pages = (draw_page(seed, (512, 512), "test") for seed in range(200))
    for page in (page for page in pages if any(fact.family == "gray" for fact in page.facts)):
        fact = next(fact for fact in page.facts if fact.family == "gray")
        kept = torch.zeros(16, 16, dtype=torch.bool)
        kept.view(-1)[model.look(page.image, "What does the gray text say?", budget=16).keep] = True
        x0, y0, x1, y1 = fact.boxes[0]
        reds = [t for t in page.things if (t.colour, t.shape) == ("red", "square")]
        red = min(reds, key=lambda t: abs(t.x - (x0 + x1) / 2) + abs(t.y - (y0 + y1) / 2))
        half = red.size // 2
        where = evidence_cells(fact.boxes, (16, 16), (512, 512))
        beside = evidence_cells(
            [(red.x - half, red.y - half, red.x + half, red.y + half)], (16, 16), (512, 512)
        )
        text.append(kept[where].float().mean().item())
        square.append(kept[beside & ~where].float().mean().item())
        if len(text) == 6:
            break
    assert len(text) == 6
    assert sum(text) > 2 * sum(square)
    assert sum(text) / 6 > 0.9


def test_auto_spends_more_on_a_count_than_on_a_field(model):
    page = draw_page(1, (1024, 1024), "test", void=False)
    session = model.session(page.image)
    counts = [session.look(q.text, budget="auto").kept for q in page.questions if q.family == "count"]
    fields = [
        session.look(q.text, budget="auto").kept for q in page.questions if q.family in ("value", "table")
    ]
    assert fields
    assert counts
    assert sum(counts) / len(counts) > 1.2 * sum(fields) / len(fields)


def test_another_question_moves_the_kept_cells(model):
    session = model.session(SAMPLE.with_suffix(".png"))
    a = session.look("How many red shapes are there?", budget=64)
    b = session.look("What is the title?", budget=64)
    assert a.iou(b) < 0.8
