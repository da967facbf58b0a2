"""Tables where standard output is no terminal: plain text that programs can cut, whatever the names in it."""

import pytest

from tests.made_archive import batches
from tests.spark.archives import Archive
from tests.tsctl.running import Run
from tsctl.output import Output


def test_a_name_cannot_break_a_line_or_command_a_terminal(hand_made: Archive, named: tuple[str, ...], run: Run) -> None:
    """Whoever may write to the bucket chooses names, and must not choose what the operator sees."""
    hand_made.put_segment("t", 0, batches((0, 10)))
    hand_made.commit("t", 10)
    hand_made.store.put("prod/t-0/evil\x1b[2J\nname", b"")
    ended = run("verify", *named, "--depth", "listing", "--in-flight-hours", "0")
    assert ended.code == 1
    assert "\x1b" not in ended.out
    (line,) = [line for line in ended.out.splitlines() if "evil" in line]
    assert line.endswith(r"evil\x1b[2J\nname")


def test_a_long_table_is_written_line_by_line(capfd: pytest.CaptureFixture[str]) -> None:
    """As `ls --level segments` of a partition of many: drawing it as a whole took a minute and a gigabyte."""
    Output(as_json=False).table(("NAME", "SIZE", "OK"), [(f"{n:06d}", n, n % 2 == 0) for n in range(100_000)])
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 100_001
    assert lines[0] == "NAME    SIZE OK"
    assert lines[1] == "000000     0 yes"
    assert lines[-1] == "099999 99999 no"
