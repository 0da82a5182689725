"""Trust: what the balancer makes of the guide's word, for the questions that the plan names."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from arr_coc.choose.allocation import Reason
from arr_coc.choose.budget import (
    AUTO_MARGIN,
    AUTO_MASS,
    AUTO_PEAKED,
    cells_apart,
    effective_cells,
    enough_cells,
    expected_tokens,
    needed_cells,
)
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.texture import generate_texture_array
from arr_coc.guide.coupling import Coupling, GuideSource, Match
from arr_coc.guide.trust import (
    GENERAL,
    PASSED_OVER,
    SENTENCES,
    SURE,
    blend,
    guide_remark,
    in_other_script,
    sentence,
    shares,
    verdict,
    verdict_of,
)
from arr_coc.relevance.boxes import BoxSource
from arr_coc.relevance.deciding import SPARE, Cues, decide
from arr_coc.relevance.source import mixed

GRID = (24, 24)
LOGITS = 3 * torch.randn(GRID, generator=torch.Generator().manual_seed(2)) - 6
SAYS = {  # confidence, overview, unusual
    "What is the total?": (0.9, 0.02, 0.02),
    "What is unusual here?": (0.5, 0.05, 0.95),
    "Describe the image.": (0.6, 0.97, 0.02),
    "Who is the tsar of Bulgaria?": (0.02, 0.02, 0.02),
}
TOTAL, ODD, WHOLE, ABSENT = SAYS


def says(question: str) -> Coupling:
    return Coupling(LOGITS, *SAYS[question])


def decided(question: str, budget: int | str = 64, coupling: Coupling | None = None):
    page = torch.ones(1, 3, 768, 768)
    draws = torch.Generator().manual_seed(3)
    for _ in range(60):  # lines of something like print, and one thing that stands out
        y, x = (int(torch.randint(700, (1,), generator=draws)) for _ in range(2))
        page[..., y : y + 10, x : x + 150] = torch.rand(
            page[..., y : y + 10, x : x + 150].shape[-2:], generator=draws
        )
    page[:, 1:, 320:400, 320:400] = 0
    layer = ARRCOCLayer(ARRCOCConfig(dim=1)).eval()
    texture = generate_texture_array(page, GRID, layer.config.channels)
    one = says(question) if coupling is None else coupling
    cues = Cues(texture, torch.zeros(1, 1, 1), torch.ones(1, 1).bool(), coupling=one.logits[None], guided=one)
    with torch.no_grad():
        return decide(layer, [cues], [(1, *GRID)], [budget]).allocations[0]


def rank_correlation(one: Tensor, other: Tensor) -> float:
    ranks = torch.stack([x.flatten().argsort().argsort().float() for x in (one, other)])
    return float(torch.corrcoef(ranks)[0, 1])


def test_shares_add_up() -> None:
    for confidence in (0.0, 0.3, 0.5, 1.0):
        for whole in (0.0, 0.4, 0.6, 1.0):
            for odd in (0.0, 0.5, 1.0):
                kinds = shares(Coupling(LOGITS, confidence, whole, odd))
                assert sum(kinds) == pytest.approx(1)
                assert min(kinds) >= 0


@pytest.mark.parametrize(
    ("question", "kind"), [*zip(SAYS, ("sure", "unusual", "overview", "not_found"), strict=True)]
)
def test_the_kinds(question: str, kind: str) -> None:
    assert getattr(shares(says(question)), kind) > 0.9
    assert (guide_remark(says(question)) == SENTENCES["nothing"]) == (kind == "not_found")


def test_a_sure_guide_ranks_alone() -> None:
    allocation = decided(TOTAL)
    best = LOGITS.flatten().topk(64).indices
    assert torch.isin(allocation.keep, best).sum() >= 60
    assert (allocation.reasons == Reason.RELEVANT).all()
    assert allocation.weights[2] > 0.9 > 0.1 > allocation.weights[:2].max()
    assert allocation.note is None


def test_others_break_its_ties() -> None:
    coupling = Coupling(torch.zeros(GRID), 0.9, 0.0, 0.0)
    allocation = decided(TOTAL, coupling=coupling)
    assert rank_correlation(allocation.balanced, allocation.information + allocation.perspectival) > 0.4


def test_saliency_leads_where_something_odd_is_asked_for() -> None:
    allocation = decided(ODD)
    saliency, guide = allocation.perspectival, allocation.participatory
    assert rank_correlation(allocation.balanced, saliency) > rank_correlation(allocation.balanced, guide)
    assert allocation.mask()[0, 11, 11], "the red square"


def test_all_of_it_is_covered_where_all_of_it_is_asked_for() -> None:
    allocation = decided(WHOLE)
    assert (allocation.reasons == Reason.EXPLORED).sum() > 16
    blocks = allocation.mask()[0].unflatten(1, (4, 6)).unflatten(0, (4, 6)).sum((1, 3))
    assert blocks.min() >= 1
    assert allocation.weights[0] == allocation.weights.max()
    assert decided(WHOLE, "auto").kept >= decided(TOTAL, "auto").kept


def test_a_lost_guide_says_so_and_other_maps_count_more() -> None:
    allocation = decided(ABSENT)
    assert allocation.note == SENTENCES["nothing"]
    lost, sure = (decided(question, "auto") for question in (ABSENT, TOTAL))
    assert lost.tensions["compress"] < sure.tensions["compress"]
    assert (lost.reasons == Reason.EXPLORED).sum() >= (sure.reasons == Reason.EXPLORED).sum() == 0
    assert lost.weights[:2].sum() > sure.weights[:2].sum()


def test_a_guide_that_recognised_a_word_and_doubts_does_not_say_it_recognised_none() -> None:
    payable = Match("total", "payable", 0.99, (0.5, 0.5))
    assert guide_remark(replace(says(ABSENT), matches=(payable,))) == SENTENCES["unsure"]
    assert (
        guide_remark(replace(says(ABSENT), matches=(payable._replace(likeness=0.3),))) == SENTENCES["nothing"]
    )


def test_saliency_counts_where_a_crowded_place_is_asked_for() -> None:
    """What is rare on a page of text is the formula: a page's information says less of it."""
    formula = Match("formula", "formula", 0.1, (0.5, 0.5))
    coupling = Coupling(LOGITS, 0.9, 0.02, 0.02, (formula,))
    assert shares(coupling).dense == pytest.approx(0.9)
    allocation = decided(TOTAL, coupling=coupling)
    assert allocation.weights[1] > 4 * decided(TOTAL).weights[1]
    assert allocation.note == SENTENCES["dense"]
    printed = formula._replace(likeness=0.99)
    assert shares(Coupling(LOGITS, 0.9, 0.02, 0.02, (printed,))).sure > 0.9
    total = Match("total", "total", 0.1, (0.5, 0.5))
    assert shares(Coupling(LOGITS, 0.9, 0.02, 0.02, (formula, total))).dense == 0


