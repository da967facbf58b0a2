"""`tests/data/archive-1`: loads its objects into a store, its broker directories onto a disk, and what is expected."""

import gzip
import json
import tarfile
from base64 import b64decode
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from dev.local.oracle import Isolation, OracleRecord
from tests.archive import record_of
from ts_common.archive.catalog import read_catalog
from ts_common.archive.erased_offsets import NOTHING_ERASED
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.partition_view import PartitionView
from ts_common.archive.plan import Hole, ReadRange
from ts_common.archive.view import open_view
from ts_common.model import TopicPartition
from ts_common.store.contract import NO_METADATA, ObjectStore
from ts_reader.decode.arrow_schema import COLUMNS_WITH_HEADERS
from ts_reader.reading.rows import read_ranges
from ts_reader.reading.transactions import find_hidden, stable_end

KEYS: Final = ClusterKeys("archive-1", 5)
ISOLATIONS: Final[tuple[Isolation, ...]] = ("read_uncommitted", "read_committed")
METADATA: Final = "metadata.json"
_DIRECTORY: Final = Path(__file__).parents[1] / "data" / "archive-1"


@dataclass(frozen=True, order=True)
class Place:
    """One partition of one incarnation of a topic; incarnation 1 is the oldest."""

    topic: str
    incarnation: int
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}.{self.incarnation}-{self.partition}"


@dataclass(frozen=True)
class Leader:
    """The broker that led a partition when its directory was copied.

    Attributes:
        broker: its id; names the log dir below the unpacked directory.
        epoch: leader epoch.
    """

    partition: TopicPartition
    broker: int
    epoch: int


def load_bucket(store: ObjectStore) -> None:
    """Put every object into a store, with its metadata."""
    with tarfile.open(_DIRECTORY / "bucket.tar.xz") as tar:
        objects = {member.name: _content(tar, member) for member in tar}
    metadata: dict[str, dict[str, str]] = json.loads(objects.pop(METADATA))
    for key, data in objects.items():
        store.put(key, data, metadata=metadata.get(key, NO_METADATA))


def unpack_brokers(directory: Path) -> list[Leader]:
    """Write `<directory>/<broker>/<topic>-<partition>/...`; returns who leads which partition."""
    with tarfile.open(_DIRECTORY / "brokers.tar.xz") as tar:
        for member in tar:
            path = directory / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_content(tar, member))
    return [
        Leader(TopicPartition(line["topic"], line["partition"]), line["broker"], line["epoch"])
        for line in json.loads((directory / "leaders.json").read_bytes())
    ]


@cache
def expected(stage: str, isolation: Isolation) -> dict[Place, list[OracleRecord]]:
    """What Kafka's consumer showed, by partition in the order of offsets.

    Args:
        stage: "archive" for what had been shipped, "later" for the brokers' logs when their directories were copied.
        isolation: of the consumer.
    """
    found: dict[Place, list[OracleRecord]] = {}
    with gzip.open(_DIRECTORY / "expected.jsonl.gz") as file:
        for line in map(json.loads, file):
            records = found.setdefault(Place(line["topic"], line["incarnation"], line["partition"]), [])
            if f"{stage} {isolation}" in line["shown"]:
                records.append(
                    OracleRecord(
                        line["topic"],
                        line["partition"],
                        line["offset"],
                        line["timestamp"],
                        line["timestampType"],
                        _bytes(line["key"]),
                        _bytes(line["value"]),
                        tuple((name, _bytes(value)) for name, value in line["headers"]),
                    )
                )
    return found


def view_of(store: ObjectStore, place: Place) -> PartitionView:
    """A partition as readers see it."""
    incarnations, _ = read_incarnations(store, KEYS, place.topic)
    directory = incarnations.entries[place.incarnation - 1].directory
    return open_view(
        store, read_catalog(store, KEYS.partition(TopicPartition(place.topic, place.partition), directory))
    )


def read(store: ObjectStore, view: PartitionView, isolation: Isolation) -> tuple[list[OracleRecord], list[Hole]]:
    """Every record that readers see, and the holes."""
    is_committed = isolation == "read_committed"
    end = stable_end(store, view) if is_committed else view.end
    aborted = find_hidden(store, view, view.start, end).transactions if is_committed else ()
    steps = view.plan(view.start, end)
    ranges = [step for step in steps if isinstance(step, ReadRange)]
    batches = read_ranges(store, ranges, COLUMNS_WITH_HEADERS, aborted, erased=NOTHING_ERASED)
    records = [record_of(row) for batch in batches for row in batch.to_pylist()]
    return records, [step for step in steps if isinstance(step, Hole)]


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
