"""`--max-batch-bytes`: a batch above the limit is reported with the option, and never skipped."""

import cramjam
import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.tsctl.running import Run

MIB = 1 << 20
BOMB = batch(10, body=bytes(cramjam.zstd.compress(record(0, value=bytes(3 * MIB)), 3)), count=1, attributes=4)


@pytest.fixture
def bomb(hand_made: Archive) -> Archive:
    """Return `[0,10)`, and a batch of one record of 3 MiB at 10."""
    hand_made.put_segment("t", 0, batches((0, 10)) + BOMB, index=b"", timeindex=b"")
    hand_made.commit("t", 11)
    return hand_made


@pytest.mark.usefixtures("bomb")
def test_cat_shows_the_records_before_the_oversized_batch_and_names_the_option(
    named: tuple[str, ...], run: Run
) -> None:
    """One line on standard error has partition, offset and option; the exit code is 2, because an operator can act."""
    ended = run("cat", "t", *named, "--max-batch-bytes", 2 * MIB)
    assert [line["offset"] for line in ended.lines] == list(range(10))
    assert f"t-0: prod/t-0/{0:020d}.log in file://" in ended.err
    assert "batch of base offset 10" in ended.err
    assert f"--max-batch-bytes allows {2 * MIB} bytes: raise it" in ended.err
    assert ended.code == 2
    assert len(run("cat", "t", *named).lines) == 11


@pytest.mark.usefixtures("bomb")
def test_verify_reports_that_a_segment_was_not_verified(named: tuple[str, ...], run: Run) -> None:
    """It is not damage, but the segment was not checked: the finding names the option."""
    small = run("verify", "t", *named, "--depth", "full", "--max-batch-bytes", 2 * MIB)
    assert "unreadable" in small.out
    assert "--max-batch-bytes allows" in small.out
    assert small.code == 1
    assert "unreadable" not in run("verify", "t", *named, "--depth", "full").out
