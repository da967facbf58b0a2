"""Responses that no store sends: each is a failed request, in bounded time and memory."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from dev.local.stores.azurite import ACCOUNT, KEY
from tests.common.store.servers import FakeServer, answer
from ts_common.errors import CorruptData, OutcomeUnknown, PreconditionFailed, StoreUnavailable
from ts_common.store.contract import ByteRange, IfMatch, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.gcs.tokens import default_tokens
from ts_common.store.options import Connection, StorageOptions
from ts_common.store.response_body import MOST_BYTES

DATE = "Sun, 22 Nov 2026 02:33:34 GMT"
FAR = "Sun, 22 Nov 99999999999999999999 02:33:34 GMT"
SAYS = {"etag": '"0x1"', "x_goog_generation": "1", "last_modified": DATE}


@dataclass(frozen=True)
class Liar:
    """A store whose server sends scripted responses.

    Attributes:
        store: opened on the server.
        server: the server.
        kind: "s3", "gs" or "az".
    """

    store: ObjectStore
    server: FakeServer
    kind: str

    def page(self, *names: str, size: str = "1", etag: str = "1", date: str = DATE, more: str = "") -> bytes:
        """Return a listing in the service's form."""
        match self.kind:
            case "s3":
                objects = "".join(
                    f"<Contents><Key>{name}</Key><LastModified>{date}</LastModified><ETag>{etag}</ETag>"
                    f"<Size>{size}</Size></Contents>"
                    for name in names
                )
                after = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>"
                return f"<ListBucketResult>{after if more else ''}{objects}</ListBucketResult>".encode()
            case "az":
                blobs = "".join(
                    f"<Blob><Name>{name}</Name><Properties><Last-Modified>{date}</Last-Modified><Etag>{etag}</Etag>"
                    f"<Content-Length>{size}</Content-Length></Properties></Blob>"
                    for name in names
                )
                next_marker = f"<NextMarker>{more}</NextMarker>"
                return f"<EnumerationResults><Blobs>{blobs}</Blobs>{next_marker}</EnumerationResults>".encode()
            case _:
                time = "2026-11-22T02:33:34Z" if date == DATE else date
                items = [{"name": name, "size": size, "generation": etag, "updated": time} for name in names]
                return json.dumps({"kind": "storage#objects", "items": items, "nextPageToken": more}).encode()


@pytest.fixture(params=["s3", "gs", "az"])
def liar(request: pytest.FixtureRequest, fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Liar]:
    endpoint = f"BlobEndpoint={fake.endpoint}/{ACCOUNT}"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName={ACCOUNT};AccountKey={KEY};{endpoint}")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.endpoint)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with open_store(f"{request.param}://bucket/base", timeout_seconds=5) as store:
        yield Liar(store, fake, request.param)


def test_a_response_is_read_no_further_than_the_largest_page(liar: Liar) -> None:
    """One byte more than the largest page is a failed request; the rest is not read."""
    liar.server.answers = [answer("200 OK", liar.page("base/a") + b" " * MOST_BYTES)]
    with pytest.raises(StoreUnavailable, match=f"more than {MOST_BYTES} bytes"):
        list(liar.store.list())
    liar.server.answers = [answer("403 Forbidden", b"x" * (MOST_BYTES + 1), **SAYS)]
    with pytest.raises(StoreUnavailable, match=f"more than {MOST_BYTES} bytes"):
        liar.store.get("key")
    with pytest.raises(OutcomeUnknown, match=f"more than {MOST_BYTES} bytes"):
        liar.store.put("key", b"x")


def test_more_bytes_than_the_range_are_no_answer(liar: Liar) -> None:
    """The header has the right range, but another number of bytes follows."""
    liar.server.answers = [answer("206 Partial Content", b"23456", content_range="bytes 2-4/10", **SAYS)]
    with pytest.raises(StoreUnavailable, match="Content-Length is 5; expected the length of bytes 2-4/10"):
        liar.store.get("key", ByteRange(2, 5))


def test_a_head_that_the_end_of_the_connection_cuts_is_no_answer(liar: Liar) -> None:
    """Python's client returns the headers that have arrived, and the last one can be cut."""
    whole = answer("200 OK", b"", **SAYS, x_ms_meta_ts_end="17", x_goog_meta_ts_end="17", x_amz_meta_ts_end="17")
    for cut in (whole[:-3], whole[:-4], whole[:-5], whole[: whole.index(b"\r\n") + 2]):
        liar.server.answers = [cut]
        with pytest.raises(StoreUnavailable, match="no response"):
            liar.store.head("key")
        with pytest.raises(OutcomeUnknown, match="no response"):
            liar.store.put("key", b"x")


