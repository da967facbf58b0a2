"""Spark sessions for the maintenance of tables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from ts_common.errors import OperatorError, StoreUnavailable, TieredStorageError

_DEFAULTS: Final = {
    "spark.app.name": "tsctl tables",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",  # an error of a procedure is raised too
}
_ERROR_CHARACTERS: Final = 500


def open_session(settings: Mapping[str, str]) -> SparkSession:
    """Return the Spark session of this process; start one if it has no session.

    Args:
        settings: of Spark, as `spark.master` or `spark.remote`.

    Raises:
        OperatorError: Spark does not start.
    """
    builder = SparkSession.builder
    defaults = {} if "spark.remote" in settings else _DEFAULTS  # a server of Spark Connect has settings of its own
    for key, value in {**defaults, **settings}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise OperatorError(f"Spark does not start: {_line_of(error)}; it needs Java 17 or later") from error


def isolated(spark: SparkSession) -> SparkSession:
    """Return a session with settings and catalogs of its own; of Spark Connect, the session itself."""
    new_session = getattr(spark, "newSession", None)
    return spark if new_session is None else new_session()


@contextmanager
def answering(label: str, way_out: str) -> Iterator[None]:
    """Translate the errors of Spark; pyspark also raises those of its transport.

    Args:
        label: what is done, for messages.
        way_out: what the operator can do.

    Raises:
        StoreUnavailable: Spark could not do it.
    """
    try:
        yield
    except TieredStorageError:
        raise
    except Exception as error:
        raise StoreUnavailable(f"{label}: Spark failed: {_line_of(error)}; {way_out}") from error


def _line_of(error: Exception) -> str:
    """Return the first line of an error that has a text; py4j's own message is only that there was one."""
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return first[:_ERROR_CHARACTERS].removesuffix(".")
