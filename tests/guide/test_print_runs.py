"""Runs of print: what stands together is raised together, and nothing else is touched."""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.guide.print_encoder import COLUMN_PX, MAX_GAP, MAX_RUN, complete_runs, print_runs, run_meanings
from near import near


def page(*spans: tuple[int, int, int], size: tuple[int, int] = (64, 1024)) -> Tensor:
    """White paper with stripes as fine as print: (top, left, right) in px, each 10 px high."""
    light = torch.ones(1, 1, *size)
    for top, left, right in spans:
        light[..., top : top + 10, left:right:2] = 0.0
    return light


def test_a_gap_in_a_run_is_crossed_and_one_in_a_table_is_not() -> None:
    near, far = MAX_GAP * COLUMN_PX, (MAX_GAP + 3) * COLUMN_PX
    runs = print_runs(page((2, 64, 128), (2, 128 + near, 224), (2, 224 + far, 400)))
    row = runs[0, 0]
    assert row[64 // COLUMN_PX] == row[220 // COLUMN_PX] > 0
    assert row[300 // COLUMN_PX] not in (0, row[64 // COLUMN_PX])
    assert not runs[0, 1:].any()
    assert not row[: 60 // COLUMN_PX].any()


def test_every_row_has_runs_of_its_own() -> None:
    runs = print_runs(page((2, 64, 128), (18, 64, 128)))
    assert 0 < runs[0, 0, 20] != runs[0, 1, 20] > 0


def test_rules_and_empty_paper_are_no_runs() -> None:
    assert not print_runs(page((2, 0, (MAX_RUN + 1) * COLUMN_PX))).any()
    assert not print_runs(torch.full((1, 1, 32, 64), 0.3)).any()


def test_places_of_a_run_are_raised_to_its_mean_and_others_stay() -> None:
    runs = print_runs(page((2, 64, 256)))  # the places 2 to 7 of the first row
    places = torch.full((2, 4, 32), -6.0)
    places[0, 0, 3] = 4.0
    places[1, 2, 9] = 4.0
    done = complete_runs(places, runs)
    mean = torch.tensor([4.0, *[-6.0] * 5]).exp().mean().log()
    assert torch.allclose(done[0, 0, [2, 4, 5, 6, 7]], mean.expand(5), atol=0.1)
    changed = done != places
    assert changed[0].sum() == 5
    assert not changed[1][1:].any()
    assert near(done[1], places[1])


def test_no_place_is_lowered_and_a_picture_without_print_is_left_alone() -> None:
    places = torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(0))
    assert (complete_runs(places, print_runs(page((2, 64, 300), (18, 100, 500)))) >= places).all()
    assert torch.equal(complete_runs(places, print_runs(page())), places)


def test_places_of_a_run_mean_what_the_run_does_and_others_nothing() -> None:
    runs = print_runs(page((2, 64, 256), (18, 64, 128), (18, 400, 480)))
    meanings = torch.randn(1, 5, 4, 32, generator=torch.Generator().manual_seed(0))
    whole = run_meanings(meanings, runs)
    assert whole.shape == meanings.shape
    owners = runs[0].unflatten(-1, (32, -1)).amax(-1)
    assert len(owners.unique()) == 4
    for owner in owners.unique().tolist():
        parts, own = meanings[0][:, owners == owner], whole[0][:, owners == owner]
        expected = torch.nn.functional.normalize(parts.sum(1), dim=0) * (owner > 0)
        assert near(own, expected[:, None].expand_as(own))
    assert not run_meanings(meanings, print_runs(page())).any()
    assert not run_meanings(torch.zeros_like(meanings), runs).any(), "print that means nothing"


def test_pictures_of_a_batch_have_runs_of_their_own() -> None:
    lights = [page((2, 64, 256)), page((18, 64, 128), (34, 400, 480)), page()]
    runs = print_runs(torch.cat(lights))
    places = torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(1))
    meanings = torch.randn(3, 5, 4, 32, generator=torch.Generator().manual_seed(2))
    raised, whole = complete_runs(places, runs), run_meanings(meanings, runs)
    for i, light in enumerate(lights):
        alone = print_runs(light)
        assert torch.equal(runs[i : i + 1], alone)
        assert near(raised[i : i + 1], complete_runs(places[i : i + 1], alone))
        assert near(whole[i : i + 1], run_meanings(meanings[i : i + 1], alone))
