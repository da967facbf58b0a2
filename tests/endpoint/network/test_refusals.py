"""What users of producers and of kafka-delete-records see: an archive is read-only."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kio.schema.create_topics.v7.request import CreatableTopic
from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsTopic
from kio.schema.errors import ErrorCode

from dev.local.jars import Line
from tests.endpoint.network.java_tools import DELETE_RECORDS, PRODUCER, run_tool
from tests.endpoint.network.raw_client import RawClient
from tests.endpoint.network.small_cluster import TOPIC, SmallCluster, serve
from ts_endpoint.protocol.versions import Api


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_librdkafkas_producer_reports_the_policy(is_idempotent: bool) -> None:
    """The delivery report has POLICY_VIOLATION; the producer does not retry. An idempotent one gets its id before."""
    cluster = SmallCluster()
    reports = []

    async def client() -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": is_idempotent})
        producer.produce(TOPIC, b"value", on_delivery=lambda error, _: reports.append(error))
        await asyncio.to_thread(producer.flush, 30)

    serve(cluster, client)

    assert [each and each.name() for each in reports] == ["POLICY_VIOLATION"]
    assert cluster.server is not None
    assert cluster.server.counters.requests[Api.PRODUCE] == 1


@pytest.mark.parametrize("line", ["4", pytest.param("3.9", marks=pytest.mark.full)])
def test_javas_producer_shows_that_the_archive_is_read_only(line: Line) -> None:
    """The console producer, an idempotent one, prints the message of the endpoint once."""
    cluster = SmallCluster()

    async def client() -> tuple[int | None, str]:
        arguments = ["--bootstrap-server", cluster.bootstrap, "--topic", TOPIC]
        return await run_tool(PRODUCER[line], arguments, line=line, stdin=b"value\n")

    _, printed = serve(cluster, client)

    assert printed.count("this endpoint serves an archive, which is read-only") == 1


@pytest.mark.full
def test_javas_tool_shows_that_records_cannot_be_deleted(tmp_path: Path) -> None:
    """kafka-delete-records prints the error of each partition."""
    cluster = SmallCluster()
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "offset": 5}]}))

    async def client() -> tuple[int | None, str]:
        arguments = ["--bootstrap-server", cluster.bootstrap, "--offset-json-file", str(file)]
        return await run_tool(DELETE_RECORDS, arguments)

    _, printed = serve(cluster, client)

    assert "PolicyViolationException" in printed


def test_delete_records_is_refused_for_each_partition() -> None:
    """Every partition of the request is in the reply."""
    cluster = SmallCluster()
    partitions = tuple(DeleteRecordsPartition(partition_index=number, offset=-1) for number in range(3))  # type: ignore[arg-type]

    async def client() -> object:
        raw = await RawClient.open(cluster.bootstrap)
        topics = (DeleteRecordsTopic(name=TOPIC, partitions=partitions),)  # type: ignore[arg-type]
        reply = await raw.ask(Api.DELETE_RECORDS, 2, topics=topics, timeout=timedelta(0))
        await raw.close()
        return [(each.partition_index, each.error_code) for each in reply.topics[0].partitions]

    assert serve(cluster, client) == [(number, ErrorCode.policy_violation) for number in range(3)]


def test_creating_topics_is_refused_with_the_settings_of_mirror_maker() -> None:
    """MirrorMaker 2 logs the text and ends; for a topic of another program it names no settings."""
    cluster = SmallCluster()
    names = ("mm2-offsets.target.internal", "heartbeats", "orders-changelog")
    wanted = tuple(
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())  # type: ignore[arg-type]
        for name in names
    )

    async def client() -> list[tuple[str, ErrorCode, bool]]:
        raw = await RawClient.open(cluster.bootstrap)
        reply = await raw.ask(Api.CREATE_TOPICS, 7, topics=wanted)
        await raw.close()
        named = "offset-syncs.topic.location=target and emit.heartbeats.enabled=false"
        assert all(": create topics in the Kafka cluster itself" in each.error_message for each in reply.topics)
        return [(each.name, each.error_code, named in each.error_message) for each in reply.topics]

    refused = ErrorCode.policy_violation
    assert serve(cluster, client) == list(zip(names, [refused] * 3, [True, True, False], strict=True))


def test_there_are_no_acls() -> None:
    """As from a broker without an authorizer, so that MirrorMaker 2 copies none and continues."""
    cluster = SmallCluster()
    every = {"resource_type_filter": 2, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}

    async def client() -> tuple[ErrorCode, object]:
        raw = await RawClient.open(cluster.bootstrap)
        names = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
        reply = await raw.ask(Api.DESCRIBE_ACLS, 3, **every, **names)
        await raw.close()
        return reply.error_code, reply.resources

    assert serve(cluster, client) == (ErrorCode.security_disabled, ())


def test_a_producer_without_acknowledgements_is_disconnected() -> None:
    """With acks=0 no reply exists, so the end of the connection is the only refusal."""
    cluster = SmallCluster()
    errors = []

    async def client() -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "acks": 0, "log_level": 0}
        producer = Producer({**settings, "error_cb": lambda error: errors.append(error.name())})
        producer.produce(TOPIC, b"value")

        def poll() -> None:
            while not errors:
                producer.poll(0.05)

        await asyncio.to_thread(poll)
        producer.purge()
        await asyncio.to_thread(producer.flush, 30)

    serve(cluster, client)

    assert cluster.server is not None
    assert cluster.server.counters.ended["refused_request"] >= 1


@pytest.mark.parametrize("version", range(6))
def test_a_producer_id_is_granted_once(version: int) -> None:
    """Two producers get different ids; a transactional one gets POLICY_VIOLATION, and half an id is INVALID_REQUEST."""
    cluster = SmallCluster()

    async def client() -> list[Any]:
        raw = await RawClient.open(cluster.bootstrap)
        asked: list[dict[str, Any]] = [{}, {}, {"transactional_id": "t"}]
        asked += [{"producer_id": 5}] if version >= 3 else []
        usual: dict[str, Any] = {"transactional_id": None, "transaction_timeout": timedelta(0)}
        found = [await raw.ask(Api.INIT_PRODUCER_ID, version, **{**usual, **each}) for each in asked]
        await raw.close()
        return found

    one, other, *refused = serve(cluster, client)
    assert (one.error_code, one.producer_epoch) == (other.error_code, other.producer_epoch) == (ErrorCode.none, 0)
    assert -1 < one.producer_id != other.producer_id > -1
    expected = [ErrorCode.policy_violation, ErrorCode.invalid_request][: len(refused)]
    assert [(each.error_code, each.producer_id) for each in refused] == [(each, -1) for each in expected]
