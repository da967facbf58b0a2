"""Keys of the Java uploader that have no effect here; a file with such a key is accepted with a warning."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ts_common.config.setting_types import REPORTERS


@dataclass(frozen=True, slots=True)
class JavaKey:
    """A key of the Java uploader that has no effect here.

    Attributes:
        pattern: the key, with `*` for any text; `key=value` for a key that is ignored for some values only.
        reason: the warning's text.
        accepts: whether a value is accepted; by default all are.
    """

    pattern: str
    reason: str
    accepts: Callable[[str], bool] = field(default=lambda _: True)


_UPLOADER: Final = "ts.segment.uploader."
_NO_COLLECTION: Final = "remote retention is not implemented yet; the agent deletes nothing from the store"
_ACCEPTED_MANAGERS: Final = {"S3SegmentManager", "NoOpSegmentManager", "NoOp", ""}

JAVA_KEYS: Final = (
    JavaKey(_UPLOADER + "upload.max.retries", "the agent retries an upload until the file is removed"),
    JavaKey(
        _UPLOADER + "segment.manager.class",
        _NO_COLLECTION,
        lambda value: value.rpartition(".")[2] in _ACCEPTED_MANAGERS,
    ),
    JavaKey(_UPLOADER + "segment.manager.gc.interval.seconds", _NO_COLLECTION),
    JavaKey(_UPLOADER + "segment.manager.gc.*.retention.seconds", _NO_COLLECTION),
    JavaKey(_UPLOADER + "segment.manager.gc.retention.seconds", _NO_COLLECTION),
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
