"""Logs: one event per line on standard error, with its facts as key=value or as JSON.

Credentials in URLs are hidden, and control characters of terminals are escaped.
"""

import logging
import os
import sys
import threading
from collections.abc import Hashable
from enum import StrEnum
from io import StringIO
from typing import Any, Final, TextIO

import structlog

from ts_common.printable import printable, printable_json, printable_lines
from ts_common.redaction import redacted

_NOT_TEXT = {"exc_info", "_record", "_from_structlog"}  # keys of structlog
_IN_LINES = {"exception", "stack"}


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The form of a line."""

    TEXT = "text"
    JSON = "json"


def _clean(
    _logger: structlog.typing.WrappedLogger, _method: str, facts: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Hide credentials in URLs and escape control characters in every fact; only a traceback has several lines."""
    for name, value in facts.items():
        if name in _NOT_TEXT:
            continue
        text = value if isinstance(value, str) else repr(value)
        shown = redacted(text)
        shown = printable_lines(shown) if name in _IN_LINES else printable(shown)
        if shown != text:
            facts[name] = shown
    return facts


class _JsonRenderer(structlog.processors.JSONRenderer):
    """A renderer that escapes DEL too, unlike the library's."""

    def __call__(
        self, logger: structlog.typing.WrappedLogger, name: str, event_dict: structlog.typing.EventDict
    ) -> str | bytes:
        """Return the line of an event."""
        line = super().__call__(logger, name, event_dict)
        return printable_json(line) if isinstance(line, str) else line


def _plain_traceback(file: TextIO, exception: structlog.typing.ExcInfo) -> None:
    """Write a traceback without local variables, which can contain passwords and which rich's formatter shows."""
    text = StringIO()
    structlog.dev.plain_traceback(text, exception)
    file.write(printable_lines(redacted(text.getvalue())))


class _StandardError:
    """The standard error at the time of each line: a test, or another program of a library, can replace it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


_STANDARD_ERROR: Final[Any] = _StandardError()


def _has_colours() -> bool:
    """Return whether standard error is a terminal with colours and `NO_COLOR` is unset (https://no-color.org)."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def configure_logs(log_format: LogFormat, level: int = logging.INFO) -> None:
    """Configure structlog, and log the libraries' warnings in the same form.

    Args:
        level: lowest level that is logged, as in `logging`.
    """
    shared, renderers = configure_structlog(log_format, level)
    handler = logging.StreamHandler(_STANDARD_ERROR)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    # kazoo repeats what ts_uploader/leadership logs once.
    logging.getLogger("kazoo").setLevel(logging.ERROR)


_Processors = list[structlog.typing.Processor]


def configure_structlog(log_format: LogFormat, level: int) -> tuple[_Processors, _Processors]:
    """Configure structlog alone, for a library in a program that configures `logging` itself.

    Args:
        level: lowest level that is logged, as in `logging`.

    Returns:
        the processors that complete an event, and those that write it.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _clean,
    ]
    in_text = structlog.dev.ConsoleRenderer(colors=_has_colours(), pad_event_to=0, exception_formatter=_plain_traceback)
    renderers: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, _clean, _JsonRenderer()] if log_format is LogFormat.JSON else [in_text]
    )
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(_STANDARD_ERROR),
        cache_logger_on_first_use=True,
    )
    return shared, renderers


_MOST_IDENTITIES: Final = 10_000  # that are remembered
_first_lock = threading.Lock()
_seen: dict[Hashable, None] = {}


def is_first(identity: Hashable) -> bool:
    """Return whether this is the first call with an identity, for events that are logged once; thread-safe."""
    with _first_lock:
        if identity in _seen:
            return False
        _seen[identity] = None
        if len(_seen) > _MOST_IDENTITIES:
            del _seen[next(iter(_seen))]
        return True
