"""`restored.json`: topics are added to it, and another restore of one is not replaced."""

from dataclasses import replace

import pytest

from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.restored import (
    Ended,
    Outcome,
    Restored,
    RestoredPartition,
    RestoredTopic,
    record_restored,
)
from ts_common.errors import PreconditionFailed, QueryError
from ts_common.store.contract import ObjectStore

KEYS = ClusterKeys("prod", 5)
PART = RestoredPartition(1000, None, EpochHistory(((5, 0),)), (Ended(2001, 0, 990, Outcome.ABORT),))
TOPIC = RestoredTopic(None, "prod", 5, "orders", {0: PART})
CLICKS = replace(TOPIC, directory="clicks")


def refuse(directory: str) -> None:
    raise QueryError(directory)


def test_a_second_restore_adds_its_topics(store: ObjectStore) -> None:
    """A repeated one writes nothing."""
    first, second = Restored(1, "a", {"orders~x": TOPIC}), Restored(2, "b", {"clicks~y": CLICKS})
    assert [record_restored(store, KEYS, each, refuse) for each in (first, second, first, second)] == [
        *(True, True, False, False)
    ]
    found = Restored.read(store, KEYS.restored)
    assert found == Restored(2, "b", {"orders~x": TOPIC, "clicks~y": CLICKS})


def test_another_restore_of_a_topic_is_not_replaced(store: ObjectStore) -> None:
    """Readers of the new log would get another old log below it."""
    record_restored(store, KEYS, Restored(1, "a", {"orders~x": TOPIC}), refuse)
    with pytest.raises(QueryError, match="orders~x"):
        record_restored(store, KEYS, Restored(2, "a", {"orders~x": replace(TOPIC, directory="orders~z")}), refuse)


def test_a_record_of_another_process_is_kept(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write is on the ETag that was read."""
    record_restored(store, KEYS, Restored(1, "a", {"orders~x": TOPIC}), refuse)
    read = Restored.read_with_etag(store, KEYS.restored)
    record_restored(store, KEYS, Restored(2, "b", {"clicks~y": CLICKS}), refuse)
    monkeypatch.setattr(Restored, "read_with_etag", lambda *_: read)
    with pytest.raises(PreconditionFailed):
        record_restored(store, KEYS, Restored(3, "c", {"orders~z": TOPIC}), refuse)
