"""How many tokens keep a share of the score of all tokens."""

from __future__ import annotations

from typing import Any

import pytest

from arr_coc_lab.results.summary import summarise, tokens_needed
from arr_coc_lab.results.table import SHARES, table


def records(count: int = 100, full: float = 1.0, **rates: float) -> list[dict[str, Any]]:
    """Questions of which each method "NAME_TOKENS" gets the first share right, in so many tokens."""
    rows = {"full": (full, 1024.0)}
    rows |= {name.replace("_", "@"): (rate, float(name.split("_")[1])) for name, rate in rates.items()}
    return [
        {
            "id": f"{i}",
            "image": f"{i}",
            "total": 1024,
            "score": {name: float(i < rate * count) for name, (rate, _) in rows.items()},
            "tokens": {name: tokens for name, (_, tokens) in rows.items()},
        }
        for i in range(count)
    ]


def test_the_fewest_from_which_on_the_share_is_kept() -> None:
    rates = {"a_64": 0.9, "a_128": 0.97, "a_273": 1.0, "b_64": 0.98, "b_128": 0.5, "b_273": 0.97}
    rates |= {"c_64": 0.5, "c_273": 0.96, "d_1024": 1.0}  # d reads all of them
    summary = summarise({}, records(**rates))
    assert tokens_needed(summary, 0.97) == {"a": 128, "b": 273, "c": None}  # b's 64 was luck
    assert tokens_needed(summary, 0.9) == {"a": 64, "b": 273, "c": 273}
    assert tokens_needed(summary, 1.0) == {"a": 273, "b": None, "c": None}


def test_a_greater_share_never_needs_fewer() -> None:
    steps = {"a": 3, "b": 7, "c": 1}
    rates = {f"{name}_{2**k}": ((k * step) % 10 + 1) / 10 for k in range(8) for name, step in steps.items()}
    summary = summarise({}, records(full=0.9, **rates))
    for fewer, more in ((0.3, 0.5), (0.6, 0.8), (0.9, 1.0)):
        few, many = tokens_needed(summary, fewer), tokens_needed(summary, more)
        assert all(many[name] is None or (few[name] or 0) <= many[name] for name in many)


def test_the_table() -> None:
    lines = records(full=0.5, **{"arr-coc_64": 0.49, "random_64": 0.1, "random_273": 0.46})
    text = table(summarise({}, lines), "tokens").splitlines()
    assert text[0] == "| tokens needed for | 90% | 95% | 97% | 99% |"
    assert text[2] == "| **arr-coc** | **64 (6.2%)** | **64 (6.2%)** | **64 (6.2%)** | - |"
    assert text[3] == "| random | 273 (26.7%) | - | - | - |"
    assert "score of all tokens (50.0% with 1,024)" in text[-1]
    assert SHARES[0] == 0.97
    for rows in (records(), [{**one, "score": {"random@64": 1.0}} for one in lines]):
        with pytest.raises(ValueError, match="nothing was measured beside 'full'"):
            table(summarise({}, rows), "tokens")
