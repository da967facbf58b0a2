"""Requests to erase: who erased what and when, in `erasures/<id>.json` below the cluster's prefix.

::

    {"version":1,"topic":"orders","time":1,"by":"arn:...","reference":"case 17","due":2,"unread":0,
     "partitions":[["orders-0",1000,1000,4,181]]}

A request has no key of a record, and no hash of one. It is put where none exists, once its offsets are hidden. So a
request without an object was not completed: the same command repeats it.

Each later search of the request is an object of its own, `erasures/<id>.run-<time>.jsonl`, put where none exists. Its
first line is a JSON object::

    {"version":1,"time":3,"by":"arn:...","unread":0,"partitions":[["orders-0",1000,1200,4,181]]}

A run of `tsctl erase run` puts objects of these names too; they have no search. `tsctl.erase.evidence` has their lines.
`lists` is the greatest list of each partition that the run looked at. The last object of a run alone has it::

    {"version":1,"time":4,"by":"arn:...","unread":null,"partitions":[],"lists":{"orders-0":4}}

`erasures/<id>.done.json` is put where none exists, by the first run that found nothing stored of the request::

    {"version":1,"time":5,"by":"arn:...","lists":{"orders-0":4}}
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Final

from ts_common.archive.commit import MAX_ERASED
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import get_small
from ts_common.archive.stored_object import Presence, StoredObject, TopicName, between, limited
from ts_common.errors import AccessDenied, CorruptData, NewerFormat, ObjectNotFound
from ts_common.json_objects import decoding, parse_fields, text, whole_number
from ts_common.store.contract import ObjectStore

ERASURE_BYTES: Final = 16 << 20
EXPECTED_LINE: Final = "a line about a request to erase"
_LINE_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}(?<!\.done)", re.ASCII)
_SUFFIX: Final = ".json"
_DONE: Final = ".done.json"
_RUN: Final = re.compile(rf"(?P<name>{_NAME.pattern})\.run-(?P<time>[0-9]{{1,15}})\.jsonl", re.ASCII)
_LATEST: Final = 253_402_300_799_999  # the last millisecond of the year 9999
_Text = Annotated[str, limited(1000)]
Obeyed = Mapping[tuple[str, str], int]
"""By key and ETag of an object, the number of the list whose records it lacks."""
_Number = Annotated[int, between(0, MAX_ERASED)]


class ErasureState(StrEnum):
    """The state of a request."""

    OPEN = "open"  # offsets below E were not searched yet, or a copy could not be read
    HIDDEN = "hidden"  # no reader shows the records; their bytes are stored
    ERASED = "erased"  # nothing that a run looks at has the records


@dataclass(frozen=True, slots=True)
class ErasedPartition:
    """What a request has of one partition.

    Attributes:
        directory: of the partition in its incarnation.
        end: E: later records are not the request's. 0 if it is not known yet, without a commit of an agent.
        searched: the next offset when it was searched. Below E, what was committed since was not.
        number: of a list that has the offsets; 0 without any.
        offsets: how many were found.
    """

    directory: _Text
    end: int
    searched: int
    number: _Number
    offsets: int

    def after(self, later: "ErasedPartition") -> "ErasedPartition":
        """Return what a request has of it after a later search."""
        return ErasedPartition(
            self.directory,
            later.end,
            max(self.searched, later.searched),
            max(self.number, later.number),
            max(self.offsets, later.offsets),  # an index of keys lacks what is hidden
        )


@dataclass(frozen=True, slots=True)
class ErasureRun(StoredObject, expected="a later search or run of a request to erase", most=ERASURE_BYTES):
    """A later search of a request, or a run that removes bytes.

    Attributes:
        name: id of the request.
        time: of its end, milliseconds since the epoch.
        by: as of `Erasure`.
        unread: the same; None of a run, which searches nothing.
        partitions: as of `Erasure`; empty of a run.
        lists: of a run that looked at all that the request names: the greatest list of each partition, by directory.
    """

    name: Annotated[str, Presence.GIVEN]
    time: int
    by: _Text | None
    unread: int | None
    partitions: tuple[ErasedPartition, ...] = ()
    lists: Annotated[Mapping[_Text, _Number] | None, Presence.IF_SET] = None

    @property
    def is_search(self) -> bool:
        """Whether it searched the request again."""
        return self.unread is not None


@dataclass(frozen=True, slots=True)
class ErasureDone(StoredObject, expected="the end of a request to erase", most=ERASURE_BYTES):
    """The end of a request: a run found nothing stored of it.

    Attributes:
        name: id of the request.
        time: of the run, milliseconds since the epoch.
        by: as of `Erasure`.
        lists: as of `ErasureRun`.
    """

    name: Annotated[str, Presence.GIVEN]
    time: int
    by: _Text | None
    lists: Mapping[_Text, _Number]

    @staticmethod
    def key(keys: ClusterKeys, name: str) -> str:
        """Return the key of the end of a request."""
        return f"{keys.erasures}{name}{_DONE}"


@dataclass(frozen=True, slots=True)
class Erasure(StoredObject, expected="a request to erase", most=ERASURE_BYTES):
    """A request to erase.

    Attributes:
        name: its id.
        time: when its offsets were hidden, milliseconds since the epoch.
        by: who did it, as `ObjectStore.identity`; None if the store did not identify them.
        reference: of the person's demand: one text, which does not name the person.
        due: when the bytes must be removed at the latest, milliseconds since the epoch.
        unread: the number of copies that could not be read to their end.
    """

    name: Annotated[str, Presence.GIVEN]
    topic: TopicName
    time: int
    by: _Text | None
    reference: _Text
    due: int
    unread: int
    partitions: tuple[ErasedPartition, ...]

    @property
    def offsets(self) -> int:
        """The number of records that it hides."""
        return sum(each.offsets for each in self.partitions)

    @property
    def is_searched(self) -> bool:
        """Whether every copy of all offsets below E was searched."""
        return not self.unread and all(each.searched >= each.end for each in self.partitions)

    def after(self, runs: Iterable[ErasureRun]) -> "Erasure":
        """Return the request as it is after later searches; `runs` in the order of their times."""
        found = self
        for run in runs:
            if run.unread is None:
                continue
            later = {each.directory: each for each in run.partitions}
            partitions = tuple(
                each.after(later[each.directory]) if each.directory in later else each for each in found.partitions
            )
            found = replace(found, unread=run.unread, partitions=partitions)
        return found


def erasure_key(keys: ClusterKeys, name: str) -> str:
    """Return the key of a request.

    Raises:
        ValueError: the id is not one.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no id of a request: up to 100 letters, digits, '.', '_' and '-' are expected")
    return f"{keys.erasures}{name}{_SUFFIX}"


