"""Where `tsctl gc run` has its policy from, and what of the policy the archive lacks."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ts_common.config.cluster_config import load_config
from ts_common.errors import ConfigurationError
from ts_common.model import is_topic_name
from ts_reader.options.archive_name import SOURCE, ArchiveName
from tsctl.gc.java_policy import policy_of_java
from tsctl.gc.policy import Policy, read_policy

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster

_NO_POLICY: Final = "--policy is missing"
_NO_KEYS: Final = f"{_NO_POLICY}, and the file of --config has no retention of the Java uploader that applies"


def read_policy_of(path: Path | None, name: ArchiveName) -> Policy:
    """Return the policy of a file, or that of the Java uploader's keys in the cluster's file.

    Args:
        path: of the policy; None for the Java uploader's keys.
        name: the archive.

    Raises:
        ConfigurationError: it is malformed, or there is no policy.
    """
    if path is not None:
        return read_policy(path)
    if name.file is None:
        raise ConfigurationError(SOURCE, [_NO_POLICY])
    found = policy_of_java(load_config(name.file.path)[0])
    if found is None:
        raise ConfigurationError(SOURCE, [_NO_KEYS])
    return found


def check_cluster_given(policy: Policy, kafka: "KafkaCluster | None") -> None:
    """Check that the command line names the running cluster, if a policy needs it.

    Raises:
        ConfigurationError: it does not.
    """
    if kafka is None and policy.needs_kafka:
        raise ConfigurationError(SOURCE, ["the policy needs the running cluster: give --bootstrap-server"])


def missing_topics(policy: Policy, topics: Collection[str]) -> list[str]:
    """Return the plain names of a policy's rules that are no topic of the archive, in order; patterns do not count."""
    named = dict.fromkeys(text for rule in policy.rules for text in rule.topics)
    return [name for name in named if is_topic_name(name) and name not in topics]
