"""Ends the demo once on Ctrl-C and similar signals; a second signal does not interrupt the cleanup."""

import signal
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []


class EndedBySignalError(KeyboardInterrupt):
    """A signal to end the demo; code that handles Ctrl-C handles it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def listen() -> None:
    """Raise `EndedBySignalError` in the main thread on each signal that ends the demo, from now on."""
    for number in _ENDING:
        signal.signal(number, _end)


def raise_if_ended() -> None:
    """Raise the error again, if an extension module replaced it by its own.

    Raises:
        EndedBySignalError: a signal arrived.
    """
    if _received:
        raise EndedBySignalError(_received[0])


def _end(number: int, _: FrameType | None) -> None:
    for ending in _ENDING:  # a second Ctrl-C must not interrupt the cleanup
        signal.signal(ending, signal.SIG_IGN)
    _received.append(number)
    raise EndedBySignalError(number)
