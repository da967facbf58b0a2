"""A cut of several topics: rows, transactions, the proof that it is complete, and what it warns of."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.made_archive import CLUSTER, MadeArchive, batches
from tests.made_views import view_of
from tests.transactions import ABORT, data, ended
from ts_common.archive.high_watermarks import End, Ends
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.partition_view import PartitionView
from ts_common.errors import QueryError
from ts_common.log_format.index_files import AbortedTransaction
from ts_common.model import TopicPartition
from ts_reader.query.cut import Shipped, Whole, make_whole, metadata_proves_later, unproven
from ts_reader.query.plan_query import QueryPlan, plan_query
from ts_reader.query.query import Cut, Offsets, Query, Subscription, View
from ts_reader.query.read_split import read_split
from ts_reader.reading.transactions_at import CLOCK_MARGIN_MS, Transaction

NOON = 100_000_000
LATER = NOON + CLOCK_MARGIN_MS
IDS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g")


@pytest.fixture
def bare(tmp_path: Path) -> MadeArchive:
    """Without a proof of any cut."""
    return MadeArchive(tmp_path)


@pytest.fixture
def archive(bare: MadeArchive) -> MadeArchive:
    """With an agent's word that proves cuts at noon, whatever `t` and `u` have."""
    put_ends(bare, 99, LATER + 9, t0=0, t1=0, u0=0)
    return bare


def at_noon(archive: MadeArchive, *topics: str, moment: int = NOON, fails: bool = True, others: str = "") -> Query:
    cut = Cut(moment, fails, tuple(others.split()))
    return Query(archive.location, CLUSTER, None, Subscription(topics or ("t",)), read_committed=True, cut=cut)


def rows(archive: MadeArchive, plan: QueryPlan) -> Iterator[tuple[str, int, int]]:
    for split in plan.splits:
        for batch in read_split(archive.store, split, ["topic", "partition", "offset"]):
            yield from (tuple(row.values()) for row in batch.to_pylist())


def offsets(archive: MadeArchive, asked: Query) -> list[int]:
    return [offset for _, _, offset in rows(archive, plan_query(archive.store, asked))]


def put(archive: MadeArchive, log: bytes, end: int, topic: str = "t", partition: int = 0, stable: int = -1) -> None:
    archive.put_segment(topic, 0, log, partition=partition)
    archive.commit(topic, end, partition=partition, last_stable_offset=end if stable < 0 else stable)


def put_ends(archive: MadeArchive, broker: int = 1, time: int = LATER, **partitions: int) -> None:
    found = {TopicPartition(*_split(name)): End(high_watermark, time) for name, high_watermark in partitions.items()}
    archive.store.put(archive.keys.ends_of(broker), Ends(broker, time, found).encode())


def _split(name: str) -> tuple[str, int]:
    return name[0], int(name[1:])


def test_rows_up_to_the_moment_are_shown_wherever_they_are(archive: MadeArchive) -> None:
    """Timestamps need not ascend: earlier ones follow later ones, also in later segments."""
    archive.put_segment("t", 0, batches((0, 1), time=NOON) + batches((1, 2), time=NOON) + batches((2, 3), time=0))
    archive.put_segment("t", 3, batches((3, 5), time=NOON) + batches((5, 6), time=NOON - 6))
    archive.commit("t", 6, highest_base=3)
    assert offsets(archive, at_noon(archive)) == [0, 2, 5]
    assert offsets(archive, at_noon(archive, moment=NOON + 3)) == [0, 1, 2, 3, 5]


def test_a_segment_of_later_records_is_not_read(archive: MadeArchive) -> None:
    """If its metadata has the least timestamp."""
    put(archive, batches((0, 5), time=0), 5)
    archive.put_segment("t", 5, b"".join(batches((offset, offset + 1), time=NOON) for offset in range(5, 9)))
    archive.commit("t", 9, highest_base=5, last_stable_offset=9)
    plan = plan_query(archive.store, at_noon(archive))
    assert (plan.segments, plan.all_segments) == (1, 2)
    assert [offset for *_, offset in rows(archive, plan)] == [0, 1, 2, 3, 4]
    assert offsets(archive, at_noon(archive, moment=NOON + 5)) == [0, 1, 2, 3, 4, 5]


