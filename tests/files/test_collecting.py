"""The pause of the garbage collector."""

from __future__ import annotations

import gc

import pytest

from arr_coc.files.collecting import without_collecting


def test_what_was_made_meanwhile_counts_as_old() -> None:
    gc.unfreeze()  # what the suite has frozen (`conftest.py`)
    try:
        with without_collecting():
            assert not gc.isenabled()
            made = [[] for _ in range(50_000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() == 0
        assert any(made is one for one in gc.get_objects(generation=2))
        assert gc.get_count()[0] < 5000
    finally:
        gc.freeze()


def test_a_collector_that_is_off_stays_off_and_what_is_frozen_stays_frozen() -> None:
    gc.freeze()
    gc.disable()
    try:
        with pytest.raises(KeyError), without_collecting():
            raise KeyError
        assert not gc.isenabled()
        gc.enable()
        with without_collecting():
            pass
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.enable()
