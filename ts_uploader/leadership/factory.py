"""Open the leadership source that the configuration names."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from ts_common.broker_connection.security import SETTINGS, security_of
from ts_common.config.cluster_config import KAFKA_CLIENT, ClusterConfig
from ts_common.config.plugins import load_class
from ts_common.errors import ConfigurationError
from ts_uploader.environment import Environment
from ts_uploader.leadership.broker_settings import read_key_store, settings_of_broker
from ts_uploader.leadership.contract import LeadershipEvent, LeadershipSource
from ts_uploader.leadership.kraft.broker import Broker
from ts_uploader.leadership.kraft.direct_client import DirectClient
from ts_uploader.leadership.kraft.leadership import KraftLeadership
from ts_uploader.leadership.zookeeper.leadership import ZookeeperLeadership
from ts_uploader.leadership.zookeeper.security import security_of as zookeeper_security_of

_POLL_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 3.0
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
        settings = settings_of_broker(environment, config)
        broker = _broker(environment.broker_id, settings)
        return KraftLeadership(environment, emit, poll_seconds, broker, _identity(settings))
    if name != "zookeeper":
        source: type[LeadershipSource] = load_class(name, LeadershipSource, key)  # type: ignore[type-abstract]
        return source(environment, emit, poll_seconds)
    if not environment.zookeeper_connect:
        raise ConfigurationError(key, ["it names zookeeper, but the broker's file has no zookeeper.connect"])
    security = zookeeper_security_of(environment.broker_properties, config.zookeeper)
    return ZookeeperLeadership(environment, emit, poll_seconds, security)


def _broker(broker_id: int, settings: Mapping[str, str]) -> Broker:
    """Return a client by the raw connection; by librdkafka if the settings need it.

    It has more mechanisms and settings, rejects a setting that does not exist, and finds the broker by its id among
    several addresses.

    Raises:
        ConfigurationError: librdkafka rejects the settings, or cannot read the files that they name.
    """
    if settings.keys() <= SETTINGS and "," not in settings.get("bootstrap.servers", ""):
        with suppress(ConfigurationError):
            return DirectClient(broker_id, lambda: security_of(settings, KAFKA_CLIENT, read_key_store), _ANSWER_SECONDS)
    from ts_uploader.leadership.kraft.librdkafka_client import LibrdkafkaClient  # noqa: PLC0415  (10 MB of memory)

    return LibrdkafkaClient(broker_id, settings, _ANSWER_SECONDS)


def _identity(client: Mapping[str, str]) -> str:
    """Return the principal of a client with these settings, as far as they show it."""
    if "sasl.username" in client:
        return client["sasl.username"]
    own = client.keys() & {"ssl.keystore.location", "ssl.certificate.location", "ssl.certificate.pem"}
    return "the subject of its certificate" if own else "ANONYMOUS"