@pytest.mark.parametrize("status", ["102 Processing", "103 Early Hints", "100 Continue"])
def test_the_response_to_a_put_is_the_one_after_interim_responses(liar: Liar, status: str) -> None:
    """Python's client returns some of them, and the next request on the connection gets the response to this one."""
    interim = f"HTTP/1.1 {status}\r\nLink: </a>\r\n\r\n".encode()
    liar.server.answers = [interim * 2 + answer("412 Precondition Failed", b"<Error/>", **SAYS)]
    with pytest.raises(PreconditionFailed):
        liar.store.put("key", b"x", condition=IfMatch('"0x1"' if liar.kind != "gs" else "1"))
    liar.server.answers = [interim * 1000 + answer("200 OK", b"", **SAYS)]
    with pytest.raises(OutcomeUnknown, match="no response"):
        liar.store.put("key", b"x")


def test_a_listing_with_a_key_outside_the_prefix_is_rejected(liar: Liar) -> None:
    """Cut at the length of the prefix it would be another key."""
    liar.server.answers = [answer("200 OK", liar.page("elsewhere/a"))]
    for prefix in ("", "b/"):
        with pytest.raises(StoreUnavailable, match="is listed below 'base/"):
            list(liar.store.list(prefix))


def test_keys_in_no_order_are_no_listing(liar: Liar) -> None:
    """Readers of a listing rely on its order: a later key in front would look like a hole."""
    liar.server.answers = [answer("200 OK", liar.page("base/b", "base/a"))]
    with pytest.raises(StoreUnavailable, match="'a' is listed after 'b'"):
        list(liar.store.list())
    liar.server.answers = [answer("200 OK", liar.page("base/a", "base/a", "base/b"))]
    assert [info.key for info in liar.store.list()] == ["a", "b"]


