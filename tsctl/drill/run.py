"""A drill from its plan to its comparison: the steps of `tsctl restore`, with one throw-away broker."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ts_common.errors import OperatorError, PermanentError, QueryError
from ts_common.model import TopicPartition
from ts_common.store.wrappers.bandwidth import Allowance
from tsctl.archive_options import OpenArchive
from tsctl.drill.broker import ThrowawayBroker
from tsctl.drill.comparing import NAMES, compare, rows_of
from tsctl.drill.report import DrillReport, Finding
from tsctl.durable_files import check_space, disk_errors
from tsctl.output import Output
from tsctl.restore.documents import Created, RestorePlan
from tsctl.restore.host_run import HostRun
from tsctl.restore.hosts import Host
from tsctl.restore.new_cluster import NewCluster, check_offsets, create_topics, retried
from tsctl.restore.partition_plan import PartitionPlan
from tsctl.restore.restore_directory import RestoreDirectory

if TYPE_CHECKING:
    from ts_reader import Archive as ReaderArchive

_T = TypeVar("_T")
LEVELS: Final = ("read_uncommitted", "read_committed")
_BROKER_BYTES: Final = 32 << 20  # for its own logs and files


class Drill:
    """One drill.

    Args:
        archive: whose objects are fetched.
        reader: the same archive, whose rows are compared.
        plan: of the sample, for a broker of id `BROKER` alone.
        kafka: the Kafka directory.
        directory: an empty one, for all files.
        report: is filled during the drill.
    """

    def __init__(
        self,
        archive: OpenArchive,
        reader: "ReaderArchive",
        plan: RestorePlan,
        kafka: Path,
        directory: Path,
        report: DrillReport,
    ) -> None:
        self._archive = archive
        self._reader = reader
        self._plan = plan
        self._kafka = kafka
        self._directory = directory
        self._report = report

    def run(self, rate: int | None, output: Output) -> None:
        """Restore, read back and compare; what is lost or different is a finding.

        Args:
            rate: most bytes per second; None for no limit.

        Raises:
            OperatorError: the broker does not start, or a disk is too small.
            ObjectNotFound, StoreUnavailable, AccessDenied: from the store.
            ClusterAway: the broker does not answer.
        """
        self._report.findings += [
            Finding(str(name), hole.start, f"offsets {hole.start} to {hole.end - 1} are lost: {hole.why}")
            for name, part in self._plan.partitions.items()
            for hole in part.lost
        ]
        sample = sum(part.size for part in self._plan.partitions.values())
        check_space(self._directory, sample + _BROKER_BYTES, "name another --directory")
        try:
            with ThrowawayBroker(self._kafka, self._directory) as broker:
                with disk_errors():
                    self._restore(broker, rate, output)
                self._compare(NewCluster(broker.bootstrap, {}), output)
        except PermanentError as error:  # a damaged object
            self._report.findings.append(Finding(None, None, str(error)))
        self._report.conclude()

    def _restore(self, broker: ThrowawayBroker, rate: int | None, output: Output) -> None:
        with self._step("prepare", output):
            broker.format()
            broker.start()
            cluster = NewCluster(broker.bootstrap, {})
            created = _begun(broker, partial(create_topics, cluster, self._plan))
            broker.stop()
            path = self._directory / "restore"
            path.mkdir()
            self._plan.save(RestoreDirectory.plan_file(path))
            restored = RestoreDirectory(path)
            created.save(restored.created_file)
        host = HostRun(restored, Host.of(broker.server_properties))
        total = sum(part.size for part in host.partitions.values())
        with self._step("fetch", output), output.progress("fetched", total, in_bytes=True) as advance:
            host.fetch(self._archive, Allowance(rate), advance)
        for place in host.damaged:
            output.warn(f"left out, as the old broker's file was damaged there: {place}")
        with self._step("place", output):
            host.place()
            host.check()
        with self._step("start", output):
            broker.start()
            self._check_offsets(broker, cluster, created)
        with self._step("groups", output):
            self._set_groups(broker, cluster)

    def _check_offsets(self, broker: ThrowawayBroker, cluster: NewCluster, created: Created) -> None:
        try:
            _begun(broker, partial(check_offsets, cluster, self._plan, created))
        except QueryError as error:
            self._report.findings.append(Finding(None, None, str(error)))

    def _set_groups(self, broker: ThrowawayBroker, cluster: NewCluster) -> None:
        for group, offsets in self._plan.groups.offsets.items():
            _begun(broker, partial(cluster.set_offsets, group, offsets))
            found = _begun(broker, partial(cluster.reading.group_offsets, group))
            for name in sorted(offsets.keys() | found.keys()):
                if offsets.get(name) != found.get(name):
                    what = f"{name} is at {found.get(name)}; {offsets.get(name)} is expected"
                    self._report.findings.append(Finding(f"group {group}", None, what))
            self._report.groups += 1

    def _compare(self, cluster: NewCluster, output: Output) -> None:
        partitions = self._plan.partitions
        with (
            self._step("compare", output),
            output.progress("compared", len(partitions) * len(LEVELS)) as advance,
        ):
            for name, part in partitions.items():
                for level in LEVELS:
                    self._compare_partition(cluster, name, part, level)
                    advance()

    def _compare_partition(self, cluster: NewCluster, name: TopicPartition, part: PartitionPlan, level: str) -> None:
        end = part.end
        if level == "read_committed":  # the restore ends these transactions; the archive's reader waits for them
            end = min([end, *(each.first_offset for each in part.ended)])
        if part.start >= end:
            return
        stored = self._reader.scan(
            name.topic,
            partitions=[name.partition],
            columns=NAMES,
            starting_offsets={name.partition: part.start},
            ending_offsets={name.partition: end},
            include_headers=True,
            include_timestamp_ms=True,
            isolation_level=level,
            fail_on_data_loss=False,
        )
        held = cluster.reading.records(name, part.start, end, level)
        self._report.add(name, level, part.start, end, compare(stored.to_batches(), rows_of(name, held)))

    @contextmanager
    def _step(self, name: str, output: Output) -> Iterator[None]:
        output.note(f"drill: {name}")
        began = time.monotonic()
        try:
            yield
        finally:
            self._report.seconds[name] = time.monotonic() - began


def _begun(broker: ThrowawayBroker, request: Callable[[], _T]) -> _T:
    """Return the result of a request to the broker, which has just begun.

    Raises:
        ClusterAway, OperatorError: as the request, for longer than a start needs; or the broker has ended.
    """
    # librdkafka reports no connection as an error that is not retriable.
    return retried(request, OperatorError, between=broker.check_running)
