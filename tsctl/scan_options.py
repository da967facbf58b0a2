"""Options of the commands that read records: codecs, schemas, bounds, damage, losses and the memory of a batch."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from ts_common.durations import DAY, duration_milliseconds
from ts_common.errors import ConfigurationError
from ts_common.log_format.limits import MAX_BATCH_BYTES, BatchLimit
from ts_common.model import is_topic_name
from ts_reader.options.archive_name import NAMES
from ts_reader.query.query import CorruptionMode, Undecoded, Wording
from ts_reader.query.timestamps import EXPECTED, milliseconds_of
from ts_reader.reading.incarnation_option import NEWEST
from ts_reader.schemas.choice import parse_codec

if TYPE_CHECKING:
    from ts_reader import Archive
    from ts_reader.schemas.schema_source import SchemaSource

WORDING: Final = Wording(
    names={
        **NAMES,
        "partitions": "--partition",
        "starting_offsets": "--from",
        "ending_offsets": "--to",
        "starting_timestamp": "--from",
        "ending_timestamp": "--to",
        "starting_timestamps": "--from",
        "ending_timestamps": "--to",
        "isolation_level": "--isolation",
        "incarnation": "--incarnation",
        "mode": "--mode",
        "max_batch_bytes": "--max-batch-bytes",
        "undecoded": "--undecoded",
        "tail": "--no-tail",
    },
    has_texts=True,
    despite_loss="To read what is left, add --allow-loss",
    despite_corruption="To read what is intact, add --mode dropmalformed",
    exact_times="--timestamp-ms adds the time as stored",
    despite_unproven="To read what is shipped, add --unproven",
    schema_source="add --registry URL or topic:NAME, or write avro,schema.file=FILE",
    despite_undecoded="To have null and the reason instead, add --undecoded null",
)
_VARIABLES: Final = {name: f"TSCTL_REGISTRY_{name.upper()}" for name in ("user", "password", "token")}
_TOPIC: Final = "topic:"
_MOST_DAYS: Final = 100_000


FromOption = Annotated[
    str | None,
    typer.Option("--from", help="First offset, or a time: 2026-11-22T06:00:00Z (UTC by default), @milliseconds."),
]
ToOption = Annotated[str | None, typer.Option("--to", help="The offset after the last one, or a time.")]
_CODECS: Final = (
    "Codec of {}, or TOPIC=CODEC; repeatable: utf8, json, int, long, registry, avro,schema.file=FILE and so on; "
    "default: bytes."
)
KeyCodecsOption = Annotated[list[str] | None, typer.Option("--key", help=_CODECS.format("keys"))]
ValueCodecsOption = Annotated[list[str] | None, typer.Option("--value", help=_CODECS.format("values"))]
UndecodedOption = Annotated[
    Undecoded,
    typer.Option(
        "--undecoded",
        help="What a key or value does that its codec refuses: end the command, or be null with the reason in "
        "key_error or value_error.",
    ),
]
IncarnationOption = Annotated[
    str, typer.Option("--incarnation", help="Incarnation of a topic: newest, oldest, a number from 1, or a topic id.")
]


NoTailOption = Annotated[
    bool, typer.Option("--no-tail", help="Closed segments only, without live tails: records that none has yet.")
]

# The limit is a setting of the process, so that no code between a command and its decoders has to pass it on.
_OPTION: Final = "--max-batch-bytes"
_current = BatchLimit(option=_OPTION)


def batch_limit() -> BatchLimit:
    """Return the limit of the running command."""
    return _current


def _set(most: int) -> int:
    global _current  # noqa: PLW0603  (see above)
    _current = BatchLimit(most, _OPTION)
    return most


MaxBatchBytesOption = Annotated[
    int,
    typer.Option(
        _OPTION,
        min=1 << 20,
        callback=_set,
        help="Maximum bytes of one record batch in memory, as stored and as decompressed.",
    ),
]


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Where schemas are."""

    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            metavar="URL|topic:NAME",
            help="Schemas: the URL of a registry, or its archived topic, as in topic:_schemas. "
            f"Credentials: {', '.join(_VARIABLES.values())} of the environment.",
        ),
    ] = None
    registry_ca: Annotated[
        Path | None,
        typer.Option("--registry-ca", help="File of the authorities that sign the registry's certificate, PEM."),
    ] = None

    def open(self, problems: list[str]) -> "SchemaSource | str | None":
        """Return the schemas, as `ts_reader.Archive` accepts them."""
        if self.registry is None or self.registry.startswith(_TOPIC):
            if self.registry_ca is not None:
                problems.append(f"--registry-ca={self.registry_ca}: it is for the URL of a registry; give --registry")
            return self.registry
        from ts_reader.schemas.registry import Registry  # noqa: PLC0415  (an HTTP client)

        given: dict[str, Any] = {
            name: os.environ[variable] for name, variable in _VARIABLES.items() if os.environ.get(variable)
        }
        try:
            return Registry(self.registry, ca_file=self.registry_ca, **given)
        except ConfigurationError as error:
            problems += [f"--registry: {problem}" for problem in error.problems]
            return None


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """How records are read."""

    isolation: Annotated[
        Literal["read_uncommitted", "read_committed"],
        typer.Option("--isolation", help="read_committed leaves out aborted and open transactions."),
    ] = "read_uncommitted"
    mode: Annotated[
        CorruptionMode,
        typer.Option(
            "--mode",
            case_sensitive=False,
            help="What corrupt batches do: end the command, be left out, or be a row with the bytes in "
            "_corrupt_record.",
        ),
    ] = CorruptionMode.FAILFAST
    timestamp_ms: Annotated[
        bool, typer.Option("--timestamp-ms", help="Adds timestampMs: the timestamp as stored, in milliseconds.")
    ] = False
    incarnation: IncarnationOption = NEWEST
    no_tail: NoTailOption = False
    max_batch_bytes: MaxBatchBytesOption = MAX_BATCH_BYTES

    def arguments(self) -> dict[str, Any]:
        """Return arguments of a scan; those of its columns are the command's."""
        return {
            "isolation_level": self.isolation,
            "mode": self.mode.value,
            "tail": not self.no_tail,
            "incarnation": self.incarnation,
            "max_batch_bytes": self.max_batch_bytes,
        }


