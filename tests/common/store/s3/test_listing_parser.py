"""Listings as the driver parses them: equal to the SDK's own parser, and what is rejected."""

from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import botocore.session
import pytest
from botocore.parsers import ResponseParserError, RestXMLParser
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.store.servers import FakeServer, answer
from tests.matrix import examples
from ts_common.errors import StoreThrottled, StoreUnavailable
from ts_common.store.factory import open_store
from ts_common.store.s3.listing_parser import parse_listing, timestamp_of

_NAMESPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_SHAPE = botocore.session.get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape
KEYS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)
OBJECTS = st.tuples(KEYS, st.integers(0, 5 * 2**40), st.from_regex(r'"[0-9a-f]{32}(-[0-9]{1,4})?"', fullmatch=True))
PAGES = st.lists(OBJECTS, max_size=5)


def page(
    objects: list[tuple[str, int, str]],
    *,
    directories: tuple[str, ...] = (),
    namespace: str = _NAMESPACE,
    more: str = "<IsTruncated>false</IsTruncated>",
    date: str = "2026-11-21T16:43:50.123Z",
    storage_class: str = "STANDARD",
) -> bytes:
    """Return a page in S3's form, with fields that the driver does not read."""
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>{date}</LastModified><ETag>{escape(etag)}</ETag>"
        f"<ChecksumAlgorithm>CRC32C</ChecksumAlgorithm><Size>{size}</Size><Owner><ID>1</ID></Owner>"
        f"<StorageClass>{storage_class}</StorageClass></Contents>"
        for key, size, etag in objects
    )
    prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in directories)
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult{namespace}><Name>b</Name><Prefix/>'
    return f"{head}{more}{contents}{prefixes}</ListBucketResult>".encode()


def by_the_sdk(body: bytes) -> dict[str, Any]:
    """Return the same fields as the SDK's own parser reads them."""
    response = {"body": body, "headers": {}, "status_code": 200}
    assert _SHAPE is not None
    parsed = RestXMLParser().parse(response, _SHAPE)
    found = {
        name: parsed[name] for name in ("IsTruncated", "NextContinuationToken", "CommonPrefixes") if name in parsed
    }
    if "Contents" in parsed:
        wanted = ("Key", "Size", "ETag", "LastModified", "StorageClass")
        found["Contents"] = [
            {name: one[name] for name in wanted if one[name] != "STANDARD"} for one in parsed["Contents"]
        ]
    return found


@pytest.mark.parametrize(
    "more",
    ["<IsTruncated>True</IsTruncated>", "<IsTruncated/>", "<NextContinuationToken>t</NextContinuationToken>"],
)
def test_a_page_that_may_have_a_next_one_is_rejected(more: str) -> None:
    """The SDK would end the listing there, and the objects of the next page would be missing in silence."""
    assert "IsTruncated" not in parse_listing(page([], more="<NextContinuationToken/>"))
    with pytest.raises(ResponseParserError, match="IsTruncated"):
        parse_listing(page([("a", 1, '"e"')], more=more))


@settings(max_examples=examples(100, quick=30))
@given(
    PAGES,
    st.lists(KEYS, max_size=3).map(tuple),
    st.sampled_from([_NAMESPACE, ""]),
    st.sampled_from(["STANDARD", "GLACIER", "STANDARD_IA"]),
)
def test_a_page_is_parsed_as_the_sdk_parses_it(
    objects: list[tuple[str, int, str]], directories: tuple[str, ...], namespace: str, storage_class: str
) -> None:
    """Keys, sizes, ETags, dates, classes and directories, with the namespace and without it."""
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>a+/=</NextContinuationToken>"
    body = page(objects, directories=directories, namespace=namespace, more=more, storage_class=storage_class)
    assert parse_listing(body) == by_the_sdk(body)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param((b"<Key>a</Key>", b"<Key><![CDATA[a&b]]></Key>"), id="a key as CDATA"),
        pytest.param((b"<Key>a</Key>", b"<Key>a&#x26;b</Key>"), id="a character reference in a key"),
        pytest.param((b"<Owner>", b"<!-- <Contents><Key>no</Key></Contents> --><Owner>"), id="a comment"),
        pytest.param((b"<Contents>", b"<Contents >"), id="a blank in a tag"),
        pytest.param((b"<Contents><Key>", b"<Contents>\n  <Key>"), id="set on lines of their own"),
        pytest.param((b'"e"', b"&#34;e&#34;"), id="quotes as character references"),
        pytest.param((b'"e"', b"&quot;e&#x22;"), id="quotes in two other ways"),
    ],
)
def test_whatever_xml_allows_means_what_it_means_to_the_sdk(changed: tuple[bytes, bytes]) -> None:
    """Most servers write objects in one plain way, which is parsed faster; other forms have the same result."""
    body = page([("a", 1, '"e"'), ("z", 2, '"f"')], directories=("d/",), storage_class="GLACIER").replace(*changed)
    found = parse_listing(body)
    assert found == by_the_sdk(body)
    assert len(found["Contents"]) == 2


