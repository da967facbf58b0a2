"""Ctrl-C and its like: the demo ends once, cleans up, and is not cut while it does."""

import signal
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []


class EndedBySignalError(KeyboardInterrupt):
    """Somebody wants the demo to end; what handles Ctrl-C handles it.

    Attributes:
        number: the signal's.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def listen() -> None:
    """From now on a signal that ends the demo raises `EndedBySignalError` in the main thread."""
    for number in _ENDING:
        signal.signal(number, _end)


def raise_if_ended() -> None:
    """Raise it again, where an extension module replaced it by an error of its own.

    Raises:
        EndedBySignalError: a signal came.
    """
    if _received:
        raise EndedBySignalError(_received[0])


def _end(number: int, _: FrameType | None) -> None:
    for ending in _ENDING:  # a second Ctrl-C must not cut the cleaning up
        signal.signal(ending, signal.SIG_IGN)
    _received.append(number)
    raise EndedBySignalError(number)
