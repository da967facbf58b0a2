"""Conditional deletes with servers that enforce the condition, ignore it or reject it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Literal

import pytest

from tests.common.store.s3.calls import MODIFIED
from tests.common.store.servers import FakeServer, answer
from tests.http_servers import Handler, serving
from ts_common.errors import AccessDenied, BucketMissing, OutcomeUnknown, StoreUnavailable
from ts_common.store.contract import DeleteOutcome, ObjectStore
from ts_common.store.factory import open_store

ETAG = '"5d41402abc4b2a76b9719d911017c592"'
OTHER = '"7d793037a0760186574b0282f2f435e7"'


@dataclass
class Bucket:
    """What the server has, and what it does with a DELETE.

    Attributes:
        condition: what the server does with `If-Match`.
        etags: of its objects, by key.
        missing: status and code of a conditional DELETE of a missing object.
        denied: keys that no request may delete.
        overwritten: by key, the ETag that another client gives an object right after the next HEAD.
        requests: method, key and condition of each.
    """

    condition: Literal["enforced", "ignored", "rejected"]
    etags: dict[str, str]
    missing: tuple[int, str] = (404, "NoSuchKey")
    denied: frozenset[str] = frozenset()
    overwritten: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)

    def head(self, key: str) -> str | None:
        """Return the ETag of an object."""
        found = self.etags.get(key)
        if key in self.overwritten:
            self.etags[key] = self.overwritten.pop(key)
        return found

    def delete(self, key: str, etag: str | None) -> tuple[int, str]:
        """Return status and code."""
        if key in self.denied:
            return 403, "AccessDenied"
        if etag is not None and self.condition == "rejected":
            return 501, "NotImplemented"
        if etag is not None and self.condition == "enforced":
            if key not in self.etags:
                return self.missing
            if self.etags[key] != etag:
                return 412, "PreconditionFailed"
        self.etags.pop(key, None)
        return 204, ""


@contextmanager
def served(bucket: Bucket) -> Iterator[str]:
    """Start a server of the bucket `archive` below `base/`, and yield its endpoint."""

    class Objects(Handler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_HEAD(self) -> None:
            etag = bucket.head(self._key())
            found = {} if etag is None else {"ETag": etag, "Last-Modified": MODIFIED}
            self.answer(200 if found or self.path == "/archive" else 404, b"", **found)

        def do_DELETE(self) -> None:
            status, code = bucket.delete(self._key(), self.headers["if-match"])
            self.answer(
                status, f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode() if code else b""
            )

        def _key(self) -> str:
            key = self.path.partition("/base/")[2]
            bucket.requests.append((self.command, key, self.headers["if-match"]))
            return key

    with serving(Objects) as port:
        yield f"http://127.0.0.1:{port}"


OpenOn = Callable[[Bucket], ObjectStore]


@pytest.fixture
def open_on(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenOn]:
    """Return a function that opens a store on a server of its own, with the credentials of `fake`."""
    del fake
    with ExitStack() as opened:

        def open_one(bucket: Bucket) -> ObjectStore:
            monkeypatch.setenv("AWS_ENDPOINT_URL", opened.enter_context(served(bucket)))
            return opened.enter_context(open_store("s3://archive/base", timeout_seconds=5))

        yield open_one


def named(*keys: str) -> dict[str, str]:
    """Return a plan with the same ETag for each key."""
    return dict.fromkeys(keys, ETAG)


def test_a_store_that_enforces_the_condition_gets_one_request_for_each_object(open_on: OpenOn) -> None:
    """Only the first object that has its ETag needs two more: a HEAD, and a delete with an ETag of no object."""
    bucket = Bucket("enforced", {**named("a", "b", "c"), "d": OTHER})
    store = open_on(bucket)
    assert store.enforces_deletes() is None
    assert store.delete_matching(named("a")) == DeleteOutcome(("a",), (), {})
    ((_, first, _), (method, second, condition), last) = bucket.requests
    assert (first, method, second, condition not in {ETAG, None}) == ("a", "DELETE", "a", True)
    assert last == ("DELETE", "a", ETAG)
    assert store.enforces_deletes() is True
    bucket.requests.clear()
    assert store.delete_matching(named("b", "c", "d")) == DeleteOutcome(("b", "c"), ("d",), {})
    deletes = [request for request in bucket.requests if request[0] == "DELETE"]
    assert sorted(deletes) == [("DELETE", key, ETAG) for key in ("b", "c", "d")]
    assert len(bucket.requests) == 4  # a HEAD of the rejected one, which could be missing
    assert bucket.etags == {"d": OTHER}


@pytest.mark.parametrize("condition", ["ignored", "rejected"])
def test_a_head_is_sent_first_where_the_store_does_not_enforce_the_condition(
    open_on: OpenOn, condition: Literal["ignored", "rejected"]
) -> None:
    """Another object is kept, although the store would delete it; also if it is the first one of the plan."""
    bucket = Bucket(condition, {**named("b", "c"), "a": OTHER, "d": OTHER})
    store = open_on(bucket)
    assert store.delete_matching(named("a", "b")) == DeleteOutcome(("b",), ("a",), {})
    assert store.enforces_deletes() is False
    assert store.delete_matching(named("c", "d", "never")) == DeleteOutcome(("c", "never"), ("d",), {})
    assert bucket.etags == {"a": OTHER, "d": OTHER}
    for key in ("a", "d", "never"):
        assert all(request[0] == "HEAD" for request in bucket.requests if request[1] == key)


@pytest.mark.parametrize("condition", ["ignored", "rejected"])
def test_a_store_without_the_condition_loses_what_is_overwritten_after_the_head(
    open_on: OpenOn, condition: Literal["ignored", "rejected"]
) -> None:
    """This race is left, as docs/contributing.md describes. Each delete has its own HEAD."""
    bucket = Bucket(condition, named("a", "b", "c"))
    store = open_on(bucket)
    store.delete_matching(named("a"))
    bucket.etags["c"] = OTHER
    bucket.overwritten["b"] = OTHER
    assert store.delete_matching(named("b", "c")) == DeleteOutcome(("b",), ("c",), {})
    assert bucket.etags == {"c": OTHER}


@pytest.mark.parametrize("missing", [(404, "NoSuchKey"), (412, "PreconditionFailed")], ids=["AWS", "SeaweedFS"])
def test_a_missing_object_counts_as_removed_for_each_status(open_on: OpenOn, missing: tuple[int, str]) -> None:
    """AWS answers 404 to its condition, SeaweedFS 412."""
    bucket = Bucket("enforced", named("a"), missing=missing)
    store = open_on(bucket)
    for _ in range(2):
        assert store.delete_matching(named("a", "b")) == DeleteOutcome(("a", "b"), (), {})


def test_an_object_that_vanishes_before_the_first_delete_shows_nothing(open_on: OpenOn) -> None:
    """A store that ignores the condition also answers "not found"; the next object shows what it does."""
    bucket = Bucket("ignored", {**named("b"), "c": OTHER})
    store = open_on(bucket)
    vanishing = bucket.delete

    def not_found(key: str, etag: str | None) -> tuple[int, str]:
        return (404, "NoSuchKey") if key == "a" else vanishing(key, etag)

    bucket.etags["a"] = ETAG
    bucket.delete = not_found  # type: ignore[method-assign]
    assert store.delete_matching(named("a")).removed == ("a",)
    assert store.delete_matching(named("c")).kept == ("c",)
    assert store.delete_matching(named("b", "c")) == DeleteOutcome(("b",), ("c",), {})
    assert bucket.etags == {"a": ETAG, "c": OTHER}


def test_each_error_of_a_long_delete_is_read(open_on: OpenOn) -> None:
    """Of 1,100 objects, one in the first and one in the second thousand may not be deleted; all others are."""
    keys = [f"{number:04}.log" for number in range(1100)]
    bucket = Bucket("enforced", named(*keys), denied=frozenset({"0003.log", "1050.log"}))
    bucket.etags["1060.log"] = OTHER
    outcome = open_on(bucket).delete_matching(named(*keys))
    assert list(outcome.failed) == ["0003.log", "1050.log"]
    for key, error in outcome.failed.items():
        assert isinstance(error, AccessDenied)
        assert f"DeleteObject s3://archive/base/{key}" in str(error)
        assert "allow this identity s3:DeleteObject" in str(error)
    assert outcome.kept == ("1060.log",)
    assert outcome.removed == tuple(key for key in keys if key not in {"0003.log", "1050.log", "1060.log"})
    assert set(bucket.etags) == {"0003.log", "1050.log", "1060.log"}


def test_a_rejection_of_the_right_etag_is_a_failure(open_on: OpenOn) -> None:
    """The object is not reported as another one, and the message has the ETag."""
    bucket = Bucket("enforced", named("a", "b"))
    store = open_on(bucket)
    store.delete_matching(named("a"))
    bucket.delete = lambda *_: (412, "PreconditionFailed")  # type: ignore[method-assign]
    outcome = store.delete_matching(named("b"))
    assert (outcome.removed, outcome.kept) == ((), ())
    assert isinstance(outcome.failed["b"], StoreUnavailable)
    assert f"the same ETag {ETAG}" in str(outcome.failed["b"])


@pytest.mark.parametrize(
    "said",
    [
        answer("200 OK", b"<html>welcome</html>", content_type="text/html", etag=ETAG, last_modified=MODIFIED),
        answer("200 OK", b"", etag=ETAG, last_modified=MODIFIED),
        answer("500 Internal Server Error"),
        None,
    ],
    ids=["a page", "nothing", "500", "silence"],
)
def test_u37_no_answer_of_s3_is_no_confirmed_delete(far: ObjectStore, fake: FakeServer, said: bytes | None) -> None:
    """A load balancer answers in place of the store, or nothing does: each object is a failure that may be retried."""
    fake.answers = [said]
    outcome = far.delete_matching(named("a"))
    assert (outcome.removed, outcome.kept) == ((), ())
    assert isinstance(outcome.failed["a"], StoreUnavailable)
    assert not isinstance(outcome.failed["a"], OutcomeUnknown)
    assert "base/a" in str(outcome.failed["a"])


def test_a_bucket_that_is_missing_is_an_error_of_the_whole_delete(far: ObjectStore, fake: FakeServer) -> None:
    """Missing objects of a missing bucket do not count as removed."""
    fake.answers = [answer("404 Not Found")]
    with pytest.raises(BucketMissing, match="archive"):
        far.delete_matching(named("a", "b"))
