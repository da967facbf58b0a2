"""Responses of a broker: both of the agent's clients, on a server that sends an input's responses.

An input is a line with the calls (`leaders`, `ids`, `epochs`, `topic-settings`, `broker-settings`), and a line for each
API whose response differs from a real broker's. It has the length in the frame, and the number of bytes sent::

    leaders topic-settings
    3 length=2147483647 cut=40 0000000000...

Bodies are hex, after the correlation id. The real ones are those of a Kafka 4 broker with one topic, `t`, of two
partitions; `PORT` replaces its port.
"""

import random
import socket
import struct
import threading
from contextlib import suppress

from tests.fuzz.mutate import NUMBERS, NUMERALS, TEXTS, mutate_bytes
from tests.fuzz.target import Mismatch, Target, split_input
from ts_common.broker_connection.security import Security
from ts_common.errors import TransientError
from ts_common.model import TopicPartition
from ts_uploader.leadership.kraft.broker import Broker, Denied, NotAvailable
from ts_uploader.leadership.kraft.direct_client import DirectClient
from ts_uploader.leadership.kraft.librdkafka_client import LibrdkafkaClient

PORT = 0x9998
_PORT = struct.pack(">i", PORT)
_API_VERSIONS, _METADATA, _LIST_OFFSETS, _DESCRIBE_CONFIGS = 18, 3, 2, 32
_METADATA_HEAD = (
    "000000000002000000010a3132372e302e302e310000999800001771416b686c6d714e52464b4d50525768503572664f4100000001"
)
_METADATA_OF_T = (
    f"{_METADATA_HEAD}020000027408dde2a825384740a52c1d7f3edc6dae00030000000000010000000100000000020000000102000000010100000000"
    "00000000000001000000000200000001020000000101008000000000000000"
)
_METADATA_10 = bytes.fromhex(_METADATA_OF_T[:-6] + "0000000000")  # rights on the cluster, in place of an error code
_REAL = {
    # ApiVersions, Metadata, ListOffsets, DescribeConfigs: as many versions as these bodies have.
    _API_VERSIONS: bytes.fromhex(
        "000005" + "00020001000700" + "00030000000d00" + "00120000000400" + "00200001000100" + "0000000000"
    ),
    _METADATA: bytes.fromhex(_METADATA_OF_T),
    _LIST_OFFSETS: bytes.fromhex(
        "000000000002027403000000010000ffffffffffffffff00000000000000000000000000000000000000ffffffffffffffff000000000000"
        "000000000000000000"
    ),
}
_ABSENT = bytes.fromhex(f"{_METADATA_HEAD}02000307616273656e740000000000000000000000000000000000018000000000000000")
_QUESTIONS = ("leaders", "ids", "epochs", "topic-settings", "broker-settings")
_SECONDS = 0.25


