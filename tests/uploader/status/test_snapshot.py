"""The status of an agent: the worst partitions first, tasks without progress, and a bounded size."""

import json
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from markupsafe import escape

from tests.uploader.status.statuses import status_of, waiting
from ts_common.model import TopicPartition
from ts_uploader.messages.observations import Leadership
from ts_uploader.messages.results import DeletedPending, DeletedShipped, Failed, Fenced
from ts_uploader.messages.tasks import ShipDeleted
from ts_uploader.process import progress
from ts_uploader.shipping.deleted_task import again, to_ship
from ts_uploader.status.last_errors import LastErrors
from ts_uploader.status.page import WORST, status_page
from ts_uploader.status.snapshot import AgentStatus
from ts_uploader.status.status_json import status_json
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.blocked import WAIT_REASONS, Wait, WaitReason
from ts_uploader.tracking.stuck import Stuck, StuckPartitions

EVIL = "<script>alert('&')</script>"
FAILED = Failed(TopicPartition("t", 3), 0, Leadership(1, None, 0), 0, "Ship", "the store said <b>no</b>")


def page(status: AgentStatus) -> str:
    return b"".join(status_page(status)).decode()


def told(status: AgentStatus) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(b"".join(status_json(status)))
    return found


def test_partitions_with_problems_appear_first() -> None:
    """A hole before what Kafka may delete soon, that before what waits, and what is well last."""
    known = dict(
        [
            waiting("well", 0),
            waiting("waits", 0, waits_for="a high watermark"),
            waiting("soon-gone", 0, base=0),
            waiting("torn", 0, hole=True),
        ]
    )
    status, *_ = status_of(lambda: known)
    totals, worst = status.worst(known, 3)
    assert [one.topic for one in worst] == ["torn", "soon-gone", "waits"]
    assert (totals.partitions, totals.holes, totals.urgent, totals.waiting) == (4, 1, 1, 1)
    shown = page(status)
    places = [shown.index(f">{topic}-0<") for topic in ("torn", "soon-gone", "waits", "well")]
    assert places == sorted(places)
    headline = shown.index('<p class="verdict bad">1 partition: the broker has no segment')
    assert headline < shown.index("<h2>Totals")


def test_text_from_outside_the_agent_is_escaped() -> None:
    """Names, reasons and messages: nothing of them becomes a tag."""
    known = dict([waiting("topic", 0, waits_for=EVIL)])
    status, _, errors = status_of(lambda: known)
    errors.take(Failed(TopicPartition("t", 3), 0, Leadership(1, None, 0), 0, EVIL, EVIL))
    status.sources = replace(status.sources, queues={EVIL: lambda: 1})
    shown = page(status)
    assert "&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;" in shown
    assert "<script" not in shown


@pytest.mark.parametrize("reason", WaitReason)
def test_u35_a_page_with_a_stuck_partition_does_not_report_that_all_is_well(reason: WaitReason) -> None:
    """In any state, also without a reported leader; the agent is healthy, as no restart would help."""
    known = dict([waiting("well", 0), waiting("stuck", 0), waiting("waits", 0, waits_for="a high watermark")])
    stuck = {
        TopicPartition("stuck", 0): Stuck(Wait(reason, "what it needs", ordinary=True), 1_200.0),
        TopicPartition("not-in-the-backlog", 3): Stuck(Wait(reason, "its leader"), 7_300.0),
    }
    status, *_ = status_of(lambda: known, stuck=lambda: StuckPartitions(stuck))
    shown = page(status)
    assert "All is well." not in shown
    assert '<p class="verdict bad">2 partitions stuck.' in shown
    assert f"<li>2 partitions stuck: {escape(WAIT_REASONS[reason])}. " in shown
    assert "nothing of not-in-the-backlog-3 for 2 h.</li>" in shown
    assert 'class="bad" data-name="Trouble">stuck for 20 min; waits for what it needs<' in shown
    assert shown.index(">stuck-0<") < shown.index(">waits-0<") < shown.index(">well-0<")
    assert status.snapshot().healthy
    assert "All is well." in page(status_of(lambda: dict([waiting("well", 0)]))[0])


def many(partitions: int) -> dict[TopicPartition, Backlog]:
    """So many, and three more in trouble."""
    known = dict(waiting("a-topic-with-a-long-name", number) for number in range(partitions))
    return {**known, **dict(waiting("torn", number, hole=True) for number in range(3))}


def test_ten_thousand_partitions_make_a_small_page() -> None:
    """The worst and the totals."""
    known = many(10_000)
    shown = page(status_of(lambda: known)[0])
    assert len(shown) < 60_000
    assert shown.count("<tr>") == WORST + 1
    assert "10,003" in shown
    assert ">torn-2<" in shown


def test_all_partitions_as_json_cost_less_memory_than_they_are_long() -> None:
    """They are never in memory as a whole."""
    known = many(2_000)
    status, *_ = status_of(lambda: known)
    size = sum(len(piece) for piece in status_json(status))
    tracemalloc.start()
    try:
        longest = max(len(piece) for piece in status_json(status))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 400_000
    assert longest < 40_000
    assert peak < size / 2