def test_names_are_decoded_where_the_server_encoded_them() -> None:
    """The SDK requests the encoding, and would decode name by name."""
    more = "<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
    found = parse_listing(page([("a%2Fb+c", 1, '"e"'), ("plain", 1, '"e"')], directories=("x%20y/",), more=more))
    assert [one["Key"] for one in found["Contents"]] == ["a/b c", "plain"]
    assert found["CommonPrefixes"] == [{"Prefix": "x y/"}]
    assert "EncodingType" not in found


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T16:43:50Z",
        "2026-11-21T16:43:50.000Z",
        "2026-11-21T16:43:50",
        "2026-11-21T17:43:50+01:00",
        "20261121T164350Z",
        "Sat, 21 Nov 2026 16:43:50 GMT",
    ],
)
def test_dates_of_listings_and_headers(text: str) -> None:
    """Each names its instant; one without a zone means UTC."""
    assert timestamp_of(text) == datetime(2026, 11, 21, 16, 43, 50, tzinfo=UTC)


BROKEN = [
    pytest.param(b"<html><body>maintenance</body></html>", id="a well-formed web page"),
    pytest.param(b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body/></html>', id="xhtml"),
    pytest.param(page([("a", 1, '"e"')]).replace(b"ListBucketResult", b"ListVersionsResult"), id="another document"),
    pytest.param(b"<ListBucketResult><Contents>", id="cut off"),
    pytest.param(
        b"<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>", id="an object without more"
    ),
    pytest.param(page([("a", 1, '"e"'), ("b", 1, '"e"')])[:-80], id="cut off in an object"),
    pytest.param(page([("a", 1, '"e"')]).removesuffix(b"</ListBucketResult>"), id="cut off behind the objects"),
    pytest.param(page([("a", 1, '"e"')]).replace(b"<Size>1<", b"<Size>much<"), id="no size"),
    pytest.param(page([("a", 1, '"e"')], date="yesterday"), id="no date"),
    pytest.param(page([], more="<IsTruncated>true</IsTruncated>"), id="more, and no word where"),
]


@pytest.mark.parametrize("body", BROKEN)
def test_an_invalid_page_is_not_accepted_as_a_listing(fake: FakeServer, body: bytes) -> None:
    """It is never an empty listing: the objects would count as lost."""
    fake.answers = [answer("200 OK", body)]
    with open_store("s3://archive/base", timeout_seconds=5) as store, pytest.raises(StoreUnavailable, match="List"):
        list(store.list())


def test_a_listing_whose_server_always_reports_more_ends_with_an_error(fake: FakeServer) -> None:
    """A repeated token ends the listing with an error."""
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    fake.answers = [answer("200 OK", page([("base/a", 1, '"e"')], more=more))]
    with (
        open_store("s3://archive/base", timeout_seconds=5) as store,
        pytest.raises(StoreUnavailable, match="truncated"),
    ):
        list(store.list())
    assert len(fake.requests) == 2


def test_the_sdk_does_not_parse_a_page(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It searches each response for an error; for a page of a thousand objects that doubles the work."""
    parsed: list[int] = []

    class Counting(ElementTree.XMLParser):
        def feed(self, data: Any, /) -> None:
            parsed.append(len(data))
            super().feed(data)

    monkeypatch.setattr("botocore.handlers.ETree.XMLParser", Counting)
    body = page([(f"base/{number:04d}", 1, '"e"') for number in range(1000)])
    fake.answers = [answer("200 OK", body)]
    with open_store("s3://archive/base", timeout_seconds=5) as store:
        assert len(list(store.list())) == 1000
    assert sum(parsed) < len(body) / 10


def test_an_error_sent_as_a_listing_is_reported_as_an_error(fake: FakeServer) -> None:
    """S3 may send an error with status 200; the SDK has three attempts."""
    fake.answers = [answer("200 OK", b"<Error><Code>SlowDown</Code><Message>slower</Message></Error>")]
    with open_store("s3://archive/base", timeout_seconds=5) as store, pytest.raises(StoreThrottled):
        list(store.list())
    assert len(fake.requests) == 3
