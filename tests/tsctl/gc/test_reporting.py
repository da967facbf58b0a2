"""What a run reports where two collectors left two plans: the counts and failures of both."""

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ts_common.errors import StoreUnavailable
from tsctl.gc.archive_run import LocationResult
from tsctl.gc.deletion import Deleted
from tsctl.gc.deletion_log import Outcome
from tsctl.gc.reporting import Recording, show
from tsctl.gc.run import RunResult
from tsctl.output import Output

FIRST = Deleted("a", bytes=40, errors=["k: denied"], is_done=True)
FIRST.objects.update({Outcome.REMOVED: 40, Outcome.FAILED: 2})
SECOND = Deleted("b", bytes=2, is_done=True)
SECOND.objects.update({Outcome.MISSING: 40, Outcome.REMOVED: 2})


def values(path: Path) -> dict[str, float]:
    """Return the values of a file of metrics, by name without the prefix."""
    families = text_string_to_metric_families(path.read_text())
    return {each.name.removeprefix("ts_gc_"): each.value for family in families for each in family.samples}


def test_a_run_that_finished_two_plans_reports_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Failures of the first are a finding, also where the second one has none."""
    path, found = tmp_path / "gc.prom", LocationResult("at", RunResult(finished=[FIRST, SECOND]), 0)
    with Recording("prod", path, None, None, Output(True)).run() as summary:
        summary.results.append(found)
        show(found, Output(True))
    assert summary.is_finding
    written = values(path)
    assert (written["deleted_objects"], written["deleted_bytes"], written["failed_objects"]) == (42, 42, 2)
    printed = capsys.readouterr()
    assert "k: denied" in printed.err
    line = json.loads(printed.out)
    assert [each["run"] for each in (*line["deleted_earlier"], line["deleted"])] == ["a", "b"]


def test_metrics_have_what_was_deleted_before_an_error(tmp_path: Path) -> None:
    """The run has failed, and its deletes are counted by no later run."""
    path, found = tmp_path / "gc.prom", LocationResult("at", RunResult(), 0)
    with pytest.raises(StoreUnavailable), Recording("prod", path, None, None, Output(False)).run() as summary:
        summary.results.append(found)
        found.result.finished.append(FIRST)
        raise StoreUnavailable("503")
    written = values(path)
    assert (written["deleted_objects"], written["last_run_failed"]) == (40, 1)
