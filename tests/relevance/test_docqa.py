"""Relevance "docqa": an OCR's words reach LayoutLM with their boxes, and its answer becomes cells."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.utils import logging as transformers_logging

from arr_coc.relevance.conformance import LAWS, SourceScene
from arr_coc.relevance.docqa import DocqaSource, open_docqa, words_of
from arr_coc.relevance.lines import PrintedLine
from arr_coc.relevance.source import FLOOR
from each import each

LINES = (
    PrintedLine("Total 42.10", (0, 0, 44, 8)),
    PrintedLine("  Cashier  Mary", (8, 24, 60, 32)),
    PrintedLine("thanks", (0, 40, 30, 48)),
)
QUESTION = "What is the total?"


@cache
def built() -> tuple[Any, Any]:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "?"]
    vocabulary = {token: i for i, token in enumerate([*marks, *letters, *("##" + one for one in letters)])}
    tokenizer = transformers.BertTokenizer(vocab=vocabulary, model_max_length=64)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        config = transformers.LayoutLMConfig(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=1,
            num_attention_heads=2, max_position_embeddings=64, initializer_range=0.5,
        )  # fmt: skip
        return transformers.LayoutLMForQuestionAnswering(config), tokenizer


def read(pixels: Any) -> tuple[PrintedLine, ...]:
    return LINES if pixels.std() > 0 else ()


def noise(seed: int) -> Tensor:
    return torch.rand(3, 48, 64, generator=torch.Generator().manual_seed(seed))


def test_random_weights_keep_all_laws_that_ask_for_no_knowledge() -> None:
    source = DocqaSource(*built(), read)
    scenes = [SourceScene(noise(i), text, (0, 0, 9, 9)) for i, text in enumerate((QUESTION, "Who is it?"))]
    laws = ("is described", "keeps views", "fills grids", "repeats", "remembers nothing", "reads questions")
    assert not [what for law in laws for what in LAWS[law](source, scenes)]
    for picture, question in ((torch.ones(3, 48, 64), QUESTION), (noise(0), "  ")):
        coupling = source.couple(source.view(picture), question, (6, 8))
        assert coupling.confidence == 0
        assert (coupling.logits == FLOOR).all()


def test_words_have_the_share_of_their_lines() -> None:
    assert words_of(LINES) == [
        PrintedLine("Total", (0, 0, 20, 8)),
        PrintedLine("42.10", (24, 0, 44, 8)),
        PrintedLine("Cashier", (8 + 52 * 2 / 15, 24, 8 + 52 * 9 / 15, 32)),
        PrintedLine("Mary", (8 + 52 * 11 / 15, 24, 60, 32)),
        PrintedLine("thanks", (0, 40, 30, 48)),
    ]


class Known(torch.nn.Linear):
    """A model that answers with given words: its logits are high at their first and last letters."""

    device = "cpu"
    config = SimpleNamespace(max_position_embeddings=512)

    def __init__(self, first: int, last: int) -> None:
        super().__init__(1, 1)
        self.first, self.last, self.seen = first, last, list[dict[str, Tensor]]()

    def forward(self, **inputs: Tensor) -> Any:
        self.seen.append(inputs)
        start, end = (torch.full(inputs["input_ids"].shape, -20.0) for _ in range(2))
        start[:, self.first], end[:, self.last] = 20.0, 20.0
        return SimpleNamespace(start_logits=start, end_logits=end)


def test_cells_of_the_answer_are_best_and_no_answer_is_no_confidence() -> None:
    tokenizer = built()[1]
    asked = len(tokenizer.tokenize(QUESTION)) + 2
    letters = [len(tokenizer.tokenize(word.text)) for word in words_of(LINES)]
    model = Known(asked + letters[0], asked + letters[0] + letters[1] - 1)  # "42.10"
    source = DocqaSource(model, tokenizer, read)
    coupling = source.couple(source.view(noise(0)), QUESTION, (6, 8))
    assert coupling.findings[0].text == "42.10"
    assert coupling.findings[0].probability == pytest.approx(1, abs=1e-4)
    assert coupling.findings[0].box == (24 / 64, 0, 44 / 64, 8 / 48)
    best = coupling.logits == coupling.logits.max()
    assert best.nonzero().tolist() == [[0, 3], [0, 4], [0, 5]]
    assert coupling.confidence == pytest.approx(1, abs=1e-4)
    (inputs,) = model.seen
    boxes = inputs["bbox"][0]
    assert boxes[0].tolist() == [0] * 4
    assert boxes[asked - 1].tolist() == boxes[-1].tolist() == [1000] * 4
    assert boxes[asked].tolist() == [0, 0, 312, 166]
    nothing = DocqaSource(Known(0, 0), tokenizer, read)
    assert nothing.couple(nothing.view(noise(0)), QUESTION, (6, 8)).confidence < 1e-4


@each("count", [1, 40, 400])
def test_long_pages_are_read_in_parts(count: int) -> None:
    lines = [PrintedLine("a b", (0, i % 40, 30, i % 40 + 4)) for i in range(count)]
    source = DocqaSource(*built(), lambda pixels: lines)
    coupling = source.couple(source.view(noise(0)), QUESTION + " why" * 500 + "y" * 9999, (6, 8))
    assert coupling.logits.isfinite().all()
    assert 0 <= coupling.confidence <= 1


def test_a_model_loads_without_a_progress_bar(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for part in built():
        part.save_pretrained(tmp_path)
    before = transformers_logging.is_progress_bar_enabled()
    try:
        transformers_logging.enable_progress_bar()
        capfd.readouterr()
        open_docqa(str(tmp_path))
        assert transformers_logging.is_progress_bar_enabled()
    finally:
        (transformers_logging.enable_progress_bar if before else transformers_logging.disable_progress_bar)()
    assert capfd.readouterr().err == ""


def test_models_open_from_folders_of_safetensors_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arr_coc.relevance.docqa.rapid_ocr", lambda: read)
    model, tokenizer = built()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    source, own = open_docqa(str(tmp_path)), DocqaSource(model, tokenizer, read)
    maps = [one.couple(one.view(noise(1)), QUESTION, (6, 8)).logits for one in (source, own)]
    assert torch.equal(*maps)
    assert source.version == own.version
    with pytest.raises(ValueError, match=r"'docqa' needs a model: .* docqa:impira/layoutlm-document-qa"):
        open_docqa()
    transformers.BertModel(transformers.BertConfig(num_hidden_layers=1, hidden_size=12)).save_pretrained(
        tmp_path / "bert"
    )
    with pytest.raises(ValueError, match="its type is 'bert' and none of layoutlm"):
        open_docqa(str(tmp_path / "bert"))
