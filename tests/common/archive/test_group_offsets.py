"""The object of a consumer group of the endpoint."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_common.archive.group_offsets import (
    Committed,
    StoredGroup,
    StoredOffsets,
    is_partition,
    read_offsets,
)
from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store

KEYS = ClusterKeys("prod", 5)
BEGAN = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)

partitions = st.builds(
    TopicPartition,
    st.text("abcXYZ019._~-", min_size=1, max_size=20),
    st.integers(0, 2**31 - 1),
)
commits = st.builds(
    Committed,
    offset=st.integers(-(2**63), 2**63 - 1),
    epoch=st.integers(-1, 2**31 - 1),
    time=st.integers(0, 2**63 - 1),
    metadata=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)


@given(st.dictionaries(partitions, commits, max_size=8), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_offsets_read_back(offsets: dict[TopicPartition, Committed], group: str) -> None:
    """Every offset, epoch, time and text, and every name of a group."""
    stored = StoredGroup(group, BEGAN, offsets)
    assert StoredGroup.decode(stored.encode(), "key", group=group) == stored


def test_the_object_has_the_form_that_the_page_describes() -> None:
    """docs/store.md has an example of it."""
    data = StoredGroup("reports/daily", BEGAN, {ORDERS: Committed(4711, 3, 1699999998000, "")}).encode()
    assert data == (
        b'{"version":1,"group":"reports/daily","time":1700000000000,'
        b'"partitions":{"orders-0":[4711,3,1699999998000,""]}}\n'
    )
    page = Path(__file__).parents[3] / "docs/store.md"
    assert data.decode() in page.read_text()


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"group":"other","partitions":{}}',
        b'{"version":1,"group":"g","partitions":{"orders":[1,0,0,""]}}',
        b'{"version":1,"group":"g","partitions":{"orders-01":[1,0,0,""]}}',
        b'{"version":1,"group":"g","partitions":{"orders-2147483648":[1,0,0,""]}}',
        b'{"version":1,"group":"g","partitions":{"a/b-0":[1,0,0,""]}}',
        b'{"version":1,"group":"g","partitions":{"orders-0":[1,-2,0,""]}}',
    ],
)
def test_an_object_with_other_content_is_damage(data: bytes) -> None:
    """The message names the object and the way out."""
    with pytest.raises(CorruptData, match=r"groups/g\.json.*delete the object"):
        StoredGroup.decode(data, "groups/g.json", group="g")


def test_offsets_are_read_by_the_name_of_the_group(tmp_path: Path) -> None:
    """A group without an object has no offsets; a former incarnation has a name of its own."""
    offsets = {TopicPartition("orders~pQ1r", 0): Committed(5, -1, BEGAN, "")}
    data = StoredGroup("a/b", BEGAN, offsets).encode()
    with open_store(tmp_path.as_uri()) as store:
        assert read_offsets(store, KEYS, "a/b") == StoredOffsets({}, None)
        store.put(KEYS.offsets_of("a/b"), data)
        found = read_offsets(store, KEYS, "a/b")
    assert (found.offsets, found.data, found.etag is None) == (offsets, data, False)
    assert [is_partition(topic, 0) for topic in ("orders~pQ1r", "a/b", "")] == [True, False, False]
