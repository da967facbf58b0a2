"""The option `incarnation`: which life of a topic is read, where it was deleted and created again under its name.

Lives are told apart by topic id (KIP-516), and counted from 1 in the order of `incarnations.json`. The newest is read
where nothing is said. Each lies in a directory of its own, and one query reads one of them, never a mix.
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
    """Whether a text has the form of a topic id."""
    return _TOPIC_ID.fullmatch(text) is not None


def parse_incarnation(text: str) -> str:
    """`newest`, a number from 1, or a topic id.

    Raises:
        ValueError: it is none of these.
    """
    if text.lower() in {NEWEST, _OLDEST}:
        return NEWEST if text.lower() == NEWEST else "1"
    if _TOPIC_ID.fullmatch(text):
        return text
    if text.isdecimal() and int(text) > 0:
        return str(int(text))
    raise ValueError(f"{NEWEST}, {_OLDEST}, a number (1 is the oldest) or a topic id of 22 characters is expected")


def directory_of(incarnations: Incarnations, wanted: str) -> str:
    """What stands before `-<partition>` in the keys of the life that is asked for.

    Args:
        incarnations: of the topic; none where no topic id was ever seen: its one life is in the plain directory.
        wanted: as `parse_incarnation` says.

    Raises:
        QueryError: there is no such life; those that there are are named.
    """
    entries, topic = incarnations.entries, incarnations.topic
    if wanted == NEWEST:
        return incarnations.newest_directory
    if not entries:
        if wanted == "1":
            return topic
        raise QueryError(f"topic {topic}: no {OPTION} {wanted}; no topic id of it was ever seen, so there is only 1")
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
