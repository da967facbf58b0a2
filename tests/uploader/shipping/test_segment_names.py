"""The name that a segment is stored under: the plain one, or a variant where another object has it."""

from dataclasses import replace

import pytest
from awscrt.checksums import crc32c

from tests.uploader.batches import batch
from tests.uploader.shipping.partition_log import KEYS, Interrupted, Log, uploader
from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Lineage
from ts_common.archive.copies import describe
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import SegmentName
from ts_common.errors import OutcomeUnknown
from ts_common.store.directory.driver import FileStore
from ts_uploader.messages.observations import Leadership


def test_a_segment_whose_neighbours_were_emptied_answers_for_more_under_another_name(log: Log) -> None:
    """The same bytes with a larger coverage, three times: readers get it each time, under another name."""
    log.put(0, batch(0, 10))
    for end in (100, 200, 300):
        log.put(end, b"")
        assert log.ship(0).end == end
        catalog = read_catalog(log.store, KEYS)
        assert max(copy.end for copy in describe(log.store, KEYS, catalog.segments)) == end
        (log.path / f"{end:020d}.log").unlink()
    assert len(log.names()) == 3


def test_what_the_store_already_contains_is_not_sent_again(log: Log) -> None:
    """A restart finds its own bytes by size and CRC."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    assert log.ship(0).bytes_sent > 0
    assert log.ship(0).bytes_sent == 0


def test_u05_other_bytes_under_an_existing_name_become_a_variant(log: Log) -> None:
    """Both stay: the plain name is the first writer's, and the other bytes are stored under a variant's name."""
    log.put(0, batch(0, 10, epoch=1))
    log.put(10, b"")
    log.ship(0)
    log.put(0, batch(0, 10, epoch=2))
    log.ship(0)
    plain, variant = sorted(log.names(), key=len)
    assert plain == "00000000000000000000.log"
    assert variant.startswith("00000000000000000000.e1.")


def test_a_shorter_copy_of_a_stored_object_counts_as_shipped(log: Log) -> None:
    """The stored object begins with the segment's bytes and covers as much: nothing to send."""
    log.put(0, batch(0, 10) + batch(10, 10))
    log.put(20, b"")
    log.ship(0)
    log.put(0, batch(0, 10))
    log.put(10, b"")
    shipped = log.ship(0)
    assert (shipped.bytes_sent, shipped.end) == (0, 10)


def test_a_plain_name_that_a_deletion_may_still_name_is_not_used(log: Log) -> None:
    """Below the third element of the lineage: a plain name is neither written nor counted as done."""
    log.put(0, batch(0, 10))
    log.put(10, batch(10, 10))
    log.put(20, b"")
    log.ship(0)
    below, above = replace(log.task(0), variants_below=10), replace(log.task(10), variants_below=10)
    assert uploader(log).ship(below).bytes_sent > 0
    assert uploader(log).ship(below).bytes_sent == 0
    uploader(log).ship(above)
    variant, *plain = sorted(log.names())
    assert plain == [f"{0:020d}.log", f"{10:020d}.log"]
    assert variant.startswith(f"{0:020d}.e1.")


def test_u36_a_second_lineage_of_a_leader_epoch_uses_no_name_of_the_first(log: Log) -> None:
    """A deletion of the first one has objects by name and ETag: they do not count as done, for a repair neither."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    for begin in (0, 5):
        task = replace(log.task(0), variants_below=10, lineage=Lineage(1, begin, 10))
        assert [uploader(log).ship(task).bytes_sent > 0 for _ in range(2)] == [True, False]
        assert not uploader(log).put_good_copy(task, None).is_new
    assert len(log.names()) == 2


def test_u27_a_log_that_another_agent_put_meanwhile_is_not_overwritten(interrupted: tuple[Log, Interrupted]) -> None:
    """Its name was free at first and in use at the put: rejected, and the next attempt makes a variant."""
    log, store = interrupted
    log.put(0, batch(0, 10))
    log.put(10, b"")
    key = KEYS.segment(SegmentName(0))
    theirs = batch(0, 5, epoch=7)
    store.before[".log"] = lambda: FileStore.put(store, key, theirs)
    with pytest.raises(OutcomeUnknown, match="another agent wrote it meanwhile"):
        log.ship(0)
    assert store.get(key)[0] == theirs
    log.ship(0)
    assert store.get(key)[0] == theirs
    assert len(log.names()) == 2


def test_bytes_whose_metadata_would_make_readers_drop_them_get_another_name(log: Log) -> None:
    """The same bytes are stored with fewer epochs: a committed segment must be live, so they are stored again."""
    log.put(0, batch(0, 10, epoch=2))
    log.put(60, b"")
    log.epochs((2, 0))
    first = replace(log.task(0), leadership=Leadership(2, None, 0))
    assert uploader(log).ship(first).epochs == ((2, 0),)
    task = replace(first, epochs=EpochHistory(((2, 0), (3, 20))), next_offset=60)
    shipped = uploader(log).ship(task)
    assert (shipped.bytes_sent > 0, shipped.epochs) == (True, ((2, 0), (3, 20)))
    assert len(log.names()) == 2
    assert uploader(log).ship(task).bytes_sent == 0


def test_u05_a_segment_whose_names_all_have_other_objects_is_not_sent(log: Log) -> None:
    """No object is overwritten, so the segment waits: neither its `.log` nor an index is written, on any attempt."""
    log.put(0, batch(0, 10))
    log.put(10, b"")
    data = log.path / f"{0:020d}.log"
    shipped = log.ship(0)
    scan = crc32c(data.read_bytes())
    last = crc32c(repr((shipped.end, shipped.epochs)).encode(), scan)
    for name in (SegmentName(0), SegmentName(0, 1, scan), SegmentName(0, 1, last)):
        log.store.put(KEYS.segment(name), b"other", condition=None)
    before = {info.key: info.etag for info in log.store.list()}
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="nothing is overwritten"):
            log.ship(0)
    assert {info.key: info.etag for info in log.store.list()} == before
