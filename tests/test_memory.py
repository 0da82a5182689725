"""Questions leave nothing behind: neither in the model nor in a session, nor in a cache of the package.

A thousand questions to the bundled model are `python bench/memory.py --out bench/results/memory.json`, or

    ARR_COC_MEMORY=bench/results/memory.json pytest -m slow tests/test_memory.py
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from arr_coc import ARRCOCModel
from arr_coc.guide import lexicon, question
from tiny import picture, tiny

DATA = Path(__file__).parent / "saved" / "v0.1"
BENCH = Path(__file__).parent.parent / "bench" / "memory.py"
RESULT = os.environ.get("ARR_COC_MEMORY", "")
MODES = ("full", "prune", "sparse", "saccade", "compress", "weight")
SIZES = ((48, 40), (40, 72), (64, 64))
QUESTIONS = 60
WORDS = (
    question.terms,
    question.normal,
    question._ngrams,
    question._letters,
    lexicon.stem,
    lexicon.stems,
    lexicon.akin,
)


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    """Layer, stem, compressor and three LoRAs."""
    return ARRCOCModel.from_pretrained(
        DATA / "base", allocator=DATA / "allocator", dtype=torch.float32, budget=9, strict=True
    )


def held() -> tuple[int, int, int]:
    """Objects that the collector tracks, tensors among them, and the bytes that Python allocated.

    What is kept of question, whatever the question, has a bound of its own.
    """
    for cached in WORDS:
        assert cached.cache_info().maxsize <= 100_000
        cached.cache_clear()
    gc.collect()
    tracked = gc.get_objects()
    tensors = sum(issubclass(type(thing), torch.Tensor) for thing in tracked)
    return len(tracked), tensors, tracemalloc.get_traced_memory()[0]


def growth(
    ask: Callable[[int], object], questions: int = QUESTIONS, trace: bool = False
) -> tuple[int, int, int]:
    """What so many questions leave behind, after as many as there are modes and images.

    Args:
        ask: the i-th question.
        questions: how many.
        trace: count bytes, too, which makes everything slower; else they are 0.
    """
    # Until the caches of questions, of 64, are full.
    warm = max(72, 2 * len(MODES) * len(SIZES))
    if trace:  # from the start: what is freed later counts only if it was counted when it was made
        tracemalloc.start()
    try:
        for i in range(warm):
            ask(i)
        before = held()
        for i in range(warm, warm + questions):
            ask(i)
        after = held()
    finally:
        tracemalloc.stop()
    objects, tensors, size = (b - a for a, b in zip(before, after, strict=True))
    return objects, tensors, size


def assert_flat(grown: tuple[int, int, int], questions: int = QUESTIONS) -> None:
    """Less than one object a question: whatever keeps one thing of each is noticed."""
    objects, tensors, size = grown
    assert tensors <= 0, f"{tensors} tensors more after {questions} questions"
    assert objects < questions // 2, f"{objects} objects more after {questions} questions"
    assert size < 1024 * questions, f"{size} bytes more after {questions} questions"


@pytest.mark.slow
class TestSixtyQuestions:
    def test_each_about_an_image_of_its_own(self, model: ARRCOCModel) -> None:
        def ask(i: int) -> None:
            image = picture(i, SIZES[i % len(SIZES)])
            model.ask(image, f"What is number {i}?", mode=MODES[i % len(MODES)], max_new_tokens=1)

        assert_flat(growth(ask))

    def test_in_sessions_that_stay_open(self, model: ARRCOCModel) -> None:
        """What a session keeps is of its image, not of its questions."""
        sessions = [model.session(picture(i, size)) for i, size in enumerate(SIZES)]

        def ask(i: int) -> None:
            session = sessions[i % len(SIZES)]
            session.ask(f"What is number {i}?", mode=MODES[i // len(SIZES) % len(MODES)], max_new_tokens=1)

        assert_flat(growth(ask, trace=True))

    @pytest.mark.slow
    def test_by_a_model_that_nobody_trained(self) -> None:
        """Which reads its own attention, and makes a neutral prompt."""
        built = tiny("qwen3_vl")
        model = ARRCOCModel.wrap(built.model, built.processor, budget=9, strict=True)

        def ask(i: int) -> None:
            image = picture(i, SIZES[i % len(SIZES)])
            model.ask(image, f"What is number {i}?", mode=MODES[i % len(MODES)], max_new_tokens=1)

        assert_flat(growth(ask, 50), 50)

    def test_that_fail(self, model: ARRCOCModel) -> None:
        """An exception that comes through holds its frames no longer than the caller holds it."""
        image = picture(1, SIZES[0])

        def stop(_: str) -> None:
            raise RuntimeError("enough")

        def ask(i: int) -> None:
            session = model.session(image)
            with pytest.raises(RuntimeError, match="enough"):
                session.ask(f"What is number {i}?", mode=MODES[i % len(MODES)], on_text=stop)

        assert_flat(growth(ask, 50), 50)

    def test_what_grows_is_noticed(self) -> None:
        """The measure itself."""
        kept = []
        with pytest.raises(AssertionError, match=f"{QUESTIONS} tensors more"):
            assert_flat(growth(lambda i: kept.append(torch.zeros(3))))
        with pytest.raises(AssertionError, match="objects more"):
            assert_flat(growth(lambda i: kept.append([i])))


@pytest.mark.slow
@pytest.mark.skipif(not BENCH.is_file(), reason="bench/ is in the repository alone")
@pytest.mark.skipif(not RESULT, reason="takes minutes: where ARR_COC_MEMORY names a file for its figures")
def test_a_thousand_questions() -> None:
    spec = importlib.util.spec_from_file_location("bench_memory", BENCH)
    assert spec is not None
    assert spec.loader is not None
    memory = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(memory)
    figures = memory.run(1000)
    Path(RESULT).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    assert figures["growth"]["tensors"] <= 0
    assert figures["growth"]["objects"] < 500
    assert not figures["growth"]["resident MB"] > 50  # NaN where the system doesn't say
