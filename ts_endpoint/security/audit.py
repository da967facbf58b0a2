"""The audit log: who logged in, who read what, and what was refused; one line of JSON each.

    login_refused     user (claimed), client, mechanism, reason
    topic_refused     user, client, connection, topic
    topic_read_began  user, client, connection, topic
    topic_read        user, client, connection, topic, seconds, bytes, ranges

A connection has `topic_read_began` at its first read of a topic, and `topic_read` every 5 minutes while it reads, and
at its end. `bytes` are those of record batches, and `ranges` are offsets of each partition, "start-end".
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Final

import structlog

from ts_common.printable import printable, printable_json
from ts_endpoint.contract import Session

_log = structlog.get_logger()
_PERIOD_SECONDS: Final = 300.0
_MOST_RANGES: Final = 8  # of a partition in a line; further reads that jump widen the last range
_MOST_PARTITIONS: Final = 100_000  # over all connections, in memory
_PARTITIONS_OF_LINE: Final = 500
_MOST_REFUSED_TOPICS: Final = 100  # of a connection, one line each
_LONGEST_TEXT: Final = 300

Ranges = list[list[int]]


@dataclass(slots=True)
class _Reads:
    """What a connection has read of a topic since the last line."""

    since: float
    bytes: int = 0
    ranges: dict[int, Ranges] = field(default_factory=dict)


@dataclass(slots=True)
class _Connection:
    """What the audit remembers of a connection."""

    number: int
    topics: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)


class Audit:
    """Writes the audit log; used by the event loop alone.

    Args:
        file: to append to; None for the log of the process. A file that was renamed is created again.
        clock: seconds, monotonic.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._file = None if file is None else _AuditFile(file)
        self._write: Callable[..., Any] = _log.info if self._file is None else self._file.write
        self._numbers = 0
        self._connections: dict[Session, _Connection] = {}
        self._reads: dict[tuple[Session, str], _Reads] = {}  # the one whose line is due first is first
        self._partitions = 0

    def read(self, session: Session, topic: str, partition: int, start: int, end: int, size: int) -> None:
        """Record that a connection received record batches.

        Args:
            start: the first offset that was sent.
            end: the offset after the last one.
            size: bytes of the batches.
        """
        reads = self._reads.get((session, topic)) or self._begin(session, topic)
        reads.bytes += size
        ranges = reads.ranges.get(partition)
        if ranges is None:
            reads.ranges[partition] = [[start, end]]
            self._partitions += 1
            if self._partitions > _MOST_PARTITIONS:
                self._write_first()
            return
        last = ranges[-1]
        if start == last[1]:
            last[1] = end
        elif last[0] <= start and end <= last[1]:
            return
        elif len(ranges) < _MOST_RANGES:
            ranges.append([start, end])
        else:
            last[:] = min(last[0], start), max(last[1], end)

    def refused_topic(self, session: Session, topic: str) -> None:
        """Record that a connection may not read a topic that it named; one line for a topic."""
        refused, topic = self._connection(session).refused, topic[:_LONGEST_TEXT]
        if topic not in refused and len(refused) < _MOST_REFUSED_TOPICS:
            refused.add(topic)
            self._write("topic_refused", **self._who(session), topic=topic)

    def refused_login(self, session: Session, user: str | None, mechanism: str | None, reason: str) -> None:
        """Record a refused login.

        Args:
            user: the name that the client claimed; None if it named no user.
            mechanism: of SASL; None if the client named no offered one.
            reason: without a secret.
        """
        claimed = None if user is None else user[:_LONGEST_TEXT]
        self._write("login_refused", user=claimed, client=session.host, mechanism=mechanism, reason=reason)

    def ended(self, session: Session) -> None:
        """Write the lines of a connection, which has ended."""
        known = self._connections.get(session)
        if known is None:
            return
        for topic in sorted(known.topics):
            self._write_reads(session, topic)
        del self._connections[session]

    def write_due(self) -> None:
        """Write the lines of what was read for 5 minutes."""
        while self._reads:
            reads = next(iter(self._reads.values()))
            if self._clock() - reads.since < _PERIOD_SECONDS:
                return
            self._write_first()

    def close(self) -> None:
        """Write all lines, and close the file."""
        while self._reads:
            self._write_first()
        if self._file is not None:
            self._file.close()

    def _begin(self, session: Session, topic: str) -> _Reads:
        known = self._connection(session)
        if topic not in known.topics:
            known.topics.add(topic)
            self._write("topic_read_began", **self._who(session), topic=topic)
        reads = self._reads[session, topic] = _Reads(self._clock())
        return reads

    def _write_first(self) -> None:
        self._write_reads(*next(iter(self._reads)))

    def _write_reads(self, session: Session, topic: str) -> None:
        reads = self._reads.pop((session, topic), None)
        if reads is None:
            return
        self._partitions -= len(reads.ranges)
        seconds = round(self._clock() - reads.since, 3)
        partitions = sorted(reads.ranges.items())
        for first in range(0, len(partitions), _PARTITIONS_OF_LINE):
            some = partitions[first : first + _PARTITIONS_OF_LINE]
            ranges = {str(number): [f"{start}-{end}" for start, end in each] for number, each in some}
            # The bytes are those of the topic, so one line of several has them.
            size = reads.bytes if first == 0 else 0
            self._write("topic_read", **self._who(session), topic=topic, seconds=seconds, bytes=size, ranges=ranges)

    def _connection(self, session: Session) -> _Connection:
        known = self._connections.get(session)
        if known is None:
            self._numbers += 1
            known = self._connections[session] = _Connection(self._numbers)
        return known

    def _who(self, session: Session) -> dict[str, Any]:
        number = self._connection(session).number
        return {"user": session.user, "client": session.host, "connection": number}


class _AuditFile(WatchedFileHandler):
    """A file of lines of JSON that logrotate may rename.

    A line that cannot be written later is lost: the endpoint serves on, and logs an error once.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(file, encoding="utf-8")
        self._add_time = structlog.processors.TimeStamper(fmt="iso", utc=True)
        self._render = structlog.processors.JSONRenderer()
        self._fails = False

    def write(self, event: str, **facts: Any) -> None:
        """Append a line."""
        shown = {name: printable(value) if isinstance(value, str) else value for name, value in facts.items()}
        line = self._render(None, "", self._add_time(None, "", {"event": event, **shown}))
        failed_before, self._fails = self._fails, False
        try:
            self.handle(logging.makeLogRecord({"msg": printable_json(str(line))}))
        except OSError:  # a renamed file cannot be created again
            self._fails = True
        if self._fails and not failed_before:
            _log.error("audit_not_written", file=self.baseFilename)

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(mode=0o640)  # also after logrotate has renamed the file
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's name)
        """Note that a line is lost; `logging` would print it."""
        del record
        self._fails = True
