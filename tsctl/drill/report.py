"""The result of a drill: as JSON, as lines, and as one page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ts_common.model import TopicPartition
from ts_common.printable import printable
from ts_common.wording import counted
from tsctl.drill.comparing import Comparison
from tsctl.output import iso, size
from tsctl.report.fleet import page_template
from tsctl.restore.documents import RestorePlan

_LINES: Final = 20  # findings in the output; the document and the page have all
_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was not restored, or that differs.

    Attributes:
        where: a partition or a group; None if the drill could not continue.
        offset: the first; None if it is of no offset.
        what: for people.
    """

    where: str | None
    offset: int | None
    what: str

    @property
    def line(self) -> str:
        """One line."""
        place = "" if self.where is None else f"{self.where}: "
        return printable(f"{place}{'' if self.offset is None else f'offset {self.offset}: '}{self.what}")


@dataclass(frozen=True, slots=True)
class Compared:
    """The records of a partition in one isolation level.

    Attributes:
        start: first offset.
        end: the offset after the last. In `read_committed` it is that of the first transaction that the cut leaves
            open: the archive's reader returns nothing beyond.
        records: that the broker returned.
        digest: sums of their digests, as `ts_reader.decode.digest` has them.
        differing: number of offsets that differ from the archive.
    """

    partition: str
    isolation_level: str
    start: int
    end: int
    records: int
    digest: str
    differing: int


@dataclass(slots=True)
class DrillReport:
    """What a drill did and found, while it runs and at its end.

    Attributes:
        cluster: key of the archive.
        locations: of the archive.
        kafka: the Kafka directory.
        began: ms since the epoch.
        scope: what was restored, for people.
        topics: their number.
        restored_bytes: of objects.
        planned_bytes: of the objects of the whole topics.
        seconds: of each step, in their order.
        compared: of each partition and isolation level.
        groups: number of groups whose offsets were compared.
        findings: what differs; empty for a drill that succeeded.
        newest: greatest timestamp of a restored record in ms; None without one.
    """

    cluster: str
    locations: Sequence[str]
    kafka: str
    began: int
    scope: str = ""
    topics: int = 0
    restored_bytes: int = 0
    planned_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    compared: list[Compared] = field(default_factory=list)
    groups: int = 0
    findings: list[Finding] = field(default_factory=list)
    newest: int | None = None

    RECOVERY = ("fetch", "place", "start", "groups")

    def count(self, plan: RestorePlan, sample: RestorePlan) -> None:
        """Set what is restored, a sample, and what the whole plan has."""
        self.topics = len(sample.topics)
        self.planned_bytes = sum(part.size for part in plan.partitions.values())
        self.restored_bytes = sum(part.size for part in sample.partitions.values())

    def add(self, partition: TopicPartition, level: str, start: int, end: int, found: Comparison) -> None:
        """Add the comparison of a partition in an isolation level."""
        held = found.held
        self.compared.append(Compared(str(partition), level, start, end, held.rows, held.text, found.differing))
        self.findings += [Finding(str(partition), each.offset, f"{level}: {each.what}") for each in found.differences]
        if (left := found.differing - len(found.differences)) > 0:
            self.findings.append(Finding(str(partition), None, f"{level}: {counted(left, 'more offset')} differ"))
        if found.newest is not None:
            self.newest = max(found.newest, self.newest or 0)

    def conclude(self) -> None:
        """Add a finding if the drill proves nothing: no record was restored and compared."""
        if not self.records and not self.findings:
            what = f"no record was compared: {self.scope} has none; name topics, a time or --whole that have records"
            self.findings.append(Finding(None, None, what))

    @property
    def recovery_seconds(self) -> float:
        """From the first object to the groups' offsets: what consumers wait for."""
        return sum(self.seconds.get(step, 0.0) for step in self.RECOVERY)

    @property
    def recovery_point(self) -> float | None:
        """Age of the newest restored record at the drill's beginning, in seconds; None without a record."""
        return None if self.newest is None else max(0.0, (self.began - self.newest) / _MILLISECONDS)

    @property
    def records(self) -> int:
        """Number of restored records, aborted ones included."""
        return sum(each.records for each in self.compared if each.isolation_level == "read_uncommitted")

    @property
    def whole_seconds(self) -> float | None:
        """Estimate of the recovery of the whole topics on one host; None if nothing was fetched."""
        if not self.restored_bytes:
            return None
        by_size = sum(self.seconds.get(step, 0.0) for step in ("fetch", "place"))
        return self.recovery_seconds + by_size * (self.planned_bytes / self.restored_bytes - 1)

    def fields(self) -> dict[str, Any]:
        """Return the fields of the JSON document."""
        return {
            "cluster": self.cluster,
            "locations": list(self.locations),
            "kafka": self.kafka,
            "time": iso(self.began),
            "scope": self.scope,
            "succeeded": not self.findings,
            "recovery_point_seconds": self.recovery_point,
            "newest_record": iso(self.newest),
            "recovery_seconds": round(self.recovery_seconds, 3),
            "whole_recovery_seconds": None if self.whole_seconds is None else round(self.whole_seconds, 3),
            "seconds": {step: round(each, 3) for step, each in self.seconds.items()},
            "topics": self.topics,
            "restored_bytes": self.restored_bytes,
            "planned_bytes": self.planned_bytes,
            "records": self.records,
            "groups": self.groups,
            "compared": [asdict(each) for each in self.compared],
            "findings": [asdict(each) for each in self.findings],
        }

    def lines(self) -> Iterator[str]:
        """Yield the report as text."""
        for name, text in self._facts().items():
            yield f"{name}: {text}"
        for finding in self.findings[:_LINES]:
            yield finding.line
        if (left := len(self.findings) - _LINES) > 0:
            yield f"{counted(left, 'more finding')}: --json and --output have all"
        yield self._verdict()

    def page(self) -> str:
        """Return the page as HTML."""
        return page_template("drill.html.j2").render(
            title=f"Drill of {self.cluster}",
            verdict={"kind": "bad" if self.findings else "good", "text": self._verdict()},
            facts={"time": iso(self.began) or "", **self._facts(), "location": ", ".join(self.locations)},
            findings=[
                (each.where or "", "" if each.offset is None else each.offset, each.what) for each in self.findings
            ],
            steps=[(step, f"{each:.1f}") for step, each in self.seconds.items()],
            compared=self.compared,
        )

    def _verdict(self) -> str:
        if self.findings:
            return f"The drill failed: {counted(len(self.findings), 'finding')}."
        return "The drill succeeded: what was restored equals the archive."

    def _facts(self) -> Mapping[str, str]:
        whole = (
            ""
            if self.whole_seconds is None
            else f"; all {size(self.planned_bytes)} on one host: {_time(self.whole_seconds)}"
        )
        steps = ", ".join(f"{step} {each:.1f} s" for step, each in self.seconds.items() if step in self.RECOVERY)
        point = (
            "unknown"
            if self.recovery_point is None
            else f"{_time(self.recovery_point)}, newest record {iso(self.newest)}"
        )
        partitions = len({each.partition for each in self.compared})
        return {
            "restored": f"{self.scope}: {counted(self.topics, 'topic')}, {size(self.restored_bytes)}",
            "kafka": self.kafka,
            "recovery point": point,
            "recovery time": f"{_time(self.recovery_seconds)} for {size(self.restored_bytes)} ({steps}){whole}",
            "compared": f"{counted(self.records, 'record')} of {counted(partitions, 'partition')} in both isolation "
            f"levels, offsets of {counted(self.groups, 'group')}",
        }


def _time(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
