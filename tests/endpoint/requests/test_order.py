"""The lists of a reply have the order of a broker's, which clients rely on."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.endpoint.clients import FETCH, LIST, batches_of, call, fetch, fetch_body, module_of, run, serving
from tests.endpoint.groups.test_admin import OnlyTheirs
from tests.made_archive import MadeArchive, batches, steps
from tests.reader.shapes import txnindex_entry
from tests.transactions import ABORT, data, ended
from ts_common.log_format.framing import HEADER_SIZE
from ts_common.log_format.markers import read_markers
from ts_endpoint.contract import Session
from ts_endpoint.protocol.replies import api_versions
from ts_endpoint.protocol.versions import Api

METADATA, CONFIGS, EPOCHS = (
    module_of(each) for each in (Api.METADATA, Api.DESCRIBE_CONFIGS, Api.OFFSET_FOR_LEADER_EPOCH)
)
ASKED = ("bob", "ann", "ann-unknown", "bob-2", "ann-2")  # the user `ann` may read those of that name


def as_kafkajs_reads(records: bytes, aborted: list[tuple[int, int]]) -> list[int]:
    """Return the offsets that kafkajs returns: it activates at most one transaction a record, in the list's order."""
    waiting, hiding, shown = list(aborted), set[int](), list[int]()
    for header, batch in batches_of(records):
        if waiting and header.base_offset >= waiting[0][1]:
            hiding.add(waiting.pop(0)[0])
        if header.is_control:
            if any(kind == ABORT for _, kind in read_markers(header, batch[HEADER_SIZE:])):
                hiding.discard(header.producer_id)
        elif header.producer_id not in hiding:
            shown.append(header.base_offset)
    return shown


def test_e05_aborted_transactions_are_listed_by_their_markers(tmp_path: Path) -> None:
    """As `.txnindex` has them. In another order kafkajs hides what producer 2 commits after its abort."""
    archive = MadeArchive(tmp_path / "archive")
    log = [
        data(0, 1, 1),
        data(1, 1, 2),
        ended(2, 1, 2, kind=ABORT),
        data(3, 1, 2),
        ended(4, 1, 2),
        ended(5, 1, 1, kind=ABORT),
    ]
    txnindex = txnindex_entry(2, 1, 2, 0) + txnindex_entry(1, 0, 5, 0)
    archive.put_segment("t", 0, b"".join(log), txnindex=txnindex)
    archive.commit("t", 6)

    async def read() -> tuple[list[tuple[int, int]], list[int]]:
        with serving(archive.store, archive.keys) as served:
            answer = await fetch(served, "t", 2, committed=True)
            return answer.aborted, as_kafkajs_reads(answer.records, answer.aborted)

    assert run(read) == ([(2, 1), (1, 0)], [3])


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> MadeArchive:
    """Four topics with two partitions each."""
    made = MadeArchive(tmp_path_factory.mktemp("archive"))
    for topic in {*ASKED} - {"ann-unknown"}:
        for partition in range(2):
            made.put_segment(topic, 0, batches(*steps(0, 10)), partition=partition)
            made.commit(topic, 10, partition=partition)
    return made


def requests() -> dict[Api, tuple[Any, str, str, list[str]]]:
    """Return for each request its body, the list of the reply, the field with the name, and the names in order."""
    listed = LIST.ListOffsetsPartition(partition_index=0, timestamp=-1)
    validated = EPOCHS.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topics = tuple(METADATA.MetadataRequestTopic(name=name, topic_id=None) for name in ASKED)
    permitted_first = ["ann", "ann-unknown", "ann-2", "bob", "bob-2"]
    known_first = ["ann", "ann-2", "ann-unknown", "bob", "bob-2"]
    resources = tuple(
        CONFIGS.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None) for name in ASKED
    )
    metadata = METADATA.MetadataRequest(topics=topics, include_topic_authorized_operations=False)
    offsets = LIST.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=tuple(LIST.ListOffsetsTopic(name=name, partitions=(listed,)) for name in ASKED),
    )
    epochs = EPOCHS.OffsetForLeaderEpochRequest(
        topics=tuple(EPOCHS.OffsetForLeaderTopic(topic=name, partitions=(validated,)) for name in ASKED)
    )
    return {
        Api.METADATA: (metadata, "topics", "name", known_first),
        Api.LIST_OFFSETS: (offsets, "topics", "name", permitted_first),
        Api.OFFSET_FOR_LEADER_EPOCH: (epochs, "topics", "topic", permitted_first),
        Api.DESCRIBE_CONFIGS: (
            CONFIGS.DescribeConfigsRequest(resources=resources),
            "results",
            "resource_name",
            permitted_first,
        ),
    }


@pytest.mark.parametrize("api", requests(), ids=lambda api: api.name)
def test_what_is_refused_is_answered_last(archive: MadeArchive, api: Api) -> None:
    """The topics that the user may read are first, in the order of the request; unknown ones follow in Metadata."""
    body, listed, name, expected = requests()[api]

    async def ask() -> list[str]:
        with serving(archive.store, archive.keys, permissions=OnlyTheirs()) as served:
            values = await call(served, api, body, Session("test", "ann"))
            return [each[name] for each in values[listed]]

    assert run(ask) == expected


def test_a_fetch_answers_partitions_in_the_order_of_the_request(archive: MadeArchive) -> None:
    """Those that are not read follow; only consecutive partitions of one topic are together."""

    async def ask() -> list[tuple[str, list[int]]]:
        with serving(archive.store, archive.keys, permissions=OnlyTheirs()) as served:
            body = fetch_body("ann", {})
            wanted = [("bob", 0), ("ann", 1), ("ann-2", 0), ("ann", 9), ("ann", 0), ("ann-2", 1), ("ann-unknown", 0)]
            topics = tuple(
                FETCH.FetchTopic(topic=name, partitions=fetch_body(name, {number: 0}).topics[0].partitions)
                for name, number in wanted
            )
            fields = {each: getattr(body, each) for each in ("max_wait", "min_bytes", "max_bytes", "isolation_level")}
            request = FETCH.FetchRequest(**fields, topics=topics, forgotten_topics_data=())
            values = await call(served, Api.FETCH, request, Session("test", "ann"))
            return [
                (topic["topic"], [each["partition_index"] for each in topic["partitions"]])
                for topic in values["responses"]
            ]

    assert run(ask) == [
        ("ann", [1]),
        ("ann-2", [0]),
        ("ann", [0]),
        ("ann-2", [1]),
        ("bob", [0]),
        ("ann", [9]),
        ("ann-unknown", [0]),
    ]


def test_the_served_requests_are_listed_by_their_numbers() -> None:
    """As a broker lists them in its ApiVersions reply."""
    numbers = [each["api_key"] for each in api_versions()["api_keys"]]
    assert all(one < other for one, other in pairwise(numbers))
