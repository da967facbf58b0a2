"""Unchanged clients read archives that are not whole from an endpoint: they have the rows of `ts_reader`.

Copies overlap, are compacted differently, end in a dead tail or are damaged; offsets are lost; markers are missing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
import structlog

from dev.local.oracle import Isolation, OracleRecord
from dev.local.ports import free_ports
from tests.archive import record_of
from tests.common.log_format.build import batch, record
from tests.endpoint.kafka_clients.interface import ByTopic
from tests.endpoint.kafka_clients.matrix import CLIENTS
from tests.endpoint.running import Running
from tests.made_archive import CLUSTER, MadeArchive
from tests.made_damage import DAMAGES, LOG
from tests.matrix import cases
from tests.reader.archives import ScannedArchive
from tests.reader.test_views import CASES, of_two_incarnations
from ts_common.archive.restored import Restored
from ts_common.model import TopicPartition

# @platformatic/kafka 1.35 leaves an aborted transaction out only if its marker is in the same reply, from a broker too.
_WITHOUT_MARKERS: Final = {("@platformatic/kafka", "r02-lost-marker"), ("@platformatic/kafka", "r14-cut-off")}
QUICK: Final = ("librdkafka assign", "Java consumer 4", "franz-go")


@dataclass(frozen=True)
class Shape:
    """A topic that is not whole.

    Attributes:
        make: makes it as topic `t`.
        isolation: of the clients.
        arguments: of the reader's scan.
    """

    make: Callable[[MadeArchive], None]
    isolation: Isolation = "read_uncommitted"
    arguments: tuple[tuple[str, Any], ...] = ()


def with_every_field_in_two_copies(archive: MadeArchive) -> None:
    """Each copy lacks a record of the other; append times, null keys and values, headers, gaps, a removed tail."""
    pairs: list[tuple[bytes, bytes | None]] = [(b"h", b"1"), (b"h", None), ("\u00e9".encode(), b"")]
    for variant in (False, True):
        log = (
            batch(0, [record(0, None, b"v" * 300, pairs), record(1, b"", None)], base_timestamp=5000)
            + batch(3, [record(0), record(1)], attributes=0x08, base_timestamp=1, max_timestamp=7000)
            + batch(5, [record(0, b"x", b"", pairs)], attributes=0x08, max_timestamp=7001)
            + batch(9 + variant, [record(0, b"%d" % variant, timestamp_delta=-500)], epoch=1)
            + batch(20, [record(0, None, None, [(b"", None)])], epoch=1)
        )
        archive.put_segment("t", 0, log, end=50, variant=variant)
    archive.commit("t", 50, epochs=((0, 0), (1, 7)))


def with_damage_and_a_spare(archive: MadeArchive) -> None:
    """One copy of two has a flipped bit; the other is intact."""
    archive.put_segment("t", 0, LOG, body=DAMAGES["flipped bit"][0](LOG))
    archive.put_segment("t", 0, LOG, variant=True)
    archive.commit("t", 50)


def shapes() -> dict[str, Shape]:
    """Return the shapes by topic: those of the reader's tests that a client can read from their beginning, and more."""
    found = {
        "every-field": Shape(with_every_field_in_two_copies),
        "damaged": Shape(with_damage_and_a_spare, arguments=(("mode", "DROPMALFORMED"),)),
    }
    for name, case in CASES.items():
        is_of_one_topic = case.make is not of_two_incarnations  # their list has the topic's name
        if case.error is None and is_of_one_topic and "starting_offsets" not in case.arguments:
            isolation = case.arguments.get("isolation_level", "read_uncommitted")
            arguments = {"fail_on_data_loss": False, **case.arguments}
            topic = name.replace(" ", "-").replace(",", "")
            found[topic] = Shape(case.make, isolation, tuple(arguments.items()))
    return found


SHAPES: Final = shapes()


@dataclass(frozen=True)
class Served:
    """An endpoint with the shapes as topics, and the records of `ts_reader`."""

    address: str
    expected: dict[str, list[OracleRecord]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Make each shape in an archive of its own, and put all into one that an endpoint serves."""
    directory = tmp_path_factory.mktemp("made")
    together, expected = MadeArchive(directory / "store"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "is_configured", lambda: True)  # loggers would keep the configuration of `Archive`
        for topic, shape in SHAPES.items():
            archive = ScannedArchive(directory / topic)
            shape.make(archive)
            arguments = {**dict(shape.arguments), "isolation_level": shape.isolation, "include_headers": True}
            rows = archive.scan(**arguments).to_table().to_pylist()
            expected[topic] = [replace(record_of(row), topic=topic) for row in rows]
            copy_as(topic, archive, together)
    port, http_port = free_ports(2)
    endpoint = Running(
        ("--url", together.location, "--cluster", CLUSTER), directory / "log", port, http_port, ["--on-hole", "skip"]
    )
    try:
        endpoint.wait_until_ready()
        yield Served(endpoint.address, expected)
    finally:
        endpoint.stop()


def copy_as(topic: str, archive: MadeArchive, target: MadeArchive) -> None:
    """Put the objects of topic `t` of an archive, and of its former place, into another one, under another name."""
    partition = TopicPartition(topic, 0)
    places = {archive.partition("t"): target.keys.partition(partition)}
    record = Restored.read(archive.store, archive.keys.restored)
    if record is not None:
        former = replace(record.topics["t"], directory=topic)
        places[record.topics["t"].keys_of(TopicPartition("t", 0))] = former.keys_of(partition)
        known = Restored.read(target.store, target.keys.restored) or replace(record, topics={})
        target.store.put(target.keys.restored, replace(record, topics={**known.topics, topic: former}).encode())
    for source, destination in places.items():
        for info in list(archive.store.list(source.prefix)):
            data, held = archive.store.get(info.key)
            target.store.put(info.key.replace(source.prefix, destination.prefix), data, metadata=held.metadata)


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, Isolation], ByTopic]:
    """Return what clients have read, so that each reads all topics once."""
    return {}


@pytest.mark.parametrize("topic", SHAPES)
@pytest.mark.parametrize("name", cases(CLIENTS, quick=QUICK))
def test_a_client_has_the_rows_of_the_reader(
    served: Served, found: dict[tuple[str, Isolation], ByTopic], name: str, topic: str
) -> None:
    """Every field that the client shows, in order, and once; lost offsets are passed over by option."""
    client, isolation = CLIENTS[name], SHAPES[topic].isolation
    if (name, isolation) not in found:
        topics = [other for other, shape in SHAPES.items() if shape.isolation == isolation]
        found[name, isolation] = client.read(served.address, topics, isolation)
    assert served.expected[topic]
    rows, expected = found[name, isolation][topic], client.expected(served.expected[topic])
    if (name, topic) in _WITHOUT_MARKERS:
        offsets = {record.offset for record in expected}
        assert len(rows) > len(expected)
        rows = [record for record in rows if record.offset in offsets]
    assert rows == expected