def test_transactions_are_shown_by_the_time_of_their_commit_marker(archive: MadeArchive) -> None:
    """Neither aborted nor later nor open ones; records between and behind them are shown."""
    log = data(0, 1) + ended(1, NOON) + data(2, 2) + ended(3, 3, kind=ABORT) + data(4, 4) + data(5, 4, 8)
    archive.put_segment("t", 0, log + batches((6, 8), time=0), txnindex=struct.pack(">hqqqq", 0, 7, 2, 3, 4))
    archive.put_segment("t", 8, ended(8, NOON + 1) + data(9, 6) + ended(10, NOON + 2) + batches((11, 12), time=0))
    archive.commit("t", 12, highest_base=8, last_stable_offset=5)
    assert offsets(archive, at_noon(archive)) == [0, 6, 7, 11]
    assert offsets(archive, at_noon(archive, moment=NOON + 1)) == [0, 4, 6, 7, 11]
    assert offsets(archive, replace(at_noon(archive, moment=NOON + 1), end=Offsets({"t": {0: 7}}))) == [0, 4, 6]


@pytest.mark.parametrize(("time", "shown"), [(NOON, [5, 8]), (NOON + 1, [5])])
def test_a_transaction_that_is_open_at_a_hole_is_not_shown_before_it(
    archive: MadeArchive, time: int, shown: list[int]
) -> None:
    """The hole can have its marker; records after the hole follow the next one."""
    archive.put_segment("t", 0, data(0, 5) + data(1, 5))
    archive.put_segment("t", 5, batches((5, 6), time=0))
    archive.put_segment("t", 8, data(8, 6) + ended(9, time) + batches((10, 11), time=NOON))
    archive.commit("t", 11, highest_base=8, last_stable_offset=11)
    assert offsets(archive, replace(at_noon(archive), fail_on_data_loss=False)) == shown


def test_later_commits_do_not_change_a_complete_cut(bare: MadeArchive) -> None:
    """An open transaction gets its marker, and later records follow."""
    put(bare, batches((0, 2), time=0) + data(2, 5) + batches((3, 5), time=LATER), 5, stable=2)
    before = offsets(bare, at_noon(bare))
    bare.put_segment("t", 5, ended(5, LATER + 9) + data(6, LATER + 10) + ended(7, LATER + 11))
    bare.commit("t", 8, highest_base=5, last_stable_offset=8)
    assert offsets(bare, at_noon(bare)) == before == [0, 1]


def test_a_record_shortly_after_the_moment_proves_no_cut(bare: MadeArchive) -> None:
    """Records of the moment follow it: clocks differ, and producers send at once."""
    put(bare, batches((0, 2), time=0) + batches((2, 4), time=LATER - 4), 4)
    with pytest.raises(QueryError, match="missing in t-0: no shipped record is five minutes later"):
        plan_query(bare.store, at_noon(bare))
    bare.put_segment("t", 4, batches((4, 5), time=NOON - 4) + batches((5, 6), time=LATER - 5))
    bare.commit("t", 6, highest_base=4, last_stable_offset=6)
    assert offsets(bare, at_noon(bare)) == [0, 1, 4]


def test_the_newest_record_of_each_key_is_that_of_the_moment(archive: MadeArchive) -> None:
    """A later one, and one of a later transaction, do not hide it."""
    log = data(0, 1, key=b"a") + ended(1, 2) + data(2, 3, key=b"a") + ended(3, NOON + 1)
    put(archive, log + batches((4, 5), time=0), 5)
    archive.put_segment("t", 5, batches((5, 6), time=NOON))
    archive.commit("t", 6, highest_base=5, last_stable_offset=6)
    asked = replace(at_noon(archive), view=View.LATEST)
    assert offsets(archive, asked) == [0, 4]


