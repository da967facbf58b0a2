"""U21: the agent finds what a store rejects before it ships anything, and names the option to change."""

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dev.local.stores.moto import MotoServer
from tests.http_servers import Handler, serving
from ts_common.archive.directories import entropy_widths, list_topics
from ts_common.archive.object_keys import PROBE_NAME, ClusterKeys
from ts_common.errors import AccessDenied, StoreUnavailable, TieredStorageError
from ts_common.store.contract import NO_METADATA, Body, Condition, IfAbsent, IfMatch, ObjectInfo, ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import PREFIX, Acl, Encryption, Endpoint, StorageOptions, Storing
from ts_common.store.wrappers.wrapped import WrappedStore
from ts_uploader.stores.store_check import CONDITIONAL_KEY, PROBE, problems_of

KEYS = ClusterKeys("prod", 5)
ALL = Storing(
    server_side_encryption=Encryption.SSE_S3, storage_class="STANDARD_IA", tags=(("team", "data"),), acl=Acl.PRIVATE
)


def checked(
    location: str,
    storing: Storing = ALL,
    wrap: Callable[[ObjectStore], ObjectStore] = lambda store: store,
    *,
    conditional: bool = True,
) -> list[str]:
    """Return the problems of a location that is opened with these options."""
    endpoint = Endpoint(location, StorageOptions(storing=storing))

    def open_with(options: StorageOptions) -> ObjectStore:
        return wrap(open_store(location, options, timeout_seconds=20, conditional_writes=conditional))

    with closing(open_with(endpoint.options)) as store:
        return problems_of(store, KEYS, endpoint, open_with, conditional=conditional)


