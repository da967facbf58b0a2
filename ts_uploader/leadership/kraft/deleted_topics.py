"""Questions of other threads whether a topic id was deleted, which the source's own thread answers.

The client of a broker or of ZooKeeper belongs to one thread. A question is registered once, however many partitions
have it, and answered again each round while it is repeated. Another broker's metadata, or another ZooKeeper server, can
be late. So an answer that is not final counts as "deleted" only if it is given twice at a distance, and no answer
between the two differs.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_WAIT_SECONDS: Final = 5.0  # some rounds of the source
_APART_SECONDS: Final = 5.0  # a live broker applies the cluster's metadata within a second
_IN_TURN: Final = 50  # questions of a round, of two requests each
_REPEATED_SECONDS: Final = 60.0  # twice the longest delay between two attempts of a task


@dataclass
class _Question:
    """The state of one question.

    Attributes:
        received_at: when it was last received, by the clock.
        answer: what counts now; None until then.
        answers: how many there were.
        deleted_since: the first of the answers "deleted" without another one since; None without one.
    """

    received_at: float
    answer: bool | None = None
    answers: int = 0
    deleted_since: float | None = None


class DeletedTopics:
    """The questions and the answers; thread-safe.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._questions: dict[tuple[str, str], _Question] = {}  # guarded by the condition; by topic and topic id

    def ask(self, topic: str, topic_id: str, seconds: float = _WAIT_SECONDS) -> bool | None:
        """Return whether a topic id was deleted, by an answer since this call; None without one in time.

        With no time to wait, the last answer counts.
        """
        with self._changed:
            question = self._questions.setdefault((topic, topic_id), _Question(self._clock()))
            question.received_at = self._clock()
            before = question.answers
            self._changed.wait_for(lambda: question.answers > before and question.answer is not None, seconds)
            return question.answer

    def waiting(self) -> list[tuple[str, str]]:
        """Return the questions to answer in this round, in turn; those that were not repeated are forgotten."""
        with self._changed:
            since = self._clock() - _REPEATED_SECONDS
            self._questions = {key: each for key, each in self._questions.items() if each.received_at >= since}
            chosen = [key for key, each in self._questions.items() if not each.answer][:_IN_TURN]
            for key in chosen:
                self._questions[key] = self._questions.pop(key)
            return chosen

    def answer(self, topic: str, topic_id: str, *, deleted: bool, final: bool = False) -> None:
        """Answer a question.

        Args:
            deleted: whether the cluster lacks the id.
            final: no late metadata explains the answer, so one is enough.
        """
        with self._changed:
            question = self._questions.get((topic, topic_id))
            if question is None:
                return
            now = self._clock()
            question.answers += 1
            if not deleted:
                question.answer, question.deleted_since = False, None
            elif final or (question.deleted_since is not None and now >= question.deleted_since + _APART_SECONDS):
                question.answer = True
            elif question.deleted_since is None:
                question.answer, question.deleted_since = None, now
            self._changed.notify_all()
