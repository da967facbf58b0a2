"""Agents that a kill or a pause ends at one or two steps of a recorded run (U03 and U31).

Each history of the topic has its own archive.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dev.local.kafka.cluster import LocalCluster, wait_for
from dev.local.oracle import OracleRecord
from dev.local.proxy.s3 import S3FaultProxy
from tests.faults.crashes.runs import Fate, Moment, Step, Victim, step_of
from tests.faults.files import SECONDS
from tests.faults.store_faults import (
    ONE_THREAD,
    TINY,
    Guard,
    assert_complete,
    assert_view,
    ends_of,
    fill,
    kafkas,
    knows,
    unexplained_variants,
)
from tests.uploader.beside import Archive
from ts_common.archive.object_keys import CACHE_DIRECTORY

PARTITIONS = 2
SEGMENTS = 2  # of each partition: a first commit and a next one
TOPIC = "crashing"
SEED = 20261121
MOMENTS: tuple[Moment, ...] = ("before", "after")
HISTORIES_AT_ONCE = 2
CACHE_OBJECTS = CACHE_DIRECTORY.rstrip("/")
SOME = 2  # pairs of steps in `make test`


@dataclass(frozen=True)
class Past:
    """The content of the topic, which all histories share.

    Attributes:
        oracle: by partition the records that Kafka's consumer returns.
        ends: by partition the end of its closed segments.
        steps: of an undisturbed agent, from an empty store to everything shipped, in order.
    """

    oracle: Mapping[int, list[OracleRecord]]
    ends: Mapping[int, int]
    steps: tuple[Step, ...]


class History:
    """An empty archive of the topic, and the faults of its agents.

    Args:
        cluster: with the topic.
        directory: of the test; the history's own is a sibling of it.
        properties: of the configuration.
    """

    numbers = itertools.count()

    def __init__(self, cluster: LocalCluster, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        assert cluster.s3 is not None
        self._s3 = cluster.s3
        self._open = ExitStack()
        own = directory / f"{directory.name}-{next(self.numbers)}"
        self.archive = Archive(cluster, own, TOPIC, properties=properties)

    def __enter__(self) -> "History":
        return self

    def __exit__(self, *_: object) -> None:
        self.archive.close()
        self._open.close()

    def proxy(self) -> S3FaultProxy:
        """Start a proxy for one agent, or for the processes of one."""
        return self._open.enter_context(S3FaultProxy(self._s3))


def record(cluster: LocalCluster, directory: Path) -> Past:
    """Produce two partitions of two segments each, and record the steps that ship them."""
    cluster.create_topic(TOPIC, assignment=[[1]] * PARTITIONS, config=TINY)
    fill(cluster, TOPIC, SEGMENTS, PARTITIONS)
    with History(cluster, directory, ONE_THREAD) as history:
        archive, proxy = history.archive, history.proxy()
        oracle, ends = kafkas(archive, PARTITIONS), ends_of(archive, PARTITIONS)
        agent = archive.agent(environment=proxy.environment())
        wait_for(lambda: knows(agent, archive, ends), "everything to be shipped", SECONDS, state=archive.objects)
        assert_complete(archive, ends, oracle)
        steps = [step for request in proxy.requests() if (step := step_of(archive, request)) is not None]
    # Two partitions may both try to create the incarnation. Cache objects are no step of the protocol: they are written
    # when a life has shipped enough segments. tests/uploader/shipping/test_metadata_cache_writer.py kills at these.
    return Past(oracle, ends, tuple(dict.fromkeys(step for step in steps if step.directory != CACHE_OBJECTS)))


def until_struck_or_done(victim: Victim, history: History, past: Past) -> bool:
    """Run one life; return whether it was struck."""
    agent = victim.live()
    wait_for(
        lambda: victim.struck.is_set() or knows(agent, history.archive, past.ends),
        "the agent to be struck, or to be done",
        SECONDS,
        state=lambda: (sorted(map(str, victim.met)), history.archive.objects(), agent.tail(10)),
    )
    return victim.struck.is_set()


def complete(history: History, past: Past, guard: Guard) -> None:
    """Check the end of every history: each record once, only explained variants, and no violation."""
    assert_complete(history.archive, past.ends, past.oracle)
    assert unexplained_variants(history.archive) == []
    assert guard.violations == []


def struck_in_turn(past: Past, victims: tuple[Victim, Victim], history: History) -> bool:
    """Strike the first agent, then run the second, a new process; check the views in between.

    Return whether the first agent's step occurred: with several threads one commit can cover two segments.
    """
    for victim in victims:
        struck = until_struck_or_done(victim, history, past)
        assert_view(history.archive, past.oracle)
        if not struck and victim is victims[0]:
            return False
    if victims[1].agent.alive:  # with several threads all later steps may precede the first agent's step
        victims[1].agent.kill()
    return True


def victims_of(
    history: History, past: Past, steps: tuple[Step, Step], random: Random, fate: Fate
) -> tuple[Guard, tuple[Victim, Victim]]:
    """Strike one of two agents at the first step, and kill one at the second step or at a later one."""
    proxies = history.proxy(), history.proxy()
    behind = frozenset(past.steps[past.steps.index(steps[1]) :])
    moments: list[Moment] = random.choices(MOMENTS, k=2)
    print(f"{fate} {moments[0]} {steps[0]}, kill {moments[1]} {steps[1]}")  # noqa: T201
    return Guard(history.archive, *proxies), (
        Victim(history.archive, proxies[0], moments[0], lambda step, met: step == steps[0] and not met, fate),
        Victim(history.archive, proxies[1], moments[1], lambda step, met: step in behind and not met),
    )


def struck_twice(
    history: History, past: Past, steps: tuple[Step, Step], random: Random, *, fate: Fate = "kill", completes: int
) -> bool:
    """Strike one agent at the first step, and kill another at the second; then one of the two completes.

    Args:
        history: empty.
        past: the topic's content.
        steps: each occurs at most once in a life.
        random: of the moments.
        fate: of the first agent.
        completes: which of the two.

    Returns:
        Whether the first step occurred.
    """
    guard, victims = victims_of(history, past, steps, random, fate)
    if not struck_in_turn(past, victims, history):
        return False
    agent = victims[completes].live()
    wait_for(lambda: knows(agent, history.archive, past.ends), "the last life to complete", SECONDS)
    complete(history, past, guard)
    return True


Live = Callable[[History, tuple[Step, Step], Random], bool]


def live_pairs(pairs: Sequence[tuple[Step, Step]], history_of: Callable[..., History], live: Live) -> None:
    """Run histories of pairs of steps, some at once (they mostly wait), each with its own seed."""

    def live_one(number: int, steps: tuple[Step, Step]) -> None:
        with history_of() as history:
            struck = live(history, steps, Random(f"{SEED}-{number}"))
        if not struck:  # one thread runs every step of the recorded run
            with history_of(properties=ONE_THREAD) as history:
                assert live(history, steps, Random(f"{SEED}-{number}")), f"never struck: {steps[0]}"

    with ThreadPoolExecutor(HISTORIES_AT_ONCE, "history") as pool:
        lived = [pool.submit(live_one, *pair) for pair in enumerate(pairs)]
        try:
            for history in lived:
                history.result()
        finally:
            pool.shutdown(cancel_futures=True)
