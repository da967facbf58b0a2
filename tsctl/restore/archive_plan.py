"""The plan of a restore from an open archive, with what the options of a command choose.

A command and a drill make it; `tsctl.restore.plan_making` makes the plan of what this module reads.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.restored import Restored
from ts_common.errors import ConfigurationError
from ts_common.json_objects import parse_fields
from ts_common.model import TopicPartition
from ts_reader.options.archive_name import SOURCE
from ts_reader.query.timestamps import milliseconds_of
from ts_reader.reading.parallel import in_threads
from tsctl.archive_options import ArchiveOptions, HeldTopic, OpenArchive
from tsctl.output import Output
from tsctl.restore.documents import RestorePlan, Seed
from tsctl.restore.exactly_once import with_producers
from tsctl.restore.groups import OFFSETS_TOPIC, Commits, Lifetime, archived_commits
from tsctl.restore.plan_making import Snapshots, Wanted, make_plan
from tsctl.restore.planning import INTERNAL
from tsctl.restore.transactions import Coordinated

_SEED: Final = re.compile(r"(?P<broker>[0-9]{1,9})@(?P<address>\S+:[0-9]{1,5})", re.ASCII)
_END: Final = re.compile(r"(?P<partition>[^=]+)=(?P<offset>[0-9]{1,18})", re.ASCII)


def plan_archive(
    given: ArchiveOptions,
    archive: OpenArchive,
    topics: Sequence[str],
    wanted: Wanted,
    output: Output,
    coordinated: Sequence[Coordinated] = (),
) -> RestorePlan:
    """Return the plan for topics of an open archive; without topics for all but Kafka's own.

    Args:
        coordinated: as in `make_plan`.

    Raises:
        Others: as `OpenArchive.topics`, `Snapshots.read` and `make_plan`.
    """
    found = archive.topics(topics, incarnation=wanted.incarnation)
    held = [entry for entry in found if entry.topic.name not in INTERNAL]
    names = [entry.topic.name for entry in held]
    restored = {store.location: Restored.read(store, archive.keys.restored) for store in archive.stores}
    lifetimes = dict(zip(names, in_threads(partial(_lifetime, archive, restored), held), strict=True))
    if not wanted.first:
        snapshots = Snapshots.read(archive.stores, archive.keys, wanted.at)
    else:
        ids = {name: lifetime.ids for name, lifetime in lifetimes.items()}
        snapshots = Snapshots.of_deleted(archive.stores, archive.keys, wanted.at, ids)
    committed: Commits = {}
    if OFFSETS_TOPIC in archive.known_names():
        (offsets,) = archive.topics((OFFSETS_TOPIC,))
        committed = with_producers(archived_commits(_committed(given, wanted.at, output)), offsets)
    locations = [store.location for store in archive.stores]
    made = make_plan(held, wanted, snapshots, committed, archive.keys.cluster, locations, coordinated, lifetimes)
    if topics or snapshots.cluster is None:
        return made
    return replace(made, absent=tuple(sorted(snapshots.cluster.topics.keys() - made.topics.keys() - INTERNAL)))


def _lifetime(archive: OpenArchive, restored: Mapping[str, Restored | None], entry: HeldTopic) -> Lifetime:
    known, _ = read_incarnations(entry.store, archive.keys, entry.topic.name)
    return Lifetime.of(known, entry.topic.directory, restored.get(entry.store.location))


def wanted_of(
    brokers: str,
    factor: int | None,
    at: str | None,
    end: Sequence[str],
    configurations: Path | None,
    seed: str | None = None,
    restart: str | None = None,
) -> Wanted:
    """Return what the options choose.

    Raises:
        ConfigurationError: with every problem of the options.
    """
    problems: list[str] = []
    ids = _ids_of("--brokers", brokers, problems)
    restarted = () if restart is None else _ids_of("--restart", restart, problems)
    if seed is not None and restart is not None:
        problems.append("--restart: a seed gets the files, so no serving broker restarts; leave one of them out")
    moment, ends, settings = None, dict[TopicPartition, int](), dict[str, dict[str, str]]()
    try:
        moment = None if at is None else milliseconds_of(at, rounds_up=False)
    except ValueError as error:
        problems.append(f"--at={at}: {error}")
    for text in end:
        match = _END.fullmatch(text)
        partition = match and TopicPartition.parse(match["partition"])
        if match is None or partition is None:
            problems.append(f"--end={text}: a partition and an offset are expected, as in orders-0=4711")
        else:
            ends[partition] = int(match["offset"])
    if configurations is not None:
        try:
            found = parse_fields(configurations.read_bytes(), str(configurations), "configurations by topic", 64 << 20)
            settings = {topic: {str(k): str(v) for k, v in each.items()} for topic, each in found.items()}
        except (OSError, AttributeError) as error:
            problems.append(f"--configurations={configurations}: {error}")
    matched = None if seed is None else _SEED.fullmatch(seed)
    if seed is not None and (matched is None or int(matched["broker"]) in ids):
        problems.append(f"--seed={seed}: the id of a broker that is not in --brokers is expected, as in 9@host:9092")
    if problems:
        raise ConfigurationError(SOURCE, problems)
    chosen = None if matched is None else Seed(int(matched["broker"]), matched["address"])
    return Wanted(moment, ends, ids, factor, settings, chosen, restarted=restarted)


def _ids_of(option: str, text: str, problems: list[str]) -> tuple[int, ...]:
    names = [each.strip() for each in text.split(",")]
    ids = tuple(int(name) for name in names if name.isdecimal())
    if len(set(ids)) != len(names):
        problems.append(f"{option}={text}: different numbers are expected, as in 1,2,3")
    return ids


def _committed(
    given: ArchiveOptions, at: int | None, output: Output
) -> Iterator[tuple[bytes | None, bytes | None, int, int, int]]:
    """Yield the newest records of the archived `__consumer_offsets`, as in `archived_commits`."""
    scan = given.reader(warn=lambda warning: output.warn(str(warning))).scan(
        OFFSETS_TOPIC,
        columns=("key", "value", "timestampMs", "partition", "offset"),
        include_timestamp_ms=True,
        isolation_level="read_committed",
        view="latest",
        ending_timestamp=None if at is None else at + 1,
    )
    for batch in scan.to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
