"""The layout of a cluster's keys: its content, and content that is rejected."""

from pathlib import Path

import pytest

from ts_common.archive.layout import Layout, check_layout, keys_of, read_layout
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData, QueryError
from ts_common.store.factory import open_store

KEYS = ClusterKeys("prod", 5)
TEXT = b'{"version":1,"entropyBits":5,"cluster":"prod","time":1700000000000}\n'


@pytest.mark.parametrize(
    "data",
    [
        TEXT.replace(b"5,", b"-1,"),
        TEXT.replace(b"5,", b"129,"),
        TEXT.replace(b"prod", b"test"),
    ],
)
def test_what_is_no_layout_is_corrupt(data: bytes) -> None:
    """The error names the object, whatever its content."""
    with pytest.raises(CorruptData, match=r"ts-uploader~cluster~prod/layout\.json"):
        Layout.decode(data, KEYS.layout, cluster="prod")


def test_an_object_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    """Another program stored a large object under the key."""
    with open_store(tmp_path.as_uri()) as store:
        store.put(KEYS.layout, bytes(1 << 20))
        with pytest.raises(CorruptData, match="1048576 bytes; at most 65536 are expected"):
            read_layout(store, KEYS)


def test_a_reader_uses_its_own_width_or_the_layouts_or_zero(tmp_path: Path) -> None:
    """The reader's own number is used first, then the layout's; without both it is 0."""
    with open_store(tmp_path.as_uri()) as store:
        assert keys_of(store, "prod", None) == ClusterKeys("prod", 0)
        store.put(KEYS.layout, TEXT)
        assert keys_of(store, "prod", None) == KEYS
        assert keys_of(store, "prod", 3) == ClusterKeys("prod", 3)
        assert keys_of(store, "other", None) == ClusterKeys("other", 0)


def test_a_number_that_differs_from_the_layouts_is_an_error_of_the_option(tmp_path: Path) -> None:
    """The message names both numbers; without a layout any number is accepted, and below 1 means 0."""
    with open_store(tmp_path.as_uri()) as store:
        check_layout(store, ClusterKeys("prod", 3), "bits=")
        store.put(KEYS.layout, TEXT)
        check_layout(store, KEYS, "bits=")
        with pytest.raises(QueryError, match=r"^bits=0: .* contains cluster prod with 5 entropy bits .*; set bits=5$"):
            check_layout(store, ClusterKeys("prod", -1), "bits=")
