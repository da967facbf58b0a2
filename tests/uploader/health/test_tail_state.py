import pytest

from ts_uploader.health.tail_state import TailState, gauges

WELL = TailState("1", "s3://b/p", partitions=3)


@pytest.mark.parametrize(
    ("state", "late"),
    [
        (WELL, None),
        (TailState("1", "s3://b/p", failing="no route to host", failing_seconds=59), None),
        (TailState("1", "s3://b/p", failing="no route to host", failing_seconds=60), "log 1 fails for 60 s: no route"),
        (
            TailState("1", "s3://b/p", denied="LISTOFFSETS is denied"),
            "late, because LISTOFFSETS is denied",
        ),
        (TailState("1.pay", "s3://b/p", lag_seconds=60), "no pack of log 1.pay has can be 60 s old"),
        (TailState("1", "s3://b/p", beginning=7), None),
    ],
)
def test_a_log_is_late_if_it_fails_for_a_minute_or_stays_behind(state: TailState, late: str | None) -> None:
    """The text has the reason; a partition that is still at the beginning is ordinary."""
    assert (state.late is None) if late is None else late in (state.late or "")


def test_the_metrics_are_the_worst_lag_and_the_sums_of_all_logs() -> None:
    """Without a live tail each is 0."""
    assert set(gauges(()).values()) == {0}
    behind = TailState("1.pay", "s3://b/p", partitions=2, beginning=1, lag_seconds=4.5)
    assert gauges((WELL, behind)) == {"tail_lag_seconds": 4.5, "tail_beginning_partitions": 1, "tail_partitions": 5}