def erasure_run_key(keys: ClusterKeys, name: str, time: int) -> str:
    """Return the key of a later search of a request, which ended at a time in milliseconds since the epoch."""
    return f"{keys.erasures}{name}.run-{time}.jsonl"


def list_erasure_runs(store: ObjectStore, keys: ClusterKeys, name: str | None) -> Iterator[tuple[ErasureRun, bytes]]:
    """Yield the later searches and runs of a request by their times, each with its lines after the first.

    Args:
        name: id of the request; None for the runs of all requests.

    Raises:
        As `read_erasure`.
    """
    listed = dict[str, tuple[int, str]]()
    for info in store.list(keys.erasures if name is None else f"{keys.erasures}{name}.run-"):
        match = _RUN.fullmatch(info.key.removeprefix(keys.erasures))
        if match is not None and name in {None, match["name"]}:
            listed[info.key] = int(match["time"]), match["name"]
    for key, (time, of) in sorted(listed.items(), key=lambda each: each[1]):
        try:
            first, _, lines = get_small(store, key, ERASURE_BYTES)[0].partition(b"\n")
        except ObjectNotFound:
            continue
        run = ErasureRun.decode(first, key, name=of)
        if run.time != time or time > _LATEST:  # a run puts the time after the last one
            raise CorruptData(f"{key}: it has the time {run.time}, and no run puts that under this name")
        yield run, lines


def obeyed_of(fields: Mapping[str, Any]) -> Obeyed:
    """Return what a line of evidence has of an object, by its key and ETag: the number of the list that it obeys.

    Agents can write any metadata, and not this. It raises what `decoding` translates.
    """
    if "etag" not in fields or not (number := whole_number(fields["list"], 0, MAX_ERASED)):
        return {}
    return {(text(fields.get("made", "")) or text(fields["key"]), text(fields["etag"])): number}


def evidence_lines(run: ErasureRun, lines: bytes, keys: ClusterKeys) -> Iterator[tuple[str, bytes, Mapping[str, Any]]]:
    """Yield the lines of a run after the first, each with the key of its object and its fields."""
    key = erasure_run_key(keys, run.name, run.time)
    for line in lines.splitlines():
        yield key, line, parse_fields(line, key, EXPECTED_LINE, _LINE_BYTES)


def read_obeyed(store: ObjectStore, keys: ClusterKeys) -> Obeyed:
    """Return the greatest list that each object obeys, by its key and ETag, as the evidence of all runs has it.

    Evidence that cannot be read proves nothing.

    Raises:
        StoreUnavailable, BucketMissing: the store failed.
    """
    found = dict[tuple[str, str], int]()
    with suppress(CorruptData, NewerFormat, AccessDenied):
        for run, lines in list_erasure_runs(store, keys, None):
            for key, line, fields in evidence_lines(run, lines, keys):
                with decoding(key, EXPECTED_LINE, line):
                    for pair, number in obeyed_of(fields).items():
                        found[pair] = max(number, found.get(pair, 0))
    return found


def read_erasure(store: ObjectStore, keys: ClusterKeys, name: str) -> Erasure | None:
    """Return a request; None if the store has none of this id.

    Raises:
        ValueError: the id is not one.
        CorruptData: the object is damaged.
        NewerFormat: a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: the store failed.
    """
    return Erasure.read(store, erasure_key(keys, name), name=name)


def read_erasures(store: ObjectStore, keys: ClusterKeys) -> tuple[Erasure, ...]:
    """Return all requests of a cluster in one store by id, as they were put; other names are ignored.

    Raises:
        As `read_erasure`.
    """
    names = (info.key.removeprefix(keys.erasures) for info in store.list(keys.erasures))
    stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    found = [read_erasure(store, keys, stem) for stem in stems if _NAME.fullmatch(stem)]
    return tuple(each for each in found if each is not None)
