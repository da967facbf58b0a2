"""Logs: one event a line on standard error, with its facts as key=value or as JSON."""

import logging
import sys
from enum import StrEnum
from io import StringIO
from typing import TextIO

import structlog

from ts_common.redaction import redacted

_NOT_TEXT = {"exc_info", "_record", "_from_structlog"}  # structlog's own


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


def _redact(
    _logger: structlog.typing.WrappedLogger, _method: str, facts: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Whatever a fact is, what a URL in it holds of credentials is not written."""
    for name, value in facts.items():
        if name in _NOT_TEXT:
            continue
        text = value if isinstance(value, str) else repr(value)
        if "@" in text and (shown := redacted(text)) != text:
            facts[name] = shown
    return facts


def _plain_traceback(file: TextIO, exception: structlog.typing.ExcInfo) -> None:
    """Where it happened, and no local variables: rich's formatter shows those, passwords among them."""
    text = StringIO()
    structlog.dev.plain_traceback(text, exception)
    file.write(redacted(text.getvalue()))


def configure_logs(log_format: LogFormat, level: int = logging.INFO) -> None:
    """Set up structlog, and let the libraries' warnings through the same door."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _redact,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            pad_event_to=0,
            exception_formatter=_plain_traceback,
        )
    )
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, _redact, renderer]
        if log_format is LogFormat.JSON
        else [*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    # It says in its own words, and many times, what the leadership room says once.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
