"""The measurement: pages, nulls, summary and table."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from arr_coc import ARRCOCModel
from arr_coc.evaluate import held_out_pages, interval, measure_page, summarise, table
from arr_coc.training import bundled
from arr_coc.training.words import build_embeddings, build_tokenizer


def record(family, answer, full, ours, recall=0.5):
    said = {"full": full, "arr-coc@auto": ours}
    return {
        "family": family,
        "answer": answer,
        "said": said,
        "kept": {"arr-coc@auto": 100},
        "recall": {"full": 1.0, "arr-coc@auto": recall},
        "evidence": 0.01,
    }


def test_pages_hold_the_wanted_number_of_questions_and_even_families():
    pages = list(held_out_pages(40, 512))
    asked = [q for _, questions in pages for q in questions]
    assert len(asked) == 40
    tally = Counter(q.family for q in asked)
    assert max(tally.values()) - min(tally.values()) <= 4
    assert [p.seed for p, _ in pages] == [p.seed for p, _ in held_out_pages(40, 512)]


def test_summary_by_hand():
    records = [
        record("count", "3", "3", "3", 1.0),
        record("count", "2", "2", "1", 0.0),
        record("title", "A B", "A B", "A B", 1.0),
        record("title", "C D", "x", "C D", 0.0),
    ]
    summary = summarise(records)
    assert summary["full"]["exact match"] == 0.75
    assert summary["arr-coc@auto"]["exact match"] == 0.75
    assert summary["arr-coc@auto"]["retained"] == 1.0
    assert summary["arr-coc@auto"]["families"] == {"title": 1.0, "count": 0.5}
    assert summary["arr-coc@auto"]["evidence recall"] == 0.5
    assert summary["arr-coc@auto"]["mean kept"] == 100
    lines = table(summary).splitlines()
    assert len(lines) == 4
    assert "100 on average" in lines[3]
    assert "75.0%" in lines[2]


def test_interval_holds_the_mean_and_narrows():
    hits = (np.arange(400) % 4 > 0).astype(float)
    low, high = interval(hits)
    assert low < 0.75 < high
    few_low, few_high = interval(hits[:40])
    assert few_high - few_low > high - low


def test_a_page_is_measured_with_every_method():
    tokenizer = build_tokenizer()
    base = bundled.build_model(tokenizer, build_embeddings(tokenizer, bundled.DIM))
    model = ARRCOCModel.wrap(base, bundled.build_processor(tokenizer), strict=True)
    page, asked = next(held_out_pages(3, 640, per_page=3))
    records = measure_page(model, page, asked, seed=1)
    assert [r["question"] for r in records] == [q.text for q in asked]
    assert {"full", "arr-coc@273", "arr-coc@64", "arr-coc@auto", "random@64", "even grid@273"} <= set(
        records[0]["said"]
    )
    for r in records:
        if r["recall"] is not None:
            assert r["recall"]["full"] == 1.0
            assert all(0 <= v <= 1 for v in r["recall"].values())
    # The answers of the whole image are those of the stock model.
    with model.full():
        for q, r in zip(asked, records, strict=True):
            answer = model.ask(page.image, q.text, max_new_tokens=8)
            assert answer.text == r["said"]["full"]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_interval_of_certainty_is_a_point(share):
    assert interval(np.full(10, share)) == [share, share]