@pytest.fixture
def location(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an empty location on moto's server."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"check-{uuid.uuid4().hex[:12]}"
    with closing(moto_server.client()) as client:
        client.create_bucket(Bucket=bucket)
    return f"s3://{bucket}/base"


def test_a_store_that_accepts_all_options_passes_each_time(location: str) -> None:
    """Each start uses the same probe, also with other options."""
    for storing in (ALL, Storing(), ALL):
        assert checked(location, storing) == []
        with open_store(location) as store:
            assert [info.key for info in store.list()] == [PROBE_NAME]
            assert store.get(PROBE_NAME)[0] == PROBE


def test_a_directory_passes_too(tmp_path: Path) -> None:
    """A directory keeps conditions by itself."""
    assert checked(tmp_path.as_uri(), Storing()) == []


def test_no_listing_meets_the_probe(tmp_path: Path) -> None:
    """The probe is not listed as a cluster, an entropy width or a topic."""
    checked(tmp_path.as_uri(), Storing())
    with open_store(tmp_path.as_uri()) as store:
        assert entropy_widths(store, KEYS.cluster) == frozenset()
        assert list_topics(store, KEYS) == list_topics(store, ClusterKeys("prod")) == {}


def test_another_entropy_width_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    """No probe is left in a location where the agent must not write."""
    with open_store(tmp_path.as_uri()) as store:
        store.put("prod/t-0/offset.wm", b"0" * 20)
        (problem,) = checked(tmp_path.as_uri(), Storing())
        assert "entropy.bits=5" in problem
        assert [info.key for info in store.list()] == ["prod/t-0/offset.wm"]


def test_an_unknown_storage_class_is_named(location: str) -> None:
    """moto accepts only Amazon's classes; nothing is written."""
    (problem,) = checked(location, Storing(storage_class="COLD", tags=(("team", "data"),)))
    assert problem.startswith(f"{PREFIX}storage.class=COLD: {location} rejects it")
    assert "InvalidStorageClass" in problem
    with open_store(location) as store:
        assert store.get(PROBE_NAME)[0] == PROBE


Refuses = Mapping[str, tuple[int, str]]


@contextmanager
def refusing(inner: str, refuses: Refuses) -> Iterator[str]:
    """Start a gateway that rejects each PUT with one of the headers, and accepts all others.

    Keys of `refuses` are headers; `!header` rejects a PUT without it. GET, HEAD and listings find only the bucket, so
    the probe never exists.
    """

    class Gateway(Handler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(200 if self.path.rstrip("/") == f"/{inner}" else 404)

        def do_GET(self) -> None:
            if "list-type=2" in self.path:
                self._answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
            else:
                self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>as told</Message></Error>")

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            for header, (status, code) in refuses.items():
                if (header.removeprefix("!") in self.headers) != header.startswith("!"):
                    self._answer(status, f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode())
                    return
            self._answer(200)

        def _answer(self, status: int, body: bytes = b"") -> None:
            encryption = self.headers.get("x-amz-server-side-encryption")
            applied = {"x-amz-server-side-encryption": encryption} if encryption and status == 200 else {}
            self.answer(status, body, ETag='"e"', **applied)

    with serving(Gateway) as port:
        yield f"http://127.0.0.1:{port}"


SSE, CLASS, TAGS, ACL = (f"x-amz-{n}" for n in ("server-side-encryption", "storage-class", "tagging", "acl"))


@pytest.mark.parametrize(
    ("refuses", "named"),
    [
        ({SSE: (500, "InternalError")}, ["server.side.encryption=AES256"]),
        ({SSE: (501, "NotImplemented")}, ["server.side.encryption=AES256"]),
        ({TAGS: (403, "AccessDenied")}, ["tags=team=data"]),
        ({ACL: (400, "AccessControlListNotSupported")}, ["acl=private"]),
        ({CLASS: (400, "InvalidStorageClass")}, ["storage.class=STANDARD_IA"]),
        ({ACL: (403, "AccessDenied"), TAGS: (403, "AccessDenied")}, ["acl=private", "tags=team=data"]),
        # The bucket's policy requires encryption: a put without it shows nothing about another option.
        ({f"!{SSE}": (403, "AccessDenied"), CLASS: (400, "InvalidStorageClass")}, ["storage.class=STANDARD_IA"]),
        ({f"!{ACL}": (403, "AccessDenied"), SSE: (400, "InvalidRequest")}, ["server.side.encryption=AES256"]),
    ],
)
def test_u21_what_a_store_refuses_is_named_with_its_option(
    refuses: Refuses, named: list[str], monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    """One message names each rejected option, and no accepted one."""
    del location  # only for its environment
    with refusing("archive", refuses) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        problems = checked("s3://archive/base", conditional=False)
    assert [problem.partition(": ")[0] for problem in problems] == [PREFIX + name for name in named]
    assert all("s3://archive/base rejects it" in problem and "drop the option" in problem for problem in problems)


@pytest.mark.parametrize(
    ("refused", "kind", "said"),
    [
        ((403, "AccessDenied"), AccessDenied, "allow this identity s3:PutObject"),
        ((500, "E"), StoreUnavailable, "accepts no object at this moment"),
    ],
)
def test_a_put_rejected_without_any_option_is_not_reported_as_an_option_error(
    refused: tuple[int, str], kind: type[TieredStorageError], said: str, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    """An identity without any permission, or a store that fails at every put, is no problem of the options."""
    del location
    with refusing("archive", {"x-amz-date": refused}) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        with pytest.raises(kind, match=said) as raised:
            checked("s3://archive/base")
    assert PREFIX not in str(raised.value)


class Careless(WrappedStore):
    """A store that ignores conditions of one kind."""

    def __init__(self, inner: ObjectStore, forgets: type[IfAbsent | IfMatch]) -> None:
        super().__init__(inner, threads=1)
        self._forgets = forgets

    def put(
        self,
        key: str,
        body: bytes | Body,
        *,
        size: int | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
        condition: Condition = None,
        crc32c: int | None = None,
        archived: bool = False,
    ) -> ObjectInfo:
        held = None if isinstance(condition, self._forgets) else condition
        return super().put(key, body, size=size, metadata=metadata, condition=held, crc32c=crc32c, archived=archived)


@pytest.mark.parametrize(("forgets", "header"), [(IfAbsent, "If-None-Match"), (IfMatch, "If-Match")])
def test_u21_conditions_that_a_store_ignores_are_found(
    location: str, forgets: type[IfAbsent | IfMatch], header: str
) -> None:
    """Each start finds it; the message names the key that accepts it, and what is lost then."""
    for _ in range(2):
        (problem,) = checked(location, wrap=lambda store: Careless(store, forgets))
        assert problem.startswith(f"{CONDITIONAL_KEY}=true: {location} receives {header}")
        assert f"{CONDITIONAL_KEY}=false" in problem
        assert "overwrite each other" in problem
    assert checked(location, conditional=False) == []


def test_agents_that_start_at_once_do_not_disturb_one_another(location: str) -> None:
    """All write the same probe, and all checks succeed."""
    barrier = threading.Barrier(4)
    said: list[list[str]] = []

    def start() -> None:
        barrier.wait()
        said.append(checked(location))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [[], [], [], []]
