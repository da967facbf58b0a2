"""The time that a topic's records are available for shipping, by the topic's settings."""

import pytest

from tsctl.verify.kafka_cluster import Keeping, keeping_of

DELETED = {"cleanup.policy": "delete", "retention.ms": "1000", "local.retention.ms": "-2"}
TIERED = {**DELETED, "remote.storage.enable": "true", "local.retention.ms": "10"}


@pytest.mark.parametrize(
    ("settings", "keeping"),
    [
        (DELETED, Keeping(1000, compacts=False)),
        ({**DELETED, "retention.ms": "-1"}, Keeping(None, compacts=False)),
        ({**DELETED, "cleanup.policy": "compact"}, Keeping(None, compacts=True)),
        ({**DELETED, "cleanup.policy": "compact,delete"}, Keeping(1000, compacts=True)),
        ({**DELETED, "local.retention.ms": "10"}, Keeping(1000, compacts=False)),
        (TIERED, Keeping(10, compacts=False)),
        ({**TIERED, "local.retention.ms": "-2"}, Keeping(1000, compacts=False)),
        ({**TIERED, "local.retention.ms": "-1"}, Keeping(None, compacts=False)),
        ({**TIERED, "remote.log.copy.disable": "true"}, Keeping(1000, compacts=False)),
    ],
)
def test_records_are_kept_as_long_as_the_brokers_own_disks_hold_them(
    settings: dict[str, str], keeping: Keeping
) -> None:
    """Agents cannot ship from Kafka's remote tier, so the local settings apply; -2 means the whole retention."""
    assert keeping_of(settings) == keeping
