"""Faults of a store: it rejects, breaks off, never answers, answers late (U01, U02, U14, U27)."""

import re
from collections.abc import Callable

import pytest

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.proxy.actions import (
    Action,
    Answer,
    CutAfter,
    CutBefore,
    Delay,
    LandLate,
    SwallowAnswer,
    TruncateAnswer,
)
from dev.local.proxy.s3 import Rule, S3FaultProxy
from tests.faults.conftest import ArchiveOf
from tests.faults.files import SECONDS, live_bases, records, sample
from tests.faults.leaders import move_leader, zookeeper_of
from tests.faults.store_faults import (
    ANY_TIMES,
    IMPATIENT,
    ONE_THREAD,
    TINY,
    Guard,
    assert_complete,
    assert_logs_came_last,
    assert_view,
    closed,
    ends_of,
    fill,
    kafkas,
    puts,
    variants,
    wait_led,
    wait_shipped,
)
from tests.matrix import cases

# --- U01, U02: order ---------------------------------------------------------------------------------------------


def test_u01_the_commit_waits_before_a_segment_that_keeps_failing(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf
) -> None:
    """One segment's log is rejected again and again: later ones are uploaded; commit and gauges show where it waits."""
    topic = "failing"
    archive = archive_of(topic, proxy=proxy)
    cluster.create_topic(topic, assignment=[[1]], config=TINY)
    fill(cluster, topic, 12)
    bases = closed(archive)
    fails = Answer(500, "InternalError")
    failing = rf"/{bases[2]:020d}(\.e\d+\.[0-9a-f]{{8}})?\.log$"  # under any of its names
    proxy.script(Rule(fails, methods={"PUT"}, target=failing, times=ANY_TIMES))
    agent = archive.agent()
    wait_for(lambda: fails.fired >= 4, "the segment to fail four times", SECONDS)

    def stored(base: int) -> bool:
        prefix = f"{archive.partition_keys().prefix}{base:020d}."
        return any(key.startswith(prefix) and key.endswith(".log") for key in archive.objects())

    wait_for(lambda: all(map(stored, bases[3:6])), "later segments to go up", SECONDS, state=archive.objects)
    wait_for(lambda: archive.next_offset() == bases[2], "the commit to wait before it", SECONDS)
    assert not stored(bases[2])
    waiting = wait_for(lambda: sample(agent, "unshipped_segments", archive), "the gauge to show it", SECONDS)
    assert waiting == len(bases) - 2

    def age() -> float:
        return sample(agent, "oldest_unshipped_age_seconds", archive) or 0

    shown = wait_for(age, "its age to show", SECONDS)
    wait_for(lambda: age() > shown, "its age to grow", SECONDS)
    assert archive.next_offset() == bases[2]
    oracle = kafkas(archive)
    assert_view(archive, oracle)
    refused = puts(proxy, failing)
    assert {request.status for request in refused if request.finished} == {500}
    proxy.clear()
    ends = ends_of(archive)
    wait_shipped(archive, ends)
    assert_complete(archive, ends, oracle)
    wait_for(lambda: sample(agent, "unshipped_segments", archive) == 0, "the gauge to fall", SECONDS)
    assert age() == 0


@pytest.mark.parametrize("suffix", cases([".index", ".timeindex", ".txnindex", ".log"], quick=[".index"]))
def test_u02_no_log_is_stored_before_its_indexes(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf, suffix: str
) -> None:
    """One file of a segment fails in every way: its log is never stored before its indexes, and the commit waits."""
    topic = f"half{suffix}"
    archive = archive_of(topic, proxy=proxy)
    cluster.create_topic(topic, assignment=[[1]], config=TINY)
    producer = cluster.producer({"transactional.id": topic, "linger.ms": 50})
    producer.init_transactions()
    for aborted in (False, True, False):
        producer.begin_transaction()
        for record in records(20):
            producer.produce(topic, record.value, record.key, partition=0)
            producer.flush()
        if aborted:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    directory = cluster.brokers[1].partition_directory(topic, 0)
    (base,) = [base for base in closed(archive) if (directory / f"{base:020d}.txnindex").exists()]
    target = rf"{base:020d}\{suffix}$"
    guard = Guard(archive, proxy)
    faults: list[Action] = [Answer(500, "InternalError"), CutBefore(), CutAfter(10), SwallowAnswer()]
    proxy.script(*(Rule(fault, methods={"PUT"}, target=target) for fault in faults))
    behind: list[int] = []

    proxy.before(lambda request: behind.append(archive.next_offset()) if re.search(target, request.path) else None)
    archive.agent()
    ends = ends_of(archive)
    wait_shipped(archive, ends)
    assert faults[0].fired == 1
    assert guard.violations == []
    assert_logs_came_last(proxy)
    assert [fault.fired for fault in faults] == [1, 1, 1, 1]
    assert behind != []
    assert max(behind) <= base
    assert guard.logs >= len(closed(archive)) - 1
    stored = {key.rpartition("/")[2] for key in archive.objects()}
    assert {f"{base:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")} <= stored
    assert archive.read() == archive.oracle(end=ends[0])
    assert variants(archive) == []


