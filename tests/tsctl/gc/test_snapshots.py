"""Metadata snapshots: which the policy keeps, and what stops it."""

import pytest

from tests.made_archive import MadeArchive
from ts_common.archive.holds import Hold
from ts_common.archive.snapshots import FIVE_MINUTES, HOUR, MINUTE, ClusterSnapshot, GroupsSnapshot, Snapshot
from ts_common.durations import DAY
from ts_common.errors import ConfigurationError
from ts_common.store.contract import ObjectInfo
from tsctl.gc.policy import SnapshotKeeping, parse_policy
from tsctl.gc.snapshots import due, thin_snapshots

NOW = 1_795_964_400_000  # 2026-11-29T15:00:00Z
TODAY = NOW // DAY * DAY
KEEPING = SnapshotKeeping.model_validate({"every": "1d", "hourly": "3d", "daily": "10d"})


def kept(kind: type[Snapshot], times: list[int], keeping: SnapshotKeeping = KEEPING, written: int = 0) -> list[int]:
    """Return the times of the snapshots that stay."""
    named = [(at, ObjectInfo(str(at), 1, "e", max(at, written) / 1000)) for at in times]
    gone = {int(info.key) for info in due(kind, named, keeping, NOW)}
    return [at for at in times if at not in gone]


def test_all_of_a_day_stay_then_one_of_each_hour_then_one_of_each_day() -> None:
    """Each five minutes of twelve days; all of the oldest are removed."""
    times = list(range(NOW - 12 * DAY, NOW, FIVE_MINUTES))
    found = kept(GroupsSnapshot, times)
    every, hourly = [at for at in found if at > NOW - DAY], [at for at in found if NOW - 3 * DAY < at <= NOW - DAY]
    daily = [at for at in found if at <= NOW - 3 * DAY]
    assert every == [at for at in times if at > NOW - DAY]
    assert hourly == [NOW - 3 * DAY + FIVE_MINUTES, *range(NOW - 3 * DAY + HOUR, NOW - DAY + 1, HOUR)]
    assert daily == [NOW - 10 * DAY + FIVE_MINUTES, *range(TODAY - 9 * DAY, TODAY - 2 * DAY, DAY)]
    for_ever = KEEPING.model_copy(update={"daily": None})
    assert kept(GroupsSnapshot, times, for_ever)[0] == times[0]


def test_a_second_run_deletes_nothing_more() -> None:
    """What stays is the first of its hour or day, whichever others exist."""
    found = kept(GroupsSnapshot, list(range(NOW - 12 * DAY, NOW, FIVE_MINUTES)))
    assert kept(GroupsSnapshot, found) == found


def test_a_change_of_the_cluster_stays_with_its_minute() -> None:
    """An auditor reads its time; after `daily` it is removed too."""
    change, hour, old = NOW - 5 * DAY + 7 * MINUTE, NOW - 5 * DAY + HOUR, NOW - 11 * DAY + MINUTE
    assert kept(ClusterSnapshot, [old, NOW - 5 * DAY, change, hour, NOW]) == [NOW - 5 * DAY, change, NOW]


def test_the_newest_snapshot_stays_at_any_age() -> None:
    """A cluster that was lost a year ago writes no other, and its records may stay; a wrong clock's name is not it."""
    for kind in (ClusterSnapshot, GroupsSnapshot):
        times = [NOW - 400 * DAY, NOW - 366 * DAY, NOW + 400 * DAY]
        assert kept(kind, times) == times[1:]


def test_a_snapshot_that_a_wrong_clock_named_old_is_as_young_as_its_object() -> None:
    """An agent's clock is two years behind: the object was written a minute ago."""
    times = [NOW - 730 * DAY + each * FIVE_MINUTES for each in range(5)]
    assert kept(GroupsSnapshot, times, written=NOW - MINUTE) == times


@pytest.mark.parametrize("hold", ["none", "expired", "held", "damaged"])
def test_a_hold_stops_the_thinning(tmp_path_factory: pytest.TempPathFactory, hold: str) -> None:
    """Any hold, whatever its topics: a snapshot has all of them; one that cannot be read stops it too."""
    archive = MadeArchive(tmp_path_factory.mktemp("store"))
    times = [NOW, NOW + FIVE_MINUTES, NOW + 2 * FIVE_MINUTES]
    for at in times:
        GroupsSnapshot(at, {}).put(archive.store, archive.keys, at)
    later = max(int(info.modified * 1000) for info in archive.store.list()) + 2 * DAY
    held = Hold(name="h", reason="r", topics=("other",), until=later if hold == "expired" else None)
    if hold != "none":
        archive.store.put(archive.keys.hold("h"), b"{" if hold == "damaged" else held.encode())
    outcome = thin_snapshots(archive.store, [archive.store], archive.keys, KEEPING, later)
    is_stopped = hold in {"held", "damaged"}
    assert len(outcome.removed) == (0 if is_stopped else 1)
    assert GroupsSnapshot.times(archive.store, archive.keys) == (times if is_stopped else [times[0], times[2]])
    assert thin_snapshots(archive.store, [archive.store], archive.keys, None, later + 1000 * DAY).removed == ()


def test_a_policy_with_ages_that_do_not_ascend_is_refused() -> None:
    """All of one must be shorter than the next; `every` and `hourly` have no default."""
    policy = {"cluster": "prod", "rules": []}
    found = parse_policy({**policy, "meta": {"every": "7d", "hourly": "90d"}}, "p").meta
    assert found is not None
    assert (found.every, found.hourly, found.daily) == (7 * DAY, 90 * DAY, None)
    for wrong in ({"every": "7d", "hourly": "1d"}, {"every": "1d", "hourly": "9d", "daily": "8d"}):
        with pytest.raises(ConfigurationError, match="every <= hourly <= daily is expected"):
            parse_policy({**policy, "meta": wrong}, "p")
    with pytest.raises(ConfigurationError, match=r"meta\.hourly"):
        parse_policy({**policy, "meta": {"every": "7d"}}, "p")
