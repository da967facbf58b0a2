"""`tsctl consume`: records of a topic from the archive and from Kafka, with the flags of `kafka-console-consumer`."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.errors import ConfigurationError, StoreUnavailable
from ts_common.option_groups import with_groups
from ts_reader.options.archive_name import SOURCE
from tsctl.archive_options import ArchiveOptions
from tsctl.console.lines import lines_of
from tsctl.console.printers import JsonPrinter, LinePrinter, Positions, Printer, Reports
from tsctl.console.settings import Options, consumer_settings, pairs_of, settings_of
from tsctl.output import Output

if TYPE_CHECKING:
    from ts_consumer import TieredConsumer
    from tsctl.console.lines import Lines

_KAFKA_ONLY, _ARCHIVE_ONLY = "KAFKA_ONLY", "TIERED_STORAGE_ONLY"
_MODES: Final = (_KAFKA_ONLY, "KAFKA_PREFERRED", "TIERED_STORAGE_PREFERRED", _ARCHIVE_ONLY)
_FORMATTERS: Final = "org.apache.kafka.tools.consumer."
_DEFAULT: Final = f"{_FORMATTERS}DefaultMessageFormatter"
_NOTHING: Final = f"{_FORMATTERS}NoOpMessageFormatter"
_LOT: Final = 500
_MOST_PARTITION: Final = (1 << 31) - 1
_END_OF_OFFSETS: Final = 1 << 63
_DIGITS: Final = 20
_EARLIEST, _LATEST = -2, -1  # librdkafka's numbers for the ends of a partition


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Which records are read."""

    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", help="Brokers; --mode TIERED_STORAGE_ONLY needs none.")
    ] = None
    topic: Annotated[str | None, typer.Option("--topic", help="Name of the topic.")] = None
    include: Annotated[str | None, typer.Option("--include", help="Regular expression of whole names of topics.")] = (
        None
    )
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=_MOST_PARTITION, help="The partition to read.")
    ] = None
    offset: Annotated[
        str, typer.Option("--offset", help="Where it begins: a number, earliest or latest; with --partition.")
    ] = "latest"
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Without a committed offset, begin at the first record.")
    ] = False
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", min=-1, help="Exit after so many; -1: never.")
    ] = None
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", help="Exit if no record arrived for so long; below 0: never.")
    ] = None
    group: Annotated[str | None, typer.Option("--group", help="The consumer group; else a new one.")] = None
    mode: Annotated[str, typer.Option("--mode", help=f"Which tier is read: {', '.join(_MODES)}.")] = "KAFKA_PREFERRED"

    @property
    def tier(self) -> str:
        """The mode in upper case."""
        return self.mode.upper()

    @property
    def start(self) -> int | None:
        """The offset that a partition begins with, or librdkafka's number for an end; None if it is wrong."""
        if self.offset == "earliest" or self.from_beginning:
            return _EARLIEST
        if self.offset == "latest":
            return _LATEST
        is_number = self.offset.isascii() and self.offset.isdigit() and len(self.offset) < _DIGITS
        return int(self.offset) if is_number and int(self.offset) < _END_OF_OFFSETS else None

    def check(self, problems: list[str]) -> None:
        """Append a sentence for each mistake."""
        for option, text in (("--topic", self.topic), ("--include", self.include), ("--group", self.group)):
            if not _is_possible(text):
                problems.append(f"{option}: it is empty, or no Unicode text")
        if self.include is not None and (reason := _wrong_expression(self.include)) is not None:
            problems.append(f"--include {self.include}: no regular expression: {reason}")
        offset = None if self.offset == "latest" else self.offset
        accepted = f"a number from 0 to {_END_OF_OFFSETS - 1}, earliest or latest is expected"
        wrong = {
            "give one of --topic and --include": (self.topic is None) == (self.include is None),
            "--partition needs --topic": self.partition is not None and self.topic is None,
            f"--offset {offset}: --partition is needed": self.partition is None and offset is not None,
            "--from-beginning and --offset: give one of the two": self.from_beginning
            and self.partition is not None
            and offset is not None,
            f"--mode {self.mode}: accepted are {', '.join(_MODES)}": self.tier not in _MODES,
            "--bootstrap-server is missing; --mode TIERED_STORAGE_ONLY needs none": self.bootstrap_server is None
            and self.tier != _ARCHIVE_ONLY,
            "--include needs --bootstrap-server: brokers list the topics": self.bootstrap_server is None
            and self.include is not None,
            f"--offset {offset}: {accepted}": self.start is None,
        }
        problems += [problem for problem, is_wrong in wrong.items() if is_wrong]


