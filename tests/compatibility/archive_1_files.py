"""How `make_archive_1` writes the fixture's three files; `archive_1` reads them."""

import gzip
import io
import json
import tarfile
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from dev.local.oracle import OracleRecord
from tests.compatibility.archive_1_stage import Place, Shown, Stage
from tests.faults.leaders import state


def write_bucket(stage: Stage, path: Path) -> None:
    """Every object by its key, and `metadata.json`, which no key is: key to metadata, where an object has any."""
    store = stage.of["elections"].store
    metadata: dict[str, dict[str, str]] = {}
    with tarfile.open(path, "w:xz") as tar:
        for listed in store.list():
            data, info = store.get(listed.key)
            if info.metadata:
                metadata[listed.key] = dict(info.metadata)
            add(tar, listed.key, data)
        add(tar, "metadata.json", json.dumps(metadata, indent=1, sort_keys=True).encode())


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Return one file without an owner."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def write_brokers(stage: Stage, path: Path) -> None:
    """`<broker>/<topic>-<partition>/...` of each leader, the log dirs' checkpoints, and `leaders.json`."""
    leaders = []
    with tarfile.open(path, "w:xz") as tar:
        for topic, partition in stage.partitions():
            found = state(stage.cluster, topic, partition)
            leaders.append(
                {"topic": topic, "partition": partition, "broker": found.leader, "epoch": found.leader_epoch}
            )
            directory = stage.cluster.brokers[found.leader].partition_directory(topic, partition)
            for file in sorted(directory.iterdir()):
                add(tar, f"{found.leader}/{directory.name}/{file.name}", file.read_bytes())
        for broker in stage.cluster.brokers.values():
            for name in ("replication-offset-checkpoint", "log-start-offset-checkpoint"):
                add(tar, f"{broker.id}/{name}", (broker.log_dirs[0] / name).read_bytes())
        add(tar, "leaders.json", json.dumps(leaders, indent=1).encode())


def write_expected(path: Path, stages: Mapping[str, Mapping[Place, Shown]], ends: Mapping[Place, int]) -> None:
    """Write a line for each record: place, content, and the stages and isolations of Kafka's consumer that returned it.

    The first stage has only records below the next offset of its time.
    """
    seen: dict[tuple[Place, OracleRecord], list[str]] = {}
    for stage, places in stages.items():
        for place, by_isolation in places.items():
            for isolation, records in by_isolation.items():
                for record in records:
                    if stage == "later" or record.offset < ends[place]:
                        seen.setdefault((place, record), []).append(f"{stage} {isolation}")
    with gzip.open(path, "wt") as file:
        for (place, record), stages_ in sorted(seen.items(), key=lambda item: (item[0][0], item[0][1].offset)):
            line = {
                "topic": place[0],
                "incarnation": place[1],
                "partition": place[2],
                "offset": record.offset,
                "timestamp": record.timestamp,
                "timestampType": record.timestamp_type,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(value)] for name, value in record.headers],
                "shown": stages_,
            }
            file.write(json.dumps(line) + "\n")


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()
