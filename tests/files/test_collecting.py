"""The pause of the garbage collector."""

from __future__ import annotations

import gc

import pytest

from arr_coc.files.collecting import without_collecting


def test_what_was_made_meanwhile_counts_as_old() -> None:
    with without_collecting():
        assert not gc.isenabled()
        made = [[] for _ in range(5000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert any(made is one for one in gc.get_objects(generation=2))
    assert gc.get_count()[0] < 5000


@pytest.mark.parametrize("collects", [True, False])
def test_a_collector_is_left_as_it_was(collects: bool) -> None:
    (gc.enable if collects else gc.disable)()
    try:
        with pytest.raises(KeyError), without_collecting():
            raise KeyError
        assert gc.isenabled() == collects
    finally:
        gc.enable()


def test_what_the_host_has_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        with without_collecting():
            pass
        assert gc.get_freeze_count() >= before > 0
    finally:
        gc.unfreeze()
