"""The bytes of a request are checked before kio allocates memory for what they announce."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema

from tests.endpoint.entities import entities
from tests.endpoint.network.raw_client import framed
from ts_endpoint.protocol.requests import MalformedRequest, Request, parse_request
from ts_endpoint.protocol.shape import MOST_ELEMENTS, checked
from ts_endpoint.protocol.versions import SERVED, Api

METADATA_HEADER = b"\0\3\0\x09\0\0\0\1\0\1c"  # version 9, with a client's name; tagged fields follow
NO_TAGS = b"\0"
TAG_OF_A_LATER_RELEASE = b"\x01\x05\x03abc"
ONE_TOPIC = b"\x02\x02t"
REST = b"\1\0\0"  # of the body after its topics


def parsed(frame: bytes) -> Request:
    request = parse_request(frame)
    assert isinstance(request, Request)
    return request


@pytest.mark.parametrize("api", list(SERVED), ids=lambda api: api.name)
@settings(max_examples=10)
@given(data=st.data())
def test_a_request_that_kio_writes_is_not_changed(api: Api, data: st.DataObject) -> None:
    """In each version, with any values."""
    version = data.draw(st.integers(*SERVED[api]))
    schema: Any = load_request_schema(int(api), version)

    def encoded(body: Any) -> bytes:
        return framed(api, version, 1, **{field.name: getattr(body, field.name) for field in fields(body)})[4:]

    frame = encoded(data.draw(entities(schema)))

    assert checked(frame, schema) is frame
    assert encoded(parsed(frame).body) == frame


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (METADATA_HEADER + NO_TAGS + b"\xff\xff\xff\xff\x0f", "an array of 4294967294 elements"),
        (METADATA_HEADER + NO_TAGS + b"\xff\xff\xff\xff\xff\x01", "does not end"),
        (b"\0\3\0\1\0\0\0\1\0\0\x7f\xff\xff\xff", "an array of 2147483647 elements"),
        (b"\0\3\0\1\0\0\0\1\0\0\xff\xff\xff\xfb", "an array of -5 elements"),
        (b"\0\x0f\0\0\0\0\0\1\0\0\xff\xff\xff\xff", "an array of -1 elements"),
        (METADATA_HEADER + b"\xff\xff\xff\xff\x0f", "does not end"),
        (METADATA_HEADER + b"\x01\x05\xff\xff\xff\xff\x0f", "a field ends at byte"),
        (b"\0\1\0\x0c\0\0\0\1\0\0\0" + bytes(25) + b"\1\1\1\1\0\x03\x02aa", "the tagged field 0 has another size"),
    ],
)
def test_numbers_that_a_frame_does_not_have_are_refused(frame: bytes, reason: str) -> None:
    """A count, a varint or a length that exceeds the frame needs no memory."""
    with pytest.raises(MalformedRequest, match=reason):
        parse_request(frame)


def test_tagged_fields_of_a_later_release_are_ignored() -> None:
    """As KIP-482 demands: in the header, in each element and in the body; known ones are read."""
    usual = parsed(METADATA_HEADER + NO_TAGS + ONE_TOPIC + NO_TAGS + REST + NO_TAGS)
    tagged = parsed(
        METADATA_HEADER + TAG_OF_A_LATER_RELEASE + ONE_TOPIC + TAG_OF_A_LATER_RELEASE + REST + TAG_OF_A_LATER_RELEASE
    )
    fetch = b"\0\1\0\x0c\0\0\0\1\0\0\0" + bytes(25) + b"\1\1\1\2" + b"\x05\x03abc" + b"\0\3\3id"

    assert tagged == usual
    assert tagged.body.topics[0].name == "t"
    assert len(tagged.body.topics) == 1
    assert parsed(METADATA_HEADER + b"\x80\x01" + b"\x05\0" * 128 + ONE_TOPIC + NO_TAGS + REST + NO_TAGS) == usual
    assert parsed(fetch).body.cluster_id == "id"


def test_a_request_has_a_largest_number_of_elements() -> None:
    """Of all its arrays: a small frame may not become a thousand times its bytes in memory."""
    most = framed(Api.OFFSET_FETCH, 1, group_id="g", topics=())[4:-4] + (1).to_bytes(4, "big") + b"\0\1t"

    def of(count: int) -> bytes:
        return most + count.to_bytes(4, "big") + bytes(4 * count)

    assert len(parsed(of(MOST_ELEMENTS - 1)).body.topics[0].partition_indexes) == MOST_ELEMENTS - 1
    with pytest.raises(MalformedRequest, match=f"more than {MOST_ELEMENTS} elements: use several requests"):
        parse_request(of(MOST_ELEMENTS))
