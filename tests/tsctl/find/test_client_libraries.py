"""Which partitioner an index proves, of keys that four client libraries produced, and of a partitioner of its own."""

from pathlib import Path
from random import Random
from typing import Final

import pytest

from dev.local.kafka.cluster import LocalCluster
from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive
from tests.made_views import view_of
from tests.tsctl.find.client_libraries import LIBRARIES, OWN, PARTITIONS, recorded
from tests.tsctl.running import Run
from tests.uploader.beside import PREFIX, archives
from ts_common.archive.object_keys import ClusterKeys
from ts_common.store.contract import ObjectStore
from ts_reader import Archive, Scan
from ts_reader.find.building import build, lacking
from ts_reader.find.lookup import read_runs
from ts_reader.find.rules import Certificate

_HASHES: Final = ("murmur2", "crc32", "fnv1a")
_SEGMENT_BYTES: Final = 24_000  # above the batches of each library


def certificates(store: ObjectStore, keys: ClusterKeys, topic: str) -> list[Certificate]:
    """Return those of a topic's segments."""
    return [entry.certificate for run in read_runs(store, keys, topic) for entry in run.entries.values()]


def check_evidence(found: list[Certificate], name: str) -> None:
    """Fail unless certificates prove a producer's partitioner, and no other one."""
    assert found
    for certificate in found:
        for each in _HASHES:
            proven = getattr(certificate, each)
            assert (proven % PARTITIONS == 0) == (each == LIBRARIES[name].hash), (each, certificate)


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_keys_of_a_client_library_prove_its_partitioner(tmp_path: Path, name: str) -> None:
    """Those that it put into twelve partitions of a broker; what a partitioner of one's own did proves nothing."""
    keys, partitions = recorded()
    archive = MadeArchive(tmp_path)
    for partition in range(PARTITIONS):
        mine = [key for key, chosen in zip(keys, partitions[name], strict=True) if chosen == partition]
        archive.put_segment(name, 0, batch(0, [record(at, key) for at, key in enumerate(mine)]), partition=partition)
        archive.commit(name, len(mine), partition=partition)
    copies = [each for partition in range(PARTITIONS) for each in lacking(view_of(archive, name, partition), [])]
    build(archive.store, archive.keys.find(name), copies, most_share=0)
    check_evidence(certificates(archive.store, archive.keys, name), name)
    reader = Archive(archive.location, CLUSTER, workers=1)
    for key, chosen in list(zip(keys, partitions[name], strict=True))[::120]:
        scan = reader.scan(name, key_equals=key, columns=["partition"])
        assert scan.to_table().column("partition").to_pylist() == [chosen]
        assert scan.estimate().segments == (PARTITIONS if name == OWN else 1)


@pytest.mark.full
def test_no_record_of_a_client_library_is_lost(
    one_broker: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """Each produces to a topic of its own, and all to one together; an agent ships them, and a look-up is a scan."""
    keys, partitions = recorded()
    together, config = "together", {"segment.bytes": str(_SEGMENT_BYTES)}
    assert one_broker.s3 is not None
    for name, value in one_broker.s3.environment().items():
        monkeypatch.setenv(name, value)
    for name in (*LIBRARIES, together):
        one_broker.create_topic(f"find-{name}", partitions=PARTITIONS, config=config)
    for name, library in LIBRARIES.items():
        for _ in range(3):
            assert library.produce(one_broker, f"find-{name}", keys) == partitions[name], name
        library.produce(one_broker, f"find-{together}", [*keys, b""])
    with archives(one_broker, tmp_path) as archive_of:
        shipped = archive_of("find-java", properties={PREFIX + "kafka.topics.include": "find-.*"})
        shipped.agent()
        ends = {}
        for name in (*LIBRARIES, together):
            shipped.topic = f"find-{name}"
            ends[name] = [shipped.wait_until_shipped(partition=partition) for partition in range(PARTITIONS)]
        assert run("find", "index", "--config", shipped.config, "--most-share", "0.5").code == 0
        reader, rnd = (
            Archive(shipped.location, shipped.keys.cluster, prefix_entropy_bits=shipped.keys.entropy_bits),
            Random(7),
        )
        for name, end in ends.items():
            topic = f"find-{name}"
            columns = ["key", "partition", "offset"]
            rows = _sorted(reader.scan(topic, columns=columns))
            assert len(rows) == sum(end) > len(keys)
            if name in LIBRARIES:
                check_evidence(certificates(shipped.store, shipped.keys, topic), name)
            for key in [*rnd.sample(keys, 6), b""]:
                scan = reader.scan(topic, columns=columns, key_equals=key)
                assert _sorted(scan) == [row for row in rows if row["key"] == key], (name, key)
                assert scan.found is not None
                if name in LIBRARIES:  # some segments of all together have keys of one partitioner
                    assert (scan.found.excluded > 0) == (name != OWN), (name, scan.found)
                assert scan.found.unindexed == 0


def _sorted(scan: Scan) -> list[dict[str, object]]:
    return sorted(scan.to_table().to_pylist(), key=lambda row: (row["partition"], row["offset"]))
