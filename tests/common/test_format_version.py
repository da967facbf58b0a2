"""Stored objects across releases: the bytes of version 1, fields of later releases, and later versions."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from awscrt.checksums import crc32c

from ts_common.archive.commit import Commit, Lineage, LogStart, decode_commit, decode_log_start, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.gap_records import Gap
from ts_common.archive.incarnations import Incarnation, Incarnations
from ts_common.archive.metadata_cache import CacheEntry, CacheObject, encode_cache_object
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.archive.segment_metadata import SegmentMetadata, TxnIndexState, decode_metadata
from ts_common.errors import CorruptData, NewerFormat
from ts_common.model import TopicPartition

KEYS = ClusterKeys("c").partition(TopicPartition("t", 0))
KEY = "the/key"
ID = "AAAAAAAAAAAAAAAAAAAAAQ"

# Objects of release 0.1.0. Never change them: every later release must read them. A release that writes other bytes, or
# bytes that 0.1.0 cannot read, needs a version (see `ts_common.format_version`).
COMMIT = (
    b'00000000000000000100\n{"next":250,"epoch":4,"epochs":[[0,0],[4,120]],"lso":240,"topicId":"' + ID.encode() + b'",'
    b'"broker":2,"time":1700000000000,"nonce":"00ff","tail":[249,7]}\n'
)
INCARNATIONS = (
    b'{\n "incarnations": [\n  {\n   "topicId": "' + ID.encode() + b'",\n   "firstSeen": 1700000000000,\n'
    b'   "directory": "t"\n  }\n ]\n}\n'
)
CACHE_OBJECT = (
    b'e1aa8885\n{"of":"t-0","segments":[["00000000000000000000",151,"\\"e\\"",10,[[3,0]],10,1009,1000,123,'
    b'[9,"complete"],0,8],["00000000000000000010",7,"\\"f\\""]]}\n'
)
LOG_START = b"00000000000000000050\n"
GAP = b'{"from":100,"to":200,"reason":"gone","time":1700000000000,"broker":1}\n'
METADATA = {
    "ts-end": "250",
    "ts-crc32c": "0000007b",
    "ts-epochs": "0:100,4:120",
    "ts-records": "150",
    "ts-time-max": "1009",
    "ts-time-min": "1000",
    "ts-corrupt": "1",
    "ts-txnindex": "00000009:late",
    "ts-timeindex": "00000008",
}

WRITTEN = Commit(100, 250, 4, EpochHistory(((0, 0), (4, 120))), 240, ID, 2, 1_700_000_000_000, "00ff", (249, 7))
# Objects of an archive whose commit went back once; releases before lineages reject both by their version.
LINEAGE = Lineage(5, 200, 300)
COMMIT_OF_A_LINEAGE = COMMIT.replace(b'"tail":[249,7]}', b'"tail":[249,7],"version":2,"lineage":[5,200,300]}')
LOG_START_OF_A_LINEAGE = b'00000000000000000050\n{"version":2,"lineage":[5,200,300]}\n'
BEGINS = LogStart(50, LINEAGE)
# Objects of the release whose retention has a floor, with and without a list of erased offsets.
LOG_START_OF_RETENTION = (
    b'00000000000000000050\n{"version":2,"lineage":[5,200,300],"floor":20,"since":"gc-1","writtenBy":"gc-2"}\n'
)
LOG_START_OF_ERASURE = (
    b'00000000000000000050\n{"version":3,"lineage":[5,200,300],"floor":20,"since":"gc-1","erased":4,'
    b'"writtenBy":"erase-1"}\n'
)
HIDES = LogStart(50, LINEAGE, floor=20, since="gc-1", written_by="gc-2")
ERASES = replace(HIDES, erased=4, written_by="erase-1")
LIVES = Incarnations("t", (Incarnation(ID, 1_700_000_000_000, "t"),))
ENTRIES = [
    CacheEntry(
        SegmentName(0),
        151,
        '"e"',
        SegmentMetadata(10, ((3, 0),), 10, 1009, 1000, 123, (9, TxnIndexState.COMPLETE), timeindex=8),
    ),
    CacheEntry(SegmentName(10), 7, '"f"', None),
]
SAYS = SegmentMetadata(
    250, ((0, 100), (4, 120)), 150, 1009, 1000, 123, (9, TxnIndexState.LATE), corruptions=1, timeindex=8
)


def test_what_release_0_1_0_wrote_is_read() -> None:
    """Commit, incarnations, cache object, `log.start` and segment metadata are decoded to the same values."""
    assert decode_commit(COMMIT, KEY) == WRITTEN
    assert Incarnations.decode(INCARNATIONS, KEY, topic="t") == LIVES
    assert CacheObject(CACHE_OBJECT, KEYS, KEY).entries() == ENTRIES
    assert decode_log_start(LOG_START, KEY) == LogStart(50)
    assert decode_metadata(METADATA, KEY) == SAYS


def test_what_is_written_release_0_1_0_reads() -> None:
    """The bytes are equal, so an agent can be downgraded, or run with agents of that release."""
    assert WRITTEN.encode() == COMMIT
    assert LIVES.encode() == INCARNATIONS
    assert encode_cache_object(KEYS, ENTRIES) == CACHE_OBJECT
    assert encode_log_start(50) == LOG_START
    assert SAYS.encode() == METADATA
    assert Gap(100, 200, "gone", 1_700_000_000_000, 1).encode() == GAP


def test_a_lineage_is_read_and_written_as_version_2() -> None:
    """The commit and `log.start` are byte for byte those of the first release with lineages."""
    assert decode_commit(COMMIT_OF_A_LINEAGE, KEY) == replace(WRITTEN, lineage=LINEAGE)
    assert replace(WRITTEN, lineage=LINEAGE).encode() == COMMIT_OF_A_LINEAGE
    assert decode_log_start(LOG_START_OF_A_LINEAGE, KEY) == BEGINS
    assert BEGINS.encode() == LOG_START_OF_A_LINEAGE


@pytest.mark.parametrize(
    ("start", "data"), [(HIDES, LOG_START_OF_RETENTION), (ERASES, LOG_START_OF_ERASURE)], ids=["floor", "erased"]
)
def test_a_log_start_has_version_3_exactly_with_a_list_of_erased_offsets(start: LogStart, data: bytes) -> None:
    """Readers before that list would show erased records; a floor alone changes nothing for them."""
    assert decode_log_start(data, KEY) == start
    assert start.encode() == data


def test_a_log_start_of_retention_names_its_writer() -> None:
    """It is read with and without a lineage; a second line with neither, or with another kind of writer, is damage."""
    for start in (LogStart(50, written_by="gc-1"), LogStart(50, LINEAGE, written_by="gc-1")):
        assert decode_log_start(start.encode(), KEY) == start
    for second in (
        b'{"version":2}',
        b'{"version":2,"floor":5}',
        b'{"version":3,"erased":5}',
        b'{"version":2,"writtenBy":null}',
        b'{"version":2,"writtenBy":7}',
    ):
        with pytest.raises(CorruptData, match="the/key"):
            decode_log_start(LOG_START + second + b"\n", KEY)


@pytest.mark.parametrize(
    "field",
    [{"floor": -1}, {"floor": None}, {"floor": "20"}, {"erased": 0}, {"erased": 10**9}, {"since": 5}, {"since": None}],
    ids=str,
)
def test_an_invalid_field_of_a_log_start_is_damage(field: dict[str, object]) -> None:
    """A floor that cannot be read is not an unknown one: that would be deleted by."""
    with pytest.raises(CorruptData, match="the/key"):
        log_start_with(writtenBy="gc-1", **field)


@pytest.mark.parametrize(
    "lineage", [None, [], [1, 2], [1, 2, 3, 4], [1, 2, "3"], [1, 2, -3], [1, 2, True], {"epoch": 1}]
)
def test_an_invalid_lineage_is_damage(lineage: object) -> None:
    """A `log.start` with a second line but without a lineage is damage, not an object without a second line."""
    with pytest.raises(CorruptData, match="the/key"):
        log_start_with(lineage=lineage)
    if lineage is not None:
        with pytest.raises(CorruptData, match="the/key"):
            commit_with(lineage=lineage)


def commit_with(**fields: Any) -> None:
    first, _, second = COMMIT.decode().partition("\n")
    found = decode_commit(f"{first}\n{json.dumps({**json.loads(second), **fields})}\n".encode(), KEY)
    assert found == WRITTEN


def log_start_with(**fields: Any) -> None:
    first, _, second = LOG_START_OF_A_LINEAGE.decode().partition("\n")
    found = decode_log_start(f"{first}\n{json.dumps({**json.loads(second), **fields})}\n".encode(), KEY)
    assert found == BEGINS


def incarnations_with(**fields: Any) -> None:
    text = json.dumps({**json.loads(INCARNATIONS), **fields}).encode()
    assert Incarnations.decode(text, KEY, topic="t") == LIVES


def cache_object_with(**fields: Any) -> None:
    text = json.dumps({**json.loads(CACHE_OBJECT.partition(b"\n")[2]), **fields}).encode()
    assert CacheObject(b"%08x\n%b\n" % (crc32c(text), text), KEYS, KEY).entries() == ENTRIES


def metadata_with(**fields: Any) -> None:
    assert decode_metadata({**METADATA, **{f"ts-{name}": str(value) for name, value in fields.items()}}, KEY) == SAYS


READERS = (commit_with, log_start_with, incarnations_with, cache_object_with, metadata_with)
OBJECTS = pytest.mark.parametrize("read_with", READERS)


@pytest.mark.parametrize("read_with", [each for each in READERS if each is not log_start_with])
def test_fields_of_a_later_release_are_passed_over(read_with: Callable[..., None]) -> None:
    """A field that older releases can ignore needs no version."""
    read_with(colour="green")
    read_with(version=1)


def test_an_unknown_field_of_a_log_start_is_refused_by_name() -> None:
    """Each writer carries all fields that are not its own, and would drop this one."""
    log_start_with(version=1)
    with pytest.raises(NewerFormat, match=r"the/key: a log start of a later release: it has .colour.; upgrade"):
        log_start_with(colour="green")


@OBJECTS
def test_a_later_version_is_refused_by_name(read_with: Callable[..., None]) -> None:
    """The message names the object, both versions and the remedy."""
    with pytest.raises(NewerFormat, match=r"the/key is written in version 4 .* reads version [123]: upgrade this one"):
        read_with(version=4, colour="green")


@OBJECTS
@pytest.mark.parametrize("version", [0, -1, "two", None])
def test_an_invalid_version_is_damage(read_with: Callable[..., None], version: object) -> None:
    """An invalid version is not read as version 1."""
    with pytest.raises(CorruptData, match="the/key"):
        read_with(version=version)


def test_metadata_of_a_later_version_may_lack_the_fields_of_the_current_one() -> None:
    """A reader never treats an object of a later release as one of a Java uploader."""
    with pytest.raises(NewerFormat, match="the/key"):
        decode_metadata({"ts-version": "2"}, KEY)


@pytest.mark.parametrize("directory", ["other", "t/../other", "../t", "t~", "t~a/b", "~a", "other~t", ""])
def test_an_incarnation_lies_where_its_topic_does(directory: str) -> None:
    """A list that another identity wrote must not lead to another topic's objects, or out of the prefix."""
    text = INCARNATIONS.replace(b'"directory": "t"', b'"directory": "' + directory.encode() + b'"')
    assert text != INCARNATIONS
    with pytest.raises(CorruptData, match="is not a directory of t"):
        Incarnations.decode(text, KEY, topic="t")