class FakeBroker:
    """The server; one connection is answered as the next."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()  # guards what follows
        self._answers: dict[int, tuple[int | None, int | None, bytes]] = {}
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def follow(self, answers: dict[int, tuple[int | None, int | None, bytes]]) -> None:
        """Set the responses by API: length, bytes that are sent, and body."""
        with self._lock:
            self._answers = answers
            left, self._open = self._open, set()
        for connection in left:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with self._lock:
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, struct.error):
            while True:
                (size,) = struct.unpack(">i", _read(connection, 4))
                request = _read(connection, size)
                api, _, correlation = struct.unpack_from(">hhi", request)
                with self._lock:
                    said, cut, body = self._answers.get(api) or (None, None, _real(api, request))
                frame = struct.pack(">i", correlation) + body.replace(_PORT, struct.pack(">i", self.port))
                frame = struct.pack(">i", len(frame) if said is None else said) + frame
                connection.sendall(frame if cut is None else frame[:cut])


class BrokerAnswers(Target):
    """One client after the other, because librdkafka remembers responses.

    Attributes:
        metadata: a real response to Metadata, in the version that the client requests.
    """

    metadata = bytes.fromhex(_METADATA_OF_T)

    def open(self) -> None:
        """Start a broker for all clients."""
        self._broker = FakeBroker()
        self.run(b" ".join(each.encode() for each in _QUESTIONS) + b"\n")

    def draw(self, chance: random.Random) -> bytes:
        """Questions, and one answer or two that are not as they should be."""
        asked = chance.sample(_QUESTIONS, chance.choice((1, 2, 5)))
        lines = [" ".join(asked)]
        for api in chance.sample(
            (_API_VERSIONS, _METADATA, _METADATA, _LIST_OFFSETS, _DESCRIBE_CONFIGS), chance.choice((1, 1, 2))
        ):
            body = chance.choice((self.metadata, _ABSENT)) if api == _METADATA else _REAL.get(api, b"")
            if api == _DESCRIBE_CONFIGS:
                body = _settings(chance)
            if chance.random() < 0.8:
                body = mutate_bytes(chance, body)
            how = ""
            if chance.random() < 0.1:
                how += f"length={chance.choice((-1, 0, 3, 4, 100, (1 << 31) - 1, -(1 << 31), 99_000_000, 17_000_000))} "
            if chance.random() < 0.1:
                how += f"cut={chance.randrange(len(body) + 8)} "
            lines.append(f"{api} {how}{body.hex()}")
        return "\n".join(lines).encode()

    def client(self) -> Broker:
        """Return a new client."""
        return LibrdkafkaClient(1, {"bootstrap.servers": f"127.0.0.1:{self._broker.port}"}, _SECONDS)

    def run(self, data: bytes) -> None:
        """Make the calls, and check what the client accepts."""
        asked, rest = split_input(data)
        self._broker.follow(dict(_scripted(line) for line in rest.decode("latin-1").splitlines() if line[:1].isdigit()))
        client = self.client()
        try:
            for question in asked:
                with suppress(TransientError, Denied, NotAvailable):
                    _ask(client, question)
        finally:
            self._broker.follow({})
            client.close(2.0)


class DirectAnswers(BrokerAnswers):
    """The client with a raw connection."""

    metadata = _METADATA_10

    def client(self) -> Broker:
        """Return a new client."""
        security = Security(("127.0.0.1", self._broker.port))
        return DirectClient(1, lambda: security, _SECONDS)


def _ask(client: Broker, question: str) -> None:
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    match question:
        case "leaders":
            for partition, leader in (client.leaders("t") or {}).items():
                whole: list[object] = [partition, leader]
                _expect(all(isinstance(each, int) for each in whole), f"{leader!r} leads {partition!r}")
        case "ids":
            for topic, topic_id in client.topic_ids(["t"]).items():
                _expect(
                    topic == "t" and topic_id.isascii() and topic_id.isprintable(), f"{topic!r} has the id {topic_id!r}"
                )
        case "epochs":
            for each, epoch in client.latest(partitions).epochs.items():
                _expect(each in partitions and (epoch is None or 0 <= epoch < 1 << 31), f"{each} is led in {epoch!r}")
        case "topic-settings" | "broker-settings":
            found = client.topic_settings(["t"]) if question[0] == "t" else {"": client.broker_settings()}
            for settings in found.values():
                _expect(
                    all(isinstance(part, str) for pair in (settings or {}).items() for part in pair), f"{settings!r}"
                )


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Mismatch(otherwise)


def _scripted(line: str) -> tuple[int, tuple[int | None, int | None, bytes]]:
    api, *words = line.split(" ")
    said: dict[str, int] = {}
    body = b""
    for word in words:
        name, equals, value = word.partition("=")
        with suppress(ValueError):
            if equals:
                said[name] = max(-(1 << 31), min(int(value), (1 << 31) - 1))
            else:
                body = bytes.fromhex(word)
    return int(api[:5] if api.isdecimal() else 0), (said.get("length"), said.get("cut"), body)


def _settings(chance: random.Random) -> bytes:
    """An answer to DescribeConfigs, version 1."""
    kind, name = chance.choice(((2, "t"), (4, "1")))
    entries = [
        ("retention.ms", "60000", 1),
        ("cleanup.policy", "delete", 5),
        ("log.retention.ms", "1", 2),
        ("x", None, 4),
    ]
    if chance.random() < 0.5:
        entries.append((chance.choice(TEXTS)[:300], chance.choice((*TEXTS, *NUMERALS)), chance.choice(NUMBERS)))
    found = b"".join(
        _text(key) + _text(value) + b"\0" + struct.pack(">b", (source + 128) % 256 - 128) + b"\0" + struct.pack(">i", 0)
        for key, value, source in entries
    )
    error = chance.choice((0, 0, 0, 29, 3, -1, 999))
    one = (
        struct.pack(">h", error)
        + _text(None)
        + struct.pack(">b", kind)
        + _text(name)
        + struct.pack(">i", len(entries))
        + found
    )
    count = chance.choice((1,) * 9 + ((1 << 31) - 1,))
    return struct.pack(">ii", 0, count) + one


def _text(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    encoded = text.encode("utf-8", "replace")[:32_000]
    return struct.pack(">h", len(encoded)) + encoded


def _real(api: int, request: bytes) -> bytes:
    if api == _DESCRIBE_CONFIGS:
        kind, name = (2, "t") if b"\x02\0\x01t" in request else (4, "1")
        head = struct.pack(">ii", 0, 1) + struct.pack(">h", 0) + _text(None) + struct.pack(">b", kind) + _text(name)
        return head + struct.pack(">i", 1) + _text("retention.ms") + _text("1") + b"\0\1\0" + struct.pack(">i", 0)
    return _REAL.get(api, b"")


def _read(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        piece = connection.recv(size - len(got))
        if not piece:
            raise OSError("closed")
        got += piece
    return got
