"""The option `incarnation`: which incarnation to read of a topic that was deleted and created again.

Incarnations have different topic ids (KIP-516), and are counted from 1 in the order of `incarnations.json`. The newest
is the default. Each has its own directory, and a query reads one of them, never a mix.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from ts_common.archive.incarnations import Incarnations
from ts_common.errors import QueryError

OPTION: Final = "incarnation"
NEWEST: Final = "newest"
_OLDEST: Final = "oldest"
_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")  # 16 bytes of base64, as Kafka's Uuid prints them
_TIME: Final = "%Y-%m-%d %H:%M:%S"
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def is_topic_id(text: str) -> bool:
    """Return whether a text has the form of a topic id."""
    return _TOPIC_ID.fullmatch(text) is not None


def parse_incarnation(text: str) -> str:
    """Return `newest`, a number from 1, or a topic id.

    Raises:
        ValueError: the text is not one of them.
    """
    if text.lower() in {NEWEST, _OLDEST}:
        return NEWEST if text.lower() == NEWEST else "1"
    if _TOPIC_ID.fullmatch(text):
        return text
    if text.isdecimal() and int(text) > 0:
        return str(int(text))
    raise ValueError(f"{NEWEST}, {_OLDEST}, a number (1 is the oldest) or a topic id of 22 characters is expected")


def directory_of(incarnations: Incarnations, wanted: str) -> str:
    """Return the directory of an incarnation: the part of its keys before `-<partition>`.

    Args:
        incarnations: of the topic; empty if it never had a topic id, so that its only one has the plain directory.
        wanted: as `parse_incarnation` returns it.

    Raises:
        QueryError: the topic has no such incarnation; the message lists the others.
    """
    entries, topic = incarnations.entries, incarnations.topic
    if wanted == NEWEST:
        return incarnations.newest_directory
    if not entries:
        if wanted == "1":
            return topic
        raise QueryError(f"topic {topic}: no {OPTION} {wanted}; it never had a topic id, so there is only 1")
    chosen = incarnations.find(wanted)
    if chosen is None and not _TOPIC_ID.fullmatch(wanted) and int(wanted) <= len(entries):
        chosen = entries[int(wanted) - 1]
    if chosen is None:
        known = (
            f"{number} {entry.topic_id}, first seen {_EPOCH + timedelta(milliseconds=entry.first_seen):{_TIME}} UTC"
            for number, entry in enumerate(entries, 1)
        )
        raise QueryError(f"topic {topic}: no {OPTION} {wanted}; there are {'; '.join(known)}")
    return chosen.directory
