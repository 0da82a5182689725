"""The balance of maps: laws of its network, on random maps; its file; what reaches it from couplings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from arr_coc.guide import GUIDE
from arr_coc.guide.coupling import Coupling, SourcePart
from arr_coc.guide.question import WIDTH as QUESTION_WIDTH
from arr_coc.relevance.balance import (
    FILE,
    KINDS,
    OTHER,
    BalanceInputs,
    BalanceNet,
    inputs_of,
    join_inputs,
    load_balance,
    save_balance,
    sources,
    unit_best,
    unit_numbers,
)
from arr_coc.relevance.source import PRIOR

GRID = (5, 7)


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def moved() -> BalanceNet:
    """A net off its start, where corrections are zero."""
    net = BalanceNet().eval()
    with torch.no_grad():
        for seed, parameter in enumerate(net.parameters()):
            parameter += 0.1 * noise(seed, *parameter.shape)
    return net


def inputs(seed: int = 0, batch: int = 2, kinds: tuple[int, ...] = (0, 1)) -> BalanceInputs:
    count = GRID[0] * GRID[1]
    units = torch.arange(count)
    units[3:6] = 3
    return BalanceInputs(
        kinds,
        noise(seed, len(kinds), batch, *GRID) * 3,
        noise(seed + 1, len(kinds), batch).sigmoid(),
        units.expand(batch, -1),
        noise(seed + 2, batch, *GRID),
        noise(seed + 3, batch, *GRID),
        noise(seed + 4, batch, QUESTION_WIDTH),
        noise(seed + 5, batch, 10).sigmoid(),
    )


def coupling(seed: int = 0, **facts: object) -> Coupling:
    made = Coupling(noise(seed, *GRID) * 3, 0.7, question=noise(seed + 1, QUESTION_WIDTH))
    return replace(made, **facts)


class TestNet:
    def test_untrained_it_adds_log_odds_less_the_prior_of_each(self) -> None:
        given_inputs = inputs()
        weighed = BalanceNet()(given_inputs)
        expected = (given_inputs.logits - PRIOR).sum(0) + PRIOR
        torch.testing.assert_close(weighed.participatory, expected)
        assert torch.equal(weighed.gates[0], weighed.gates[1])

    @torch.no_grad()
    def test_sources_have_no_order(self) -> None:
        one = inputs()
        other = one._replace(
            kinds=one.kinds[::-1], logits=one.logits.flip(0), confidences=one.confidences.flip(0)
        )
        net = moved()
        for mine, theirs in zip(net(one), net(other), strict=True):
            torch.testing.assert_close(mine, theirs)

    @torch.no_grad()
    def test_a_source_without_confidence_changes_nothing(self) -> None:
        net, both = moved(), inputs()
        silent = both._replace(confidences=both.confidences * torch.tensor([[1.0], [0.0]]))
        alone = both._replace(kinds=(0,), logits=both.logits[:1], confidences=both.confidences[:1])
        for mine, theirs in zip(net(silent), net(alone), strict=True):
            torch.testing.assert_close(mine, theirs)

    @torch.no_grad()
    def test_no_picture_influences_another(self) -> None:
        net, one, other = moved(), inputs(0, 1), inputs(20, 1)
        together = net(join_inputs([one, other]))
        for i, alone in enumerate((net(one), net(other))):
            for mine, theirs in zip(together, alone, strict=True):
                torch.testing.assert_close(mine[i : i + 1], theirs, atol=1e-5, rtol=1e-5)

    @torch.no_grad()
    def test_question_picture_and_surroundings_all_count(self) -> None:
        net, one = moved(), inputs()
        plain = net(one)
        for name in ("question", "facts", "information", "saliency"):
            changed = net(one._replace(**{name: getattr(one, name) + 1}))
            assert not torch.allclose(plain.gates, changed.gates), name
        far = one.logits.clone()
        far[0, :, 2, 0] += 4  # the left end of a row moves the cell at its right end
        assert not torch.allclose(
            plain.participatory[:, 2, -1], net(one._replace(logits=far)).participatory[:, 2, -1]
        )

    def test_it_learns_from_every_input(self) -> None:
        net = moved()
        weighed = net(inputs(kinds=(0, 1, OTHER)))
        (weighed.logits.square().sum() + weighed.tensions.square().sum()).backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())

    @given(st.integers(0, 10**6), st.floats(-30, 30))
    @torch.no_grad()
    def test_whatever_is_read_the_result_is_finite(self, seed: int, factor: float) -> None:
        one = inputs(seed)
        weighed = load_balance()(one._replace(logits=one.logits * factor))
        assert all(bool(part.isfinite().all()) for part in weighed)


def test_units_share_their_best() -> None:
    numbers = unit_numbers(torch.tensor([[0, 0, -1], [4, -1, 4]]), (2, 3))
    assert len(set(numbers.tolist())) == 4  # two units and two cells alone
    best = unit_best(torch.tensor([[[[1.0, 5.0, 2.0], [7.0, 0.0, 3.0]]]]), numbers[None])
    assert best.flatten().tolist() == [5, 5, 2, 7, 0, 7]
    assert unit_numbers(None, (2, 2)).tolist() == [0, 1, 2, 3]


class TestInputs:
    def test_kinds_of_sources(self) -> None:
        assert sources(coupling()) == (KINDS[GUIDE],)
        assert sources(coupling(question=None)) == (OTHER,)
        parts = tuple(SourcePart(name, noise(3, *GRID), 0.5) for name in ("ocr", GUIDE, "mine"))
        assert sources(coupling(parts=parts)) == (KINDS["ocr"], KINDS[GUIDE], OTHER)

    def test_shapes_and_what_is_missing(self) -> None:
        maps = noise(5, 1, *GRID), noise(6, 1, *GRID)
        read = inputs_of(coupling(question=None, confidence=0.0), *maps, rare=False)
        assert read.logits.shape == (1, 1, *GRID)
        assert float(read.confidences.min()) > 0  # alone, it still orders the cells
        assert not read.question.any()
        rare = inputs_of(coupling(), *maps, rare=True)
        assert float(rare.facts[0, 6]) != float(read.facts[0, 6])


class TestFile:
    def test_saved_and_loaded(self, tmp_path: Path) -> None:
        net = moved()
        save_balance(net, tmp_path, [])
        loaded = load_balance(tmp_path)
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), loaded.parameters(), strict=True))
        assert not any(p.requires_grad for p in loaded.parameters())
        save_balance(BalanceNet(), tmp_path, [])  # another one of the same place is read anew
        assert not load_balance(tmp_path).last.weight.any()

    @pytest.mark.parametrize("content", [b"", b"no weights", b"{}" * 100])
    def test_what_is_none(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / FILE).write_bytes(content)
        with pytest.raises(ValueError, match="is not a saved balance"):
            load_balance(tmp_path)

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="is not a saved balance"):
            load_balance(tmp_path / "nothing")