def test_the_models_own_look_is_mixed_in_by_the_share_of_lost() -> None:
    own = torch.ones(GRID)
    assert torch.equal(blend(says(TOTAL), own), LOGITS)
    assert torch.equal(blend(Coupling(LOGITS, 0.0, 0.0, 0.0), own), own)
    assert torch.allclose(blend(says(ABSENT), own), own, atol=0.05 * float((LOGITS - own).abs().max()))
    half = Coupling(LOGITS, SURE / 2, 0.0, 0.0)
    assert torch.allclose(blend(half, own), (LOGITS + own) / 2, atol=1e-5)


def test_auto_spends_what_is_needed() -> None:
    peaked, flat = torch.full((1, 8, 8), -20.0), torch.zeros(1, 8, 8)
    peaked[0, 0, :5] = 5.0
    assert enough_cells(peaked).tolist() == [pytest.approx(5 * AUTO_MARGIN)]
    assert enough_cells(flat)[0] >= AUTO_MASS * AUTO_MARGIN * 64
    few, many = (
        torch.where(LOGITS > LOGITS.flatten().topk(count + 1).values[-1], 4.0, -20.0) for count in (20, 150)
    )
    spent = [decided(TOTAL, "auto", Coupling(one, 0.9, 0.0, 0.0)).kept for one in (few, many)]
    assert spent[0] < spent[1], "what more cells need costs more"
    assert spent[1] > 150


@pytest.mark.parametrize("question", SAYS)
@pytest.mark.parametrize("lift", [-1.0, 3.0])
def test_auto_counts_the_map_that_leads(question: str, lift: float) -> None:
    coupling = replace(says(question), logits=LOGITS + lift)
    allocation = decided(question, "auto", coupling)
    leads = allocation.weights.argmax() == 2
    relevance = torch.logit(allocation.participatory if leads else allocation.balanced, eps=1e-7)
    counted = SPARE * needed_cells(relevance, allocation.weights[None])
    spent = expected_tokens(allocation.balanced.flatten(1), allocation.tensions["compress"], counted)
    assert allocation.kept == pytest.approx(float(spent), abs=1)
    assert torch.equal(allocation.keep, decided(question, allocation.kept, coupling).keep)


def test_the_leading_gate_says_how_a_map_is_counted() -> None:
    few = torch.zeros(3, 32, 32)  # an even ground at 0.5, as saliency has, and six cells that stand out
    few[:, 3, 3:9] = 0.6
    gates = torch.tensor([[0.1, 0.1, 1.0], [0.1, 1.0, 0.4], [1.0, 0.1, 0.4]])
    coupled, salient, informed = needed_cells(few, gates).tolist()
    assert coupled == float(enough_cells(few[:1])), "to a coupling 0.5 is the probability of evidence"
    assert coupled > 400 > 64 > salient
    effective = float(effective_cells(few[:1].flatten(1).sigmoid()))
    assert salient == informed == pytest.approx(AUTO_MARGIN * effective)


def test_a_faint_crowd_does_not_outweigh_the_few_cells_that_stand_out() -> None:
    crowd = torch.full((1, 32, 32), -7.0)
    crowd[0, ::2] = -2.5  # as many cells of blue circles as of white
    clear, dim = crowd.clone(), crowd.clone()
    clear[0, 3, 3:7], dim[0, 3, 3:7] = 1.6, -1.0
    assert enough_cells(clear)[0] < 3 * 4 * AUTO_PEAKED
    assert enough_cells(dim)[0] > 400, "nothing stands out clearly, so the crowd counts"


