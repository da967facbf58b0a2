"""What `tsctl verify` and `tsctl report` both do: look at the store, and at a running cluster where one is named."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import PartitionKeys
from ts_common.config.cluster_config import load_config
from ts_common.errors import ConfigurationError, CorruptData, NewerFormat, ObjectNotFound, QueryError
from ts_common.model import TopicPartition
from ts_common.reading.topics import nothing_under
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import Endpoint
from ts_common.wording import counted
from tsctl.archive import SOURCE, ArchiveName, chooser, settled
from tsctl.output import Output
from tsctl.verify.audit import Side, audit, compare_records, with_cluster
from tsctl.verify.coverage import Coverage
from tsctl.verify.findings import UNREADABLE, Finding, Severity, severity_of, worst_first
from tsctl.verify.kafka_cluster import KafkaCluster, read_client_properties
from tsctl.verify.segment_check import Depth
from tsctl.verify.verifier import Scope, Verified, Verifier

DepthOption = Annotated[
    Depth,
    typer.Option(
        "--depth", "-d", help="listing: names and sizes. headers: metadata and batch headers. full: every byte."
    ),
]
InFlightOption = Annotated[
    float, typer.Option("--in-flight-hours", min=0, help="Younger objects may belong to an upload in progress.")
]
RequestsOption = Annotated[
    int, typer.Option("--requests", min=1, max=256, help="Number of segments to check in parallel.")
]
BootstrapOption = Annotated[
    str | None, typer.Option("--bootstrap-server", help="Brokers of the cluster, to compare it with the store.")
]
CommandConfigOption = Annotated[
    Path | None, typer.Option("--command-config", help="File with settings of librdkafka, with --bootstrap-server.")
]

_TOLD_EVERY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be looked at, as the command line says.

    Attributes:
        topics: names and patterns; none: all.
        partitions: numbers; None: all.
        depth: how closely.
        in_flight_hours: what is younger may be under way.
        requests: segments at once.
        bootstrap: of a running cluster; None: the store alone.
        command_config: settings of its client.
    """

    topics: Sequence[str]
    partitions: frozenset[int] | None
    depth: Depth
    in_flight_hours: float
    requests: int
    bootstrap: str | None
    command_config: Path | None


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found.

    Attributes:
        coverages: of each partition, in each incarnation.
        findings: all of them, the worst first.
        sides: each partition on both sides, where a cluster was asked.
    """

    coverages: tuple[Coverage, ...]
    findings: tuple[Finding, ...]
    sides: tuple[Side, ...] | None


def run_verification(name: ArchiveName, wanted: Wanted, output: Output) -> Verification:
    """Look at an archive.

    Raises:
        QueryError: it is not there under this width, or has no such topic.
        ConfigurationError: what the options say cannot be.
        StoreUnavailable, AccessDenied, BucketMissing: a store's.
        ClusterAway: the cluster's.
    """
    cluster = _cluster(wanted)
    choose = chooser(wanted.topics)
    verified: list[Verified] = []
    known: set[str] = set()
    with _stores(name) as stores:
        name = settled(name, [store for _, store in stores])
        for endpoint, store in stores:
            found, topics = _verify(name, wanted, endpoint, store, output)
            verified.append(found)
            known |= topics
        if cluster is None:
            _check_known(name, wanted, known, [store for _, store in stores])
        coverages = tuple(coverage for found in verified for coverage in found.coverages)
        findings = [finding for found in verified for finding in found.all_findings]
        sides = None
        if cluster is not None:
            seen = audit(
                cluster,
                coverages,
                _ships(name, choose),
                time.time(),
                in_flight_seconds=wanted.in_flight_hours * 3600,
                reached=lambda coverage: _reached(name, stores, coverage),
                asks=lambda partition: choose(partition.topic) and _asks_for(wanted, partition.partition),
            )
            sides = seen.sides
            chosen = [finding for finding in seen.findings if _is_asked(finding, choose)]
            findings = [*with_cluster(findings, sides), *chosen]
            if wanted.depth is Depth.FULL:
                findings += _compared(stores, name, cluster, sides, output)
    return Verification(coverages, tuple(worst_first(findings)), sides)


def parse_severity(text: str) -> Severity:
    """The severity that `--fail-on` names.

    Raises:
        ConfigurationError: there is none of that name.
    """
    found = severity_of(text)
    if found is None:
        accepted = ", ".join(severity.label for severity in Severity)
        raise ConfigurationError(SOURCE, [f"--fail-on={text}: accepted are {accepted}"])
    return found


def _cluster(wanted: Wanted) -> KafkaCluster | None:
    if wanted.bootstrap is None:
        if wanted.command_config is not None:
            raise ConfigurationError(SOURCE, ["--command-config goes with --bootstrap-server"])
        return None
    settings = {} if wanted.command_config is None else read_client_properties(wanted.command_config)
    cluster = KafkaCluster(wanted.bootstrap, settings)
    cluster.topics()  # who is not let in is told so before hours go into the store
    return cluster


@contextmanager
def _stores(name: ArchiveName) -> Iterator[list[tuple[Endpoint, ObjectStore]]]:
    opened: list[tuple[Endpoint, ObjectStore]] = []
    try:
        for endpoint in name.endpoints:
            opened.append((endpoint, open_store(endpoint.location, endpoint.options)))
            opened[-1][1].check()
        yield opened
    finally:
        for _, store in opened:
            store.close()


def _verify(
    name: ArchiveName, wanted: Wanted, endpoint: Endpoint, store: ObjectStore, output: Output
) -> tuple[Verified, frozenset[str]]:
    choose = chooser(wanted.topics)

    def wants(topic: str, partition: int | None) -> bool:
        right = partition is None or _asks_for(wanted, partition)
        return right and choose(topic) and name.lies_in(topic, endpoint)

    scope = Scope(
        wanted.depth,
        wants,
        all_topics=not wanted.topics and wanted.partitions is None,
        in_flight_seconds=wanted.in_flight_hours * 3600,
        stuck_seconds=name.stuck_after_seconds,
        requests=wanted.requests,
    )
    progress = _Progress()
    verifier = Verifier(store, name.keys, scope, progress.told)
    total = verifier.find()
    with output.progress("partitions", total) as advance:
        progress.begin(total, advance)
        return verifier.run(), verifier.topics


class _Progress:
    """A bar on a terminal, and elsewhere a line on standard error now and then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._partitions = self._segments = self._total = 0
        self._told_at = time.monotonic()
        self._advance: Callable[[int], None] = lambda _: None

    def begin(self, total: int, advance: Callable[[int], None]) -> None:
        self._total, self._advance = total, advance

    def told(self, partitions: int, segments: int) -> None:
        with self._lock:
            self._partitions += partitions
            self._segments += segments
            now = time.monotonic()
            due = not sys.stderr.isatty() and now - self._told_at > _TOLD_EVERY_SECONDS
            if due:
                self._told_at = now
            done, of_segments = self._partitions, self._segments
        if partitions:
            self._advance(partitions)
        if due:
            line = f"tsctl: {done} of {counted(self._total, 'partition')}, {counted(of_segments, 'segment')}"
            print(line, file=sys.stderr)  # noqa: T201  (the command's own voice)


