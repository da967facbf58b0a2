"""The words that all sides share, as frozen values."""

import re
import sys
from dataclasses import dataclass
from typing import Self

# Kafka's legal topic names (org.apache.kafka.common.internals.Topic): these characters, at most 249 of them.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")

# What stands in keys and names a file: no slash, and nothing that a file system takes for something else.
_CLUSTER_ID = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,199}")


def is_topic_name(name: str) -> bool:
    """Whether Kafka would let a topic have this name."""
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


def is_cluster_id(name: str) -> bool:
    """Whether a cluster can have this id here: letters, digits, `.`, `_` and `-`, not beginning with a dot."""
    return _CLUSTER_ID.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of a topic; its text form is Kafka's directory name, `<topic>-<partition>`."""

    topic: str
    partition: int

    @classmethod
    def parse(cls, directory_name: str) -> Self | None:
        """The partition that a directory in a log dir belongs to.

        Returns None for what is none: `-delete`, `-future` and `-stray` directories (they may truncate the topic's
        name, so it is never taken from them) and names that Kafka does not write.
        """
        match = _PARTITION_DIRECTORY.fullmatch(directory_name)
        if match is None or not is_topic_name(match["topic"]):
            return None
        return cls(sys.intern(match["topic"]), int(match["partition"]))  # a topic has many partitions

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
