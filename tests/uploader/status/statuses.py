"""The status of an agent that is made up: its parts answer what a test wants."""

import threading
from collections.abc import Callable, Mapping, Set
from pathlib import Path

from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.leadership.contract import LeadershipSource
from ts_uploader.messages.observations import Listing
from ts_uploader.process.progress import Progress
from ts_uploader.retention.topic_retention import TopicRetention
from ts_uploader.status.last_errors import LastErrors
from ts_uploader.status.snapshot import AgentStatus, StatusSources
from ts_uploader.tracking.backlog import Backlog
from ts_uploader.tracking.blocked import Wait, WaitReason
from ts_uploader.tracking.stuck import StuckPartitions


class Source(LeadershipSource):
    """Reports nothing; connected as a test wants."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment, lambda _: None, 1)
        self.up = True

    @property
    def connected(self) -> bool:
        """As a test wants."""
        return self.up

    def watch(self, partitions: Set[TopicPartition]) -> None:
        """Nothing is watched."""

    def run(self) -> None:
        """Nothing runs."""

    def stop(self) -> None:
        """Nothing runs."""


def waiting(  # what a partition waits for, in short
    topic: str = "topic", number: int = 0, *, base: int | None = None, hole: bool = False, waits_for: str | None = None
) -> tuple[TopicPartition, Backlog]:
    """A partition, and what of it waits; its files are not there, so that what waits has no retention left."""
    partition = TopicPartition(topic, number)
    listing = Listing(partition, (1, number), Path("/nowhere"), (0, 5), (), False, None, 0)
    wait = None if waits_for is None else Wait(WaitReason.STORE, waits_for)
    return partition, Backlog(listing, base, 0 if base is None else 1, 5, 10, hole=hole, wait=wait)


def status_of(
    backlog: Callable[[], Mapping[TopicPartition, Backlog]] = dict,
    threads: tuple[threading.Thread, ...] = (),
    upload_timeout_seconds: float = 60.0,
    looked_at: float | None = 0.0,
    stuck: Callable[[], StuckPartitions] = StuckPartitions,
) -> tuple[AgentStatus, Source, LastErrors]:
    """The status of an agent that runs, its leadership source, and its last errors."""
    environment = Environment("prod", 7, (Path("/log"),), "", kraft=False)
    source, errors = Source(environment), LastErrors()
    sources = StatusSources(
        environment=environment,
        leadership=source,
        progress=Progress(upload_timeout_seconds),
        errors=errors,
        retention=lambda _: TopicRetention(),
        backlog=backlog,
        threads=threads,
        queues={"uploads": lambda: 2, "commits": lambda: 1},
        looked_at=lambda: looked_at,
        scan_seconds=float("inf"),
        limits=lambda: (None, None),
        stuck=stuck,
    )
    status = AgentStatus(sources)
    status.begun = status.store_answered = True
    status.note_round(3)
    return status, source, errors
