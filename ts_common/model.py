"""Topics, partitions and cluster ids: values that all packages use."""

import re
import sys
from typing import NamedTuple, Self

# Kafka's topic names (org.apache.kafka.common.internals.Topic): these characters, at most 249 of them.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")

# The id is part of keys and of file names: no slash, and no name that is special to a file system.
_GENERATED = re.compile(r"[A-Za-z0-9_-]{22}")
_CLUSTER_ID = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,199}")


def is_topic_name(name: str) -> bool:
    """Return whether Kafka accepts this name for a topic."""
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


def is_cluster_id(name: str) -> bool:
    """Return whether an id is valid here: up to 200 letters, digits, `.`, `_` and `-`, without a dot at its start."""
    return _CLUSTER_ID.fullmatch(name) is not None


def is_generated_cluster_id(name: str) -> bool:
    """Return whether an id has the form of those that Kafka generates: a UUID in 22 characters of base64."""
    return _GENERATED.fullmatch(name) is not None


class TopicPartition(NamedTuple):
    """One partition of a topic; its text form is Kafka's directory name, `<topic>-<partition>`.

    A tuple has its hash and its comparisons from the interpreter: an agent looks up thousands each second.
    """

    topic: str
    partition: int

    @classmethod
    def parse(cls, directory_name: str) -> Self | None:
        """Return the partition of a directory in a log dir; None for other names.

        Directories with `-delete`, `-future` and `-stray` are not partitions, and their names can truncate the topic's.
        """
        match = _PARTITION_DIRECTORY.fullmatch(directory_name)
        if match is None or not is_topic_name(match["topic"]):
            return None
        return cls(sys.intern(match["topic"]), int(match["partition"]))  # a topic has many partitions

    @staticmethod
    def is_directory_name(name: str) -> bool:
        """Return whether a name can be that of a partition's directory in a log dir; `parse` is stricter."""
        _, dash, partition = name.rpartition("-")
        return bool(dash) and partition.isdecimal()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