# --- U14: a store in trouble -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("per_second", "segments", "partitions"),
    [pytest.param(20, 12, 2, marks=pytest.mark.full, id="20 a second"), pytest.param(6, 4, 1, id="6 a second")],
)
def test_u14_everything_is_shipped_under_a_storm_of_slow_down(
    cluster: LocalCluster,
    proxy: S3FaultProxy,
    archive_of: ArchiveOf,
    per_second: int,
    segments: int,
    partitions: int,
) -> None:
    """A store that always serves few requests a second: the agent lowers its rate, reports it, and ships everything."""
    topic = f"throttled-{per_second}"
    archive = archive_of(topic, proxy=proxy)
    cluster.create_topic(topic, assignment=[[1]] * partitions, config=TINY)
    agent = archive.agent()
    wait_led(agent, partitions)
    refuses = proxy.throttle(per_second, burst=1)
    fill(cluster, topic, segments, partitions)
    wait_for(lambda: refuses.fired > 0, "a request to be refused", SECONDS)
    limited = wait_for(
        lambda: (found := agent.metrics()["ts_uploader_request_limit"]) != float("inf") and found,
        "the process's rate to fall",
        SECONDS,
    )
    assert 0 < limited < 100
    assert agent.metrics()["ts_uploader_throttled_requests_total"] > 0
    ends = ends_of(archive, partitions)
    wait_shipped(archive, ends, 180)
    fired = refuses.fired
    served = [request for request in proxy.requests() if request.status not in {503, None}]
    assert agent.alive
    assert_complete(archive, ends, kafkas(archive, partitions))
    # The gate finds the store's rate: most requests are served.
    assert fired < 2 * len(served)


WEATHER: dict[str, Callable[[], Action]] = {
    "500": lambda: Answer(500, "InternalError"),
    "503": lambda: Answer(503, "ServiceUnavailable"),
    "reset": CutBefore,
    "reset in the body": lambda: CutAfter(50),
    "403": lambda: Answer(403, "AccessDenied"),
    "ExpiredToken": lambda: Answer(400, "ExpiredToken"),
    "404 of a load balancer": lambda: Answer(404, "NotFound"),
    "truncated answers": lambda: TruncateAnswer(5),
    "lost answers": SwallowAnswer,
    "slow sockets": lambda: Delay(3.0),
}


@pytest.mark.parametrize("weather", cases(WEATHER, quick=["503"]))
def test_u14_an_agent_outlasts_a_faulty_store(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf, weather: str
) -> None:
    """Every request fails for a while, then every third: the agent never ends, and completes after the recovery."""
    topic = "weather-" + re.sub(r"\W", "-", weather)
    archive = archive_of(topic, proxy=proxy, properties=IMPATIENT)
    cluster.create_topic(topic, assignment=[[1]] * 2, config=TINY)
    agent = archive.agent()
    wait_led(agent, 2)
    pid = agent.pid
    every, third = WEATHER[weather](), WEATHER[weather]()
    proxy.script(
        Rule(every, times=4),
        Rule(third, times=6, when=lambda request: request.number % 3 == 0),
    )
    fill(cluster, topic, 8, 2)
    wait_for(lambda: (every.fired, third.fired) == (4, 6), "the trouble to pass", SECONDS, state=lambda: third.fired)
    ends = ends_of(archive, 2)
    wait_shipped(archive, ends)
    assert agent.pid == pid
    assert agent.health()["dead_threads"] == []
    assert_complete(archive, ends, kafkas(archive, 2))
    if weather != "truncated answers":  # a truncated answer is read on from there, which is no failure
        errors = [value for name, value in agent.metrics().items() if name.startswith("ts_uploader_errors_total")]
        assert sum(errors) > 0


LOST = ["incarnations.json", "log.start", ".index", ".log", "offset.wm", "offset.wm later"]