def test_a_cut_fails_where_nothing_proves_that_it_is_complete(bare: MadeArchive) -> None:
    """One line names the partitions and the ways out; a cut that only warns returns what is shipped."""
    put(bare, batches((0, 5), time=NOON) + batches((5, 6), time=LATER), 6)
    for partition in (1, 2):
        put(bare, batches((0, 5), time=0), 5, partition=partition)
    put_ends(bare, t1=5)
    with pytest.raises(QueryError) as caught:
        plan_query(bare.store, at_noon(bare))
    assert str(caught.value) == (
        "cut at 1970-01-02T03:46:40.000Z: records up to then can be missing in t-2: no shipped record is five minutes "
        "later, and no agent's word in ends/ proves that all are shipped; choose an earlier moment, or repeat the "
        'query later. To read what is shipped, pass unproven="warn" to at()'
    )
    plan = plan_query(bare.store, at_noon(bare, fails=False))
    assert len([*rows(bare, plan)]) == 11
    assert [warning.partition(":")[0] for warning in plan.warnings] == ["cut at 1970-01-02T03"]
    put_ends(bare, 2, t2=5)
    assert plan_query(bare.store, at_noon(bare)).warnings == ()


def test_a_partition_that_only_an_agent_names_is_not_proven(bare: MadeArchive) -> None:
    """All its records can be in an active segment; without records there is nothing to ship."""
    put(bare, batches((0, 1), time=NOON) + batches((1, 5), time=LATER), 5)
    put_ends(bare, t3=17, u0=5)
    with pytest.raises(QueryError, match="missing in t-3: "):
        plan_query(bare.store, at_noon(bare))
    assigned = replace(at_noon(bare), subscription=Subscription(assigned={"t": (0,)}))
    assert offsets(bare, assigned) == [0]
    put_ends(bare, t3=0)
    assert offsets(bare, at_noon(bare)) == [0]


def test_a_damaged_word_is_no_proof(bare: MadeArchive) -> None:
    """The object can be written again by its agent at any time."""
    put(bare, batches((0, 5), time=0), 5)
    put_ends(bare, t0=5)
    assert offsets(bare, at_noon(bare)) == [0, 1, 2, 3, 4]
    bare.store.put(bare.keys.ends_of(1), b"{")
    with pytest.raises(QueryError, match="missing in t-0: "):
        plan_query(bare.store, at_noon(bare))


def test_a_word_does_not_prove_an_earlier_incarnation(bare: MadeArchive) -> None:
    """It is about the newest one."""
    put(bare, batches((0, 5), time=0), 5)
    put_ends(bare, t0=5)
    bare.put_incarnations("t", *IDS)
    with pytest.raises(QueryError, match="missing in t-0: "):
        plan_query(bare.store, replace(at_noon(bare), incarnation="1"))


@pytest.mark.parametrize("is_later", [True, False])
def test_records_are_read_where_metadata_is_no_proof(bare: MadeArchive, is_later: bool) -> None:
    """A Java uploader's segment has none, and the greatest timestamp of another can be that of a dead tail."""
    time = LATER if is_later else 0
    put(bare, batches((0, 5), time=time), 5)
    bare.store.put(bare.partition("t").segment(SegmentName(0)), batches((0, 5), time=time))
    bare.put_segment("u", 0, batches((0, 5), epoch=1, time=time) + batches((5, 9), epoch=2, time=LATER))
    bare.commit("u", 5, epochs=[(1, 0), (3, 5)])
    if is_later:
        assert offsets(bare, at_noon(bare, "t", "u")) == []
        assert offsets(bare, at_noon(bare, "t", "u", moment=NOON + 2)) == []
        return
    with pytest.raises(QueryError, match="missing in t-0, u-0: "):
        plan_query(bare.store, at_noon(bare, "t", "u"))


def two_topics(archive: MadeArchive, *, raises: int) -> None:
    """Producer 7 commits one transaction in `t` before the moment, and in `u` after it."""
    for topic, time in (("t", NOON - 1), ("u", NOON + 1)):
        log = batches((0, 1), time=0) + data(1, NOON - 9, epoch=3) + ended(2, time, epoch=3 + raises)
        put(archive, log + batches((3, 4), time=NOON), 4, topic)


def test_a_transaction_is_whole_across_topics_if_its_producer_epoch_is_unique(archive: MadeArchive) -> None:
    """Also in a scan of one topic, if the cut names the other one; alone it does not read the other marker."""
    two_topics(archive, raises=1)
    plan = plan_query(archive.store, at_noon(archive, "t", "u"))
    assert [*rows(archive, plan)] == [("t", 0, 0), ("u", 0, 0)]
    assert plan.warnings == ()
    assert offsets(archive, at_noon(archive, "t", others="t u missing")) == [0]
    assert offsets(archive, at_noon(archive, "u", others="t u")) == [0]
    assert offsets(archive, at_noon(archive, "t")) == [0, 1]


