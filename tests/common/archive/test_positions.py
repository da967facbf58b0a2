"""The positions object: its form, and rows that count for nothing."""

from dataclasses import replace

import pytest

from ts_common.archive.commit import Commit, Lineage, LogStart
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.packed import pack, unpack
from ts_common.archive.positions import Idle, Positions, Row
from ts_common.errors import CorruptData, NewerFormat
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore

KEYS = ClusterKeys("prod")
TP = TopicPartition("orders", 0)
COMMIT = Commit(100, 200, 3, EpochHistory(((3, 0),)), 200, "5fWnyHqTQDqQDqQDqQDqQA", 1, 0, "0011")


def row(commit: Commit, *, has_gaps: bool = False) -> Row:
    return Row(commit.encode().decode(), '"e"', LogStart(0).encode().decode(), '"s"', has_gaps, 0)


def test_the_object_has_the_form_that_is_documented(store: ObjectStore) -> None:
    """Compressed JSON with an array for each partition."""
    positions = Positions(1, 1_700_000_000_000, {TP: row(COMMIT)})
    positions.put(store, KEYS)
    key = "ts-uploader~cluster~prod/positions/1.json.gz"
    packed, _ = store.get(key)
    text = unpack(packed, key, 1 << 20).decode()
    assert text.startswith('{"version":1,"broker":1,"time":1700000000000,"partitions":{"orders-0":["0000')
    assert text.endswith(',"\\"e\\"","00000000000000000000\\n","\\"s\\"",false,0]}}\n')
    assert Positions.load(store, KEYS, 1) == positions
    assert positions.idle() == {TP: Idle(3, "5fWnyHqTQDqQDqQDqQDqQA", 200)}


def test_a_row_with_something_unsettled_counts_for_nothing() -> None:
    """Gaps, a commit that went back, a Java uploader's late writes, no topic id, or no commit of an agent."""
    lineage = Lineage(3, 100, 250)
    rows = [
        row(COMMIT, has_gaps=True),
        row(replace(COMMIT, lineage=lineage)),
        row(replace(COMMIT, java=1)),
        row(replace(COMMIT, topic_id=None)),
        replace(row(COMMIT), commit="00000000000000000100\n"),
        replace(row(COMMIT), commit="damaged"),
        replace(row(COMMIT), commit='00000000000000000100\n{"version":9}'),
    ]
    for each in rows:
        assert Positions(1, 0, {TP: each}).idle() == {}, each


def test_an_object_of_another_broker_or_damaged_is_no_position(store: ObjectStore) -> None:
    """Each is an error that names the object, and gives no row."""
    key = KEYS.positions_of(1)
    assert Positions.load(store, KEYS, 1) is None
    Positions(2, 0, {}).put(store, KEYS)
    store.put(key, store.get(KEYS.positions_of(2))[0])
    with pytest.raises(CorruptData, match="broker"):
        Positions.load(store, KEYS, 1)
    for content in (b"{}", pack(b"{}"), pack(b"[]"), pack(b"0" * (65 << 20)), pack(b'{"version":1}')[:-4]):
        store.put(key, content)
        with pytest.raises(CorruptData, match=r"positions/1\.json\.gz"):
            Positions.load(store, KEYS, 1)
    store.put(key, pack(b'{"version":2}'))
    with pytest.raises(NewerFormat):
        Positions.load(store, KEYS, 1)


@pytest.mark.parametrize(
    "values", [b"{}," * (1 << 20), (b"[" * 30 + b"]" * 30 + b",") * (1 << 16)], ids=["flat", "deep"]
)
def test_an_object_with_a_million_values_is_no_position(store: ObjectStore, values: bytes) -> None:
    """A few kilobytes unpack to them, and they need a hundred times the memory of their text."""
    key = KEYS.positions_of(1)
    store.put(key, pack(b'{"version":1,"broker":1,"time":1,"partitions":{},"x":[' + values + b"0]}"))
    with pytest.raises(CorruptData, match="more than 1048576 values"):
        Positions.load(store, KEYS, 1)
