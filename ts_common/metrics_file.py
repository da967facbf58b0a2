"""A file of metrics for the textfile collector of Prometheus' node_exporter, written by runs that end.

A run can end before Prometheus scrapes it. So each run reads the former file, changes its own series, and replaces the
file by a rename. Runs that end at once change the file one after the other.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from prometheus_client import write_to_textfile
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from ts_common.errors import OperatorError


class MetricsTextFile:
    """One file.

    Args:
        path: of the file. The collector reads names that end in `.prom`.
        prefix: of the names of all metrics in it.

    Raises:
        OperatorError: the name has another ending, the directory cannot be written, or the file has metrics of another
            program.
    """

    def __init__(self, path: Path, prefix: str) -> None:
        self.path = path
        self._prefix = prefix
        if path.suffix != ".prom":
            raise OperatorError(f"{path}: the collector reads only files whose names end in .prom")
        if not os.access(path.parent, os.R_OK | os.W_OK | os.X_OK):
            raise OperatorError(f"{path}: metrics cannot be written: {path.parent} is no directory that can be written")
        self._former(lambda _: None, lambda _: None)

    def update(
        self,
        former: Callable[[Sequence[Sample]], None],
        changed: Callable[[], Iterable[Metric]],
        warn: Callable[[str], None],
    ) -> None:
        """Read the former file, then replace it.

        Args:
            former: called with all samples of the former file; an exception means that they are malformed.
            changed: returns all families of the new file.
            warn: called with a sentence if the former file is malformed.

        Raises:
            OperatorError: the former file has metrics of another program, or cannot be read.
            OSError: the file cannot be written.
        """
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)  # other runs can write the same file
            self._former(former, warn)
            write_to_textfile(str(self.path), Collected(changed()))
        finally:
            os.close(directory)

    def _former(self, former: Callable[[Sequence[Sample]], None], warn: Callable[[str], None]) -> None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise OperatorError(f"{self.path}: the former metrics cannot be read: {error}") from error
        try:
            samples = [
                sample for family in text_string_to_metric_families(content.decode()) for sample in family.samples
            ]
            other = next((sample.name for sample in samples if not sample.name.startswith(self._prefix)), None)
            if other is None:
                former(samples)
        except Exception as error:  # noqa: BLE001  (the parser has no class of its own for its errors)
            warn(f"{self.path}: the former metrics are replaced, and counters begin with 0: {error!r}")
            return
        if other is not None:
            raise OperatorError(f"{self.path}: the file has the metric {other} of another program; name another file")


class Collected(Collector):
    """A collector of families that exist already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        yield from self._families
