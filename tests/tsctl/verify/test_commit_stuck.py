"""The tools' reports, without a broker, of segments in the store above a commit that does not move (U35)."""

from pathlib import Path

import pytest

from dev.local.agent import write_config
from tests.made_archive import batches, steps
from tests.spark.archives import Archive
from tests.tsctl.running import Run
from tests.uploader.beside import PREFIX

STUCK_SECONDS = 900
LATE = STUCK_SECONDS + 300
NOT_YET = STUCK_SECONDS - 300


def ship(archive: Archive, *bases: int, topic: str = "users") -> None:
    for base in bases:
        archive.put_segment(topic, base, batches(*steps(base, base + 100)), index=b"", timeindex=b"")


@pytest.fixture
def stuck(hand_made: Archive) -> Archive:
    """Return an archive whose commit ends at 200, with segments above it that were shipped minutes later."""
    ship(hand_made, 0, 100)
    hand_made.commit("users", 200, highest_base=100)
    ship(hand_made, 200, 300, 400)
    hand_made.age(7200)
    hand_made.age(LATE, f"{200:020d}.log", f"{300:020d}.log", f"{200:020d}.index", f"{300:020d}.index")
    hand_made.age(5, f"{400:020d}.log", f"{400:020d}.index")
    hand_made.age(LATE, ".timeindex")
    return hand_made


DEPTHS = pytest.mark.parametrize("depth", ["listing", "headers"])


@DEPTHS
def test_u35_verify_finds_a_commit_that_does_not_move(
    stuck: Archive, named: tuple[str, ...], run: Run, depth: str
) -> None:
    """It is found within the hours of uploads in flight, and with the exit code of its severity."""
    ended = run("verify", *named, "--depth", depth, "--json")
    (finding,) = ended.document["findings"]
    assert (finding["code"], finding["severity"], finding["where"]) == ("commit-stuck", "suspicious", "users-0")
    expected = "3 segments from offset 200 on and the commit (next offset 200): nothing was committed for 20 min"
    assert finding["detail"] == expected
    assert ended.code == 1
    assert run("verify", *named, "--depth", depth, "--fail-on", "damaged").code == 0


def test_u35_a_commit_that_moved_lately_is_not_stuck(stuck: Archive, named: tuple[str, ...], run: Run) -> None:
    """Segments above it may be in flight after a slow one: the later of commit and first upload counts."""
    stuck.age(NOT_YET, "offset.wm")
    ended = run("verify", *named, "--json")
    assert (ended.code, ended.document["findings"]) == (0, [])
    assert run("ls", *named).err == ""
    stuck.age(7200, "offset.wm")
    stuck.age(2, f"{200:020d}.log", f"{300:020d}.log")
    assert run("verify", *named, "--json").document["findings"] == []


def test_u35_what_is_old_is_named_as_before(stuck: Archive, named: tuple[str, ...], run: Run) -> None:
    """After these hours each segment is an orphan, and nothing is reported twice."""
    found = run("verify", *named, "--in-flight-hours", "0", "--json").document["findings"]
    assert [(finding["code"], finding["from"]) for finding in found] == [
        ("orphan-segment", base) for base in (200, 300, 400)
    ]


def test_u35_the_time_is_the_one_of_the_agents(stuck: Archive, run: Run, tmp_path: Path) -> None:
    """If their file is named, its key applies to the tools too."""
    location = {"storage.service.endpoint.url": stuck.location}
    for milliseconds, codes in ((LATE * 1000 + 60_000, []), (LATE * 1000 - 60_000, ["commit-stuck"])):
        write_config(tmp_path / "conf", "prod", {**location, PREFIX + "stuck.after.ms": str(milliseconds)})
        ended = run("verify", "--config", tmp_path / "conf", "--json")
        assert [finding["code"] for finding in ended.document["findings"]] == codes
        assert bool(run("ls", "--config", tmp_path / "conf").err) == bool(codes)


@pytest.mark.parametrize("level", ["topics", "partitions", "segments"])
def test_u35_ls_warns_of_it_at_each_level(stuck: Archive, named: tuple[str, ...], run: Run, level: str) -> None:
    """The level that reads no segment warns too."""
    ended = run("ls", *named, "--level", level)
    assert ended.code == 0
    assert "users-0: 3 segments from offset 200 on and the commit (next offset 200): nothing was committed" in ended.err
    assert "readers do not see them" in ended.err


def test_u35_the_report_does_not_call_it_whole(
    stuck: Archive, named: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """Its first line has the finding's severity."""
    page = tmp_path / "report.html"
    assert run("report", "--output", page, *named).code == 0
    text = page.read_text()
    assert "Everything is there." not in text
    assert '<p id="verdict" class="verdict suspicious">' in text
    assert 'data-code="commit-stuck"' in text