def test_a_topic_of_the_cut_must_be_complete_too(archive: MadeArchive) -> None:
    """Its markers decide which transactions are shown."""
    two_topics(archive, raises=1)
    put(archive, batches((0, 1), time=0), 1, "v")
    with pytest.raises(QueryError, match="missing in v-0: "):
        plan_query(archive.store, at_noon(archive, "t", others="v"))


def test_other_producers_are_named(archive: MadeArchive) -> None:
    """The rows are those of each partition's markers."""
    two_topics(archive, raises=0)
    plan = plan_query(archive.store, at_noon(archive, "t", "u"))
    assert [*rows(archive, plan)] == [("t", 0, 0), ("t", 0, 1), ("u", 0, 0)]
    assert plan.warnings == (
        "producer 7: one of its transactions can be shown in part: it committed up to the cut in t-0, and later or not "
        "yet in u-0",
    )


def test_unassigned_partitions_count_for_a_cut_that_names_their_topic(archive: MadeArchive) -> None:
    """A transaction over two partitions of a topic is whole in each."""
    for partition, time in enumerate((NOON - 1, NOON + 1)):
        log = data(0, 5, epoch=3) + ended(1, time, epoch=4) + batches((2, 3), time=NOON)
        put(archive, log, 3, partition=partition)
    asked = replace(at_noon(archive, others="t"), subscription=Subscription(assigned={"t": (0,)}))
    assert offsets(archive, asked) == []
    assert offsets(archive, replace(asked, cut=Cut(NOON))) == [0]


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def words(*found: tuple[int, int], broker: int = 1, partition: TopicPartition = T0) -> list[Ends]:
    return [
        Ends(broker + place, 0, {partition: End(high_watermark, time)})
        for place, (high_watermark, time) in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("ends", "is_proven"),
    [
        ([], False),
        (words((10, LATER)), True),
        (words((9, LATER + 1)), True),
        (words((10, LATER - 1)), False),  # clocks differ, and records wait in producers
        (words((11, LATER)), False),  # offset 10 is in an active segment
        (words((10, LATER), (11, LATER)), False),  # the first broker leads no more, and has not learned it
        (words((10, LATER), (11, LATER - 1)), True),  # an election lost offset 10
        (words((10, LATER), partition=T1), False),
    ],
)
def test_the_word_of_an_agent_is_a_proof_if_it_is_late_and_all_below_it_is_shipped(
    ends: list[Ends], is_proven: bool
) -> None:
    """A partition with ten offsets in the store, none of them later than the moment."""
    assert unproven([Shipped(T0, 10, has_later=False)], ends, NOON) == (() if is_proven else (T0,))


def test_a_later_record_is_a_proof_without_a_word_and_against_it() -> None:
    """What an active segment has is then at higher offsets; each partition has its own proof."""
    shipped = [Shipped(T1, 10, has_later=False), Shipped(T0, 10, has_later=True)]
    assert unproven(shipped, words((99, LATER)), NOON) == (T1,)


def test_a_word_is_about_the_newest_incarnation() -> None:
    """It has no topic id."""
    assert unproven([Shipped(T0, 10, has_later=False, is_newest=False)], words((10, LATER)), NOON) == (T0,)


def shipped_at(view: PartitionView, time: int | None) -> PartitionView:
    copies = [replace(copy, metadata=replace(copy.metadata, shipped=time)) for copy in view.copies]
    return replace(view, copies=tuple(copies))


def test_a_segment_that_was_shipped_before_the_moment_proves_nothing(archive: MadeArchive) -> None:
    """The clock of its producer was ahead; an older archive does not have that time."""
    archive.put_segment("t", 0, batches((0, 10), time=LATER))
    archive.commit("t", 10)
    view = view_of(archive)
    assert metadata_proves_later(view, NOON)
    assert metadata_proves_later(view, NOON + 9)
    assert not metadata_proves_later(view, NOON + 10)
    assert metadata_proves_later(shipped_at(view, LATER), NOON)
    assert not metadata_proves_later(shipped_at(view, LATER - 1), NOON)