def test_the_json_has_the_keys_that_others_rely_on() -> None:
    """`tsctl status` reads these."""
    known = dict([waiting("t", 0), waiting("t", 1, base=0, hole=True, waits_for="x")])
    stuck = StuckPartitions({TopicPartition("t", 1): Stuck(Wait(WaitReason.STORE, "x"), 900.0)})
    status, _, errors = status_of(lambda: known, stuck=lambda: stuck)
    errors.take(FAILED)
    found = told(status)
    assert found["stuck_partitions"] == [
        {"topic": "t", "partition": 1, "reason": "store", "waits_for": "x", "seconds": 900.0}
    ]
    assert found["stuck"] == 1
    keys = "version cluster broker started ready healthy partitions queue_length last_errors"
    assert set(keys.split()) <= found.keys()
    assert (found["cluster"], found["broker"], found["ready"], found["healthy"]) == ("prod", 7, True, True)
    assert found["queue_length"] == 3
    assert found["partitions"] == [
        {
            "topic": "t",
            "partition": number,
            "next_offset": 10,
            "lag_offsets": 5,
            "unshipped_segments": segments,
            "unshipped_bytes": 0,
            "oldest_unshipped_age_seconds": 0.0,
            "retention_left_ratio": left,
            "hole": bool(number),
            "waits_for": waits,
            "stuck_seconds": stuck_seconds,
        }
        for number, segments, left, waits, stuck_seconds in ((0, 0, 1.0, None, None), (1, 1, 0.0, "x", 900.0))
    ]
    (error,) = found["last_errors"]
    assert {"time", "operation", "partition", "message"} <= error.keys()
    assert (error["partition"], error["message"]) == ("t-3", "the store said <b>no</b>")


def test_u45_a_deleted_topic_whose_tail_fails_to_ship_is_never_well() -> None:
    """Its partition is in no backlog, and the broker removes the files: the condition names it while attempts fail."""
    status, _, errors = status_of()
    listing = waiting("gone")[1].listing
    assert listing is not None
    task = ShipDeleted(listing.partition, -1, Leadership(3, "A" * 21 + "Q", 0), listing, 30, led=False, latest=False)
    found: list[str] = []
    for _ in range(6):
        pending = again(task, f"DataLoss: {EVIL}")
        assert isinstance(pending, DeletedPending)
        task = pending.task
        errors.take(pending)
        found.append(told(status)["state"]["condition"])
    assert found == [*["well"] * 5, "deleted_fails"]
    assert status.snapshot().ready
    assert "1 deleted partition: each attempt to ship the last records fails" in page(status)
    assert "gone-0: DataLoss: &lt;script&gt;" in page(status)
    errors.take(to_ship(task))  # it waits again, and has not failed since
    assert told(status)["state"]["condition"] == "well"
    errors.take(pending)
    errors.take(DeletedShipped(task.partition, -1, task.leadership, "all offsets are in the archive", 30))
    assert told(status)["state"]["condition"] == "well"


def test_no_partitions_are_an_empty_list() -> None:
    """For an agent that has just started, or whose broker leads nothing."""
    assert told(status_of()[0])["partitions"] == []


def test_the_last_errors_are_few_and_each_counts_its_repetitions() -> None:
    """A partition that fails for hours does not hide the others."""
    ticks: Iterator[int] = iter(range(1000))
    errors = LastErrors(lambda: next(ticks))
    for number in range(30):
        errors.take(Failed(TopicPartition("t", number), 0, Leadership(1, None, 0), 0, "Ship", "x" * 5000))
    for _ in range(5):
        errors.take(Fenced(TopicPartition("t", 29), 0, Leadership(1, None, 0), "a later leader epoch"))
        errors.take(FAILED)
    newest = errors.newest()
    assert len(newest) == 20
    assert [(e.partition, e.operation, e.times, e.time) for e in newest[:3]] == [
        ("t-3", "Ship", 5, 39),
        ("t-29", "Fenced", 5, 38),
        ("t-29", "Ship", 1, 29),
    ]
    assert len(newest[2].message) < 1100


def test_a_worker_that_is_stalled_beyond_its_bound_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes progress with each request and read, and while an external limit keeps all workers waiting."""
    now = [1000.0]
    monkeypatch.setattr("ts_uploader.process.progress.time.monotonic", lambda: now[0])
    status, *_ = status_of(upload_timeout_seconds=60)
    sources = status.sources
    assert sources.progress.bound_seconds == 300

    def later(seconds: float) -> None:
        now[0] += seconds
        status.note_round(0)

    with sources.progress.doing("Ship", TopicPartition("t", 0)):
        later(299)
        assert status.snapshot().healthy
        later(2)
        snapshot = status.snapshot()
        assert [(work.thread, work.operation) for work in snapshot.stuck] == [(threading.current_thread().name, "Ship")]
        assert not snapshot.healthy
        assert "has made no progress for 5 min (Ship t-0)" in page(status)
        progress.beat()
        assert status.snapshot().healthy
        later(301)
        sources.progress.excuse(1, 0.0)
        assert status.snapshot().healthy
        later(301)
        sources.progress.excuse(1, 0.0)  # nothing more was refused
        assert not status.snapshot().healthy
    assert status.snapshot().healthy
    progress.beat()  # without a task it means nothing


def test_a_dead_thread_is_not_healthy() -> None:
    """Its name is reported."""
    ended = threading.Thread(target=int, name="upload-1")
    ended.start()
    ended.join()
    status, *_ = status_of(threads=(ended,))
    assert not status.snapshot().healthy
    assert "Thread upload-1 is dead" in page(status)
