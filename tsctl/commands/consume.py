"""`tsctl consume`: records of a topic from the archive and from Kafka, with the flags of `kafka-console-consumer`."""

import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.errors import ConfigurationError, QueryError, StoreUnavailable
from ts_common.printable import printable_lines
from ts_common.reading.archive_name import SOURCE, name_archive
from tsctl.archive import ClusterOption, ConfigOption, EntropyOption, UrlOption, open_reader
from tsctl.exit_codes import ExitCode
from tsctl.output import Output, ReaderGone, flush

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from ts_consumer import TieredConsumer
    from ts_reader import Archive
    from tsctl.console_lines import Lines

_MODES: Final = ("KAFKA_ONLY", "KAFKA_PREFERRED", "TIERED_STORAGE_PREFERRED", "TIERED_STORAGE_ONLY")
_ISOLATIONS: Final = ("read_committed", "read_uncommitted")
_LOT: Final = 500
_MOST_PARTITION: Final = (1 << 31) - 1
_END_OF_OFFSETS: Final = 1 << 63
_DIGITS: Final = 20
_NO_BROKER: Final = ("_ALL_BROKERS_DOWN", "_AUTHENTICATION", "_SSL")
_UNKNOWN: Final = ("UNKNOWN_TOPIC_OR_PART", "TOPIC_EXCEPTION", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
_CALLBACKS: Final = ("error_cb", "stats_cb", "throttle_cb", "on_commit", "oauth_cb", "logger")

Printing = Callable[["TieredConsumer", int], int]  # prints up to so many records, and returns their number
_SLICE_SECONDS: Final = 0.5


def consume(
    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", help="Brokers; --mode TIERED_STORAGE_ONLY needs none.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Name of the topic.")] = None,
    include: Annotated[
        str | None, typer.Option("--include", help="Regular expression of whole names of topics.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=_MOST_PARTITION, help="The partition to read.")
    ] = None,
    offset: Annotated[
        str, typer.Option("--offset", help="Where it begins: a number, earliest or latest; with --partition.")
    ] = "latest",
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Without a committed offset, begin at the first record.")
    ] = False,
    max_messages: Annotated[int | None, typer.Option("--max-messages", min=1, help="Exit after so many.")] = None,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", min=1, help="Exit if no record arrived for so long.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="The consumer group; else a new one.")] = None,
    isolation: Annotated[
        str, typer.Option("--isolation-level", help="read_committed or read_uncommitted.")
    ] = "read_uncommitted",
    formatting: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "--formatter-property", help="What is printed, as print.key=true.", metavar="KEY=VALUE"
        ),
    ] = None,
    formatting_file: Annotated[
        Path | None, typer.Option("--formatter-config", help="A file of what is printed.", metavar="FILE")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--consumer-property", "--command-property", help="A setting of librdkafka.", metavar="KEY=VALUE"),
    ] = None,
    properties_file: Annotated[
        Path | None,
        typer.Option("--consumer.config", "--command-config", help="A file of such settings.", metavar="FILE"),
    ] = None,
    mode: Annotated[str, typer.Option("--mode", help=f"Which tier is read: {', '.join(_MODES)}.")] = "KAFKA_PREFERRED",
    config: ConfigOption = None,
    url: UrlOption = None,
    cluster: ClusterOption = None,
    entropy_bits: EntropyOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, as tsctl cat has them.")] = False,
) -> None:
    """Print the records of a topic as they follow, from the archive and from Kafka, as kafka-console-consumer does."""
    from tsctl.console_lines import lines_of  # noqa: PLC0415  (with the consumer's imports)

    problems = [f"{option}: it is empty, or no Unicode text" for option, text in _texts(topic, include, group)]
    if include is not None and (reason := _wrong_expression(include)) is not None:
        problems.append(f"--include {include}: no regular expression: {reason}")
    if (topic is None) == (include is None):
        problems.append("give one of --topic and --include")
    if partition is not None and topic is None:
        problems.append("--partition needs --topic")
    if partition is None and offset != "latest":
        problems.append(f"--offset {offset}: --partition is needed")
    if from_beginning and partition is not None and offset != "latest":
        problems.append("--from-beginning and --offset: give one of the two")
    if isolation not in _ISOLATIONS:
        problems.append(f"--isolation-level {isolation}: accepted are {', '.join(_ISOLATIONS)}")
    if mode.upper() not in _MODES:
        problems.append(f"--mode {mode}: accepted are {', '.join(_MODES)}")
    if bootstrap_server is None and mode.upper() != "TIERED_STORAGE_ONLY":
        problems.append("--bootstrap-server is missing; --mode TIERED_STORAGE_ONLY needs none")
    if as_json and (formatting or formatting_file or mode.upper() == "KAFKA_ONLY"):
        problems.append("--json: it has all parts of a record, and no --property; KAFKA_ONLY does not have it")
    if bootstrap_server is None and include is not None:
        problems.append("--include needs --bootstrap-server: brokers list the topics")
    start = _start(offset, from_beginning, problems)
    shown = _settings("--formatter-config", formatting_file, problems) | _pairs("--property", formatting, problems)
    lines = None if as_json else lines_of(shown, problems)
    settings = _settings("--consumer.config", properties_file, problems) | _pairs(
        "--consumer-property", properties, problems
    )
    problems += [f"{name}: a command line has no callbacks" for name in _CALLBACKS if name in settings]
    if not settings.get("group.id", "any"):
        problems.append("group.id is empty")
    if problems:
        raise ConfigurationError(SOURCE, problems)
    place = {} if mode.upper() == "KAFKA_ONLY" else _place(config, url, cluster, entropy_bits)
    reports = _Reports()
    given: dict[str, Any] = {
        "bootstrap.servers": bootstrap_server or "",
        "group.id": group or f"tsctl-consume-{secrets.token_hex(4)}",
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        "isolation.level": isolation,
        "enable.auto.commit": group is not None,
        "log_level": 3,
        "error_cb": reports.note,
        **settings,
        **place,
        "tiered.storage.mode": mode.upper(),
    }
    numbers = None if partition is None else [partition]
    if bootstrap_server is None and topic is not None:  # no group assigns partitions
        archive = open_reader(config, url, cluster, entropy_bits, warn=lambda _: None)
        found = [each.partition for each in archive.partitions(topic)]
        if partition is not None and partition not in found:
            raise ConfigurationError(SOURCE, [f"--partition {partition}: the archive has {found} of {topic}"])
        numbers = numbers or found
    printing: Printing
    if lines is None:
        printing = partial(_print_json, open_reader(config, url, cluster, entropy_bits, warn=lambda _: None), reports)
    else:
        printing = partial(_print_lines, lines, reports)
    _consume(given, topic or f"^({include})$", numbers, start, printing, max_messages, timeout_ms)
    reports.raise_last()


