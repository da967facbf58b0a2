"""What a drill reports: recovery point, recovery time by size, and findings."""

from tests.hostile_text import ESCAPES, raw_in
from ts_common.model import TopicPartition
from ts_reader.decode.digest import DigestSum
from tsctl.drill.comparing import Comparison, Difference
from tsctl.drill.metrics import values_of
from tsctl.drill.report import DrillReport, Finding

BEGAN = 1_795_964_400_000
PARTITION = TopicPartition("orders", 0)


def report_of(**fields: object) -> DrillReport:
    report = DrillReport("prod", ["s3://bucket"], "/opt/kafka", BEGAN, **fields)  # type: ignore[arg-type]
    report.seconds = {"prepare": 50.0, "fetch": 8.0, "place": 2.0, "start": 4.0, "groups": 1.0, "compare": 90.0}
    return report


def comparison(rows: int, newest: int | None, *differences: Difference, differing: int = 0) -> Comparison:
    return Comparison(DigestSum(rows, 1, 2), newest, differing or len(differences), differences)


def test_the_recovery_time_is_without_preparation_and_comparison() -> None:
    """The estimate for all bytes multiplies only the steps whose time grows with the bytes."""
    report = report_of(restored_bytes=100, planned_bytes=400)
    assert report.recovery_seconds == 15
    assert report.whole_seconds == 45
    assert report_of(planned_bytes=400).whole_seconds is None


def test_the_recovery_point_is_the_age_of_the_newest_record() -> None:
    """Of all partitions; 0 if a producer's clock was ahead, and unknown without a record."""
    assert report_of().recovery_point is None
    assert "recovery point: unknown" in [*report_of().lines()]
    report = report_of()
    for newest in (BEGAN - 60_000, BEGAN - 90_000, None):
        report.add(PARTITION, "read_uncommitted", 0, 9, comparison(3, newest))
    assert report.recovery_point == 60
    report.add(PARTITION, "read_uncommitted", 0, 9, comparison(3, BEGAN + 1))
    assert report.recovery_point == 0


def test_records_count_once_although_they_are_read_twice() -> None:
    """By the level that returns aborted ones too."""
    report = report_of()
    report.add(PARTITION, "read_uncommitted", 0, 9, comparison(9, 1))
    report.add(PARTITION, "read_committed", 0, 9, comparison(7, 1))
    assert report.records == 9
    assert values_of(report, failed=False)["restored_records"] == 9


def test_a_finding_makes_the_drill_fail_and_is_in_each_form() -> None:
    """Differences that are not named one by one are counted; the lines end with the verdict."""
    report = report_of()
    differences = [Difference(offset, "lost") for offset in range(30)]
    report.add(PARTITION, "read_committed", 0, 99, comparison(9, 1, *differences, differing=50))
    lines = [*report.lines()]
    assert lines[-1] == "The drill failed: 31 findings."
    assert "orders-0: offset 3: read_committed: lost" in lines
    assert "11 more findings: --json and --output have all" in lines
    assert report.fields()["succeeded"] is False
    assert report.fields()["findings"][-1]["what"] == "read_committed: 20 more offsets differ"
    assert "<td>orders-0</td><td>29</td>" in report.page()
    values = values_of(report, failed=True)
    assert (values["findings"], "last_success_timestamp_seconds" in values) == (31, False)


def test_names_from_outside_stay_text() -> None:
    """A group's name is any text."""
    report = report_of()
    report.findings.append(Finding(f"group <script>{ESCAPES}", None, "x"))
    page = report.page()
    assert "group &lt;script&gt;" in page
    assert raw_in(page) == []
    report.findings.append(Finding("group a\nThe drill succeeded", None, "x"))
    assert "group a\\nThe drill succeeded: x" in [*report.lines()]


def test_a_drill_that_compared_no_record_failed() -> None:
    """It proves nothing: the topics are empty, or the archive has Kafka's own only."""
    report = report_of(scope="all topics")
    report.conclude()
    assert "no record was compared: all topics has none" in report.findings[0].what
    assert report.fields()["succeeded"] is False
    report = report_of()
    report.add(PARTITION, "read_uncommitted", 0, 9, comparison(9, 1))
    report.conclude()
    assert report.findings == []
