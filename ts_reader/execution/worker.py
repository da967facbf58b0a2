"""The worker process: reads splits and runs tasks for another process, which starts `worker_start`.

::

    reader                        worker
    ReadSplit(split, columns)->
                             <-   Blocks (new shared memory)
                             <-   SharedBatch, two ahead of the reader
    More                     ->   after each batch that the reader accepts
    Stop                     ->   the reader wants no more of this split
                             <-   SplitEnd, with the error that ended it
    Do(task)                 ->
                             <-   Done(value), or SplitEnd with its error

It keeps its stores open for the next split. It ends when the reader's process closes the socket, or has ended.
"""

import os
import select
import signal
import socket
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from ts_common.store.shared_stores import shared_store
from ts_reader.execution.decoded_columns import Columns
from ts_reader.execution.shared_memory import SharedMemory
from ts_reader.execution.worker_messages import (
    Blocks,
    Channel,
    Do,
    Done,
    Logged,
    More,
    PeerGone,
    ReadSplit,
    SplitEnd,
    Stop,
)
from ts_reader.query.read_split import read_split

_AHEAD: Final = 2  # batches: one is on its way while the next one is decoded
_RELEASE_BYTES: Final = 8


class _Worker:
    def __init__(self, channel: Channel, releases: int) -> None:
        self._channel = channel
        self._releases = releases
        self._memory = SharedMemory()
        self._unread = b""  # of a lease's number
        self._columns = Columns(())

    def run(self) -> None:
        """Read splits until the reader's process ends."""
        while True:
            message = self._receive()
            if isinstance(message, ReadSplit):
                self._read(message)
            elif isinstance(message, Do):
                self._do(message)

    def _read(self, asked: ReadSplit) -> None:
        split, credit, stopped = asked.split, _AHEAD, False
        columns = self._columns = asked.columns or self._columns
        partition = split.ranges[0].copies[0].keys.partition
        try:
            store = shared_store(split.location, split.connection)
            for rows in read_split(store, split, columns.read, self._memory):
                batch = columns.decode(rows, partition)
                self._take_releases()
                while not stopped and (not credit or self._is_pending()):
                    message = self._receive()
                    credit += isinstance(message, More)
                    stopped = isinstance(message, Stop)
                if stopped:
                    break
                shared = self._memory.describe(batch)
                self._send_blocks()
                self._channel.send(shared)
                credit -= 1
                del batch, rows
        except PeerGone:
            raise
        except Exception as error:  # noqa: BLE001  (the reader's process raises it)
            end = SplitEnd((type(error).__name__, str(error)))
        else:
            end = SplitEnd()
        self._channel.send(end)
        while not stopped and credit < _AHEAD:  # so that no answer to this split reaches the next one
            message = self._receive()
            credit += isinstance(message, More)
            stopped = isinstance(message, Stop)

    def _do(self, asked: Do) -> None:
        try:
            answer: object = Done(asked.task())
        except Exception as error:  # noqa: BLE001  (the other process raises it)
            answer = SplitEnd((type(error).__name__, str(error)))
        self._channel.send(answer)

    def _receive(self) -> object:
        """Wait for a message, and read releases meanwhile."""
        while not self._is_pending():
            _wait_readable(self._channel.fileno(), self._releases)
            self._take_releases()
        return self._channel.receive()[0]

    def _is_pending(self) -> bool:
        return _wait_readable(self._channel.fileno(), milliseconds=0)

    def _send_blocks(self) -> None:
        for added, descriptors, dropped in self._memory.take_changes():
            try:
                self._channel.send(Blocks(added, dropped), descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _take_releases(self) -> None:
        while _wait_readable(self._releases, milliseconds=0):
            data = os.read(self._releases, 1 << 12)
            if not data:
                raise PeerGone
            data = self._unread + data
            whole = len(data) - len(data) % _RELEASE_BYTES
            self._unread = data[whole:]
            for at in range(0, whole, _RELEASE_BYTES):
                self._memory.release(int.from_bytes(data[at : at + _RELEASE_BYTES], "little"))


def _forward_logs(channel: Channel) -> None:
    """Send log events to the reader's process, which decides where they are written."""

    def forward(_: object, level: str, event: MutableMapping[str, Any]) -> Any:
        fields = {name: value if isinstance(value, int | float) else str(value) for name, value in event.items()}
        channel.send(Logged(level, str(fields.pop("event", "")), fields))
        raise structlog.DropEvent

    structlog.configure(processors=[forward])


def main() -> None:
    """Serve the process at the other end of the socket; arguments: two descriptors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the reader's process ends this one
    connection, releases = map(int, sys.argv[1:3])
    channel = Channel(socket.socket(fileno=connection))
    _forward_logs(channel)
    try:
        _Worker(channel, releases).run()
    except PeerGone:
        os._exit(0)  # nothing to clean up; threads of the store may still wait


def _wait_readable(*descriptors: int, milliseconds: int | None = None) -> bool:
    """Return whether one of the descriptors can be read, or was closed; `select` refuses numbers above 1023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(milliseconds))
