"""Runs the checks of `tsctl verify` and `tsctl report`, on the store and optionally against a running cluster."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import ClusterKeys, PartitionKeys
from ts_common.archive.unsealing import remove_tokens
from ts_common.errors import (
    ConfigurationError,
    CorruptData,
    NewerFormat,
    ObjectFrozen,
    ObjectNotFound,
    OutcomeUnknown,
    PreconditionFailed,
    QueryError,
)
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import Endpoint
from ts_common.store.protection import HiddenBytes
from ts_common.wording import counted
from ts_reader.options.archive_name import SOURCE, ArchiveName, settled
from ts_reader.reading.topics import nothing_under
from tsctl.archive_options import PartitionsOption, TopicsArgument, check_partitions, chooser, parse_partitions
from tsctl.output import Output
from tsctl.scan_options import MaxBatchBytesOption
from tsctl.verify.audit import Audit, Side, audit, compare_records, with_cluster
from tsctl.verify.bucket_check import hidden_bytes, rules_findings
from tsctl.verify.coverage import Coverage
from tsctl.verify.finding_kinds import FROZEN, TOKEN_LEFT, UNREADABLE, Severity
from tsctl.verify.findings import Finding, worst_first
from tsctl.verify.segment_check import Depth
from tsctl.verify.verifier import Scope, Verified, Verifier

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster

BootstrapOption = Annotated[
    str | None, typer.Option("--bootstrap-server", help="Brokers of the cluster, to compare it with the store.")
]
CommandConfigOption = Annotated[
    Path | None, typer.Option("--command-config", help="File with settings of librdkafka, with --bootstrap-server.")
]


_PRINTED_EVERY_SECONDS: Final = 10.0
Wants = Callable[[str, int | None], bool]
Further = Callable[[ObjectStore, ClusterKeys, Wants], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The scope of a check, and how it is done."""

    topics: TopicsArgument = None
    depth: Annotated[
        Depth,
        typer.Option(
            "--depth", "-d", help="listing: names and sizes. headers: metadata and batch headers. full: every byte."
        ),
    ] = Depth.HEADERS
    partition: PartitionsOption = None
    in_flight_hours: Annotated[
        float, typer.Option("--in-flight-hours", min=0, help="Younger objects may belong to an upload in progress.")
    ] = 24.0
    requests: Annotated[
        int, typer.Option("--requests", min=1, max=256, help="Number of segments to check in parallel.")
    ] = 16
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES

    def __post_init__(self) -> None:
        parse_partitions(self.partition)  # a wrong one is found before the check begins

    @property
    def partitions(self) -> frozenset[int] | None:
        """The numbers of partitions; None for all.

        Raises:
            ConfigurationError: the list is malformed.
        """
        return parse_partitions(self.partition)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The running cluster that is compared with the store, and what else is counted."""

    bootstrap_server: BootstrapOption = None
    command_config: CommandConfigOption = None
    versions: Annotated[
        bool,
        typer.Option(
            "--versions", help="Count the noncurrent versions that the bucket keeps: a request for each thousand."
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a check.

    Attributes:
        coverages: of each partition, in each incarnation.
        findings: all findings, the worst first.
        sides: each partition in cluster and store; None without a cluster.
        hidden: noncurrent versions and delete markers; None if they were not counted, or no store lists them.
    """

    coverages: tuple[Coverage, ...]
    findings: tuple[Finding, ...]
    sides: tuple[Side, ...] | None
    hidden: HiddenBytes | None = None


def run_verification(
    name: ArchiveName,
    wanted: CheckOptions,
    output: Output,
    beside: ClusterOptions | None = None,
    *,
    removes_tokens: bool = False,
    further: Further | None = None,
) -> Verification:
    """Check an archive.

    Args:
        removes_tokens: whether the tokens that are found are removed.
        further: another check of each store; called with a predicate for topics and partitions in scope.

    Raises:
        QueryError: the archive has no objects under these entropy bits, or no such topic or partition.
        ConfigurationError: the options contradict each other.
        StoreUnavailable, AccessDenied, BucketMissing: a request to a store failed.
        ClusterAway: the cluster did not answer.
    """
    beside = beside or ClusterOptions()
    cluster = _cluster(beside)
    choose = chooser(wanted.topics or ())
    coverages: list[Coverage] = []
    findings: list[Finding] = []
    known: set[str] = set()
    held: set[int] = set()
    with _stores(name) as stores:
        alone = [store for _, store in stores]
        name = settled(name, alone)
        for endpoint, store in stores:
            found, verifier = _verify(name, wanted, endpoint, store, output)
            coverages += found.coverages
            findings += found.all_findings
            if removes_tokens:
                _remove_tokens(store, found.all_findings, store.current_time() - wanted.in_flight_hours * 3600, output)
            if further is not None:
                findings += further(store, name.keys, _wants(name, wanted, endpoint))
            known |= verifier.topics
            held |= verifier.partitions
        if cluster is None:
            _check_known(name, wanted, known, alone)
            check_partitions(wanted.partitions or frozenset(), held, filter(choose, sorted(known)))
        if not wanted.topics and wanted.partitions is None:
            for endpoint, store in stores:
                findings += rules_findings(store, name.keys, frozenset(endpoint.options.storing.tags), output.warn)
        hidden = _hidden(name, alone, output) if beside.versions else None
        sides = None
        if cluster is not None:
            seen = _audited(name, wanted, cluster, stores, coverages)
            sides = seen.sides
            findings = [*with_cluster(findings, sides), *seen.findings]
            if wanted.depth is Depth.FULL:
                findings += _compared(stores, name, cluster, sides, output)
    return Verification(tuple(coverages), tuple(worst_first(findings)), sides, hidden)


