"""Check for `ts-uploader check` that this identity may request high watermarks, as the live tail does."""

from collections.abc import Collection
from typing import Final

from ts_common.broker_connection.list_offsets import NO_EPOCH
from ts_common.config.cluster_config import ClusterConfig
from ts_common.errors import ConfigurationError, TieredStorageError, TransientError
from ts_common.model import TopicPartition
from ts_uploader.environment import Environment
from ts_uploader.findings import Finding, ok, unanswered, warning
from ts_uploader.tail.broker_watermarks import BrokerWatermarks, denial

_ABOUT: Final = "live tail"
_PROBE: Final = "ts-uploader-check"  # a topic that need not exist
_WITHOUT: Final = "without them, records are visible some 10 s later"


def tail_findings(environment: Environment, config: ClusterConfig, topics: Collection[str]) -> list[Finding]:
    """Return whether this identity may request the high watermarks of topics; nothing if the live tail is off.

    Args:
        topics: that have a directory here and are shipped.
    """
    if not config.tail_interval_ms:
        return []
    tailed = sorted(topic for topic in topics if config.tails(topic)) or [_PROBE]
    requests = BrokerWatermarks(environment, lambda: config, dict)
    try:
        requests.request({TopicPartition(topic, 0): NO_EPOCH for topic in tailed})
    except ConfigurationError as refused:
        return [warning(_ABOUT, f"no high watermarks of the broker: {'; '.join(refused.problems)}", _WITHOUT)]
    except TransientError as away:
        return [unanswered(_ABOUT, str(away))]
    except TieredStorageError as failure:
        return [warning(_ABOUT, f"no high watermarks of the broker: {failure}", _WITHOUT)]
    finally:
        requests.close()
    if not requests.denied:
        return [ok(_ABOUT, "this identity may request high watermarks")]
    return [warning(_ABOUT, denial(requests.denied), f"allow this identity DESCRIBE on the topics: {_WITHOUT}")]
