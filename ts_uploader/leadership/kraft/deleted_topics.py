"""Questions of other threads whether a topic id was deleted, which the source's own thread answers.

The broker's client belongs to one thread. A topic id that was deleted never returns, so that answer is kept.
"""

import threading
from collections import OrderedDict
from typing import Final

_WAIT_SECONDS: Final = 5.0  # some rounds of the source
_KEPT: Final = 1_000


class DeletedTopics:
    """The questions and the answers; thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # Guarded by the condition. By topic and topic id: None until there is an answer.
        self._asked: dict[tuple[str, str], bool | None] = {}
        self._deleted: OrderedDict[tuple[str, str], None] = OrderedDict()

    def ask(self, topic: str, topic_id: str, seconds: float = _WAIT_SECONDS) -> bool | None:
        """Return whether a topic id was deleted; None without an answer in time."""
        question = topic, topic_id
        with self._changed:
            if question in self._deleted:
                return True
            self._asked[question] = None
            self._changed.wait_for(lambda: question in self._deleted or self._asked.get(question) is not None, seconds)
            answer = self._asked.pop(question, None)
            return True if question in self._deleted else answer

    def waiting(self) -> list[tuple[str, str]]:
        """Return the questions without an answer, as topic and topic id."""
        with self._changed:
            return [question for question, answer in self._asked.items() if answer is None]

    def answer(self, topic: str, topic_id: str, *, deleted: bool) -> None:
        """Answer a question."""
        question = topic, topic_id
        with self._changed:
            if deleted:
                self._deleted[question] = None
                if len(self._deleted) > _KEPT:
                    self._deleted.popitem(last=False)
            if question in self._asked:
                self._asked[question] = deleted
            self._changed.notify_all()
