"""Kafka's numbers of DescribeConfigs, which the agent sends and the endpoint serves."""

from enum import IntEnum


class ResourceType(IntEnum):
    """What has configurations (`ConfigResource.Type`)."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """The place where a setting was set (`ConfigSource`)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    DEFAULT = 5
