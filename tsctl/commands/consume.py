"""`tsctl consume`: records of a topic from the archive and from Kafka, with the flags of `kafka-console-consumer`."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.errors import ConfigurationError, StoreUnavailable
from ts_reader.options.archive_name import SOURCE, name_archive
from tsctl.archive_options import ClusterOption, ConfigOption, EntropyOption, UrlOption, open_reader
from tsctl.console.lines import lines_of
from tsctl.console.printers import JsonPrinter, LinePrinter, Positions, Printer, Reports
from tsctl.console.settings import Options, consumer_settings, pairs_of, settings_of
from tsctl.output import Output

if TYPE_CHECKING:
    from ts_consumer import TieredConsumer

_MODES: Final = ("KAFKA_ONLY", "KAFKA_PREFERRED", "TIERED_STORAGE_PREFERRED", "TIERED_STORAGE_ONLY")
_FORMATTERS: Final = "org.apache.kafka.tools.consumer."
_DEFAULT: Final = f"{_FORMATTERS}DefaultMessageFormatter"
_NOTHING: Final = f"{_FORMATTERS}NoOpMessageFormatter"
_LOT: Final = 500
_MOST_PARTITION: Final = (1 << 31) - 1
_END_OF_OFFSETS: Final = 1 << 63
_DIGITS: Final = 20


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
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", min=-1, help="Exit after so many; -1: never.")
    ] = None,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", help="Exit if no record arrived for so long; below 0: never.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="The consumer group; else a new one.")] = None,
    isolation: Annotated[
        str | None,
        typer.Option("--isolation-level", help="read_committed, or read_uncommitted as without this option."),
    ] = None,
    formatter: Annotated[
        str,
        typer.Option(
            "--formatter", help=f"Kafka's class: {_DEFAULT}, or {_NOTHING} to print nothing.", metavar="CLASS"
        ),
    ] = _DEFAULT,
    key_deserializer: Annotated[
        str | None, typer.Option("--key-deserializer", help="Kafka's class for keys.", metavar="CLASS")
    ] = None,
    value_deserializer: Annotated[
        str | None, typer.Option("--value-deserializer", help="Kafka's class for values.", metavar="CLASS")
    ] = None,
    skip_message_on_error: Annotated[
        bool, typer.Option("--skip-message-on-error", help="Skip records that a deserializer does not accept.")
    ] = False,
    systest_events: Annotated[
        bool, typer.Option("--enable-systest-events", help="Print shutdown_complete at the end.")
    ] = False,
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
    if mode.upper() not in _MODES:
        problems.append(f"--mode {mode}: accepted are {', '.join(_MODES)}")
    if bootstrap_server is None and mode.upper() != "TIERED_STORAGE_ONLY":
        problems.append("--bootstrap-server is missing; --mode TIERED_STORAGE_ONLY needs none")
    formatted = formatting or formatting_file or key_deserializer or value_deserializer or formatter != _DEFAULT
    if as_json and (formatted or mode.upper() == "KAFKA_ONLY"):
        problems.append("--json: it has all parts of a record, and no --property; KAFKA_ONLY does not have it")
    if formatter not in {_DEFAULT, _NOTHING}:
        problems.append(f"--formatter {formatter}: accepted are {_DEFAULT}, {_NOTHING}")
    if bootstrap_server is None and include is not None:
        problems.append("--include needs --bootstrap-server: brokers list the topics")
    start = _start(offset, from_beginning, problems)
    shown = settings_of("--formatter-config", formatting_file, problems)
    for part, name in (("key", key_deserializer), ("value", value_deserializer)):
        shown |= {f"{part}.deserializer": name} if name else {}
    lines = lines_of(shown | pairs_of("--property", formatting, problems), problems)
    file = settings_of("--consumer.config", properties_file, problems)
    own = pairs_of("--consumer-property", properties, problems)
    options = Options(bootstrap_server, group, isolation, from_beginning, partition)
    settings = consumer_settings(options, file, own, problems)
    if problems:
        raise ConfigurationError(SOURCE, problems)
    place = {} if mode.upper() == "KAFKA_ONLY" else _place(config, url, cluster, entropy_bits)
    reports = Reports()
    given: dict[str, Any] = {
        "log_level": 3,
        "error_cb": reports.note,
        **settings,
        **place,
        "tiered.storage.mode": mode.upper(),
        "enable.auto.offset.store": False,
    }
    numbers = None if partition is None else [partition]
    if bootstrap_server is None and topic is not None:  # no group assigns partitions
        archive = open_reader(config, url, cluster, entropy_bits, warn=lambda _: None)
        found = [each.partition for each in archive.partitions(topic)]
        if partition is not None and partition not in found:
            raise ConfigurationError(SOURCE, [f"--partition {partition}: the archive has {found} of {topic}"])
        numbers = numbers or found
    positions = Positions(stored=numbers is None)
    printer: Printer
    if as_json:
        archive = open_reader(config, url, cluster, entropy_bits, warn=lambda _: None)
        printer = JsonPrinter(archive, reports, positions)
    else:
        printer = LinePrinter(None if formatter == _NOTHING else lines, reports, positions, skip_message_on_error)
    most = None if max_messages is None or max_messages < 0 else max_messages
    quiet_ms = None if timeout_ms is None or timeout_ms < 0 else timeout_ms
    try:
        _consume(given, topic or f"^({include})$", numbers, start, printer, most, quiet_ms)
    finally:
        if systest_events:
            Output(as_json=False).text("shutdown_complete")
    reports.raise_last()


def _consume(
    given: Mapping[str, Any],
    topic: str,
    partitions: Sequence[int] | None,
    start: int,
    printer: Printer,
    most: int | None,
    timeout_ms: int | None,
) -> None:
    from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415  (only this command consumes)

    from ts_consumer import TieredConsumer  # noqa: PLC0415  (the same)

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
                _print(consumer, printer, most, timeout_ms)
            finally:
                print(f"Processed a total of {printer.count} messages", file=sys.stderr)  # noqa: T201  (as Kafka's tool)
    except KafkaException as error:
        raise StoreUnavailable(f"Kafka: {error.args[0].str()}") from error


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


def _place(config: Path | None, url: str | None, cluster: str | None, bits: int | None) -> dict[str, str]:
    """Return the consumer's keys for an archive, as the command line names it."""
    name = name_archive(config, url, cluster, bits)
    if name.file is not None:
        return {"tiered.storage.config": str(name.file.path)}
    place = {"kafka.cluster.id": name.keys.cluster, "storage.service.endpoint.url": name.endpoints[0].location}
    if bits is not None:
        place["ts.segment.uploader.s3.prefix.entropy.bits"] = str(bits)
    return place
