"""Options of commands that run again after a time, until a signal ends them."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ts_common.config.file_values import parse_seconds
from ts_common.errors import ConfigurationError
from ts_reader.options.archive_name import SOURCE

EveryOption = Annotated[
    str | None,
    typer.Option("--every", help="Run again after so long, as in 1m, until SIGTERM or Ctrl-C; default: run once."),
]


def seconds_of(text: str, option: str) -> int:
    """Return the seconds of an option's value, as in `90s` or `1h`.

    Raises:
        ConfigurationError: it is no time.
    """
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise ConfigurationError(SOURCE, [f"{option}={text}: {error}"]) from error


def interval_of(every: str | None) -> int | None:
    """Return the seconds of `--every`; None without it.

    Raises:
        ConfigurationError: it is no time, or 0.
    """
    if every is None:
        return None
    seconds = seconds_of(every, "--every")
    if not seconds:
        raise ConfigurationError(SOURCE, [f"--every={every}: 1s or more is expected"])
    return seconds


@contextmanager
def stopping(is_loop: bool) -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits some seconds, and returns whether a signal has ended the loop."""
    event = threading.Event()
    if not is_loop:
        yield lambda _: True
        return
    former = {each: signal.signal(each, lambda *_: event.set()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event.wait
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
