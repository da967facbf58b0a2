"""Questions whether a topic id was deleted: who is answered, when, and by how many answers."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dev.local.kafka.cluster import wait_for
from ts_uploader.leadership.kraft.deleted_topics import DeletedTopics

QUESTION = ("t", "X")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_u45_one_answer_is_for_every_partition_that_waits_for_it() -> None:
    """A reassignment moves several partitions of a topic at once."""
    topics = DeletedTopics()
    with ThreadPoolExecutor(3) as threads:
        asking = [threads.submit(topics.ask, *QUESTION) for _ in range(3)]
        wait_for(topics.waiting, "a question")
        assert topics.waiting() == [QUESTION]
        while not all(each.done() for each in asking):
            topics.answer(*QUESTION, deleted=False)
        assert [each.result() for each in asking] == [False] * 3


@pytest.mark.parametrize("between", [None, False])
def test_u45_late_metadata_deletes_no_topic(between: bool | None) -> None:
    """Another broker's answer counts once it is repeated later; a different answer in between begins again."""
    clock = Clock()
    topics = DeletedTopics(clock)

    def said(*, deleted: bool, later: float) -> bool | None:
        clock.now += later
        topics.answer(*QUESTION, deleted=deleted)
        return topics.ask(*QUESTION, 0.0)

    assert topics.ask(*QUESTION, 0.0) is None
    assert said(deleted=True, later=1) is None
    assert said(deleted=True, later=1) is None
    if between is False:
        assert said(deleted=False, later=1) is False
        assert said(deleted=True, later=4) is None
    assert said(deleted=True, later=5) is True
    assert topics.waiting() == []


def test_u45_an_answer_that_cannot_be_late_counts_at_once() -> None:
    """The broker of the directory itself no longer has the topic."""
    topics = DeletedTopics()
    topics.ask(*QUESTION, 0.0)
    topics.answer(*QUESTION, deleted=True, final=True)
    assert topics.ask(*QUESTION, 0.0) is True


def test_u45_each_question_is_answered_in_turn_until_it_is_no_longer_repeated() -> None:
    """More questions than a round answers: none of them starves."""
    clock = Clock()
    topics = DeletedTopics(clock)
    for number in range(120):
        topics.ask("t", str(number), 0.0)
    assert len({key for _ in range(3) for key in topics.waiting()}) == 120
    clock.now += 61
    assert topics.waiting() == []
