"""The thread that lists requests to repair."""

import threading
from collections.abc import Mapping
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from tests.uploader.local_directory import CLUSTER, TP
from ts_common.archive.repair_requests import Damage, RepairRequest, answer_key, request_key
from ts_common.errors import AccessDenied
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_uploader.messages.observations import RepairWanted
from ts_uploader.metrics.counters import Metrics
from ts_uploader.shipping import repair_watcher
from ts_uploader.shipping.repair_watcher import RepairWatcher
from ts_uploader.tracking.backlog import Backlog

LED = cast("Mapping[TopicPartition, Backlog]", {TP: None})


def request(number: int, partition: TopicPartition = TP) -> RepairRequest:
    id_ = f"{number:013d}-00000000"
    topic, number = partition.topic, partition.partition
    return RepairRequest(id_, topic, number, str(partition), Damage.MISSING, 0, 10, None, None, None, 1, "operator")


class Watched:
    """A watcher, and what it passes on."""

    def __init__(self, store: ObjectStore, every: float = 60.0) -> None:
        self.store = store
        self.offered: list[RepairWanted] = []
        self.some = threading.Event()
        self.metrics = Metrics()
        self.denied = False
        self.watcher = RepairWatcher(CLUSTER, lambda: LED, self.of, self.offer, self.metrics, every)

    def of(self, _: str) -> ObjectStore:
        if self.denied:
            self.store.list = self.refuse  # type: ignore[method-assign]
        return self.store

    def refuse(self, *_: object, **__: object) -> Any:
        raise AccessDenied("ListObjectsV2")

    def offer(self, wanted: RepairWanted) -> None:
        self.offered.append(wanted)
        self.some.set()


@pytest.fixture
def watched(store: ObjectStore) -> Watched:
    return Watched(store)


def test_requests_of_led_partitions_are_passed_on_until_they_have_an_answer(watched: Watched) -> None:
    """Each round, because the tracker forgets them at a failure; each object is read once."""
    mine, other = request(1), request(2, TopicPartition("t", 1))
    for each in (mine, other):
        watched.store.put(request_key(CLUSTER, each.id), each.encode())
    watched.watcher.look()
    watched.store.put(request_key(CLUSTER, "x"), b"?")
    watched.watcher.look()
    assert [wanted.request for wanted in watched.offered] == [mine, mine]
    watched.store.put(answer_key(CLUSTER, mine.id), b"")
    watched.watcher.look()
    assert len(watched.offered) == 2


def test_hostile_bytes_are_logged_once_and_delay_no_other_request(watched: Watched) -> None:
    """An object that is too large is not read."""
    hostile = [b"", b"\xff\xfe", b"[" * 60_000, b"x" * (65 << 10), b'{"version":1,"topic":"../../x"}']
    for number, data in enumerate(hostile):
        watched.store.put(request_key(CLUSTER, f"{number:013d}-ffffffff"), data)
    good = request(9)
    watched.store.put(request_key(CLUSTER, good.id), good.encode())
    with capture_logs() as logs:
        watched.watcher.look()
        watched.watcher.look()
    assert [wanted.request for wanted in watched.offered] == [good, good]
    assert [line["event"] for line in logs] == ["repair_request_unusable"] * len(hostile)


def test_of_very_many_requests_a_part_is_in_memory(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest ones; the others follow once these have an answer."""
    fill = 7
    monkeypatch.setattr(repair_watcher, "MOST_REQUESTS", fill)
    for number in range(2 * fill):
        watched.store.put(request_key(CLUSTER, request(number).id), request(number).encode())
    watched.watcher.look()
    watched.watcher.look()
    assert len(watched.offered) == 2 * fill
    watched.store.put(answer_key(CLUSTER, request(0).id), b"")
    watched.watcher.look()
    assert watched.offered[-1].request == request(fill)


def test_a_store_that_refuses_the_listing_is_logged_once_and_counted(watched: Watched) -> None:
    """An identity that may not list there ships all the same."""
    watched.denied = True
    with capture_logs() as logs:
        watched.watcher.look()
        watched.watcher.look()
    assert [line["event"] for line in logs] == ["repairs_not_listed"]
    counted = watched.metrics.registry.get_sample_value(
        "ts_uploader_errors_total", {"operation": "ListRepairs", "reason": "access_denied"}
    )
    assert counted == 2


def test_a_reload_lists_at_once(store: ObjectStore) -> None:
    """An operator need not wait for the minute."""
    watched = Watched(store, every=3600.0)
    store.put(request_key(CLUSTER, request(1).id), request(1).encode())
    thread = threading.Thread(target=watched.watcher.run)
    thread.start()
    watched.watcher.look_now()
    try:
        assert watched.some.wait(30)
    finally:
        watched.watcher.close()
        thread.join(30)
    assert not thread.is_alive()
