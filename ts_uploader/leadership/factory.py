"""Open the leadership source that the configuration names."""

from collections.abc import Callable
from typing import Final

from ts_common.config.cluster_config import ClusterConfig
from ts_common.config.plugins import load_class
from ts_common.errors import ConfigurationError
from ts_uploader.environment import Environment
from ts_uploader.leadership.broker_settings import settings_of_broker
from ts_uploader.leadership.contract import LeadershipEvent, LeadershipSource
from ts_uploader.leadership.zookeeper.leadership import ZookeeperLeadership
from ts_uploader.leadership.zookeeper.security import security_of

_POLL_SECONDS: Final = 60.0
_WATCHED_POLL_SECONDS: Final = 600.0  # a poll reads a node of each partition, led or followed


def open_source(
    environment: Environment, config: ClusterConfig, emit: Callable[[LeadershipEvent], None]
) -> LeadershipSource:
    """Return the source that the configuration names, else the one of the broker's file; not yet connected.

    Raises:
        ConfigurationError: the settings of the connection are missing or invalid.
    """
    name = config.leadership or ("kraft" if environment.kraft else "zookeeper")
    poll_seconds = config.leadership_poll_seconds or (_WATCHED_POLL_SECONDS if name == "zookeeper" else _POLL_SECONDS)
    key = "ts.segment.uploader.leadership.watcher.class"
    if name == "kraft":
        from ts_uploader.leadership.kraft.leadership import KraftLeadership  # noqa: PLC0415  (librdkafka, only where it is used)

        return KraftLeadership(environment, emit, poll_seconds, settings_of_broker(environment, config))
    if name != "zookeeper":
        source: type[LeadershipSource] = load_class(name, LeadershipSource, key)  # type: ignore[type-abstract]
        return source(environment, emit, poll_seconds)
    if not environment.zookeeper_connect:
        raise ConfigurationError(key, ["it names zookeeper, but the broker's file has no zookeeper.connect"])
    security = security_of(environment.broker_properties, config.zookeeper)
    return ZookeeperLeadership(environment, emit, poll_seconds, security)
