"""What a table still needs, in the archive."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from ts_common.archive.table_claims import TableClaims, claims_key, read_claims
from ts_tables import Tables
from ts_tables.claims.state import IncarnationState, PartitionClaims, PassedHole, TableState
from ts_tables.planning.locations import LocatedPlanner
from ts_tables.retention_claims import needed_from, publish


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "archive")


def state(*claims: PartitionClaims) -> TableState:
    return TableState(CLUSTER, True, {"t": (IncarnationState("t", None, dict(enumerate(claims))),)})


def test_a_run_writes_what_its_table_still_needs(archive: MadeArchive, tmp_path: Path) -> None:
    """For each partition, after its commit; and again if the object is missing."""
    archive.put_segment("t", 0, batches((0, 50)))
    archive.commit("t", 50, last_stable_offset=50)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/lake"}
    given = {"archive": {"url": archive.location, "cluster": CLUSTER}, "catalog": catalog}
    tables = Tables({**given, "tables": {"backup.t": {"topics": "t"}}}, workers=1)
    tables.create("backup.t")
    for _ in range(2):
        tables.run("backup.t")
        found = read_claims(archive.store, archive.keys, "backup.t")
        assert found is not None
        assert found.needed_from == {"t-0": 50}
        archive.store.delete([claims_key(archive.keys, "backup.t")])


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_run_writes_no_claims_that_another_run_withdrew(
    archive: MadeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    """The other one commits an election while this one plans, and this one then has nothing to add."""
    archive.put_segment("t", 0, batches(*steps(0, 100)))
    archive.commit("t", 100, last_stable_offset=100)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/lake"}
    table = {"topics": "t", "on_taken_back": "delete"}
    if is_plain:
        (tmp_path / "files").mkdir()
        table |= {"format": "parquet", "location": f"file://{tmp_path}/files"}
    given = {
        "archive": {"url": archive.location, "cluster": CLUSTER},
        "catalog": catalog,
        "tables": {"backup.t": table},
    }

    def tables() -> Tables:
        return Tables(given, engine=lambda tasks: [task() for task in tasks])

    tables().create("backup.t")
    tables().run("backup.t")
    plan, others = LocatedPlanner.plan, [tables()]

    def planned(*arguments: Any, **options: Any) -> Any:
        found = plan(*arguments, **options)
        if others:
            archive.put_segment("t", 60, batches(*steps(60, 90), epoch=2, value=b"later"), variant=True)
            archive.commit("t", 90, epochs=((0, 0), (2, 60)), highest_base=60, last_stable_offset=90)
            others.pop().run("backup.t")
        return found

    monkeypatch.setattr(LocatedPlanner, "plan", planned)
    assert tables().run("backup.t").records == 0
    claims = read_claims(archive.store, archive.keys, "backup.t")
    assert claims is not None
    assert claims.needed_from == {"t-0": 90}


def test_a_passed_hole_is_needed_with_what_is_withheld_for_it() -> None:
    """It can be filled."""
    claims = PartitionClaims(0, 200, holes=(PassedHole(100, 110, ((7, 90),)), PassedHole(150, 160)))
    assert needed_from(state(claims, PartitionClaims(5, 70))) == {"t-0": 90, "t-1": 70}


def test_damaged_claims_are_replaced_and_those_of_a_later_release_stay(archive: MadeArchive) -> None:
    """The second is logged."""
    place = [(archive.store, archive.keys, state(PartitionClaims(0, 10)))]
    key = claims_key(archive.keys, "a.b")
    archive.store.put(key, b"damaged")
    publish(place, "a.b", "1")
    assert read_claims(archive.store, archive.keys, "a.b") is not None
    later = TableClaims("a.b", "1", 0, {}).encode().replace(b'"version":', b'"version":9')
    archive.store.put(key, later)
    with capture_logs() as log:
        publish(place, "a.b", "1")
    assert [line["event"] for line in log] == ["table_claims_not_written"]
    assert archive.store.get(key)[0] == later
