"""Spark's checkpoint of a stream: one that Spark 4.1 wrote, and what is not one.

The recorded one is in `tests/data/spark-checkpoint`: a union of a stream of topic `t` and of Spark's own
`rate-micro-batch`, after two batches.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ts_common.errors import CorruptData, NewerFormat, TieredStorageError
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store
from ts_reader.following.checkpoint import Checkpoint, read_checkpoint

RECORDED = Path(__file__).parents[2] / "data" / "spark-checkpoint"
Change = Callable[[Path], object]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "checkpoint"))


def read(place: Path) -> Checkpoint | None:
    with open_store(place.as_uri()) as store:
        return read_checkpoint(store)


def test_a_checkpoint_has_the_end_of_the_last_complete_batch(place: Path) -> None:
    """Of the source whose offset has our form; the time is that of the commit."""
    found = read(place)
    assert found is not None
    (offset,) = found.offsets
    assert (found.batch, offset.positions) == (1, {TopicPartition("t", 0): 200})
    assert offset.topic_ids == {"t": "AAAAAAAAAAAAAAAAAAAAAQ"}
    assert found.time == int((place / "commits/1").stat().st_mtime * 1000)


def test_a_batch_without_a_commit_is_read_again(place: Path) -> None:
    """Its records are still needed; names that are no numbers are ignored, and the greatest number counts."""
    (place / "commits/1").unlink()
    (place / "commits/.1.0f.tmp").touch()
    (place / "offsets/10").write_text((place / "offsets/1").read_text())
    found = read(place)
    assert found is not None
    assert (found.batch, [*found.offsets[0].positions.values()]) == (0, [100])
    for log in ("commits", "offsets"):
        (place / log / "10").write_text((place / log / "0").read_text().replace('"0": 100', '"0": 900'))
    found = read(place)
    assert found is not None
    assert (found.batch, [*found.offsets[0].positions.values()]) == (10, [900])


def test_a_stream_without_a_complete_batch_has_read_nothing(place: Path, tmp_path: Path) -> None:
    """Its time is that of the last write; a place without Spark's files is no checkpoint."""
    shutil.rmtree(place / "commits")
    found = read(place)
    assert found == Checkpoint(None, (), int((place / "offsets/1").stat().st_mtime * 1000))
    shutil.rmtree(place / "offsets")
    assert read(place) == Checkpoint(None, (), int((place / "metadata").stat().st_mtime * 1000))
    (place / "metadata").unlink()
    assert read(place) is None


def replaced(line: int, text: str) -> Change:
    def change(place: Path) -> None:
        lines = (place / "offsets/1").read_text().splitlines()
        lines[line] = text
        (place / "offsets/1").write_text("\n".join(lines))

    return change


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (lambda place: (place / "offsets/1").unlink(), CorruptData, "offsets/1 does not, so what the stream has read"),
        (lambda place: (place / "offsets/1").write_bytes(b""), CorruptData, "has no offsets of Spark"),
        (lambda place: (place / "offsets/1").write_bytes(b"v1\n{}\n\xff"), CorruptData, "not JSON"),
        (replaced(0, "v2"), NewerFormat, "has version v2"),
        (replaced(2, "-"), CorruptData, "has no offset of a source that reads this archive"),
        (replaced(2, "[" * 10_000), CorruptData, "nested"),
        (replaced(2, json.dumps({"t": {"0": -1}})), CorruptData, "has no offset of a source"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_an_error(
    place: Path, change: Change, error: type[TieredStorageError], reason: str
) -> None:
    """It never counts as one that has read something else."""
    change(place)
    with pytest.raises(error, match=reason) as found:
        read(place)
    assert "checkpoint" in str(found.value)