def _consume(
    given: Mapping[str, Any],
    topic: str,
    partitions: Sequence[int] | None,
    start: int,
    printing: "Printing",
    most: int | None,
    timeout_ms: int | None,
) -> None:
    from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415  (only this command consumes)

    from ts_consumer import TieredConsumer  # noqa: PLC0415  (the same)

    count = 0
    try:
        opened = TieredConsumer(given)
    except KafkaException as error:  # a setting of librdkafka
        raise ConfigurationError(SOURCE, [error.args[0].str()]) from error
    try:
        with opened as consumer:
            if partitions is None:
                consumer.subscribe([topic])
            else:
                consumer.assign([TopicPartition(topic, partition, start) for partition in partitions])
            try:
                count = _print(consumer, printing, most, timeout_ms)
            finally:
                print(f"Processed a total of {count} messages", file=sys.stderr)  # noqa: T201  (as Kafka's tool)
    except KafkaException as error:
        raise StoreUnavailable(f"Kafka: {error.args[0].str()}") from error


def _print(consumer: "TieredConsumer", printing: "Printing", most: int | None, timeout_ms: int | None) -> int:
    """Print records until there are enough, or none arrived for too long; return their number."""
    count, last = 0, monotonic()
    while most is None or count < most:
        lot = _LOT if most is None else min(_LOT, most - count)
        printed = printing(consumer, lot)
        if printed:
            count, last = count + printed, monotonic()
        elif timeout_ms is not None and (monotonic() - last) * 1000 >= timeout_ms:
            break
    return count


