"""What runs/guide_ablation.py leaves out, and that it leaves out nothing else."""

import json

import pytest
import torch

from arr_coc.selector import Selector
from arr_coc_lab.world import draw_page
from scripts import ROOT, imported, need

need("runs/guide_ablation.py")
with imported("runs/guide_ablation.py") as ablation:
    pass


@pytest.fixture(scope="module")
def page():
    return draw_page(3, (512, 512), "test", void=False)


@pytest.fixture(scope="module")
def chosen(page):
    """What each part's selector says of one question."""
    question = page.questions[0].text
    return {name: each.decide(page.image, question, 64) for name, each in ablation.selectors().items()}


def test_with_all_parts_it_is_the_product(page, chosen):
    ours = Selector()(page.image, page.questions[0].text, 64)
    assert torch.equal(chosen["all parts"].allocations[0].keep, ours.keep)


@pytest.mark.parametrize("name", [name for name in ablation.PARTS if name.startswith("without")])
def test_a_part_that_is_left_out_is_missed(chosen, name):
    whole, without = chosen["all parts"], chosen[name]
    maps = ("information", "perspectival", "participatory", "balanced")
    same = [torch.equal(getattr(whole.allocations[0], m), getattr(without.allocations[0], m)) for m in maps]
    # Coverage is no part of any map: it is what is kept beside the best.
    assert name == "without coverage" or not all(same)


def test_what_is_left_out_is_back_afterwards(page, chosen):
    again = ablation.selectors()["all parts"].decide(page.image, page.questions[0].text, 64)
    assert torch.equal(again.allocations[0].balanced, chosen["all parts"].allocations[0].balanced)


def test_a_flat_map_has_one_value(chosen):
    for name in ("information", "perspectival", "participatory"):
        title = {"perspectival": "saliency map", "participatory": "coupling with the question"}.get(
            name, f"{name} map"
        )
        assert getattr(chosen[f"without the {title}"].allocations[0], name).unique().numel() == 1


def test_means_are_of_the_questions_that_have_a_figure():
    assert ablation.means([{"a": 1.0, "b": 2.0}, {"a": 0.0}]) == {"a": 0.5, "b": 2.0}


def test_reach_counts_regions():
    allocation = Selector()(draw_page(1, (512, 512), "test").image, "Describe the image.", 64)
    mask = allocation.mask()[0].unfold(0, 4, 4).unfold(1, 4, 4).any(-1).any(-1)
    assert ablation.reach(allocation) == pytest.approx(float(mask.float().mean()))


def test_the_result_file_names_every_part():
    result = json.loads((ROOT / "runs/results/guide-ablation.json").read_text())
    for folder in ("pages", "scenes", "strangers", "documents"):
        assert set(ablation.PARTS) <= set(result[folder]["all"])
