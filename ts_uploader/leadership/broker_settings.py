"""How the agent's clients connect to its broker: by the broker's own file and `ts.segment.uploader.kafka.client.*`."""

import socket
from pathlib import Path

from ts_common.broker_connection.security import Security, security_of
from ts_common.config.cluster_config import KAFKA_CLIENT, ClusterConfig
from ts_uploader.environment import Environment
from ts_uploader.leadership.kraft.listener import client_settings


def settings_of_broker(environment: Environment, config: ClusterConfig) -> dict[str, str]:
    """Return librdkafka's settings.

    Raises:
        ConfigurationError: the broker's file and the operator's settings do not specify how to connect.
    """
    return client_settings(environment.broker_properties, config.kafka_client, socket.getfqdn())


def security_of_broker(environment: Environment, config: ClusterConfig) -> Security:
    """Return how the raw connection connects.

    Raises:
        ConfigurationError: as `settings_of_broker`, or a setting is not supported.
    """
    return security_of(settings_of_broker(environment, config), KAFKA_CLIENT, read_key_store)


def read_key_store(path: Path, password: str) -> bytes:
    """Return key and certificates of a PKCS#12 file, as PEM.

    Raises:
        StoreError: the file cannot be read, or its password is another one.
    """
    # Here, because cryptography needs 10 MB of memory.
    from ts_uploader.leadership.zookeeper.key_stores import own_certificate_pem  # noqa: PLC0415
    from ts_uploader.leadership.zookeeper.security import StoreType  # noqa: PLC0415

    return own_certificate_pem(path, StoreType.PKCS12, password)
