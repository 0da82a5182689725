"""A store of pages: its files, which page fits a question best, and a retriever's way from pages to cells."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from arr_coc.choose.budget import divide_budget
from arr_coc.files.pixels import image_pixels
from arr_coc.relevance.pages import open_pages, rank_pages
from arr_coc.relevance.patches import IndexSource, RetrieverSource, open_retriever
from eyes import wrapped
from retrievers import colmodernvbert
from tiny import picture

AXES = torch.eye(6)


def page(seed: int, shape: tuple[int, ...] = (3, 4)) -> Tensor:
    return torch.randn(*shape, 6, generator=torch.Generator().manual_seed(seed))


def test_pages_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pages.safetensors"
    save_file({"a": page(1), "b, p. 2": page(2, (12,)).half()}, file, {"b, p. 2": "4x3", "about": "x"})
    pages = open_pages(str(file))
    assert torch.equal(pages["a"], page(1))
    assert torch.equal(pages["b, p. 2"], page(2, (4, 3)).half())


@pytest.mark.parametrize(
    ("tensors", "grids", "message"),
    [
        ({}, {"about": "nothing"}, "it has no tensors"),
        ({"a": page(1, (12,))}, {}, r"page 'a' is torch.float32 \[12, 6\]"),
        ({"a": page(1, (12,))}, {"a": "3x5"}, "page 'a' has 12 vectors and the grid '3x5'"),
        ({"a": page(1, (12,))}, {"a": "-3x-4"}, "page 'a' has 12 vectors and the grid '-3x-4'"),
        ({"a": page(1, (0, 4))}, {}, r"page 'a' is torch.float32 \[0, 4, 6\]"),
        ({"a": page(1).int()}, {}, r"page 'a' is torch.int32 \[3, 4, 6\]"),
        ({"a": page(1), "b": page(2)[..., :5]}, {}, r"have \[5, 6\] numbers: take all from one model"),
    ],
)
def test_files_without_pages(
    tensors: dict[str, Tensor], grids: dict[str, str], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "pages.safetensors"
    save_file({name: one.contiguous() for name, one in tensors.items()}, file, grids)
    with pytest.raises(ValueError, match=rf"pages '.*' can't be read \(.*{message}.*\); save \{{"):
        open_pages(str(file))


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "pages.safetensors").write_bytes(b"\xff" * 40)
    for name in ("pages.safetensors", "missing.safetensors"):
        with pytest.raises(ValueError, match="can't be read") as caught:
            open_pages(str(tmp_path / name))
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="is a folder: give the path of a file"):
        open_pages(str(tmp_path))


def test_a_page_counts_by_the_best_patch_of_each_vector() -> None:
    pages = {f"{seed}": page(seed, (seed + 1, 3)) for seed in range(6)}
    question = torch.randn(4, 6, generator=torch.Generator().manual_seed(9))
    ranked = rank_pages(pages, question)
    by_hand = {
        name: sum(
            max(float(F.cosine_similarity(word, one, dim=0)) for one in vectors.flatten(0, 1))
            for word in question
        )
        / 4
        for name, vectors in pages.items()
    }
    assert {name: score for name, score in ranked} == pytest.approx(by_hand, abs=1e-6)
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
    scaled = rank_pages({name: 3 * vectors.double() for name, vectors in pages.items()}, 0.1 * question)
    assert [one.name for one in scaled] == [one.name for one in ranked]
    assert rank_pages((pair for pair in pages.items()), question) == ranked  # one by one, from a database
    # A patch more never makes a page worse.
    larger = {name: torch.cat((vectors, page(7, (1, 3)))) for name, vectors in pages.items()}
    after = dict(rank_pages(larger, question))
    assert all(after[name] >= score - 1e-6 for name, score in ranked)


def test_the_score_of_a_page_is_what_its_source_is_confident_by() -> None:
    pages, question = {f"{seed}": page(seed) for seed in range(8)}, AXES[:3]
    confidences = {}
    for name, vectors in pages.items():
        source = IndexSource(vectors, lambda text: question)
        confidences[name] = source.couple(source.view(torch.zeros(3, 8, 8)), "?", (3, 4)).confidence
    ranked = [one.name for one in rank_pages(pages, question)]
    assert ranked == sorted(confidences, key=lambda name: -confidences[name])


@pytest.mark.parametrize(
    ("pages", "question", "message"),
    [
        ({"a": page(1)}, AXES[0], r"a question has vectors \[6\]: give finite \[T, D\]"),
        ({"a": page(1)}, AXES[:0], r"a question has vectors \[0, 6\]"),
        ({"a": page(1)}, AXES * torch.inf, "give finite"),
        ({"a": page(1)}, torch.eye(5), r"page 'a' has vectors \[3, 4, 6\]: give finite \[rows, columns, 5\]"),
        ({"a": page(1, (12,))}, AXES, r"page 'a' has vectors \[12, 6\]"),
        ({"a": page(1) * torch.nan}, AXES, "page 'a' has vectors .*: give finite"),
    ],
)
def test_vectors_that_can_not_be_compared(pages: dict[str, Tensor], question: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rank_pages(pages, question)


def test_from_a_retriever_to_the_cells_of_one_prompt(tmp_path: Path) -> None:
    """ColModernVBERT of a folder fills a store; its question finds pages, then cells that share a budget."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        for part in colmodernvbert():
            part.save_pretrained(tmp_path / "retriever")
    retriever = open_retriever(str(tmp_path / "retriever"))
    assert isinstance(retriever, RetrieverSource)
    images = {f"page-{seed}": picture(seed, (48, 40)) for seed in range(5)}
    store = {name: retriever.view(image_pixels(image)[0]).vectors for name, image in images.items()}
    save_file(store, tmp_path / "pages.safetensors")
    question = "Where is the red ball?"
    words, pages = retriever.questions(question), open_pages(str(tmp_path / "pages.safetensors"))
    best = rank_pages(pages, words)[:2]
    maps = []
    for name, _ in best:
        view = retriever.view(image_pixels(images[name])[0])
        stored = IndexSource(pages[name], retriever.questions)
        own = retriever.couple(view, question, (5, 6))
        coupling = stored.couple(stored.view(image_pixels(images[name])[0]), question, (5, 6))
        torch.testing.assert_close(coupling.logits, own.logits)  # a store says what the model would
        assert coupling.confidence == pytest.approx(own.confidence)
        maps.append(coupling.logits)
    counts = divide_budget(maps, 12)
    cells = [one.flatten().topk(count).indices for one, count in zip(maps, counts, strict=True)]
    answer = wrapped().ask(
        [images[name] for name, _ in best], question, mode="sparse", cells=cells, max_new_tokens=2
    )
    assert [one.kept for one in answer.allocations] == counts
    assert (answer.kept, answer.total) == (12, 60)


def test_numbers_of_eight_bits() -> None:
    """Stores keep vectors in them to save space."""
    kinds = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
    vectors = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    for kind in (*kinds, torch.bfloat16):
        (page,) = rank_pages({"p": vectors.to(kind)}, torch.tensor([[1.0, 0.0]]).to(kind))
        assert page.score == 1.0
        with pytest.raises(ValueError, match="page 'p' has vectors"):
            rank_pages({"p": torch.full_like(vectors, float("nan")).to(kind)}, torch.ones(1, 2))
        source = IndexSource(vectors.to(kind), lambda question, kind=kind: torch.ones(1, 2).to(kind))
        logits = source.couple(source.view(torch.ones(3, 8, 16)), "What?", (1, 2)).logits
        assert logits[0, 0] < logits[0, 1] <= 1.001
