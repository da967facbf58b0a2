"""Lines as `kafka-console-consumer` prints them.

Source of the format: Kafka's `org.apache.kafka.tools.consumer.DefaultMessageFormatter`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tsctl.console.deserializers import Deserializer, deserializer_of

_TIMES: Final = {1: "CreateTime", 2: "LogAppendTime"}  # librdkafka's numbers
_FLAGS: Final = ("timestamp", "key", "offset", "delivery", "epoch", "partition", "headers", "value")
_TEXTS: Final = ("key.separator", "line.separator", "headers.separator", "null.literal")
_VALUES: Final = ("key", "value", "headers")
_DESERIALIZERS: Final = tuple(f"{part}.deserializer" for part in _VALUES)


class Message(Protocol):
    """What a line needs of a record; `confluent_kafka.Message` has it."""

    def topic(self) -> str | None: ...  # noqa: D102
    def partition(self) -> int | None: ...  # noqa: D102
    def offset(self) -> int | None: ...  # noqa: D102
    def key(self) -> bytes | None: ...  # noqa: D102
    def value(self) -> bytes | None: ...  # noqa: D102
    def headers(self) -> Any: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102
    def leader_epoch(self) -> int | None: ...  # noqa: D102


@dataclass(frozen=True)
class Lines:
    """Prints records.

    Attributes:
        shown: the parts of a line, without `print.` before them.
        key_separator: between the parts of a line.
        line_separator: after a line.
        headers_separator: between headers.
        null: for a missing key, value or header value.
        deserializers: of "key", "value" and "headers"; without one, the bytes are printed.
    """

    shown: frozenset[str] = frozenset({"value"})
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null: bytes = b"null"
    deserializers: Mapping[str, Deserializer] = field(default_factory=dict)

    def line(self, message: Message) -> bytes:
        """Return the line of a record, with its separator.

        Raises:
            ValueError: a deserializer does not accept the bytes; the text names the part of the record.
        """
        parts = [*self._place(message)]
        if "headers" in self.shown:
            headers = [name.encode() + b":" + self._text("headers", value) for name, value in message.headers() or ()]
            parts.append(self.headers_separator.join(headers) if headers else b"NO_HEADERS")
        if "key" in self.shown:
            parts.append(self._text("key", message.key()))
        if "value" in self.shown:
            parts.append(self._text("value", message.value()))
        return self.key_separator.join(parts) + self.line_separator if parts else b""

    def _place(self, message: Message) -> Iterator[bytes]:
        """Yield the parts before the headers."""
        shown = self.shown
        if "timestamp" in shown:
            kind, time = message.timestamp()
            yield f"{_TIMES[kind]}:{time}".encode() if kind in _TIMES else b"NO_TIMESTAMP"
        if "partition" in shown:
            yield b"Partition:%d" % (message.partition() or 0)
        if "offset" in shown:
            yield b"Offset:%d" % (message.offset() or 0)
        if "delivery" in shown:
            yield b"Delivery:NOT_PRESENT"  # share groups have it
        if "epoch" in shown:
            epoch = message.leader_epoch()
            yield b"Epoch:NOT_PRESENT" if epoch is None else b"Epoch:%d" % epoch

    def _text(self, part: str, value: bytes | None) -> bytes:
        if value is None:  # Kafka's tool deserializes the literal: an Integer of "null" is 1853189228
            return self.null
        deserializer = self.deserializers.get(part)
        if deserializer is None:
            return value
        try:
            return deserializer(value)
        except ValueError as error:
            raise ValueError(f"{part}: {error}") from error


def lines_of(properties: Mapping[str, str], problems: list[str]) -> Lines:
    """Return what prints lines by `--property`.

    Args:
        properties: names and values, as `print.key` and `true`.
        problems: one sentence is appended for each mistake.
    """
    shown, texts, deserializers = {"value"}, {}, {}
    for name, value in properties.items():
        part = name.removeprefix("print.")
        if name.startswith("print.") and part in _FLAGS:
            (shown.add if value.strip().lower() == "true" else shown.discard)(part)
        elif name in _TEXTS:
            texts[name] = value.encode()
        elif name in _DESERIALIZERS:
            deserializers[name.removesuffix(".deserializer")] = deserializer_of(name, value, problems)
        else:
            known = ", ".join([*(f"print.{flag}" for flag in _FLAGS), *_TEXTS, *_DESERIALIZERS])
            problems.append(f"--property {name}={value}: unknown; accepted are {known}")
    return Lines(
        frozenset(shown),
        texts.get("key.separator", b"\t"),
        texts.get("line.separator", b"\n"),
        texts.get("headers.separator", b","),
        texts.get("null.literal", b"null"),
        deserializers,
    )
