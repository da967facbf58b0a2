"""A request to erase: what it hides, what it notes, and what stops it."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive
from tests.tsctl.erase.made import PERSON, made_archive, put_agent
from ts_common.archive.erasures import Erasure, ErasureState
from ts_common.archive.high_watermarks import Ends
from ts_common.archive.holds import Hold
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.snapshots import Broker, ClusterSnapshot
from ts_common.errors import OperatorError, QueryError
from ts_common.model import TopicPartition
from ts_reader import Archive
from tsctl.erase.adding import Demand, add, check
from tsctl.erase.criteria import WithKeys
from tsctl.erase.evidence import read_progress
from tsctl.erase.places import places_of

FUTURE = 4_000_000_000_000


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Two partitions, with one record of a person each."""
    return made_archive(tmp_path / "bucket")


def demand(
    name: str = "case-17", *, due: int = FUTURE, hides_held: bool = False, ends: dict[TopicPartition, int] | None = None
) -> Demand:
    criterion = WithKeys(frozenset({PERSON}))
    return Demand(name, "t", "letter of 1 May", due, criterion, hides_held, ends or {})


def erase(archive: MadeArchive, of: Demand) -> Erasure:
    """Check and add a request; no copy may be unread."""
    warnings = list[str]()
    found = places_of(archive.store, archive.keys, "t")
    check(archive.keys, [found], of, [archive.store])
    request = add(archive.keys, found, of, warnings.append)
    assert warnings == []
    return request


def shown(archive: MadeArchive) -> list[bytes]:
    found: list[bytes] = pa.table(Archive(archive.location, CLUSTER).scan("t"))["key"].to_pylist()
    return found


def test_records_of_a_person_are_hidden_and_the_request_names_no_person(archive: MadeArchive) -> None:
    """It has E, list and count of each partition; no object but the segments contains the key."""
    erase(archive, demand())
    assert len(shown(archive)) == 60
    assert PERSON not in shown(archive)
    (progress,) = read_progress(archive.store, archive.keys)
    request = progress.request
    assert [(each.directory, each.end, each.number, each.offsets) for each in request.partitions] == [
        ("t-0", 31, 1, 1),
        ("t-1", 31, 1, 1),
    ]
    assert (request.name, request.offsets, progress.state) == ("case-17", 2, ErasureState.HIDDEN)
    assert (progress.is_late(FUTURE - 1), progress.is_late(FUTURE)) == (False, True)
    others = (info.key for info in archive.store.list() if not info.key.endswith(".log"))
    assert not [key for key in others if PERSON in archive.store.get(key)[0]]


def test_another_request_of_one_id_is_refused(archive: MadeArchive) -> None:
    """A request is evidence, and never changes."""
    erase(archive, demand())
    with pytest.raises(QueryError, match=r"case-17: .* has another one of this id \(topic t, reference 'letter"):
        erase(archive, demand(due=FUTURE + 1))


def test_a_new_request_that_is_late_is_refused(archive: MadeArchive) -> None:
    """A wrong year is a mistake; a request that exists can be late."""
    with pytest.raises(QueryError, match=r"--due=1970-01-01T00:00:01.000Z: it has passed"):
        erase(archive, demand(due=1000))


def test_a_request_is_open_until_the_commit_has_passed_the_log_end(archive: MadeArchive) -> None:
    """The same request again searches up to its first E: what was produced later stays."""
    ends = {TopicPartition("t", 0): 33, TopicPartition("t", 1): 20}
    first = erase(archive, demand(ends=ends))
    assert not first.is_searched
    assert [(each.end, each.searched) for each in first.partitions] == [(33, 31), (31, 31)]
    archive.put_segment("t", 31, batch(31, [record(at, PERSON, b"v") for at in range(4)]))
    archive.commit("t", 35, highest_base=31, log_start=None)
    again = erase(archive, demand())
    assert again.is_searched
    assert [(each.end, each.searched, each.offsets) for each in again.partitions] == [(33, 35, 3), (31, 31, 1)]
    assert shown(archive).count(PERSON) == 2
    (progress,) = read_progress(archive.store, archive.keys)
    assert progress.request == again