def test_the_greatest_timestamp_of_a_segment_counts_if_all_of_it_is_in_the_view(archive: MadeArchive) -> None:
    """A dead tail and offsets above the next one can have that timestamp."""
    archive.put_segment("t", 0, batches((0, 10), epoch=1, time=LATER - 10) + batches((10, 20), epoch=2, time=LATER))
    archive.commit("t", 20, epochs=[(1, 0), (2, 10)])
    assert metadata_proves_later(view_of(archive), NOON)
    archive.commit("t", 20, epochs=[(1, 0), (3, 10)])
    assert not metadata_proves_later(view_of(archive), NOON)
    archive.commit("t", 15, epochs=[(1, 0), (2, 10)])
    assert not metadata_proves_later(view_of(archive), NOON)


A, B, C = (TopicPartition("t", number) for number in range(3))
HIDDEN = (AbortedTransaction(7, 10, 19, -1),)


def shown(epoch: int = 3, marker_epoch: int = 4, time: int = NOON) -> Transaction:
    return Transaction(7, epoch, 10, 19, NOON - 50, marker_epoch, time)


def late(epoch: int = 3, marker_epoch: int | None = 4, begun: int = NOON - 40) -> Transaction:
    return Transaction(7, epoch, 30, 39, begun, marker_epoch, None if marker_epoch is None else NOON + 1)


def whole(found: dict[TopicPartition, list[Transaction]], before: dict[TopicPartition, list[Transaction]]) -> Whole:
    def committed(partition: TopicPartition, producers: frozenset[int], since: int) -> Iterable[Transaction]:
        return [
            each
            for each in before.get(partition, [])
            if each.producer_id in producers and each.time is not None and each.time >= since
        ]

    return make_whole({partition: found.get(partition, []) for partition in (A, B, C)}, committed, NOON)


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (late(), True),
        (late(marker_epoch=None), True),  # its marker is not shipped
        (late(epoch=4, marker_epoch=5), False),  # the next transaction of the producer
        (late(epoch=4, marker_epoch=None), False),
        (late(epoch=3, marker_epoch=3), False),  # before the version was raised
    ],
)
def test_a_unique_producer_epoch_hides_a_transaction_in_all_partitions(other: Transaction, is_same: bool) -> None:
    """No producer is named: it is certain whether the markers are of one transaction."""
    found = whole({B: [other]}, {A: [shown()]})
    assert found.hidden == {A: HIDDEN if is_same else (), B: (), C: ()}
    assert found.warnings == ()


def test_a_producer_without_unique_epochs_is_named_with_its_partitions() -> None:
    """Its records stay: no field shows whether the markers are of one transaction."""
    before = {A: [shown(3, 3)], C: [shown(3, 3)]}
    found = whole({B: [late(3, 3)], C: [late(3, None)]}, before)
    assert not any(found.hidden.values())
    assert found.warnings == (
        "producer 7: one of its transactions can be shown in part: it committed up to the cut in t-0, t-2, and later "
        "or not yet in t-1, t-2",
    )


@pytest.mark.parametrize(
    "other",
    [
        late(4, 4),  # the producer was fenced in between
        late(3, 3, begun=NOON + CLOCK_MARGIN_MS + 1),  # it began after the other one was committed
    ],
)
def test_a_producer_is_not_named_if_the_markers_are_of_different_transactions(other: Transaction) -> None:
    """By their epochs, or by their times."""
    assert whole({B: [other]}, {A: [shown(3, 3)]}).warnings == ()


def test_two_transactions_in_one_partition_are_whole_there() -> None:
    """The other producers of a partition do not matter."""
    assert whole({A: [late(3, 3)]}, {A: [shown(3, 3)]}).warnings == ()
    other = Transaction(8, 3, 5, 6, NOON, 3, NOON)
    assert whole({A: [late(3, 3)]}, {B: [other]}).warnings == ()
    assert whole({A: [late(3, 3)], B: [late(4, 4)]}, {A: [shown(3, 3)]}).warnings == ()


def test_many_producers_are_named_in_one_sentence_after_the_first_ones() -> None:
    """So that a warning stays readable."""
    partitions = (A,), (B,)
    found = Whole({}, dict.fromkeys(range(22), partitions)).warnings
    assert len(found) == 21
    assert found[-1] == "producers 20, 21: transactions of these can be shown in part too"
