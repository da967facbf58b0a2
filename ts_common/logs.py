"""Logs: one event a line on standard error, with its facts as key=value or as JSON.

Without credentials of URLs, and without characters that command a terminal.
"""

import logging
import os
import sys
from enum import StrEnum
from io import StringIO
from typing import TextIO

import structlog

from ts_common.printable import printable, printable_json, printable_lines
from ts_common.redaction import redacted

_NOT_TEXT = {"exc_info", "_record", "_from_structlog"}  # structlog's own
_IN_LINES = {"exception", "stack"}


class LogLevel(StrEnum):
    """What is logged: this and what is worse."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a line looks."""

    TEXT = "text"
    JSON = "json"


def _clean(
    _logger: structlog.typing.WrappedLogger, _method: str, facts: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Hide credentials of URLs in every fact, and escape unprintable characters; only a traceback has several lines."""
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
    """The library's renderer leaves DEL as it is."""

    def __call__(
        self, logger: structlog.typing.WrappedLogger, name: str, event_dict: structlog.typing.EventDict
    ) -> str | bytes:
        """One line."""
        line = super().__call__(logger, name, event_dict)
        return printable_json(line) if isinstance(line, str) else line


def _plain_traceback(file: TextIO, exception: structlog.typing.ExcInfo) -> None:
    """Where it happened, and no local variables: rich's formatter shows those, passwords among them."""
    text = StringIO()
    structlog.dev.plain_traceback(text, exception)
    file.write(printable_lines(redacted(text.getvalue())))


def _has_colours() -> bool:
    """Whether standard error is a terminal that knows colours, and nobody refuses them (https://no-color.org)."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def configure_logs(log_format: LogFormat, level: int = logging.INFO) -> None:
    """Set up structlog, and let the libraries' warnings through the same door."""
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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    # It says in its own words, and many times, what the leadership room says once.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
