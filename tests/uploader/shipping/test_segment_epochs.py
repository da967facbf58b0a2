"""The epochs that a shipped segment gets: of the run, of the broker's checkpoint, or of its batches."""

from dataclasses import replace

import pytest

from tests.uploader.batches import batch
from tests.uploader.shipping.partition_log import Log, uploader
from ts_common.archive.epoch_history import EpochHistory
from ts_common.errors import CorruptData


@pytest.mark.parametrize(
    ("local", "epochs"),
    [
        (((0, 0), (3, 50), (4, 90)), ((0, 0), (3, 60), (4, 90))),
        (((0, 0),), ((0, 0), (2, 30))),  # compaction emptied epoch 2 before this broker fetched it
    ],
)
def test_an_emptied_segment_that_fills_gaps_bears_the_brokers_epochs_there(
    log: Log, local: tuple[tuple[int, int], ...], epochs: tuple[tuple[int, int], ...]
) -> None:
    """The run has no record of a gap; with its epochs there, no commit would accept the segments around it."""
    log.put(0, b"")
    log.put(100, b"")
    log.epochs(*local)
    run = EpochHistory(((0, 0), (9, 200))) if len(local) > 1 else EpochHistory(((0, 0), (2, 30), (9, 200)))
    task = replace(log.task(0), epochs=run, next_offset=300, gaps=((10, 20), (60, 200)))
    assert uploader(log).ship(task).epochs == epochs


def test_an_emptied_tail_that_fills_a_gap_bears_the_brokers_epochs_there(log: Log) -> None:
    """Its only batch is of epoch 1, and the run lacks epoch 4, which wrote the records that compaction removed."""
    log.put(40, batch(42, 2, epoch=1))
    log.put(60, b"")
    log.epochs((1, 0), (4, 50))
    task = replace(log.task(40), epochs=EpochHistory(((1, 0), (4, 80))), next_offset=100, gaps=((30, 80),))
    assert uploader(log).ship(task).epochs == ((1, 40), (4, 50))


def test_the_epochs_of_a_segment_are_the_brokers_own_where_its_batches_agree(log: Log) -> None:
    """Compaction removed the first batches of epoch 3; the checkpoint still has its start."""
    log.put(0, batch(0, 10, epoch=2) + batch(50, 10, epoch=3))
    log.put(60, b"")
    log.epochs((2, 0), (3, 20))
    assert log.ship(0).epochs == ((2, 0), (3, 20))


@pytest.mark.parametrize("pairs", [((2, 0), (3, 55)), ((7, 0),)])
def test_the_epochs_of_a_segment_are_its_batches_own_where_the_checkpoint_disagrees(
    log: Log, pairs: tuple[tuple[int, int], ...]
) -> None:
    """A list that gives a batch another epoch would make readers drop it."""
    log.put(0, batch(0, 10, epoch=2) + batch(50, 10, epoch=3))
    log.put(60, b"")
    log.epochs(*pairs)
    assert log.ship(0).epochs == ((2, 0), (3, 50))


def test_an_epoch_that_decreases_inside_a_segment_is_reported_and_not_shipped(log: Log) -> None:
    """The batch CRC leaves the epoch out, so a flipped bit there would make readers drop the batches that follow."""
    log.put(0, batch(0, 10, epoch=2) + batch(10, 10, epoch=70000) + batch(20, 10, epoch=2))
    log.put(30, b"")
    with pytest.raises(CorruptData, match="leader epoch 2 at offset 20 after 70000"):
        log.ship(0)
    assert log.names() == []


def test_the_run_overrides_a_followers_checkpoint_on_where_an_epoch_began(log: Log) -> None:
    """Below the next offset the commit's epochs count, unless a batch contradicts them; above it the broker's."""
    log.put(0, batch(0, 10, epoch=2) + batch(50, 10, epoch=3))
    log.put(60, b"")
    log.epochs((2, 0), (3, 50), (4, 60))
    task = replace(log.task(0), epochs=EpochHistory(((2, 0), (3, 20))), next_offset=40)
    assert uploader(log).ship(task).epochs == ((2, 0), (3, 20))
    wrong = replace(log.task(0), epochs=EpochHistory(((3, 0),)), next_offset=40)
    assert uploader(log).ship(wrong).epochs == ((2, 0), (3, 50))