def _check_known(name: ArchiveName, wanted: Wanted, known: set[str], stores: Sequence[ObjectStore]) -> None:
    """Each topic that is asked for by name is there; an archive of nothing is a mistake, not an answer."""
    if not known:
        raise QueryError(nothing_under(stores[0], name.keys, name.option))
    for text in wanted.topics:
        choose = chooser([text])
        if not any(choose(topic) for topic in known):
            raise QueryError(f"topic {text}: cluster {name.keys.cluster} in {stores[0].location} has none")


def _ships(name: ArchiveName, choose: Callable[[str], bool]) -> Callable[[str], bool]:
    """Whether a topic is to be in the store: as the agents' file says; without it nobody knows."""
    if name.file is None:
        return lambda _: False
    config, _ = load_config(name.file.path)
    return lambda topic: config.ships(topic) and choose(topic)


def _reached(name: ArchiveName, stores: Sequence[tuple[Endpoint, ObjectStore]], coverage: Coverage) -> int:
    """The next offset of a partition by now, or what it was before where nothing better is known."""
    store = _store_of(name, stores, coverage.topic)
    if store is None:
        return coverage.end
    try:
        commit, _ = read_commit(
            store, PartitionKeys(TopicPartition(coverage.topic, coverage.partition), coverage.prefix)
        )
    except (CorruptData, NewerFormat):  # which verify has found already
        return coverage.end
    return max(coverage.end, commit.next_offset) if isinstance(commit, Commit) else coverage.end


def _store_of(name: ArchiveName, stores: Sequence[tuple[Endpoint, ObjectStore]], topic: str) -> ObjectStore | None:
    return next((store for endpoint, store in stores if name.lies_in(topic, endpoint)), None)


def _asks_for(wanted: Wanted, number: int) -> bool:
    return wanted.partitions is None or number in wanted.partitions


def _is_asked(finding: Finding, choose: Callable[[str], bool]) -> bool:
    """Whether a finding is about a topic that is asked for: it names a topic, or a partition of one."""
    topic = finding.where.partition("~")[0]
    return choose(topic) or choose(topic.rpartition("-")[0])


def _compared(
    stores: Sequence[tuple[Endpoint, ObjectStore]],
    name: ArchiveName,
    cluster: KafkaCluster,
    sides: Sequence[Side],
    output: Output,
) -> list[Finding]:
    """Every record of both sides."""
    keeping = cluster.keeping({side.partition.topic for side in sides})
    findings: list[Finding] = []
    with output.progress("records of both sides", len(sides)) as advance:
        for side in sides:
            store = _store_of(name, stores, side.partition.topic)
            if store is not None and side.coverage is not None:
                directory = PartitionKeys(side.partition, side.coverage.prefix)
                compacts = keeping[side.partition.topic].compacts
                try:
                    findings += compare_records(store, directory, cluster, side, compacts=compacts)
                except (CorruptData, NewerFormat, ObjectNotFound) as error:
                    findings.append(Finding(UNREADABLE, side.coverage.where, f"not compared: {error}"))
            advance(1)
    return findings