def _audited(
    name: ArchiveName,
    wanted: CheckOptions,
    cluster: "KafkaCluster",
    stores: Sequence[tuple[Endpoint, ObjectStore]],
    coverages: Sequence[Coverage],
) -> Audit:
    """Return the comparison with the cluster, with findings of requested topics only."""
    choose = chooser(wanted.topics or ())
    seen = audit(
        cluster,
        coverages,
        _ships(name, choose),
        time.time(),
        in_flight_seconds=wanted.in_flight_hours * 3600,
        reached=lambda coverage: _reached(name, stores, coverage),
        in_scope=lambda partition: choose(partition.topic) and _in_scope(wanted, partition.partition),
    )
    return Audit(seen.sides, tuple(finding for finding in seen.findings if _is_requested(finding, choose)))


def parse_severity(option: str, text: str) -> Severity:
    """Return the severity that an option names.

    Raises:
        ConfigurationError: no severity has this name.
    """
    found = next((severity for severity in Severity if severity.label == text), None)
    if found is None:
        accepted = ", ".join(severity.label for severity in Severity)
        raise ConfigurationError(SOURCE, [f"{option}={text}: expected one of {accepted}"])
    return found


def _cluster(wanted: ClusterOptions) -> "KafkaCluster | None":
    cluster = named_cluster(wanted.bootstrap_server, wanted.command_config)
    if cluster is not None:
        cluster.topics()  # fail for a wrong identity now, not after hours of reading the store
    return cluster


def named_cluster(bootstrap_server: str | None, command_config: Path | None) -> "KafkaCluster | None":
    """Return a client of the running cluster; None if the command line does not name it.

    Raises:
        ConfigurationError: a file is given without a cluster, or is wrong.
    """
    if bootstrap_server is None:
        if command_config is not None:
            raise ConfigurationError(SOURCE, ["--command-config requires --bootstrap-server"])
        return None
    from tsctl.verify.kafka_cluster import KafkaCluster, read_client_properties  # noqa: PLC0415  (librdkafka)

    return KafkaCluster(bootstrap_server, {} if command_config is None else read_client_properties(command_config))


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
    name: ArchiveName, wanted: CheckOptions, endpoint: Endpoint, store: ObjectStore, output: Output
) -> tuple[Verified, Verifier]:
    scope = Scope(
        wanted.depth,
        _wants(name, wanted, endpoint),
        all_topics=not wanted.topics and wanted.partitions is None,
        in_flight_seconds=wanted.in_flight_hours * 3600,
        stuck_seconds=name.stuck_after_seconds,
        requests=wanted.requests,
    )
    progress = _Progress()
    verifier = Verifier(store, name.keys, scope, progress.add)
    total = verifier.find()
    with output.progress("partitions", total) as advance:
        progress.begin(total, advance)
        return verifier.run(), verifier


def _wants(name: ArchiveName, wanted: CheckOptions, endpoint: Endpoint) -> Wants:
    choose = chooser(wanted.topics or ())

    def wants(topic: str, partition: int | None) -> bool:
        right = partition is None or _in_scope(wanted, partition)
        return right and choose(topic) and name.lies_in(topic, endpoint)

    return wants


def _remove_tokens(store: ObjectStore, findings: Sequence[Finding], before: float, output: Output) -> None:
    """Remove the tokens that findings name; what another process writes at the same time is kept."""
    for key in dict.fromkeys(finding.key for finding in findings if finding.kind is TOKEN_LEFT and finding.key):
        try:
            for token in remove_tokens(store, key, before):
                output.warn(f"{key}: token {token.name} removed; agents seal its offsets again")
        except (PreconditionFailed, OutcomeUnknown) as error:
            output.warn(f"{key}: another process wrote it meanwhile, so no token was removed; run this again: {error}")


