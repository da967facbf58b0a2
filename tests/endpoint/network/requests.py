"""Fields of requests and replies that tests of the network send."""

from datetime import timedelta
from typing import Any

from tests.endpoint.network.small_cluster import TOPIC
from ts_endpoint.protocol.replies import Records, Values

HEARTBEAT: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m"}
FETCH: dict[str, Any] = {
    "replica_id": -1,
    "max_wait": timedelta(0),
    "min_bytes": 0,
    "max_bytes": 1,
    "topics": (),
    "forgotten_topics_data": (),
    "session_id": 0,
    "session_epoch": -1,
    "rack_id": "",
    "isolation_level": 0,
}


def fetched(*views: memoryview) -> Values:
    partition = {"partition_index": 0, "high_watermark": 9, "aborted_transactions": None, "records": Records(views)}
    return {"responses": [{"topic": TOPIC, "partitions": [partition]}]}
