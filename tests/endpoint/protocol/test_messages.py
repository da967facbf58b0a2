"""Requests are parsed and replies encoded in every version that is served."""

import struct

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from ts_endpoint.protocol.replies import Records, api_versions, encode_reply, encode_unserved_versions
from ts_endpoint.protocol.requests import MalformedRequest, Request, UnservedRequest, UnservedVersions, parse_request
from ts_endpoint.protocol.versions import SERVED, Api

VERSIONS = [(api, version) for api, (low, high) in SERVED.items() for version in range(low, high + 1)]


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda value: getattr(value, "name", str(value)))
def test_each_served_version_has_a_schema_to_read_and_to_write(api: Api, version: int) -> None:
    """A version that is offered can be parsed and answered."""
    request, response = load_request_schema(int(api), version), load_response_schema(int(api), version)

    assert entity_reader(request) is not None
    assert entity_writer(response) is not None


def test_records_of_a_fetch_pass_through_as_the_same_memory() -> None:
    """A Fetch reply has the views of its records, not copies."""
    records = memoryview(b"a record batch")
    partition = {"partition_index": 0, "high_watermark": 9, "aborted_transactions": None, "records": Records([records])}
    request = Request(Api.FETCH, 12, 7, None, None)

    pieces = encode_reply(request, {"responses": [{"topic": "t", "partitions": [partition]}]})

    assert any(piece is records for piece in pieces)
    assert int.from_bytes(pieces[0], "big") == sum(len(piece) for piece in pieces[1:])


def test_a_field_of_a_later_version_is_left_out_of_an_earlier_reply() -> None:
    """Handlers answer all versions with the same values."""
    partition = {
        "partition_index": 0,
        "high_watermark": 9,
        "log_start_offset": 3,  # since version 5
        "aborted_transactions": None,
        "records": None,
    }
    values = {"responses": [{"topic": "t", "partitions": [partition]}]}

    lengths = {
        version: len(b"".join(encode_reply(Request(Api.FETCH, version, 7, None, None), values))) for version in (4, 5)
    }

    assert lengths[5] == lengths[4] + 8


def test_a_client_with_a_later_version_of_api_versions_learns_the_served_ones() -> None:
    """The reply is of version 0, with error 35 and the list, as KIP-511 describes it."""
    parsed = parse_request(b"\x00\x12\x00\x63\x00\x00\x00\x05")
    assert parsed == UnservedVersions(5)

    frame = b"".join(encode_unserved_versions(5))

    assert frame[4:10] == b"\x00\x00\x00\x05" + ErrorCode.unsupported_version.value.to_bytes(2, "big")
    assert int.from_bytes(frame[10:14], "big") == len(SERVED) == len(api_versions()["api_keys"])


@pytest.mark.parametrize(
    ("software", "version", "highest"),
    [
        ("librdkafka", "2.4.0", 18),
        ("librdkafka", "2.5.0", 11),
        ("librdkafka", "2.15.1", 11),
        ("librdkafka", "2.16.0", 18),
        ("confluent-kafka-python", "2.8.2-rdkafka-2.8.0", 11),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.1", 18),
        ("apache-kafka-java", "2.8.0", 18),
        ("", "", 18),
        ("librdkafka", "2", 18),
    ],
)
def test_a_library_that_reads_old_messages_wrong_is_offered_a_fetch_that_it_reads_right(
    software: str, version: str, highest: int
) -> None:
    """Else librdkafka 2.5 to 2.15 shows a null for each key and value of magic 0 and 1."""
    offered = {each["api_key"]: each["max_version"] for each in api_versions(software, version)["api_keys"]}
    assert offered.pop(Api.FETCH) == highest
    assert offered == {api: versions[1] for api, versions in SERVED.items() if api is not Api.FETCH}


@pytest.mark.parametrize("frame", [b"", b"\x00\x01"])
def test_bytes_that_are_no_request_are_refused(frame: bytes) -> None:
    """A frame that is too short is malformed."""
    with pytest.raises(MalformedRequest):
        parse_request(frame)


@pytest.mark.parametrize(
    ("key", "version", "kind", "reason"),
    [
        (1, 3, "unsupported_version", "FETCH of version 3: versions 4 to 18 are served"),
        (1, 99, "unsupported_version", "FETCH of version 99: versions 4 to 18 are served"),
        (44, 1, "unsupported_request", "request 44 of version 1: this kind is not served"),
        (0x7FFF, 0, "unsupported_request", "request 32767 of version 0: this kind is not served"),
    ],
)
def test_a_version_that_is_not_served_is_no_damage(key: int, version: int, kind: str, reason: str) -> None:
    """The counter and the log distinguish a client that ignores ApiVersions from one that sends garbage."""
    with pytest.raises(UnservedRequest, match=reason) as caught:
        parse_request(struct.pack(">hhi", key, version, 1))
    assert caught.value.kind == kind
