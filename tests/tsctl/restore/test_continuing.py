"""The archive that continues a restored cluster: its record, and the hold on the old topics."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.made_archive import MadeArchive, batches
from tests.tsctl.restore.test_fetching import plan_of
from ts_common.archive.holds import MOST_TOPICS, read_holds
from ts_common.errors import QueryError
from tsctl.restore.continuing import continue_archive, hold_topics
from tsctl.restore.documents import Created, GroupsPlan, RestorePlan, TopicPlan

TOPIC_ID = "5fWnyHqTQDqQDqQDqQDqQA"


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
