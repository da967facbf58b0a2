"""Frozen segments in `tsctl verify`: one finding of a partition, no damage, and the bytes of all others are checked."""

from collections.abc import Iterator

import pytest

from dev.local.stores.moto import MotoServer
from tests.made_archive import batches
from tests.made_cold import STEP, TOPIC, ColdArchive, cold_archive
from tests.tsctl.running import Run, runner

KINDS = ("code", "severity", "from", "to", "detail")


@pytest.fixture
def cold(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ColdArchive]:
    """Make an archive whose first two of three segments are frozen, with an index of one of them."""
    with cold_archive(moto_server, monkeypatch) as archive:
        archive.freeze(0, STEP)
        archive.freeze(STEP, suffixes=(".index",), storage_class="DEEP_ARCHIVE")
        yield archive


def found(archive: ColdArchive, tsctl: Run, depth: str) -> list[dict[str, object]]:
    document = tsctl("verify", "--url", archive.location, "--cluster", "prod", "--depth", depth, "--json").document
    return [{name: finding[name] for name in KINDS} for finding in document["findings"]]


@pytest.mark.parametrize("depth", ["listing", "headers", "full"])
def test_frozen_segments_are_one_finding_that_is_no_damage(
    cold: ColdArchive, capfd: pytest.CaptureFixture[str], depth: str
) -> None:
    """With their number, bytes and classes. After a thaw nothing is reported; a listing of moto shows no thaw."""
    tsctl = runner(capfd)
    size = sum(cold.store.head(cold.key(base)).size for base in (0, STEP))
    detail = f"2 segments of 3, {size} bytes (2 in GLACIER): their bytes were not checked"
    expected = {"code": "frozen", "severity": "information", "from": 0, "to": 2 * STEP, "detail": detail}
    assert found(cold, tsctl, depth) == [expected]
    if depth != "listing":
        assert tsctl("thaw", TOPIC, "--url", cold.location, "--cluster", "prod").code == 0
        assert found(cold, tsctl, depth) == []


def test_damage_next_to_frozen_segments_is_reported(cold: ColdArchive, capfd: pytest.CaptureFixture[str]) -> None:
    """Copies of the same offsets are compared where both can be read."""
    cold.put_segment(TOPIC, STEP, batches((STEP, 2 * STEP), value=b"x"), variant=True, index=b"", timeindex=b"")
    cold.freeze(2 * STEP, suffixes=(".index",))  # an index is a hint, and its segment can be read
    metadata = cold.store.head(cold.key(2 * STEP)).metadata
    cold.store.put(cold.key(2 * STEP), b"\0" * cold.store.head(cold.key(2 * STEP)).size, metadata=metadata)
    codes = [(each["code"], each["from"]) for each in found(cold, runner(capfd), "full")]
    assert sorted(codes, key=str) == [("frozen", 0), ("overlap", STEP), ("segment-damaged", 2 * STEP)]
