"""Messages between a reader's process and its workers."""

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.reader.execution.splits import split_of
from ts_common import errors
from ts_common.errors import ConfigurationError, CorruptData, OperatorError, TieredStorageError
from ts_reader.execution.worker_messages import (
    Blocks,
    Channel,
    Logged,
    More,
    PeerGone,
    ReadSplit,
    SplitEnd,
    Stop,
    error_of,
)

LARGE = b"x" * (1 << 20)  # more than a socket's buffers


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Return both ends of a channel."""
    here, there = map(Channel, socket.socketpair())
    yield here, there
    here.close()
    there.close()


def sent(channel: Channel, *messages: Any) -> threading.Thread:
    """Send messages on a thread, because large ones wait for their receiver."""

    def send() -> None:
        for message in messages:
            channel.send(message)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "message",
    [
        ReadSplit(split_of(0, 5, 10), None),
        More(),
        Stop(),
        Blocks([], [1, 2]),
        Logged("warning", "event", {"number": 5, "text": "\n"}),
        SplitEnd(),
        SplitEnd(("CorruptData", "text")),
        LARGE,
    ],
)
def test_a_message_arrives_as_it_was_sent(ends: tuple[Channel, Channel], message: object) -> None:
    """In both directions, also one that is larger than the socket's buffers."""
    for sender, receiver in (ends, ends[::-1]):
        thread = sent(sender, message)
        assert receiver.receive() == (message, [])
        thread.join()


def test_messages_arrive_in_order_from_several_threads(ends: tuple[Channel, Channel]) -> None:
    """No message is inside another one, whatever its length."""
    here, there = ends
    threads = [sent(here, *((number, count, bytes(count * 5000)) for count in range(20))) for number in range(4)]
    found = [there.receive()[0] for _ in range(80)]
    for thread in threads:
        thread.join()
    for number in range(4):
        assert [count for owner, count, _ in found if owner == number] == list(range(20))
    assert all(len(data) == count * 5000 for _, count, data in found)


def test_descriptors_arrive_with_their_message(ends: tuple[Channel, Channel]) -> None:
    """They are duplicates of the same files, and messages around them have none."""
    here, there = ends
    pipes = [os.pipe() for _ in range(32)]
    here.send(More())
    here.send(Blocks([(number, 1) for number in range(32)], []), [writable for _, writable in pipes])
    here.send(Stop())
    assert there.receive() == (More(), [])
    message, received = there.receive()
    assert isinstance(message, Blocks)
    assert there.receive() == (Stop(), [])
    assert len(received) == 32
    for number, descriptor in enumerate(received):
        os.write(descriptor, b"%d" % number)
        os.close(descriptor)
    for number, (readable, writable) in enumerate(pipes):
        os.close(writable)
        assert os.read(readable, 10) == b"%d" % number
        os.close(readable)


def test_a_message_may_arrive_in_pieces() -> None:
    """Each byte alone."""
    first, second = socket.socketpair()
    receiver = Channel(second)
    whole, copy = socket.socketpair()
    Channel(whole).send(ReadSplit(split_of(0, 5, 10), None))
    data = copy.recv(1 << 16)

    def drip() -> None:
        for place in range(len(data)):
            first.sendall(data[place : place + 1])

    thread = threading.Thread(target=drip)
    thread.start()
    assert receiver.receive()[0] == ReadSplit(split_of(0, 5, 10), None)
    thread.join()
    for each in (first, second, whole, copy):
        each.close()


@pytest.mark.parametrize("count", [0, 5, 12, 20])
def test_a_lost_peer_is_reported(count: int) -> None:
    """Between messages, in a header and in a message; sending to it fails too."""
    first, second = socket.socketpair()
    whole, copy = socket.socketpair()
    Channel(whole).send(Logged("warning", "event", {}))
    first.sendall(copy.recv(1 << 16)[:count])
    first.close()
    channel = Channel(second)
    with pytest.raises(PeerGone):
        channel.receive()
    with pytest.raises(PeerGone):
        channel.send(LARGE)
    channel.close()
    with pytest.raises(PeerGone):
        channel.receive()
    for each in (whole, copy):
        each.close()


def kinds(root: type[TieredStorageError] = TieredStorageError) -> list[type[TieredStorageError]]:
    """Return all errors of the project."""
    return [
        root,
        *(kind for each in root.__subclasses__() for kind in kinds(each) if each.__module__ == errors.__name__),
    ]


@pytest.mark.parametrize("kind", [each for each in kinds() if each is not ConfigurationError])
def test_an_error_of_the_project_arrives_as_it_was_raised(kind: type[TieredStorageError]) -> None:
    """With its class and its message."""
    raised = kind("t-0: an object in s3://bucket/base\nsecond line")
    arrived = error_of(SplitEnd((type(raised).__name__, str(raised))))
    assert type(arrived) is kind
    assert str(arrived) == str(raised)


def test_problems_of_a_configuration_arrive_as_an_operators_error() -> None:
    """They are parts of its message."""
    raised = ConfigurationError("source", ["one", "two"])
    arrived = error_of(SplitEnd((type(raised).__name__, str(raised))))
    assert type(arrived) is OperatorError
    assert str(arrived) == str(raised)


@pytest.mark.parametrize("name", ["MemoryError", "redacted", "Sequence", "printable", "__name__", "NoSuchError"])
def test_another_error_names_its_class(name: str) -> None:
    """A name in the module of errors that is no error of the project is another error too."""
    arrived = error_of(SplitEnd((name, "what happened")))
    assert type(arrived) is RuntimeError
    assert str(arrived) == f"a worker process raised {name}: what happened"


def test_an_end_without_an_error_has_none() -> None:
    """A split was read whole."""
    assert error_of(SplitEnd()) is None
    assert isinstance(error_of(SplitEnd(("CorruptData", ""))), CorruptData)
