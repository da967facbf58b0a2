"""A request to erase: what it hides, what it notes, and what stops it."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from ts_common.archive.erasures import ErasureState, read_erasures
from ts_common.archive.high_watermarks import Ends
from ts_common.archive.holds import Hold
from ts_common.errors import OperatorError, QueryError
from ts_reader import Archive
from ts_reader.decode.columns import Projection
from tsctl.erase.adding import Demand, add
from tsctl.erase.searching import with_keys

PERSON = b"canary-5d0c91f2"


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Two partitions, with one record of a person each."""
    made = MadeArchive(tmp_path / "bucket")
    log = batches(*steps(0, 30)) + batch(30, [record(0, PERSON, b"v")])
    for partition in (0, 1):
        made.put_segment("t", 0, log, partition=partition)
        made.commit("t", 31, partition=partition)
    return made


def demand(name: str = "case-17", *, hides_held: bool = False) -> Demand:
    projection = Projection(value=False, headers=False)
    return Demand(name, "t", "letter of 1 May", 1000, projection, with_keys(frozenset({PERSON})), hides_held)


def erase(archive: MadeArchive, of: Demand) -> Iterator[str]:
    warnings = list[str]()
    keys = [archive.partition("t", partition) for partition in (0, 1)]
    add(archive.store, archive.keys, keys, of, warnings.append)
    return iter(warnings)


def shown(archive: MadeArchive) -> list[bytes]:
    found: list[bytes] = pa.table(Archive(archive.location, CLUSTER).scan("t"))["key"].to_pylist()
    return found


def test_records_of_a_person_are_hidden_and_the_request_names_no_person(archive: MadeArchive) -> None:
    """It has E, list and count of each partition; no object but the segments contains the key."""
    assert [*erase(archive, demand())] == []
    assert len(shown(archive)) == 60
    assert PERSON not in shown(archive)
    (request,) = read_erasures(archive.store, archive.keys)
    assert [(each.directory, each.end, each.number, each.offsets) for each in request.partitions] == [
        ("t-0", 31, 1, 1),
        ("t-1", 31, 1, 1),
    ]
    assert (request.name, request.offsets, request.state) == ("case-17", 2, ErasureState.HIDDEN)
    assert (request.is_late(999), request.is_late(1000)) == (False, True)
    others = (info.key for info in archive.store.list() if not info.key.endswith(".log"))
    assert not [key for key in others if PERSON in archive.store.get(key)[0]]


def test_a_second_request_of_one_id_is_refused(archive: MadeArchive) -> None:
    """A request is evidence, and never changes."""
    erase(archive, demand())
    with pytest.raises(QueryError, match=r"request case-17: .* has one of this id; use another id"):
        erase(archive, demand())


def test_a_hold_stops_it_unless_the_operator_hides_what_is_held(archive: MadeArchive) -> None:
    """The holder would no longer see the records."""
    archive.store.put(archive.keys.hold("audit"), Hold(name="audit", topics=("t",), reason="audit").encode())
    with pytest.raises(OperatorError, match=r"topic t has the hold audit: .*--hide-held"):
        erase(archive, demand())
    assert len(shown(archive)) == 62
    erase(archive, demand(hides_held=True))
    assert len(shown(archive)) == 60


def test_an_agent_of_an_earlier_release_stops_it(archive: MadeArchive) -> None:
    """It would drop the list's number from `log.start`."""
    archive.store.put(archive.keys.ends_of(1), Ends(1, 1, {}).encode())
    with pytest.raises(OperatorError, match="an agent of this cluster does not read lists of erased offsets"):
        erase(archive, demand())
