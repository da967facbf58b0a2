"""`tsctl get`: files that Kafka's own DumpLogSegments reads, checked, and complete for each partition."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from awscrt.checksums import crc32c

from dev.local.jars import LINES, Line
from dev.local.jvm import java_command
from dev.local.kafka.tools import DUMP_LOG, output_of
from tests.made_archive import batches
from tests.matrix import cases
from tests.spark.archives import Archive
from tests.tsctl.conftest import FIELDS, TRANSACTIONS, Shipped
from tests.tsctl.running import Run
from ts_common.archive.object_keys import SegmentName


def dumped(line: Line, files: list[Path]) -> str:
    """Return the output of DumpLogSegments for all files in one call, because a JVM starts in a second."""
    words = ["--files", ",".join(map(str, files)), "--print-data-log", "--deep-iteration"]
    if line == "4":
        return output_of(DUMP_LOG, words)
    done = subprocess.run(java_command(line, DUMP_LOG, words), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("line", cases(LINES, quick=["4"]))
def test_kafkas_own_tool_reads_the_files(shipped: Shipped, run: Run, tmp_path: Path, line: Line) -> None:
    """It reads every offset of the range, and indexes that match their log; transactions with theirs."""
    for topic in (FIELDS, TRANSACTIONS):
        ended = run("get", topic, tmp_path, "--config", shipped.config, "--json")
        assert (ended.code, ended.err) == (0, "")
    files = sorted(path for path in tmp_path.glob("*/*") if path.suffix != ".json")
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".txnindex"}
    said = dumped(line, files)
    for wrong in ("Mismatches", "Found timestamp mismatch", "Found out of order", "not valid", "Could not"):
        assert wrong not in said
    assert "producerId: " in said
    found: dict[tuple[str, int], list[int]] = {}
    where = (FIELDS, -1)
    for text in said.splitlines():
        if dumping := re.fullmatch(r"Dumping (.*)", text):
            topic, _, number = Path(dumping[1]).parent.name.rpartition("-")
            where = (topic, int(number))
        elif record := re.match(r"\| offset: (\d+) .*?payload|\| offset: (\d+) CreateTime", text):
            found.setdefault(where, []).append(int(record[1] or record[2]))
    for name, partition in shipped.next_offsets:
        shown = [record.offset for record in shipped.of(name, partition)]
        assert sorted(set(shown) - set(found[name, partition])) == []


def test_the_files_are_the_brokers_own(shipped: Shipped, run: Run, tmp_path: Path) -> None:
    """They are equal byte for byte, indexes too, and only segments of the range are written."""
    run("get", FIELDS, tmp_path, "-p", 0, "--config", shipped.config, "--from", 100, "--to", 101)
    (log,) = (tmp_path / f"{FIELDS}-0").glob("*.log")
    on_disk = shipped.cluster.brokers[1].partition_directory(FIELDS, 0)
    for suffix in (".log", ".index", ".timeindex"):
        assert log.with_suffix(suffix).read_bytes() == (on_disk / log.with_suffix(suffix).name).read_bytes()
    described = json.loads((tmp_path / f"{FIELDS}-0" / "range.json").read_text())
    assert (described["from"], described["to"]) == (100, 101)
    assert described["files"][0]["file"] == log.name


def test_nothing_is_written_over(hand_made: Archive, named: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    """Existing files stay, and the exit code is 2, before anything of another partition is written."""
    for partition in (0, 1):
        hand_made.put_segment("t", 0, batches((0, 10)), partition=partition)
        hand_made.commit("t", 10, partition=partition)
    (tmp_path / "out" / "t-1").mkdir(parents=True)
    ended = run("get", "t", tmp_path / "out", *named)
    assert ended.code == 2
    assert f"{tmp_path}/out/t-1: already exists" in ended.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["t-1"]
    (tmp_path / "file").touch()
    ended = run("get", "t", tmp_path / "file", *named)
    assert (ended.code, "expected a directory" in ended.err) == (2, True)


def test_r04_a_wrong_checksum_leaves_nothing(
    hand_made: Archive, named: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """The object is named, and no directory or partial file is left; --keep-damaged writes it."""
    whole = batches((0, 10), (10, 20))
    hand_made.put_segment("t", 0, whole, body=b"\xff" + whole[1:])  # the first byte is in no batch's CRC
    hand_made.commit("t", 20)
    ended = run("get", "t", tmp_path / "out", *named)
    assert ended.code == 1
    assert "t-0: prod/t-0/00000000000000000000.log: CRC-32C" in ended.err
    assert list((tmp_path / "out").iterdir()) == []
    ended = run("get", "t", tmp_path / "out", *named, "--keep-damaged")
    assert ended.code == 1
    assert (tmp_path / "out" / "t-0" / f"{0:020d}.log").read_bytes() == b"\xff" + whole[1:]


def test_r04_a_wrong_index_is_refused(hand_made: Archive, named: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    """The segment's metadata has its checksum."""
    hand_made.put_segment("t", 0, batches((0, 10)), txnindex=b"")
    hand_made.store.put(hand_made.partition("t").segment(SegmentName(0), ".txnindex"), b"other")
    hand_made.commit("t", 10)
    ended = run("get", "t", tmp_path, *named)
    assert ended.code == 1
    assert ".txnindex: CRC-32C" in ended.err
    assert not (tmp_path / "t-0").exists()


def test_r05_variants_and_dead_tails_are_whole(
    hand_made: Archive, named: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """A variant has its Kafka name in its own directory, and `range.json` has the live offsets of each file."""
    dead = batches((0, 10), (10, 20), value=b"dead")
    alive = batches((0, 10), value=b"dead") + batches((10, 30), epoch=1)
    hand_made.put_segment("t", 0, dead)
    hand_made.put_segment("t", 0, alive, variant=True)
    hand_made.put_segment("t", 30, batches((30, 40), epoch=1))
    hand_made.commit("t", 40, epochs=((0, 0), (1, 10)))
    assert run("get", "t", tmp_path, *named).code == 0
    place = tmp_path / "t-0"
    variant = Path(f"e1.{crc32c(alive):08x}") / f"{0:020d}.log"
    assert (place / variant).read_bytes() == alive
    described = json.loads((place / "range.json").read_text())
    assert described["ranges"] == [
        {"from": 0, "to": 30, "files": [str(variant)]},
        {"from": 30, "to": 40, "files": [f"{30:020d}.log"]},
    ]
    shutil.rmtree(place)
    hand_made.store.delete([hand_made.partition("t").segment(SegmentName(0, 1, crc32c(alive)))])
    assert run("get", "t", tmp_path, *named).code == 1
    described = json.loads((place / "range.json").read_text())
    assert [(file["end"], file["live_end"]) for file in described["files"]] == [(20, 10), (40, 40)]
    assert described["missing"] == [
        {
            "from": 10,
            "to": 30,
            "reason": "are lost: no object in the store contains them; tsctl repair can put them back",
        }
    ]
    assert (place / f"{0:020d}.log").read_bytes() == dead


def test_a_disk_that_refuses_a_write_is_reported(
    hand_made: Archive, named: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """The message has its path, and the exit code is 2."""
    hand_made.put_segment("t", 0, batches((0, 10)))
    hand_made.commit("t", 10)
    (tmp_path / "file").touch()
    ended = run("get", "t", tmp_path / "file" / "below", *named)
    assert ended.code == 2
    assert f"{tmp_path}/file" in ended.err
