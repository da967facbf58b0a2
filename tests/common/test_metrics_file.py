"""A file of metrics for the textfile collector: what it has before and after an update. Runs use it in ts_tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

from ts_common.errors import OperatorError
from ts_common.metrics_file import MetricsTextFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "batch.prom"


def update(path: Path, value: float) -> tuple[list[float], list[str]]:
    """Write one metric; return the former values and the warnings."""
    former: list[Sample] = []
    warnings: list[str] = []

    def changed() -> Iterator[Metric]:
        family = GaugeMetricFamily("batch_value", "A value.")
        family.add_metric([], value)
        yield family

    MetricsTextFile(path, "batch").update(former.extend, changed, warnings.append)
    return [sample.value for sample in former], warnings


def test_a_run_reads_what_the_run_before_wrote(path: Path) -> None:
    """The file is whole at each time: a rename replaces it."""
    assert update(path, 1) == ([], [])
    before = path.open()
    assert update(path, 2) == ([1], [])
    with before:
        assert "batch_value 1.0" in before.read()
    assert "batch_value 2.0" in path.read_text()
    assert [*path.parent.iterdir()] == [path]


def test_a_malformed_file_is_replaced_with_a_warning(path: Path) -> None:
    """No sample of it counts."""
    path.write_bytes(b"batch_value 7\nbatch_value{")
    former, (warning,) = update(path, 2)
    assert former == []
    assert f"{path}: the former metrics are replaced" in warning
    assert "batch_value 2.0" in path.read_text()


def test_a_file_of_another_program_is_not_replaced(path: Path) -> None:
    """Neither before a run nor after it."""
    file = MetricsTextFile(path, "batch")
    path.write_text("other 5\n")
    with pytest.raises(OperatorError, match="the metric other of another program"):
        MetricsTextFile(path, "batch")
    with pytest.raises(OperatorError, match="name another file"):
        file.update(lambda _: None, lambda: (), print)
    assert path.read_text() == "other 5\n"


def test_a_path_of_no_use_is_named_at_once(tmp_path: Path) -> None:
    """Before the run, whose results would have no metrics."""
    for name, problem in (("a.txt", "end in .prom"), ("nowhere/a.prom", "no directory that can be written")):
        with pytest.raises(OperatorError, match=problem):
            MetricsTextFile(tmp_path / name, "batch")