class _Reports:
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


def _print_lines(lines: "Lines", reports: _Reports, consumer: "TieredConsumer", lot: int) -> int:
    count = 0
    try:
        for message in consumer.consume(lot, _SLICE_SECONDS):
            if (error := message.error()) is None:
                sys.stdout.buffer.write(lines.line(message))
                count += 1
                reports.forget()
            else:
                sys.stdout.buffer.flush()
                reports.report(error)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise ReaderGone from error
    return count


def _print_json(archive: "Archive", reports: _Reports, consumer: "TieredConsumer", lot: int) -> int:
    import pyarrow as pa  # noqa: PLC0415  (only with --json)
    import pyarrow.compute as pc  # noqa: PLC0415  (the same)
    from confluent_kafka import KafkaException  # noqa: PLC0415  (only this command consumes)

    from ts_common.schemas.contract import Part  # noqa: PLC0415  (only with --json)
    from tsctl.record_lines import DEFAULT, Form, RecordLines  # noqa: PLC0415  (only with --json)

    try:
        table = consumer.consume_arrow(lot, _SLICE_SECONDS)
    except KafkaException as error:
        reports.report(error.args[0])
        return 0
    if table.num_rows:
        reports.forget()
    output = Output(as_json=True)
    places = table.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([]).to_pylist()
    for place in places:
        topic, partition = place["topic"], place["partition"]
        of_place = pc.and_(pc.equal(table["topic"], topic), pc.equal(table["partition"], partition))
        key = Form(DEFAULT, archive.codec(topic, Part.KEY, DEFAULT))
        value = Form(DEFAULT, archive.codec(topic, Part.VALUE, DEFAULT))
        lines = RecordLines(topic, partition, key, value, value)
        for batch in pa.Table.to_batches(table.filter(of_place)):
            for some in lines.of(batch):
                for line in some:
                    output.line(line)
    flush()
    return int(table.num_rows)


def _texts(topic: str | None, include: str | None, group: str | None) -> list[tuple[str, str]]:
    """Return options with a text that librdkafka cannot have."""
    given = (("--topic", topic), ("--include", include), ("--group", group))
    return [(option, text) for option, text in given if text is not None and not (text and text.isprintable())]


def _wrong_expression(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as error:
        return str(error)
    return None


def _start(offset: str, from_beginning: bool, problems: list[str]) -> int:
    """Return the offset that a partition begins with, or librdkafka's number for an end."""
    if offset == "earliest" or from_beginning:
        return -2
    if offset == "latest":
        return -1
    if offset.isascii() and offset.isdigit() and len(offset) < _DIGITS and int(offset) < _END_OF_OFFSETS:
        return int(offset)
    problems.append(f"--offset {offset}: a number from 0 to {_END_OF_OFFSETS - 1}, earliest or latest is expected")
    return 0


def _pairs(option: str, given: Sequence[str] | None, problems: list[str]) -> dict[str, str]:
    pairs = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign:
            problems.append(f"{option} {text}: KEY=VALUE is expected")
        pairs[name] = value
    return pairs


def _settings(option: str, file: Path | None, problems: list[str]) -> dict[str, str]:
    """Return the settings of a file."""
    if file is None:
        return {}
    import javaproperties  # noqa: PLC0415  (only with a file)

    try:
        return dict(javaproperties.loads(file.read_text()))
    except (OSError, ValueError) as error:
        problems.append(f"{option} {file}: {error}")
        return {}


def _place(config: Path | None, url: str | None, cluster: str | None, bits: int | None) -> dict[str, str]:
    """Return the consumer's keys for an archive, as the command line names it."""
    name = name_archive(config, url, cluster, bits)
    if name.file is not None:
        return {"tiered.storage.config": str(name.file.path)}
    place = {"kafka.cluster.id": name.keys.cluster, "storage.service.endpoint.url": name.endpoints[0].location}
    if bits is not None:
        place["ts.segment.uploader.s3.prefix.entropy.bits"] = str(bits)
    return place
