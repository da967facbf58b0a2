"""Printers of `tsctl consume`: lines as Kafka's tool has them, or JSON as `tsctl cat` has it.

A position is stored for the group's next commit after its record is printed, so no reader of the output misses one.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import typer

from ts_common.errors import CorruptData, QueryError, StoreUnavailable
from ts_common.printable import printable, printable_lines
from tsctl.exit_codes import ExitCode
from tsctl.output import Output, flush

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from ts_consumer import TieredConsumer
    from ts_reader import Archive
    from tsctl.console.lines import Lines, Message

Ends = dict[tuple[str, int], int]  # the offset after the last printed record of a topic and partition

_SLICE_SECONDS: Final = 0.5
_NO_BROKER: Final = ("_ALL_BROKERS_DOWN", "_AUTHENTICATION", "_SSL")
_UNKNOWN: Final = ("UNKNOWN_TOPIC_OR_PART", "TOPIC_EXCEPTION", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")


class Printer(Protocol):
    """Prints records.

    Attributes:
        count: of records that were printed or skipped.
    """

    count: int

    def print(self, consumer: "TieredConsumer", lot: int) -> None:
        """Print up to `lot` records, or those of half a second.

        Raises:
            CorruptData: a deserializer does not accept a record.
            ReaderGone: the reader of standard output has closed it.
        """


class Reports:
    """Errors of the consumer, which are written as they arrive."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def note(self, error: "KafkaError") -> None:
        """Note an error of connections if it is one of all brokers."""
        if error.name() in _NO_BROKER:
            self._last = error

    def report(self, error: "KafkaError") -> None:
        """Write an error to standard error; end the command if the archive's partition cannot continue by itself."""
        if error.name() == "_PARTITION_EOF":
            return
        print(printable_lines(f"tsctl: {error.str()}"), file=sys.stderr)  # noqa: T201  (the command's own voice)
        if not error.retriable() and error.str().startswith("archive: "):
            raise typer.Exit(ExitCode.FOUND)
        self._last = error

    def forget(self) -> None:
        """Forget errors: a record arrived after them."""
        self._last = None

    def raise_last(self) -> None:
        """Raise the error that no record followed.

        Raises:
            QueryError: brokers do not have the topic or the partition.
            StoreUnavailable: of another kind.
        """
        if self._last is not None:
            kind = QueryError if self._last.name() in _UNKNOWN else StoreUnavailable
            raise kind(f"no record arrived: {self._last.str()}")


class Positions:
    """Stores where a group continues: after records that were printed.

    Args:
        stored: whether the group commits.
    """

    def __init__(self, stored: bool) -> None:
        self._stored = stored

    @contextmanager
    def of(self, consumer: "TieredConsumer") -> Iterator[Ends]:
        """Yield a mapping for the next offset of each topic and partition. It is stored when standard output has all.

        Raises:
            ReaderGone: the reader of standard output has closed it; nothing is stored.
        """
        ends: Ends = {}
        try:
            yield ends
        except BrokenPipeError:
            ends.clear()
        finally:
            flush()
            self._store(consumer, ends)

    def _store(self, consumer: "TieredConsumer", ends: Ends) -> None:
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415  (only this command consumes)

        for (topic, partition), end in ends.items() if self._stored else ():
            with suppress(KafkaException):  # the partition has another owner now
                consumer.store_offsets(offsets=[TopicPartition(topic, partition, end)])


class LinePrinter:
    """Prints lines of records.

    Args:
        lines: makes them; None prints none.
        skip: whether a record that a deserializer does not accept is skipped.
    """

    def __init__(self, lines: "Lines | None", reports: Reports, positions: Positions, skip: bool) -> None:
        self._lines = lines
        self._reports = reports
        self._positions = positions
        self._skip = skip
        self.count = 0

    def print(self, consumer: "TieredConsumer", lot: int) -> None:
        """Print records, as `Printer` describes."""
        with self._positions.of(consumer) as ends:
            for message in consumer.consume(lot, _SLICE_SECONDS):
                if (error := message.error()) is not None:
                    sys.stdout.buffer.flush()
                    self._reports.report(error)
                    continue
                self._reports.forget()
                self._print(message)
                self.count += 1
                ends[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1

    def _print(self, message: "Message") -> None:
        if self._lines is None:
            return
        try:
            sys.stdout.buffer.write(self._lines.line(message))
        except ValueError as error:
            place = f"{message.topic()}-{message.partition()} at offset {message.offset()}: {error}"
            if not self._skip:
                raise CorruptData(f"{place}; --skip-message-on-error continues after such a record") from error
            print(printable(f"tsctl: skipped {place}"), file=sys.stderr)  # noqa: T201  (the command's own voice)


class JsonPrinter:
    """Prints records as `tsctl cat` does.

    Args:
        archive: has the schemas.
    """

    def __init__(self, archive: "Archive", reports: Reports, positions: Positions) -> None:
        from tsctl.record_lines import RecordPrinter  # noqa: PLC0415  (only with --json)

        self._records = RecordPrinter(archive, Output(as_json=True).row)
        self._reports = reports
        self._positions = positions
        self.count = 0

    def print(self, consumer: "TieredConsumer", lot: int) -> None:
        """Print records, as `Printer` describes."""
        from confluent_kafka import KafkaException  # noqa: PLC0415  (only this command consumes)

        with self._positions.of(consumer) as ends:
            try:
                table = consumer.consume_arrow(lot, _SLICE_SECONDS)
            except KafkaException as error:
                self._reports.report(error.args[0])
                return
            if table.num_rows:
                self._reports.forget()
            for topic, partition, rows in _by_partition(table):
                self._records.print(topic, partition, rows.to_batches())
                self.count += rows.num_rows
                ends[topic, partition] = rows["offset"][-1].as_py() + 1


def _by_partition(table: Any) -> Iterator[tuple[str, int, Any]]:
    """Yield the rows of each topic and partition."""
    import pyarrow.compute as pc  # noqa: PLC0415  (only with --json)

    for place in table.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([]).to_pylist():
        topic, partition = place["topic"], place["partition"]
        of_place = pc.and_(pc.equal(table["topic"], topic), pc.equal(table["partition"], partition))
        yield topic, partition, table.filter(of_place)