def test_auto_counts_what_stands_above_a_gap_where_the_coupling_is_alone() -> None:
    faint = torch.full((32, 32), -4.0)
    faint[8:24] = torch.linspace(-2.0, -3.5, 512).view(16, 32)  # a crowd without a gap
    apart, near, wide = faint.clone(), faint.clone(), faint.clone()
    apart[3, 3:15] = 0.1  # 12 cells as likely as not, 2.1 above the first of the crowd
    near[3, 3:15] = -0.1
    wide[3:6] = 0.1  # 96 cells, more than the least that auto keeps: no few
    maps = torch.stack((apart, near, wide, torch.zeros(32, 32)))
    assert cells_apart(maps).tolist() == [AUTO_PEAKED * 12, math.inf, math.inf, math.inf]
    assert cells_apart(torch.zeros(1, 1, 1)).tolist() == [math.inf], "one cell has no gap"
    leads = torch.tensor([[0.005, 0.005, 1.0]])
    assert needed_cells(maps[:1], leads, gaps=True)[0] == AUTO_PEAKED * 12
    assert needed_cells(maps[:1], leads)[0] == enough_cells(maps[:1])[0] > 400, (
        "boxes have gaps of no meaning"
    )
    assert needed_cells(maps[1:2], leads, gaps=True)[0] == enough_cells(maps[1:2])[0] > 400
    of_one = needed_cells(maps[[0, 0]], leads.expand(2, -1), torch.tensor([True, False]))
    assert of_one.tolist() == [AUTO_PEAKED * 12, float(enough_cells(maps[:1])[0])]
    assert needed_cells(maps[:1], leads.flip(1), gaps=True)[0] < 400, "information leads"


def test_gaps_count_for_the_guide_alone() -> None:
    cells = Coupling(torch.zeros(GRID), 0.9, by_cell=True)
    boxes = Coupling(torch.zeros(GRID), 0.9)
    silent = Coupling(torch.zeros(GRID), 0.0)
    guide, other = GuideSource(), BoxSource([])
    assert not mixed([(guide, cells), (other, boxes)]).by_cell
    assert mixed([(guide, cells), (other, silent)]).by_cell, "a source with nothing to go by is left out"
    assert guide.couple(guide.view(torch.rand(3, 64, 64)), "the title", (2, 2)).by_cell


def test_weights_move_without_a_jump() -> None:
    steps = [decided(TOTAL, coupling=Coupling(LOGITS, i / 20, 0.0, 0.0)) for i in range(21)]
    moved = [torch.cat((one.weights, torch.tensor(list(one.tensions.values())))) for one in steps]
    assert max(float((a - b).abs().max()) for a, b in pairwise(moved)) < 0.15


CONFIDENCES = [number / 20 for number in range(21)]


def test_a_higher_confidence_never_reads_worse_and_one_threshold_decides() -> None:
    for recognised in (False, True):
        kinds = [verdict(confidence, 0.0, 0.0, ("total",), recognised) for confidence in CONFIDENCES]
        below = "unsure" if recognised else "nothing"
        assert kinds == [("sure" if confidence >= SURE else below) for confidence in CONFIDENCES]


@pytest.mark.parametrize("likeness", [0.1, 0.99])
def test_cells_are_spread_exactly_where_a_sentence_says_so(likeness: float) -> None:
    total = Match("total", "total", likeness, (0.5, 0.5))
    for confidence in CONFIDENCES:
        coupling = Coupling(LOGITS, confidence, 0.0, 0.0, (total,))
        text = sentence(verdict_of(coupling), confidence, coupling.words)
        assert ("spread more widely" in text) == (shares(coupling).not_found > 0)
        assert text.startswith(f"{confidence:.0%}: ")
        assert (guide_remark(coupling) or "") in text, "a note is the sentence without its number"
        assert (guide_remark(coupling) is None) == (verdict_of(coupling) == "sure")


def test_a_question_in_another_script_is_told_that_it_was_not_read() -> None:
    chinese = Match("发票总额是多少", "发票总额是多少", 0.1, (0.5, 0.5))
    coupling = Coupling(LOGITS, 0.0, 0.0, 0.0, (chinese,))
    assert guide_remark(coupling) == SENTENCES["unread"]
    assert "Latin" in SENTENCES["unread"]
    mixed = replace(coupling, confidence=0.9, matches=(chinese, Match("total", "total", 0.99, (0.5, 0.5))))
    assert guide_remark(mixed) == PASSED_OVER
    assert PASSED_OVER in sentence(verdict_of(mixed), 0.9, mixed.words)
    assert [in_other_script(word) for word in ("总额", "итого", "σύνολο", "größe", "łódź", "2024", "?")] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip


def test_questions_about_no_place_have_no_number() -> None:
    for kind in (*GENERAL, "unread"):
        assert sentence(kind, 0.7) == SENTENCES[kind]
