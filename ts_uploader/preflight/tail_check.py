"""Check for `ts-uploader check` that this identity may request high watermarks, as the live tail does."""

from collections.abc import Collection
from typing import Final

from ts_common.broker_connection.connection import BrokerConnection
from ts_common.broker_connection.list_offsets import LATEST, NO_EPOCH, list_offsets
from ts_common.config.cluster_config import ClusterConfig
from ts_common.errors import ConfigurationError, TieredStorageError, TransientError
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, ok, unanswered, warning
from ts_uploader.snapshots.snapshot_writer import security_of_broker

_ABOUT: Final = "live tail"
_ANSWER_SECONDS: Final = 10.0
_PROBE: Final = "ts-uploader-check"  # a topic that need not exist
_DENIED: Final = 29  # TOPIC_AUTHORIZATION_FAILED
_WITHOUT: Final = "without them, records are visible some 10 s later"
_NAMED: Final = 3


def tail_findings(environment: Environment, config: ClusterConfig, topics: Collection[str]) -> list[Finding]:
    """Return whether this identity may request the high watermarks of topics; nothing if the live tail is off.

    Args:
        topics: that have a directory here and are shipped.
    """
    if not config.tail_interval_ms:
        return []
    tailed = sorted(topic for topic in topics if config.tails(topic)) or [_PROBE]
    try:
        with BrokerConnection(security_of_broker(environment, config), _ANSWER_SECONDS) as connection:
            found = list_offsets(connection, {TopicPartition(topic, 0): NO_EPOCH for topic in tailed}, LATEST)
    except ConfigurationError as refused:
        return [warning(_ABOUT, f"no high watermarks of the broker: {'; '.join(refused.problems)}", _WITHOUT)]
    except TransientError as away:
        return [unanswered(_ABOUT, str(away))]
    except TieredStorageError as failure:
        return [warning(_ABOUT, f"no high watermarks of the broker: {failure}", _WITHOUT)]
    denied = sorted(name.topic for name, answer in found.items() if answer.error == _DENIED)
    if not denied:
        return [ok(_ABOUT, "this identity may request high watermarks")]
    more = f" and {len(denied) - _NAMED} more" if len(denied) > _NAMED else ""
    what = f"the broker denies high watermarks of {', '.join(denied[:_NAMED])}{more}"
    return [warning(_ABOUT, what, f"allow this identity DESCRIBE on the topics: {_WITHOUT}")]