def parse_codecs(option: str, texts: Sequence[str], problems: list[str]) -> dict[str | None, str]:
    """Return the codecs that an option names, by topic; that of all other topics under None.

    Args:
        option: `--key` or `--value`, for messages.
        texts: a codec, or `TOPIC=CODEC`.
        problems: receives what is wrong.
    """
    found: dict[str | None, str] = {}
    for text in texts:
        topic, sign, codec = text.partition("=")
        named = topic if sign and is_topic_name(topic) else None  # an option of a codec follows a comma
        codec = codec if named is not None else text
        if named in found:
            problems.append(
                f"{option}={text}: {'the other topics have' if named is None else 'it has'} a codec already"
            )
            continue
        try:
            parse_codec(codec)
        except ValueError as error:
            problems.append(f"{option}={text}: {error}")
        found[named] = codec
    return found


def codec_of(codecs: Mapping[str | None, str], topic: str) -> str | None:
    """Return the codec of a topic; None for bytes."""
    return codecs.get(topic, codecs.get(None))


def held_partitions(
    archive: "Archive", topic: str, numbers: frozenset[int] | None, incarnation: str
) -> list[int] | None:
    """Return the requested partitions that an incarnation of a topic has; None for all."""
    if numbers is None:
        return None
    held = {info.partition for info in archive.partitions(topic, incarnation=incarnation)}
    if chosen := sorted(numbers & held):
        return chosen
    return sorted(numbers)  # an error that names what there is


def parse_time(
    option: str, text: str | None, problems: list[str], *, rounds_up: bool = True, also: str = ""
) -> int | None:
    """Return the milliseconds of an option that accepts a time; None without a value, or if it is wrong.

    Args:
        option: its name, for messages.
        problems: receives what is wrong.
        rounds_up: as of `milliseconds_of`.
        also: what the option accepts too, for messages.
    """
    if text is None:
        return None
    if text.isdecimal():
        problems.append(
            f"{option}={text}: a time is expected, as in 2026-11-22T06:00:00Z; "
            f'for offsets write where "offset" >= {text}'
        )
        return None
    try:
        return milliseconds_of(text, rounds_up=rounds_up)
    except ValueError:
        problems.append(f"{option}={text}: expected {also}{EXPECTED}")
        return None


def parse_end(option: str, text: str | None, now: int, problems: list[str]) -> int | None:
    """Return the milliseconds of an option that accepts a time in the future, or a duration such as `90d` or `12h`.

    Args:
        option: its name, for messages.
        text: its value; None for no end.
        now: milliseconds since the epoch; a duration counts from it.
        problems: receives what is neither, or a time that has passed.
    """
    duration = None if text is None else duration_milliseconds(text, {"h", "d"})
    if duration is not None and 0 < duration < _MOST_DAYS * DAY:
        return now + duration
    end = parse_time(option, text, problems, also="a duration such as 90d or 12h, or ")
    if end is not None and end <= now:
        problems.append(f"{option}={text}: it has passed; a time in the future is expected")
    return end


def parse_bounds(start: str | None, end: str | None, problems: list[str], *, offsets: bool) -> dict[str, Any]:
    """Return the arguments of a scan for `--from` and `--to`.

    Args:
        start: an offset or a time.
        end: the same.
        problems: receives what is neither, or an end before the start.
        offsets: whether offsets are accepted.
    """
    found: dict[str, Any] = {}
    for option, text, side in (("--from", start, "starting"), ("--to", end, "ending")):
        if text is None:
            continue
        if offsets and text.isascii() and text.isdecimal():
            found[f"{side}_offsets"] = int(text)
            continue
        moment = parse_time(option, text, problems, also="an offset, or " if offsets else "")
        if moment is not None:
            found[f"{side}_timestamp"] = moment
    for kind in ("offsets", "timestamp"):
        low, high = found.get(f"starting_{kind}"), found.get(f"ending_{kind}")
        if low is not None and high is not None and low > high:
            problems.append(f"--from={start} is after --to={end}")
    if "starting_timestamp" in found:
        found["starting_without_match"] = "latest"
    return found
