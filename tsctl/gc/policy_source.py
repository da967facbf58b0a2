"""Where `tsctl gc run` has its policy from, and what of the policy or of holds does not fit the archive."""

import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ts_common.archive.holds import Hold
from ts_common.config.cluster_config import load_config
from ts_common.errors import ConfigurationError
from ts_common.model import is_topic_name
from ts_common.suggestions import nearest
from ts_reader.options.archive_name import SOURCE, ArchiveName
from tsctl.archive_options import chooser
from tsctl.gc.java_policy import policy_of_java
from tsctl.gc.policy import Policy, read_policy, useless_rules

if TYPE_CHECKING:
    from tsctl.verify.kafka_cluster import KafkaCluster

_NO_KEYS: Final = "--policy is missing, and the file of --config has no retention of the Java uploader that applies"


def read_policy_of(path: Path | None, name: ArchiveName) -> Policy:
    """Return the policy of a file, or that of the Java uploader's keys in the cluster's file.

    Args:
        path: of the policy; None for the Java uploader's keys.

    Raises:
        ConfigurationError: it is malformed, or there is no policy.
    """
    if path is not None:
        return read_policy(path)
    if name.file is None:
        raise ConfigurationError(SOURCE, ["--policy is missing"])
    found = policy_of_java(load_config(name.file.path)[0], name.keys.cluster)
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


def check_policy(policy: Policy, cluster: str, topics: Collection[str]) -> None:
    """Check that a policy is for the cluster of an archive, and that no rule is useless for the archive's topics.

    Raises:
        ConfigurationError: with each problem.
    """
    problems = useless_rules(policy, topics)
    if policy.cluster != cluster:
        own = f"the policy is for cluster {policy.cluster}, and the archive is of cluster {cluster}"
        problems = [f"{own}: give the policy of {cluster}, or correct `cluster` in it"]
    if problems:
        raise ConfigurationError("the policy", problems)


def findings_of(policy: Policy, topics: Collection[str], holds: Iterable[Hold]) -> list[str]:
    """Return a sentence for each text of a rule, and each hold that has not expired, that matches no topic.

    A misspelt one would have no effect without a message. Holds are those of all stores; a name counts once.
    """
    found = []
    for at, text in ((at, text) for at, rule in enumerate(policy.rules) for text in rule.topics):
        if not any(map(chooser([text]), topics)):
            lacks = "has this name" if is_topic_name(text) else "matches this regular expression with its whole name"
            found.append(f"rules.{at}: {text}: no topic of the archive {lacks}{nearest(text, topics)}")
    now = int(time.time() * 1000)
    for name, hold in sorted({hold.name: hold for hold in holds}.items()):
        if not hold.is_expired(now) and not any(map(hold.matches, topics)):
            found.append(f"hold {name}: it matches no topic of the archive, so it keeps nothing; correct its topics")
    return found
