"""The archive that continues a restored cluster: its record, and the hold on the old topics."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.made_archive import MadeArchive, batches
from tests.tsctl.restore.test_fetching import plan_of
from ts_common.archive.former_places import read_with_former
from ts_common.archive.holds import MOST_TOPICS, read_holds
from ts_common.archive.plan import ReadRange
from ts_common.archive.restored import Restored
from ts_common.archive.view import open_view
from ts_common.errors import QueryError
from tsctl.restore.continuing import check_unchanged, continue_archive, hold_topics
from tsctl.restore.documents import Created, GroupsPlan, RestorePlan, Seed, TopicPlan
from tsctl.restore.planning import plan_partition

TOPIC_ID = "5fWnyHqTQDqQDqQDqQDqQA"
OLD_ID, LATER_ID = "A" * 22, "B" * 22
NO_GROUPS = GroupsPlan("none", None, {})


def opened(archive: MadeArchive) -> Any:
    return SimpleNamespace(keys=archive.keys, stores=[archive.store], store_of=lambda _: archive.store)


def plan(*topics: TopicPlan) -> RestorePlan:
    named = {each.directory: each for each in topics}
    return RestorePlan("p", 1, "prod", (), None, named, GroupsPlan("none", None, {}), ())


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path / "archive")


def test_more_topics_than_one_hold_can_name_are_held(archive: MadeArchive) -> None:
    """The old archive's collector may delete none of them; a repeated call adds nothing."""
    topics = [TopicPlan(f"t{number}", {}, {}) for number in range(MOST_TOPICS + 1)]
    for _ in range(2):
        hold_topics(opened(archive), plan(*topics), lambda _: None)
    held = [name for hold in read_holds(archive.store, archive.keys) for name in hold.topics]
    assert sorted(held) == sorted(each.directory for each in topics)


def test_a_directory_does_not_become_its_own_former_place(archive: MadeArchive) -> None:
    """An archive without a list of incarnations: its records would be unreadable, as a circle."""
    archive.put_segment("t", 5, batches((5, 10)))
    archive.commit("t", 10, log_start=5)
    made, created = plan(TopicPlan("t", {0: plan_of(archive)}, {})), Created("p", "kafka", {"t": TOPIC_ID})
    with pytest.raises(QueryError, match="another cluster id"):
        list(continue_archive(opened(archive), opened(archive), made, created))
    other = MadeArchive(archive.location, cluster="again")
    assert list(continue_archive(opened(archive), opened(other), made, created)) == [archive.store.location]


def test_a_topic_that_was_deleted_again_keeps_both_of_its_former_places(archive: MadeArchive) -> None:
    """With a seed, both restores are in one archive; readers follow the one to the other."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.commit("t", 10)
    archive.put_incarnations("t", OLD_ID)
    first = plan(TopicPlan("t", {0: plan_of(archive)}, {}))
    assert list(continue_archive(opened(archive), opened(archive), first, Created("p", "kafka", {"t": TOPIC_ID})))
    archive.put_incarnations("t", OLD_ID, TOPIC_ID)
    archive.directories["t"] = f"t~{TOPIC_ID}"
    archive.put_segment("t", 5, batches((5, 10), (10, 20)))
    archive.commit("t", 20, log_start=10, highest_base=5)
    again = plan_partition(archive.store, read_with_former(archive.store, archive.partition("t")), None, None)
    second = RestorePlan(
        "q", 1, "prod", (), None, {"t": TopicPlan(f"t~{TOPIC_ID}", {0: again.finished([9], [])}, {})}, NO_GROUPS, ()
    )
    for _ in range(2):  # a repeated call changes nothing
        list(continue_archive(opened(archive), opened(archive), second, Created("q", "kafka", {"t": LATER_ID})))
    record = Restored.read(archive.store, archive.keys.restored)
    assert record is not None
    assert {name: each.directory for name, each in record.topics.items()} == {
        f"t~{TOPIC_ID}": "t",
        f"t~{LATER_ID}": f"t~{TOPIC_ID}",
    }
    archive.directories["t"] = f"t~{LATER_ID}"
    archive.commit("t", 20, log_start=20)
    view = open_view(archive.store, read_with_former(archive.store, archive.partition("t")))
    found = [(step.start, step.end) for step in view.plan(view.start, view.end) if isinstance(step, ReadRange)]
    assert (view.start, found) == (0, [(0, 10), (10, 20)])


def test_the_hold_of_a_restore_into_the_same_archive_ends(archive: MadeArchive) -> None:
    """It holds what the topic gets too; later the collector finds the former place in `restored.json`."""
    hold_topics(opened(archive), replace(plan(TopicPlan("t", {}, {})), seed=Seed(9, "h:1")), lambda _: None)
    (hold,) = read_holds(archive.store, archive.keys)
    assert hold.until == 1 + 7 * 86_400_000


def test_what_agents_shipped_after_the_plan_is_not_left_behind(archive: MadeArchive) -> None:
    """The new topic begins at the plan's end, and readers of its former place end there; a cut was chosen."""
    archive.put_segment("t", 0, batches((0, 10)))
    archive.commit("t", 10)
    made = plan(TopicPlan("t", {0: plan_of(archive), 1: plan_of(archive)}, {}))  # 1 has no commit
    check_unchanged(opened(archive), made)
    archive.put_segment("t", 10, batches((10, 20)))
    archive.commit("t", 20, highest_base=10)
    with pytest.raises(QueryError, match="t-0: the archive has offsets up to 19, and the plan ends at 10: "):
        check_unchanged(opened(archive), made)
    check_unchanged(opened(archive), plan(TopicPlan("t", {0: plan_of(archive, end=10)}, {})))