def test_pages_that_lead_nowhere_end(liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages follow each other forever, each time with another token."""
    monkeypatch.setattr("ts_common.store.listing._PAGES_WITHOUT_PROGRESS", 100)
    pages = [answer("200 OK", liar.page(f"base/{name}", more=f"t{at}")) for at, name in enumerate("abab" * 30)]
    liar.server.answers = [*pages, answer("200 OK", liar.page("base/z"))]
    with pytest.raises(StoreUnavailable, match="pages in a row contain no new name"):
        list(liar.store.list_directories())


@pytest.mark.parametrize(
    "said", [{"size": "-5"}, {"size": str(1 << 70)}, {"size": "1e3"}, {"date": FAR}, {"etag": "a\x7fb"}], ids=str
)
def test_an_object_that_cannot_be_is_no_listing(liar: Liar, said: dict[str, str]) -> None:
    """A size below 0 or above 2^63, a time beyond all years, an ETag that no header can contain."""
    liar.server.answers = [answer("200 OK", liar.page("base/a", **said))]
    with pytest.raises(StoreUnavailable, match=r"[Ll]ist"):
        list(liar.store.list())


@pytest.mark.usefixtures("dropped_responses")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("date", [FAR, "Sun, 99 Nov 2026 02:33:34 GMT"])
def test_a_date_of_an_object_that_cannot_be_is_no_answer(liar: Liar, date: str) -> None:
    """In the headers of a get, of a head, and of an error, where the driver reads the clock."""
    liar.server.answers = [answer("200 OK", b"x", **{**SAYS, "last_modified": date})]
    with pytest.raises(StoreUnavailable, match="base/key"):
        liar.store.get("key")
    with pytest.raises(StoreUnavailable, match="base/key"):
        liar.store.head("key")
    liar.server.answers = [answer("500 Oh", b"", date=date)]
    with pytest.raises(StoreUnavailable):
        liar.store.head("key")


def test_what_grows_or_nests_without_bound_is_no_answer(liar: Liar) -> None:
    """XML entities that expand to gigabytes, and JSON of a hundred thousand levels."""
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">]>' + liar.page("base/&a;")
    liar.server.answers = [answer("200 OK", b'{"kind":' + b"[" * 100_000 if liar.kind == "gs" else bomb)]
    told = "nested more than" if liar.kind == "gs" else "document type"
    with pytest.raises(StoreUnavailable, match=told):
        list(liar.store.list())
    liar.server.answers = [answer("400 Bad Request", b"<Error>" + b"<a>" * 5_000 + b"</a>" * 5_000 + b"</Error>")]
    with pytest.raises(Exception, match="base") as raised:
        liar.store.head("key")
    assert type(raised.value).__module__ == "ts_common.errors"


@pytest.fixture
def s3(fake: FakeServer) -> Iterator[ObjectStore]:
    with open_store("s3://archive/base", timeout_seconds=5) as store:
        yield store


@pytest.mark.parametrize("consent", [b"HTTP/1.1 100 Continue\r\n", b"HTTP/1.1 100 Continue\r\nA: b"])
def test_a_put_whose_connection_ends_within_the_servers_consent_is_in_doubt(
    s3: ObjectStore, fake: FakeServer, consent: bytes
) -> None:
    """The SDK would read the headers forever: the bodies of files wait for the consent."""
    fake.answers, fake.consent = [b""], consent
    with pytest.raises(OutcomeUnknown, match="no response"):
        s3.put("key", io.BytesIO(b"x"), size=1)
    assert fake.headers[-1]["expect"] == "100-continue"


def test_regions_that_send_on_to_each_other_end(s3: ObjectStore, fake: FakeServer) -> None:
    """The SDK finds the bucket's region with a request that is redirected too, and so on."""
    fake.answers = [answer("301 Moved Permanently")]
    with pytest.raises(StoreUnavailable, match="too many redirections"):
        s3.get("key")


@pytest.mark.parametrize(
    "body",
    [
        b"<Errors><Error/></Errors>",
        b"<Error><Code><a>1</a></Code><Message><b/></Message></Error>",
        b"<ListBucketResult><EncodingType>url</EncodingType><Prefix/></ListBucketResult>",
        b"<Error>" + b"<a>" * 3_000 + b"</a>" * 3_000 + b"</Error>",
    ],
    ids=["an empty error", "elements for texts", "a listing", "many levels"],
)
def test_a_refusal_that_the_sdk_cannot_read_is_no_answer(s3: ObjectStore, fake: FakeServer, body: bytes) -> None:
    """The SDK raises plain Python errors for them."""
    fake.answers = [answer("500 Internal Server Error", body)]
    for ask in (lambda: list(s3.list()), lambda: s3.delete(["key"]), lambda: s3.get("key")):
        with pytest.raises(StoreUnavailable):
            ask()


@pytest.mark.parametrize(
    "rest",
    ["<Filter><Tag/></Filter><Expiration><Days>1</Days></Expiration>", f"<Expiration><Date>{FAR}</Date></Expiration>"],
)
def test_lifecycle_rules_without_what_they_need_are_no_answer(s3: ObjectStore, fake: FakeServer, rest: str) -> None:
    """A tag without a key, and a date beyond all years."""
    rule = f"<Rule><Status>Enabled</Status>{rest}</Rule>"
    fake.answers = [answer("200 OK", f"<LifecycleConfiguration>{rule}</LifecycleConfiguration>".encode())]
    with pytest.raises(StoreUnavailable, match="Lifecycle"):
        s3.lifecycle_rules()


@pytest.mark.parametrize(
    "item",
    [
        {"name": 5},
        {"name": "base/\ud800"},
        {"generation": 7},
        {"generation": None},
        {"size": 1},
        {"size": float("nan")},
    ],
    ids=str,
)
def test_a_listing_of_googles_with_other_types_is_no_answer(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch, item: dict[str, object]
) -> None:
    """A number in place of a name, half of a surrogate pair, an invalid number."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.endpoint)
    found = {"name": "base/a", "size": "1", "generation": "1", "updated": "2026-11-22T02:33:34Z", **item}
    fake.answers = [answer("200 OK", json.dumps({"kind": "storage#objects", "items": [found]}).encode())]
    with open_store("gs://bucket/base") as store, pytest.raises(StoreUnavailable, match="list"):
        list(store.list())


def status(name: str = "", kind: str = "FILE", **other: object) -> dict[str, object]:
    """Return a FileStatus of WebHDFS."""
    return {"pathSuffix": name, "fileId": 7, "length": 3, "modificationTime": 1, "type": kind, **other}


def listing(*entries: dict[str, object], remaining: int = 0) -> bytes:
    """Return a DirectoryListing of WebHDFS."""
    found = {"partialListing": {"FileStatuses": {"FileStatus": list(entries)}}, "remainingEntries": remaining}
    return answer("200 OK", json.dumps({"DirectoryListing": found}).encode())


@pytest.fixture
def hdfs(fake: FakeServer) -> Iterator[ObjectStore]:
    with open_store(f"webhdfs://{fake.endpoint.removeprefix('http://')}/root", timeout_seconds=5) as store:
        yield store


ROOT = answer("200 OK", json.dumps({"FileStatus": status(kind="DIRECTORY")}).encode())


@pytest.mark.parametrize(
    "page",
    [
        listing(status("../up")),
        listing(status("..")),
        listing(status("")),
        listing(status("b"), status("a")),
        listing(status("a"), remaining=1),
        listing(status("a", length=-1)),
        listing(status("a", fileId="7")),
        listing(status("a", modificationTime=float("inf"))),
        answer("200 OK", b"[" * 100_000),
    ],
    ids=["up", "parent", "none", "order", "the same page", "size", "id", "time", "levels"],
)
def test_a_directory_of_hdfs_that_cannot_be_is_no_listing(hdfs: ObjectStore, fake: FakeServer, page: bytes) -> None:
    """Names that lead elsewhere, repeated pages, invalid numbers."""
    fake.answers = [ROOT, page]
    with pytest.raises(StoreUnavailable, match="LISTSTATUS_BATCH"):
        list(hdfs.list())


@pytest.mark.full
def test_a_directory_of_hdfs_that_holds_itself_is_no_listing(hdfs: ObjectStore, fake: FakeServer) -> None:
    """Each response names one more directory; HDFS allows no thousand levels."""
    fake.answers = [ROOT, listing(status("a", kind="DIRECTORY"))]
    with pytest.raises(StoreUnavailable, match="is deeper than HDFS allows"):
        list(hdfs.list())


@pytest.mark.parametrize("location", ["/root/a", "ftp://host/x", "http://host\u00e9/", "http://[::1"])
def test_a_data_node_at_no_address_is_no_answer(hdfs: ObjectStore, fake: FakeServer, location: str) -> None:
    """The NameNode returns an invalid address for the bytes."""
    found = answer("200 OK", json.dumps({"FileStatus": status()}).encode())
    attributes = answer("200 OK", b'{"XAttrs": []}')
    sent_on = answer("307 Temporary Redirect", location="LOCATION").replace(b"LOCATION", location.encode())
    fake.answers = [found, attributes, sent_on]
    with pytest.raises(Exception, match="OPEN") as raised:
        hdfs.get("a")
    assert type(raised.value).__module__ == "ts_common.errors"


def test_malformed_metadata_of_a_directory_store_is_reported_as_corrupt(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Nested without end, of other types, or larger than metadata may be."""
    directory = tmp_path_factory.mktemp("store")
    with open_store(f"file://{directory}") as store:
        store.put("a", b"x", metadata={"ts-end": "5"})
        (sidecar,) = (directory / ".meta").iterdir()
        for content in (b"[" * 100_000, b'{"ts-end": 5}', b'{"a": "' + b"a" * (1 << 20) + b'"}', b'{"a": "\\ud800"}'):
            sidecar.write_bytes(content)
            with pytest.raises(CorruptData, match="metadata"):
                store.head("a")


CREDENTIALS = {"AccessKeyId": "who", "SecretAccessKey": "secret", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    "said",
    [
        b"5",
        b'"text"',
        json.dumps({**CREDENTIALS, "Expiration": 5}).encode(),
        json.dumps({**CREDENTIALS, "Expiration": "\ud800"}).encode(),
        json.dumps({**CREDENTIALS, "AccessKeyId": ""}).encode(),
        json.dumps({**CREDENTIALS, "Expiration": "1999-01-01T00:00:00Z"}).encode(),
    ],
    ids=["number", "text", "no date", "not a text", "no key", "expired"],
)
def test_malformed_credentials_of_a_container_are_requested_again(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """The SDK does not check the response; a retry may return a valid one."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{fake.endpoint}/credentials")
    fake.answers = [answer("200 OK", said)]

    def look() -> None:
        with open_store("s3://archive/base", timeout_seconds=5) as store:
            store.head("key")

    with pytest.raises(StoreUnavailable, match=r"credentials|unusable response") as raised:
        look()
    str(raised.value).encode()


@pytest.mark.parametrize(
    "given", ["", "<Credentials/>", "<Credentials><Expiration>yesterday</Expiration></Credentials>", "<a>" * 3_000]
)
def test_a_role_without_credentials_is_waited_for(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """STS answers with success, but without credentials."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", fake.endpoint)
    result = f"<AssumeRoleResult>{given}</AssumeRoleResult>"
    fake.answers = [answer("200 OK", f"<AssumeRoleResponse>{result}</AssumeRoleResponse>".encode())]
    options = StorageOptions(Connection(role_arn="arn:aws:iam::123456789012:role/reader"))
    with open_store("s3://archive/base", options, timeout_seconds=5) as store, pytest.raises(StoreUnavailable):
        store.head("key")


@pytest.mark.parametrize("expires", [1e300, "\ud800", None])
def test_an_invalid_google_token_is_a_retriable_error(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, expires: object
) -> None:
    """A time beyond all years, or a token that no header can contain."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "client_email": "who@p",
        "token_uri": fake.endpoint,
        "private_key": key.decode(),
    }
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    said = {"access_token": "a\r\nb: c" if expires is None else "a", "expires_in": expires or 3600}
    fake.answers = [answer("200 OK", json.dumps(said).encode(), content_type="application/json")]
    token = default_tokens("bucket")
    with pytest.raises(StoreUnavailable, match="no token"):
        token()
    fake.answers = [answer("200 OK", b"x" * (MOST_BYTES + 1))]
    with pytest.raises(StoreUnavailable, match=r"no token.*more than"):
        token()
