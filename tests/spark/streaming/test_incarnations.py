"""A stream of a topic that is deleted and created again."""

import pytest
from structlog.testing import capture_logs

from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.spark.streaming.query import EARLIEST, LENIENT, Query, warnings_of
from ts_common.archive.incarnations import read_incarnations
from ts_common.errors import DataLoss
from ts_common.model import TopicPartition

ID_ONE, ID_TWO = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAA-g"


def created_again(archive: Archive) -> None:
    """Create topic `t` again, with more records than the stream has read."""
    archive.put_incarnations("t", ID_ONE, ID_TWO)
    new = Archive(archive.location)
    plain = new.keys
    later = plain.partition(TopicPartition("t", 0), plain.later_incarnation("t", ID_TWO))
    archive.put_segment("source", 0, batches((0, 300), value=b"new"))
    archive.commit("source", 300)
    prefix = archive.partition("source").prefix
    for info in list(archive.store.list(prefix)):
        data, held = archive.store.get(info.key)
        archive.store.put(info.key.replace(prefix, later.prefix), data, metadata=held.metadata)


@pytest.mark.parametrize("id_known", [True, False])
def test_u09_a_topic_that_is_created_again_is_not_read_from_the_middle(two: Archive, id_known: bool) -> None:
    """Its offsets start again: data loss that names both topic ids, or the new one from its first offset."""
    if id_known:
        two.put_incarnations("t", ID_ONE)
    query = Query(two, **EARLIEST)
    query.trigger()
    created_again(two)
    told = (
        f"topic t was deleted and created again (topic id {ID_ONE if id_known else 'none'}, now {ID_TWO}): records of "
        "the former one from offset 100 of t-0 on are not read"
    )
    with pytest.raises(DataLoss) as caught:
        query.trigger()
    assert told in str(caught.value)
    with capture_logs() as logs:
        query.start(**LENIENT)
        query.trigger()
        assert query.trigger() == []
    assert warnings_of(logs) == [told]
    assert query.offsets_of() == [*range(100), *range(300)]
    assert all(row["value"] == b"new" for row in query.sink[1])


def test_r11_a_batch_of_a_former_incarnation_is_run_again_from_it(two: Archive) -> None:
    """A topic that is created again between planning a batch and running it changes nothing about that batch."""
    two.put_incarnations("t", ID_ONE)
    query = Query(two, **EARLIEST)
    query.trigger(dies=True)
    before = dict(query.sink)
    created_again(two)
    query.start(**EARLIEST)
    assert query.sink == before


def test_a_replaced_topic_id_is_no_new_incarnation(two: Archive) -> None:
    """A second id of the same incarnation (KAFKA-14190): the stream continues, also after a restart."""
    two.put_incarnations("t", ID_ONE)
    query = Query(two, **EARLIEST)
    query.trigger()
    known, _ = read_incarnations(two.store, two.keys, "t")
    two.store.put(two.keys.incarnations("t"), known.adopted(ID_TWO, 5).encode())
    two.commit("t", 200, highest_base=100)
    query.start(**EARLIEST)
    query.trigger()
    assert query.offsets_of() == list(range(200))
    assert query.positions()["~topicIds"] == {"t": ID_ONE}


def test_the_first_topic_id_that_is_seen_is_no_new_incarnation(two: Archive) -> None:
    """A cluster that learns of topic ids."""
    query = Query(two, **EARLIEST)
    query.trigger()
    two.put_incarnations("t", ID_ONE)
    two.commit("t", 200, highest_base=100)
    query.trigger()
    assert query.offsets_of() == list(range(200))
    assert query.positions()["~topicIds"] == {"t": ID_ONE}
