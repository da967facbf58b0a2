"""The queue into the main loop, with the messages that are neither observations nor results of tasks.

Observations are sent by the watcher and the leadership source, results by the workers (`ts_uploader.messages`).
"""

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from ts_common.model import TopicPartition
from ts_uploader.tracking.backlog import Backlog


@dataclass(frozen=True, slots=True)
class ThreadDied:
    """A thread ended by an exception."""

    thread: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class StopRequest:
    """The agent has to end."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReloadRequest:
    """The agent has to read its configuration again."""


@dataclass(frozen=True, slots=True)
class BacklogRequest:
    """Another thread needs the backlog of all partitions."""

    answer: "Future[Mapping[TopicPartition, Backlog]]" = field(default_factory=Future)


Inbox = queue.SimpleQueue[object]


def supervised_thread(name: str, target: Callable[[], None], inbox: Inbox) -> threading.Thread:
    """Return a daemon thread, not started, that reports to the inbox the exception that ends it."""

    def run() -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 - each of them ends the process
            inbox.put(ThreadDied(name, error))

    return threading.Thread(target=run, name=name, daemon=True)
