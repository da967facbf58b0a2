"""Thaws in a store without frozen objects."""

from pathlib import Path

import pytest

from ts_common.errors import OperatorError
from ts_common.store.contract import ByteRange
from ts_common.store.factory import open_store
from ts_common.store.thaw_state import ThawState, ThawTier


def test_a_store_without_frozen_objects_refuses_a_thaw(tmp_path: Path) -> None:
    """Each object can be read, and the error names the object."""
    with open_store(tmp_path.as_uri()) as store:
        store.put("a", b"content")
        assert store.thaw_state("a") == ThawState()
        with pytest.raises(OperatorError, match="/a: this store has no frozen objects"):
            store.thaw("a", 7, ThawTier.BULK)
        assert store.get("a", ByteRange(0, 1))[0] == b"c"
