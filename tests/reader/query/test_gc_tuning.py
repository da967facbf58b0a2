"""Garbage collection while a query is planned."""

import gc

import pytest

from ts_reader.query.gc_tuning import collecting_less


def test_the_settings_of_the_process_are_restored() -> None:
    """Also after an error; inside, existing objects are frozen and collections are rare."""
    before = gc.get_threshold(), gc.get_freeze_count()
    with pytest.raises(KeyError), collecting_less():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > before[0][0]
        raise KeyError
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_what_the_caller_froze_stays_frozen() -> None:
    """A host application may freeze its own objects before it forks."""
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with collecting_less():
            assert gc.get_freeze_count() == count
        assert gc.get_freeze_count() == count
    finally:
        gc.unfreeze()
