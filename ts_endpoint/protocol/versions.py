"""The requests that the endpoint serves, each with its lowest and highest version.

The list is exact: a Java client that is offered a higher version requests it again without an end. Some entries are
offered and refused, because clients need them:

- Produce: librdkafka infers from its versions that a broker has record batches of magic 2 (Produce 3) and zstd
  (Produce 7). Without both it never sends a Fetch, and reports no error.
- SaslHandshake 0: librdkafka 2.0, which Debian's kcat uses, infers from it that a broker has SASL, and then sends
  version 1. After version 0 the messages of a login have no headers; clients older than Kafka 1.0 send them so.
- InitProducerId: frameworks that only read create an idempotent producer too (Quix Streams). The id is granted, and
  what the producer sends is refused.
- DeleteRecords and CreateTopics: an admin client then reports the refusal, and not a missing feature of the broker.
- DescribeAcls: MirrorMaker 2 requests them by default, and continues without.

One library is offered less: see `served_to`.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class Api(IntEnum):
    """Kafka's number of a request."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    DELETE_GROUPS = 42
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60


# The lowest versions are those of Kafka 4, which kio describes.
SERVED: Final[dict[Api, tuple[int, int]]] = {
    Api.PRODUCE: (3, 9),
    Api.FETCH: (4, 18),
    Api.LIST_OFFSETS: (1, 8),
    Api.METADATA: (0, 12),
    Api.OFFSET_COMMIT: (2, 8),
    Api.OFFSET_FETCH: (1, 8),
    Api.FIND_COORDINATOR: (0, 4),
    Api.JOIN_GROUP: (2, 9),
    Api.HEARTBEAT: (0, 4),
    Api.LEAVE_GROUP: (0, 5),
    Api.SYNC_GROUP: (0, 5),
    Api.DESCRIBE_GROUPS: (0, 5),
    Api.LIST_GROUPS: (0, 5),
    Api.SASL_HANDSHAKE: (0, 1),
    Api.API_VERSIONS: (0, 4),
    Api.CREATE_TOPICS: (2, 7),
    Api.DELETE_RECORDS: (0, 2),
    Api.INIT_PRODUCER_ID: (0, 5),
    Api.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    Api.DESCRIBE_ACLS: (1, 3),
    Api.DESCRIBE_CONFIGS: (1, 4),
    Api.SASL_AUTHENTICATE: (0, 2),
    Api.DELETE_GROUPS: (0, 2),
    Api.OFFSET_DELETE: (0, 0),
    Api.DESCRIBE_CLUSTER: (0, 1),
}


# The client software in ApiVersions: `librdkafka` with its version, or `confluent-kafka-python` with
# `2.16.1-rdkafka-2.16.1`, as other wrappers.
_RDKAFKA: Final = re.compile(r"rdkafka-(\d{1,4})\.(\d{1,4})")
_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})")
_READS_LEGACY_WRONG: Final = ((2, 5), (2, 16))
_LAST_FETCH_OF_FIXED_WIDTH: Final = 11


def served_to(software: str, version: str) -> Mapping[Api, tuple[int, int]]:
    """Return the versions to offer to a client: all, but to librdkafka 2.5 to 2.15 no Fetch above 11.

    From Fetch 12 on these read the lengths of messages of magic 0 and 1 as those of its fields. They return null for
    each key and value, and no error, or they repeat the Fetch for ever (librdkafka's issues 5504 and 5549).

    Args:
        software: the client library's name in its ApiVersions.
        version: its version there.
    """
    found = _RDKAFKA.search(version) or (_VERSION.match(version) if software == "librdkafka" else None)
    first, fixed = _READS_LEGACY_WRONG
    if found is None or not first <= (int(found[1]), int(found[2])) < fixed:
        return SERVED
    return {**SERVED, Api.FETCH: (SERVED[Api.FETCH][0], _LAST_FETCH_OF_FIXED_WIDTH)}


def served_versions(api_key: int) -> tuple[int, int] | None:
    """Return the lowest and the highest version of a request that the endpoint answers; None if it answers none."""
    return SERVED.get(Api(api_key)) if api_key in Api._value2member_map_ else None