def test_a_request_is_open_until_a_partition_that_only_brokers_have_was_shipped(archive: MadeArchive) -> None:
    """Without the running cluster's word the same request again keeps it open too."""
    ends = {TopicPartition("t", 2): 2}
    found = places_of(archive.store, archive.keys, "t", [2])
    request = add(archive.keys, found, demand(ends=ends), pytest.fail)
    assert [(each.directory, each.end, each.searched) for each in request.partitions][2:] == [("t-2", 2, 0)]
    assert not erase(archive, demand()).is_searched
    archive.put_segment("t", 0, batch(0, [record(at, PERSON, b"v") for at in range(4)]), partition=2)
    archive.commit("t", 4, partition=2)
    again = erase(archive, demand())
    assert again.is_searched
    assert [(each.end, each.offsets) for each in again.partitions][2:] == [(2, 2)]
    assert shown(archive).count(PERSON) == 2


def test_a_search_after_the_clock_stepped_back_is_the_last_one(
    archive: MadeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches count in the order of their times, and the last one decides what could not be read."""
    erase(archive, demand())
    found = places_of(archive.store, archive.keys, "t")
    commit = archive.store.get(archive.partition("t").commit)[0]
    archive.store.delete([archive.partition("t").commit])
    assert add(archive.keys, found, demand(), lambda _: None).unread == 1
    archive.store.put(archive.partition("t").commit, commit)
    monkeypatch.setattr(type(archive.store), "current_time", lambda _: 1_000_000.0)
    erase(archive, demand())
    (progress,) = read_progress(archive.store, archive.keys)
    assert (progress.request.unread, progress.state) == (0, ErasureState.HIDDEN)


def test_a_lost_commit_does_not_move_the_end_of_a_request(archive: MadeArchive) -> None:
    """The search after the agent has written it again ends where the first one did."""
    erase(archive, demand())
    found = places_of(archive.store, archive.keys, "t")
    archive.store.delete([archive.partition("t").commit])
    assert not add(archive.keys, found, demand(), lambda _: None).is_searched
    archive.put_segment("t", 31, batch(31, [record(0, PERSON, b"v")]))
    archive.commit("t", 32, highest_base=31, log_start=None)
    assert [each.end for each in erase(archive, demand()).partitions] == [31, 31]
    assert shown(archive).count(PERSON) == 1


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
    archive.store.put(archive.keys.ends_of(2), Ends(2, 1, {}).encode())
    with pytest.raises(OperatorError, match=r"agent of broker 2: release before 0\.3 does not read lists"):
        erase(archive, demand())


def test_an_agent_that_reports_nothing_stops_it_unless_its_broker_was_removed(archive: MadeArchive) -> None:
    """A commit names its broker; the newest metadata snapshot has the brokers of the cluster."""
    archive.store.delete([archive.keys.ends_of(1)])
    with pytest.raises(OperatorError, match=r"agent of broker 1: it wrote no .*ends/1.json"):
        erase(archive, demand())
    brokers = {"2": Broker("b", 9092, None, {})}
    ClusterSnapshot(1, 2, None, {}, brokers, None, None, None).put(archive.store, archive.keys, 0)
    erase(archive, demand())
    assert len(shown(archive)) == 60


def test_records_of_a_restored_log_are_hidden_where_they_were_before(tmp_path: Path) -> None:
    """The former place is in another cluster of the store, and the request names it with its path."""
    former = made_archive(tmp_path / "store", "old")
    archive = MadeArchive(tmp_path / "store")
    put_agent(archive)
    archive.put_segment("t", 31, batch(31, [record(0, PERSON, b"v")]))
    archive.commit("t", 32, highest_base=31, log_start=31)
    archive.put_restored(former.keys, 31)
    archive.put_incarnations("t-1", "a" * 22)  # its object is in a directory as that of partition 1
    assert shown(archive).count(PERSON) == 2
    request = erase(archive, demand())
    assert [(each.directory, each.offsets) for each in request.partitions] == [("t-0", 1), ("old/t-0", 1)]
    assert shown(archive).count(PERSON) == 0
    archive.put_restored(former.keys, 31, url="s3://elsewhere/base")
    elsewhere = places_of(archive.store, archive.keys, "t").elsewhere
    assert elsewhere == {"s3://elsewhere/base": (former.partition("t"),)}


def test_a_former_place_that_retention_removed_wholly_keeps_no_request_open(tmp_path: Path) -> None:
    """Nothing of it is stored, and no reader shows it."""
    archive = made_archive(tmp_path / "store")
    archive.put_restored(ClusterKeys("gone"), 31)
    assert erase(archive, demand()).is_searched
