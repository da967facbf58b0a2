"""A listener serves clients of Kafka, and ends their connections in order."""

import asyncio

from confluent_kafka.admin import AdminClient

from tests.endpoint.network.small_cluster import TOPIC, SmallCluster, serve


def test_librdkafka_lists_the_topics() -> None:
    """ApiVersions is answered by the server, Metadata by its handler."""
    cluster = SmallCluster()

    async def client() -> list[str]:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        return [*(await asyncio.to_thread(admin.list_topics, timeout=10)).topics]

    assert serve(cluster, client) == [TOPIC]
