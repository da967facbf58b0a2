"""The option `incarnation`: each incarnation is read whole, and never mixed with another."""

import pytest

from tests.made_archive import batches
from tests.spark.archives import Archive
from ts_common.archive.commit import encode_log_start
from ts_common.archive.incarnations import Incarnation, Incarnations
from ts_common.errors import CorruptData, QueryError
from ts_common.model import TopicPartition

IDS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g", "1234567890123456789012")  # the last is all digits
SEEN = 1_700_000_000_000
VALUES = [(b"first", 0), (b"second", 3), (b"third", 5)]  # each one's value, and how many more records than 9


@pytest.fixture
def lives(archive: Archive) -> Archive:
    """Return topic `t` in three incarnations: of two, one and two partitions, of 9, 12 and 14 records each."""
    incarnations = Incarnations("t")
    for number, topic_id in enumerate(IDS):
        incarnations = incarnations.opened(topic_id, SEEN + number * 86_400_000, archive.keys)
    archive.store.put(archive.keys.incarnations("t"), incarnations.encode())
    for life, partitions, (value, more) in zip(incarnations.entries, (2, 1, 2), VALUES, strict=True):
        for partition in range(partitions):
            put_life(archive, life, partition, value, 9 + more)
    return archive


def put_life(archive: Archive, life: Incarnation, partition: int, value: bytes, records: int) -> None:
    """One partition's segment and commit, put under the plain name and then moved to the life's own directory."""
    archive.put_segment("moved", 0, batches((0, records), value=value), partition=partition)
    archive.commit("moved", records, partition=partition)
    source = archive.partition("moved", partition)
    target = archive.keys.partition(TopicPartition("t", partition), life.directory)
    for info in list(archive.store.list(source.prefix)):
        data, held = archive.store.get(info.key)
        archive.store.put(info.key.replace(source.prefix, target.prefix), data, metadata=held.metadata)
    archive.store.delete([info.key for info in archive.store.list(source.prefix)])


def read(archive: Archive, **options: str) -> dict[int, tuple[set[bytes], int]]:
    """By partition: the values that were read, and how many rows."""
    found: dict[int, list[bytes]] = {}
    for row in archive.rows(subscribe="t", **options):
        found.setdefault(row["partition"], []).append(row["value"])
    return {partition: (set(values), len(values)) for partition, values in found.items()}


FIRST = {0: ({b"first"}, 9), 1: ({b"first"}, 9)}
SECOND = {0: ({b"second"}, 12)}
THIRD = {0: ({b"third"}, 14), 1: ({b"third"}, 14)}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, THIRD),
        ("newest", THIRD),
        ("Oldest", FIRST),
        ("1", FIRST),
        ("2", SECOND),
        ("3", THIRD),
        *zip(IDS, (FIRST, SECOND, THIRD), strict=True),
    ],
)
def test_one_incarnation_is_read_as_a_whole(
    lives: Archive, wanted: str | None, expected: dict[int, tuple[set[bytes], int]]
) -> None:
    """By its number, its topic id or its place; all partitions that it had, and nothing of another."""
    assert read(lives, **({} if wanted is None else {"incarnation": wanted})) == expected


@pytest.mark.parametrize("wanted", ["4", "AAAAAAAAAAAAAAAAAAAAAw"])
def test_an_incarnation_that_never_existed_is_refused_with_the_existing_ones(lives: Archive, wanted: str) -> None:
    """Each with its number, topic id and when it was first seen."""
    with pytest.raises(QueryError) as caught:
        lives.plan(subscribe="t", incarnation=wanted)
    assert str(caught.value) == (
        f"topic t: no incarnation {wanted}; there are 1 {IDS[0]}, first seen 2023-11-14 22:13:20 UTC; "
        f"2 {IDS[1]}, first seen 2023-11-15 22:13:20 UTC; 3 {IDS[2]}, first seen 2023-11-16 22:13:20 UTC"
    )


def test_a_topic_without_topic_ids_has_one_incarnation(archive: Archive) -> None:
    """A Java uploader's bucket lists none: what it holds is the oldest and the newest."""
    archive.put_segment("t", 0, batches((0, 9)))
    archive.commit("t", 9)
    assert archive.offsets(subscribe="t", incarnation="oldest") == list(range(9))
    with pytest.raises(QueryError, match=r"topic t: no incarnation 2; it never had a topic id"):
        archive.plan(subscribe="t", incarnation="2")
    with pytest.raises(QueryError, match=r"topic u: .* has no such topic"):
        archive.plan(subscribe="u", incarnation="2")


def test_an_incarnation_that_shipped_nothing_is_an_empty_table(lives: Archive) -> None:
    """It is known by the list alone (R12)."""
    incarnations = Incarnations("t")
    for topic_id in (*IDS, "AAAAAAAAAAAAAAAAAAAAAw"):
        incarnations = incarnations.opened(topic_id, SEEN, lives.keys)
    lives.store.put(lives.keys.incarnations("t"), incarnations.encode())
    assert read(lives) == {}
    assert read(lives, incarnation="3") == THIRD


def test_a_log_start_of_one_incarnation_does_not_affect_another(lives: Archive) -> None:
    """Each has its own commit and its own log start."""
    keys = lives.keys.partition(TopicPartition("t", 0), f"t~{IDS[1]}")
    lives.store.put(keys.log_start, encode_log_start(10))
    assert read(lives, incarnation="2") == {0: ({b"second"}, 2)}
    assert read(lives, incarnation="1") == FIRST


@pytest.mark.parametrize("listed", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"incarnation": "oldest"}, {"incarnation": IDS[2]}])
def test_u30_a_list_that_lacks_an_incarnation_is_rejected(lives: Archive, listed: int, options: dict[str, str]) -> None:
    """Removed, or an old version put back: an earlier life is never shown as the newest, and the list is named."""
    key = lives.keys.incarnations("t")
    incarnations = Incarnations("t")
    for number, topic_id in enumerate(IDS[:listed]):
        incarnations = incarnations.opened(topic_id, SEEN + number, lives.keys)
    lives.store.delete([key])
    if listed:
        lives.store.put(key, incarnations.encode())
    with pytest.raises(CorruptData, match=rf"{key} does not contain .*t~{IDS[2]},.* the store has objects of it"):
        lives.rows(subscribe="t", **options)


def test_a_topic_of_one_incarnation_needs_no_list(archive: Archive) -> None:
    """A Java uploader writes none."""
    archive.put_segment("t", 0, batches((0, 9)))
    archive.commit("t", 9)
    assert len(archive.rows(subscribe="t")) == 9