@pytest.mark.parametrize("what", cases(LOST, quick=["offset.wm"]))
def test_u14_a_success_whose_answer_is_lost_does_no_harm(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf, what: str
) -> None:
    """The store has the object, the agent has no answer: it finds its own object, and writes no second name."""
    name, _, later = what.partition(" ")
    topic = "unanswered-" + what.replace(" ", "-")
    archive = archive_of(topic, proxy=proxy)
    cluster.create_topic(topic, assignment=[[1]], config=TINY)
    fill(cluster, topic, 6)
    guard = Guard(archive, proxy)
    lost = SwallowAnswer()
    proxy.script(Rule(lost, methods={"PUT"}, target=re.escape(name) + "$", skip=2 if later else 0))
    archive.agent()
    for start in (1000, 2000, 3000) if later else ():  # one commit can cover everything that is closed
        wait_shipped(archive, ends_of(archive))
        fill(cluster, topic, 2, start=start)
    ends = ends_of(archive)
    wait_for(lambda: lost.fired == 1, "an answer to be lost", SECONDS)
    wait_shipped(archive, ends)
    (unanswered,) = [request for request in proxy.requests() if request.faults]
    assert (unanswered.server_status, unanswered.status) == (200, None)
    assert_complete(archive, ends, kafkas(archive))
    assert guard.violations == []
    landed = [request.path for request in puts(proxy, r"\.log$") if request.server_status == 200]
    assert len(landed) == len(set(landed)) == len(closed(archive))


# --- U27: late arrivals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "skip", "killed"),
    [
        pytest.param(r"\.log$", 0, True, marks=pytest.mark.full, id="first log, killed"),
        pytest.param(r"\.log$", 2, True, id="third log, killed"),
        pytest.param(r"\.log$", 2, False, marks=pytest.mark.full, id="third log, alive"),
        pytest.param(r"offset\.wm$", 0, True, marks=pytest.mark.full, id="first commit, killed"),
        pytest.param(r"offset\.wm$", 2, True, marks=pytest.mark.full, id="third commit, killed"),
        pytest.param(r"offset\.wm$", 2, False, marks=pytest.mark.full, id="third commit, alive"),
    ],
)
def test_u27_a_put_that_lands_late_is_refused(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf, target: str, skip: int, killed: bool
) -> None:
    """Its agent timed out or was killed, and everything was committed since: the store rejects its condition."""
    topic = f"late-{'log' if 'log' in target else 'wm'}-{skip}-{killed}"
    archive = archive_of(topic, proxy=proxy, properties=IMPATIENT | ONE_THREAD)
    cluster.create_topic(topic, assignment=[[1]], config=TINY)
    fill(cluster, topic, 8)
    guard = Guard(archive, proxy)
    late = LandLate(silent=True)
    proxy.script(Rule(late, methods={"PUT"}, target=target, skip=skip))
    agent = archive.agent()
    wait_for(lambda: late.fired == 1, "a PUT to be on its way", SECONDS)
    if killed:
        agent.kill()
        agent = archive.agent()
    ends = ends_of(archive)
    wait_shipped(archive, ends)
    before, commit = archive.objects(), archive.commit()
    late.release()
    wait_for(lambda: late.outcomes, "the PUT to land", SECONDS)
    assert late.outcomes == (412,)
    assert archive.objects() == before
    assert archive.commit() == commit
    assert guard.violations == []
    fill(cluster, topic, 2, start=1000)
    ends = ends_of(archive)
    wait_shipped(archive, ends)
    assert_complete(archive, ends, kafkas(archive))
    assert guard.violations == []


@pytest.mark.full
def test_u27_a_log_that_lands_after_the_other_brokers_is_refused(
    cluster: LocalCluster, proxy: S3FaultProxy, archive_of: ArchiveOf, repetition: int
) -> None:
    """Another leader with other boundaries committed other bytes under the same name meanwhile; those stay."""
    topic = f"late-leader-{repetition}"
    # One upload at a time: the store is empty when the other agent starts.
    archive = archive_of(topic, proxy=proxy, properties=ONE_THREAD)
    cluster.create_topic(topic, assignment=[[1, 2]])
    cluster.produce(topic, records(1500), partition=0, config={"batch.size": 4000})
    wait_for(
        lambda: len(live_bases(cluster.brokers[2].partition_directory(topic, 0))) > 2, "the follower to roll", SECONDS
    )
    late = LandLate(silent=True)  # if the request failed, the agent would ship the next segment before the kill
    proxy.script(Rule(late, methods={"PUT"}, target=r"/0{20}\.log$"))
    agent = archive.agent(1)
    wait_for(lambda: late.fired == 1, "a log to be on its way", SECONDS)
    agent.kill()
    with zookeeper_of(cluster).client() as client:
        move_leader(client, topic, 2, 1)
    archive.agent(2)
    ends = ends_of(archive, broker=2)
    wait_shipped(archive, ends)
    before = archive.objects()
    held = cluster.brokers[2].partition_directory(topic, 0) / f"{0:020d}.log"
    assert archive.store.get(archive.partition_keys().prefix + held.name)[0] == held.read_bytes()
    late.release()
    wait_for(lambda: late.outcomes, "the log to land", SECONDS)
    assert late.outcomes == (412,)
    assert archive.objects() == before
    assert archive.store.get(archive.partition_keys().prefix + held.name)[0] == held.read_bytes()
    assert archive.read() == archive.oracle(end=ends[0])
