"""Requests with any values that the protocol allows have a reply, and harm nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema

from tests.endpoint.clients import call, read_all, run, serving
from tests.endpoint.entities import entities
from tests.made_archive import MadeArchive, batches, steps
from ts_endpoint.contract import Session
from ts_endpoint.protocol.replies import encode_reply
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import SERVED, Api

APIS = [Api.METADATA, Api.FETCH, Api.LIST_OFFSETS, Api.OFFSET_FOR_LEADER_EPOCH, Api.DESCRIBE_CONFIGS]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MadeArchive]:
    """A topic with a hole, whose partition 1 has no segment."""
    made = MadeArchive(tmp_path_factory.mktemp("archive"))
    made.put_segment("t", 0, batches(*steps(0, 30)))
    made.put_segment("t", 40, batches(*steps(40, 60)))
    made.commit("t", 60, highest_base=40)
    made.commit("t", 0, partition=1)
    yield made
    made.store.close()


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@given(data=st.data())
def test_e02_any_values_of_a_request_have_a_reply(archive: MadeArchive, api: Api, data: st.DataObject) -> None:
    """In each version: the handler raises nothing, and its reply can be encoded."""
    version = data.draw(st.integers(*SERVED[api]))
    body = data.draw(entities(load_request_schema(int(api), version)))
    request = Request(api, version, 1, None, body)

    async def answer() -> list[Any]:
        with serving(archive.store, archive.keys, refresh_seconds=3600) as served:
            values = await served.handlers[api](request, Session("test"))
            assert values is not None
            return encode_reply(request, values)

    assert run(answer)


def test_a_reader_is_served_after_strange_requests(archive: MadeArchive) -> None:
    """The same process serves the next client."""

    async def read() -> list[int]:
        with serving(archive.store, archive.keys, passes_holes=True) as served:
            schema: Any = load_request_schema(int(Api.METADATA), SERVED[Api.METADATA][1])
            await call(served, Api.METADATA, schema(topics=(), include_topic_authorized_operations=False))
            return [row["offset"] for row in await read_all(served, "t")]

    assert run(read) == [*range(30), *range(40, 60)]