class _Progress:
    """A bar on a terminal; elsewhere a line on standard error from time to time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the fields below
        self._partitions = self._segments = self._total = 0
        self._printed_at = time.monotonic()
        self._advance: Callable[[int], None] = lambda _: None

    def begin(self, total: int, advance: Callable[[int], None]) -> None:
        self._total, self._advance = total, advance

    def add(self, partitions: int, segments: int) -> None:
        with self._lock:
            self._partitions += partitions
            self._segments += segments
            now = time.monotonic()
            due = not sys.stderr.isatty() and now - self._printed_at > _PRINTED_EVERY_SECONDS
            if due:
                self._printed_at = now
            done, of_segments = self._partitions, self._segments
        if partitions:
            self._advance(partitions)
        if due:
            line = f"tsctl: {done} of {counted(self._total, 'partition')}, {counted(of_segments, 'segment')}"
            print(line, file=sys.stderr)  # noqa: T201  (the command's own voice)


def _check_known(name: ArchiveName, wanted: CheckOptions, known: set[str], stores: Sequence[ObjectStore]) -> None:
    """Check that each topic given by name exists, and that the archive has topics at all."""
    if not known:
        raise QueryError(nothing_under(stores, name.keys, name.option))
    for text in wanted.topics or ():
        choose = chooser([text])
        if not any(choose(topic) for topic in known):
            raise QueryError(f"topic {text}: cluster {name.keys.cluster} in {stores[0].location} has no such topic")


def _hidden(name: ArchiveName, stores: Sequence[ObjectStore], output: Output) -> HiddenBytes | None:
    """Count what the stores hide; a store that does not list versions is a warning."""
    found: HiddenBytes | None = None
    for store in stores:
        counted_here = hidden_bytes(store, name.keys)
        if counted_here is None:
            output.warn(f"{store.location}: versions are not counted: the store does not list them")
        else:
            found = counted_here if found is None else found + counted_here
    return found


def _ships(name: ArchiveName, choose: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return a predicate for topics that the agents ship, by their file; without a file it accepts no topic."""
    if name.file is None:
        return lambda _: False
    from ts_common.config.cluster_config import load_config  # noqa: PLC0415  (models of all keys)

    config, _ = load_config(name.file.path)
    return lambda topic: config.ships(topic) and choose(topic)


def _reached(name: ArchiveName, stores: Sequence[tuple[Endpoint, ObjectStore]], coverage: Coverage) -> int:
    """Read the next offset of a partition again; return the earlier value if that fails."""
    store = _store_of(name, stores, coverage.topic)
    if store is None:
        return coverage.end
    try:
        commit, _ = read_commit(
            store, PartitionKeys(TopicPartition(coverage.topic, coverage.partition), coverage.prefix)
        )
    except (CorruptData, NewerFormat):  # verify has reported it already
        return coverage.end
    return max(coverage.end, commit.next_offset) if isinstance(commit, Commit) else coverage.end


def _store_of(name: ArchiveName, stores: Sequence[tuple[Endpoint, ObjectStore]], topic: str) -> ObjectStore | None:
    return next((store for endpoint, store in stores if name.lies_in(topic, endpoint)), None)


def _in_scope(wanted: CheckOptions, number: int) -> bool:
    return wanted.partitions is None or number in wanted.partitions


def _is_requested(finding: Finding, choose: Callable[[str], bool]) -> bool:
    """Return whether a finding is about a requested topic; it names a topic, or a partition of one."""
    topic = finding.where.partition("~")[0]
    return choose(topic) or choose(topic.rpartition("-")[0])


def _compared(
    stores: Sequence[tuple[Endpoint, ObjectStore]],
    name: ArchiveName,
    cluster: "KafkaCluster",
    sides: Sequence[Side],
    output: Output,
) -> list[Finding]:
    """Compare every record of store and cluster."""
    keeping = cluster.keeping({side.partition.topic for side in sides})
    findings: list[Finding] = []
    with output.progress("partitions compared", len(sides)) as advance:
        for side in sides:
            store = _store_of(name, stores, side.partition.topic)
            if store is not None and side.coverage is not None:
                directory = PartitionKeys(side.partition, side.coverage.prefix)
                compacts = keeping[side.partition.topic].compacts
                try:
                    findings += compare_records(store, directory, cluster, side, compacts=compacts)
                except ObjectFrozen as error:
                    findings.append(Finding(FROZEN, side.coverage.where, f"not compared: {error}"))
                except (CorruptData, NewerFormat, ObjectNotFound) as error:
                    findings.append(Finding(UNREADABLE, side.coverage.where, f"not compared: {error}"))
            advance(1)
    return findings