@dataclass(frozen=True, slots=True)
class SettingOptions:
    """Settings of the consumer."""

    isolation: Annotated[
        str | None,
        typer.Option("--isolation-level", help="read_committed, or read_uncommitted as without this option."),
    ] = None
    properties: Annotated[
        list[str] | None,
        typer.Option("--consumer-property", "--command-property", help="A setting of librdkafka.", metavar="KEY=VALUE"),
    ] = None
    properties_file: Annotated[
        Path | None,
        typer.Option("--consumer.config", "--command-config", help="A file of such settings.", metavar="FILE"),
    ] = None

    def settings(self, chosen: RecordOptions, problems: list[str]) -> dict[str, Any]:
        """Return librdkafka's settings; append a sentence for each mistake."""
        file = settings_of("--consumer.config", self.properties_file, problems)
        own = pairs_of("--consumer-property", self.properties, problems)
        options = Options(
            chosen.bootstrap_server, chosen.group, self.isolation, chosen.from_beginning, chosen.partition
        )
        return consumer_settings(options, file, own, problems)


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """How records are printed."""

    formatter: Annotated[
        str,
        typer.Option(
            "--formatter", help=f"Kafka's class: {_DEFAULT}, or {_NOTHING} to print nothing.", metavar="CLASS"
        ),
    ] = _DEFAULT
    key_deserializer: Annotated[
        str | None, typer.Option("--key-deserializer", help="Kafka's class for keys.", metavar="CLASS")
    ] = None
    value_deserializer: Annotated[
        str | None, typer.Option("--value-deserializer", help="Kafka's class for values.", metavar="CLASS")
    ] = None
    skip_message_on_error: Annotated[
        bool, typer.Option("--skip-message-on-error", help="Skip records that a deserializer does not accept.")
    ] = False
    systest_events: Annotated[
        bool, typer.Option("--enable-systest-events", help="Print shutdown_complete at the end.")
    ] = False
    formatting: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "--formatter-property", help="What is printed, as print.key=true.", metavar="KEY=VALUE"
        ),
    ] = None
    formatting_file: Annotated[
        Path | None, typer.Option("--formatter-config", help="A file of what is printed.", metavar="FILE")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, as tsctl cat has them.")] = False

    def check(self, tier: str, problems: list[str]) -> None:
        """Append a sentence for each mistake."""
        given = (self.formatting, self.formatting_file, self.key_deserializer, self.value_deserializer)
        if self.as_json and (any(given) or self.formatter != _DEFAULT or tier == _KAFKA_ONLY):
            problems.append("--json: it has all parts of a record, and no --property; KAFKA_ONLY does not have it")
        if self.formatter not in {_DEFAULT, _NOTHING}:
            problems.append(f"--formatter {self.formatter}: accepted are {_DEFAULT}, {_NOTHING}")

    def lines(self, problems: list[str]) -> "Lines | None":
        """Return what makes the lines of records, None for no lines; append a sentence for each mistake."""
        shown = settings_of("--formatter-config", self.formatting_file, problems)
        for part, name in (("key", self.key_deserializer), ("value", self.value_deserializer)):
            shown |= {f"{part}.deserializer": name} if name else {}
        lines = lines_of(shown | pairs_of("--property", self.formatting, problems), problems)
        return None if self.formatter == _NOTHING else lines


@with_groups
def consume(chosen: RecordOptions, setting: SettingOptions, form: FormatOptions, given: ArchiveOptions) -> None:
    """Print the records of a topic as they follow, from the archive and from Kafka, as kafka-console-consumer does."""
    problems: list[str] = []
    chosen.check(problems)
    form.check(chosen.tier, problems)
    lines = form.lines(problems)
    settings = setting.settings(chosen, problems)
    if problems:
        raise ConfigurationError(SOURCE, problems)
    reports = Reports()
    settings = {
        "log_level": 3,
        "error_cb": reports.note,
        **settings,
        **({} if chosen.tier == _KAFKA_ONLY else _place(given)),
        "tiered.storage.mode": chosen.tier,
        "enable.auto.offset.store": False,
    }
    numbers = _partitions(chosen, given)
    positions = Positions(stored=numbers is None)
    printer: Printer
    if form.as_json:
        printer = JsonPrinter(given.reader(warn=lambda _: None), reports, positions)
    else:
        printer = LinePrinter(lines, reports, positions, form.skip_message_on_error)
    try:
        _consume(settings, chosen, numbers, printer)
    finally:
        if form.systest_events:
            Output(as_json=False).text("shutdown_complete")
    reports.raise_last()


def _partitions(chosen: RecordOptions, given: ArchiveOptions) -> Sequence[int] | None:
    """Return the partitions to read; None if a group assigns them.

    Raises:
        ConfigurationError: the archive does not have the partition.
    """
    numbers = None if chosen.partition is None else [chosen.partition]
    if chosen.bootstrap_server is not None or chosen.topic is None:
        return numbers
    found = [each.partition for each in given.reader(warn=lambda _: None).partitions(chosen.topic)]
    if chosen.partition is not None and chosen.partition not in found:
        problem = f"--partition {chosen.partition}: the archive has {found} of {chosen.topic}"
        raise ConfigurationError(SOURCE, [problem])
    return numbers or found


def _consume(
    settings: Mapping[str, Any], chosen: RecordOptions, partitions: Sequence[int] | None, printer: Printer
) -> None:
    from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415  (only this command consumes)

    from ts_consumer import TieredConsumer  # noqa: PLC0415  (the same)

    topic = chosen.topic or f"^({chosen.include})$"
    try:
        opened = TieredConsumer(settings)
    except KafkaException as error:  # a setting of librdkafka
        raise ConfigurationError(SOURCE, [error.args[0].str()]) from error
    try:
        with opened as consumer:
            if partitions is None:
                consumer.subscribe([topic])
            else:
                start = _LATEST if chosen.start is None else chosen.start
                consumer.assign([TopicPartition(topic, partition, start) for partition in partitions])
            try:
                _print(consumer, printer, _unless_negative(chosen.max_messages), _unless_negative(chosen.timeout_ms))
            finally:
                print(f"Processed a total of {printer.count} messages", file=sys.stderr)  # noqa: T201  (as Kafka's tool)
    except KafkaException as error:
        raise StoreUnavailable(f"Kafka: {error.args[0].str()}") from error


def _unless_negative(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


def _print(consumer: "TieredConsumer", printer: Printer, most: int | None, timeout_ms: int | None) -> None:
    """Print records until there are enough, or none arrived for too long."""
    last = monotonic()
    while most is None or printer.count < most:
        before = printer.count
        printer.print(consumer, _LOT if most is None else min(_LOT, most - before))
        if printer.count > before:
            last = monotonic()
        elif timeout_ms is not None and (monotonic() - last) * 1000 >= timeout_ms:
            break


def _is_possible(text: str | None) -> bool:
    """Return whether librdkafka can have a text."""
    return text is None or (text != "" and text.isprintable())


def _wrong_expression(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as error:
        return str(error)
    return None


def _place(given: ArchiveOptions) -> dict[str, str]:
    """Return the consumer's keys for an archive, as the command line names it."""
    name = given.name()
    if name.file is not None:
        return {"tiered.storage.config": str(name.file.path)}
    place = {"kafka.cluster.id": name.keys.cluster, "storage.service.endpoint.url": name.endpoints[0].location}
    if given.entropy_bits is not None:
        place["ts.segment.uploader.s3.prefix.entropy.bits"] = str(given.entropy_bits)
    return place
