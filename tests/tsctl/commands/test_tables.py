"""Tables on a standard output that is no terminal: plain text that programs can cut, with any names in it."""

import pytest

from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.tsctl.running import Run
from tsctl.output import Output


def test_a_name_cannot_break_a_line_or_command_a_terminal(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """A writer of the bucket chooses names, but does not control the operator's terminal."""
    hand_made.put_segment("t", 0, batches((0, 10)))
    hand_made.commit("t", 10)
    hand_made.store.put("prod/t-0/evil\x1b[2J\nname", b"")
    ended = run("verify", *named, "--depth", "listing", "--in-flight-hours", "0")
    assert ended.code == 1
    assert "\x1b" not in ended.out
    (line,) = [line for line in ended.out.splitlines() if "evil" in line]
    assert line.endswith(r"evil\x1b[2J\nname")


def test_a_long_table_is_written_line_by_line(capfd: pytest.CaptureFixture[str]) -> None:
    """For `ls --level segments` of a large partition, drawing the whole table would need a minute and a gigabyte."""
    Output(as_json=False).table(("NAME", "SIZE", "OK"), [(f"{n:06d}", n, n % 2 == 0) for n in range(100_000)])
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 100_001
    assert lines[0] == "NAME    SIZE OK"
    assert lines[1] == "000000     0 yes"
    assert lines[-1] == "099999 99999 no"
