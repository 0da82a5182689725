"""Special tokens of a tokenizer, which are asked once. Run: pytest tests/seam/test_seam_question.py"""

from __future__ import annotations

import copy
import gc
import tracemalloc
from typing import Any

import pytest

from arr_coc.seam.question import special_tokens
from tiny import tiny


@pytest.fixture
def tokenizer() -> Any:
    return copy.deepcopy(tiny("qwen3_vl").processor.tokenizer)


def test_they_are_those_of_the_tokenizer(tokenizer: Any) -> None:
    added = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    assert special_tokens(tokenizer) == added | set(tokenizer.all_special_ids)
    assert tokenizer.pad_token_id in special_tokens(tokenizer)
    assert special_tokens(None) == frozenset()


def test_one_that_is_added_later_is_among_them(tokenizer: Any) -> None:
    before = special_tokens(tokenizer)
    tokenizer.add_tokens(["<plain>"])
    assert special_tokens(tokenizer) == before
    tokenizer.add_special_tokens({"additional_special_tokens": ["<later>"]})
    assert special_tokens(tokenizer) == before | {tokenizer.convert_tokens_to_ids("<later>")}


@pytest.mark.slow
def test_asking_again_leaves_nothing_behind(tokenizer: Any) -> None:
    special_tokens(tokenizer)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(200):
            special_tokens(tokenizer)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 2000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_tokenizer_that_is_gone_is_forgotten(tokenizer: Any) -> None:
    from arr_coc.seam import question

    special_tokens(other := copy.deepcopy(tokenizer))
    count = len(question._SPECIAL)
    del other
    gc.collect()
    assert len(question._SPECIAL) < count
