"""Keys of the Java uploader that have no effect on the agent; a file with such a key is accepted with a warning.

`tsctl gc` makes a policy of those of collection, if it has no file of a policy (`tsctl/gc/policy_source.py`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ts_common.config.setting_types import REPORTERS


@dataclass(frozen=True, slots=True)
class JavaKey:
    """A key of the Java uploader that has no effect on the agent.

    Attributes:
        pattern: the key, with `*` for any text; `key=value` for a key that is ignored for some values only.
        accepts: whether a value is accepted; by default all are.
    """

    pattern: str
    reason: str
    accepts: Callable[[str], bool] = field(default=lambda _: True)


_UPLOADER: Final = "ts.segment.uploader."
_COLLECTION: Final = _UPLOADER + "segment.manager."
_NO_COLLECTION: Final = "the agent deletes no segment from the store; without a policy file, `tsctl gc` "
COLLECTING_MANAGER: Final = "S3SegmentManager"
_ACCEPTED_MANAGERS: Final = {COLLECTING_MANAGER, "NoOpSegmentManager", "NoOp", ""}
MANAGER_KEY: Final = _COLLECTION + "class"
INTERVAL_KEY: Final = _COLLECTION + "gc.interval.seconds"
RETENTION_KEY: Final = _COLLECTION + "gc.retention.seconds"
_RETENTION_OF_TOPIC: Final = re.compile(re.escape(_COLLECTION) + r"gc\.(?P<topic>.+)\.retention\.seconds")

JAVA_KEYS: Final = (
    JavaKey(_UPLOADER + "upload.max.retries", "the agent retries an upload until the file is removed"),
    JavaKey(
        MANAGER_KEY,
        _NO_COLLECTION + f"deletes only with {COLLECTING_MANAGER}",
        lambda value: value.rpartition(".")[2] in _ACCEPTED_MANAGERS,
    ),
    JavaKey(INTERVAL_KEY, _NO_COLLECTION + "deletes only if the value is above 0; its scheduler sets the interval"),
    JavaKey(
        _COLLECTION + "gc.*.retention.seconds",
        _NO_COLLECTION + "deletes what is older, of the topic; a negative value keeps everything",
    ),
    JavaKey(
        RETENTION_KEY,
        _NO_COLLECTION
        + "deletes what is older, of topics without a key of their own; a negative value keeps everything",
    ),
    JavaKey(
        _UPLOADER + "dlq.*",
        "there is no dead-letter queue; the agent retries failed segments and reports the partition",
    ),
    JavaKey(
        "metrics.reporter.class=com.pinterest.*",
        f"the class is part of the Java uploader; use {', '.join(REPORTERS)} or module:Class; `/metrics` is served",
    ),
    JavaKey("metrics.registry.manager.threadLocal", "the process has one metrics registry"),
)


def find_java_key(key: str) -> JavaKey | None:
    """Return the entry of a key, or of `key=value`; None if there is no such entry."""
    for entry in JAVA_KEYS:
        if re.fullmatch(re.escape(entry.pattern).replace(r"\*", ".+"), key):
            return entry
    return None


def topic_of_retention(key: str) -> str | None:
    """Return the topic of a key with the retention of one topic; None for another key."""
    match = _RETENTION_OF_TOPIC.fullmatch(key)
    return None if match is None else match["topic"]


def is_of_collection(key: str) -> bool:
    """Return whether a key configures the collection of the Java uploader."""
    return key.startswith(_COLLECTION)
