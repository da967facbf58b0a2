"""The outcome of a delete of many objects."""

import pytest

from ts_common.errors import (
    AccessDenied,
    BucketMissing,
    ObjectNotFound,
    PreconditionFailed,
    StoreThrottled,
    StoreUnavailable,
)
from ts_common.store.contract import DeleteOutcome, ObjectInfo
from ts_common.store.deletions import Deletions, delete_each, is_missing_after, is_removed
from ts_common.store.validation import KeyRefused


def test_each_object_is_deleted_and_the_first_failure_is_reported() -> None:
    """A failure does not end the loop; the error counts all failures and objects."""
    deletions = Deletions()
    for key, error in (("a", None), ("b", StoreThrottled("slow down")), ("c", AccessDenied("no")), ("d", None)):
        with deletions.deleting(key):
            if error is not None:
                raise error
    with pytest.raises(StoreUnavailable, match=r"^2 of 4 not deleted, the first is b: slow down$") as raised:
        deletions.check()
    assert type(raised.value) is StoreUnavailable


def test_an_error_of_the_operator_keeps_its_class() -> None:
    """The caller then does not retry."""
    deletions = Deletions()
    deletions.add("a", AccessDenied("allow it"))
    deletions.add("b", StoreUnavailable("later"))
    with pytest.raises(AccessDenied, match=r"^2 of 2 not deleted, the first is a: allow it$"):
        deletions.check()


def test_a_delete_without_failures_raises_nothing() -> None:
    """Also if no object was deleted; errors that are not the store's are raised at once."""
    deletions = Deletions()
    deletions.check()
    deletions.add("a", None)
    with pytest.raises(ZeroDivisionError), deletions.deleting("b"):
        raise ZeroDivisionError
    deletions.check()


@pytest.mark.parametrize("threads", [1, 8])
def test_each_object_of_a_conditional_delete_has_an_outcome(threads: int) -> None:
    """Also those of the second and third thousand, in the caller's order; a failure ends nothing."""
    failures = {f"{number:04}": StoreThrottled("slow down") for number in (0, 999, 1000, 2499)}
    kept = {"0001", "1001", "2001"}
    etags = {f"{number:04}": f"e{number}" for number in range(2500)}

    def delete(key: str, etag: str) -> bool:
        assert etags[key] == etag
        if key in failures:
            raise failures[key]
        return key not in kept

    outcome = delete_each(etags, delete, threads=threads)
    assert outcome.failed == failures
    assert outcome.kept == tuple(sorted(kept))
    assert outcome.removed == tuple(key for key in etags if key not in failures and key not in kept)


def test_a_conditional_delete_ends_at_a_missing_bucket_and_at_other_errors() -> None:
    """No object of a missing bucket counts as removed; nothing is sent if a key or an ETag is invalid."""

    def missing(key: str, etag: str) -> bool:
        raise BucketMissing(f"no bucket for {key} {etag}")

    def broken(key: str, etag: str) -> bool:
        raise ZeroDivisionError(key + etag)

    with pytest.raises(BucketMissing):
        delete_each({"a": "e"}, missing)
    with pytest.raises(ZeroDivisionError):
        delete_each({"a": "e"}, broken)
    with pytest.raises(KeyRefused):
        delete_each({"a": "e", "../b": "e"}, broken)
    with pytest.raises(ValueError, match=r"^b: not the ETag"):
        delete_each({"a": "e", "b": "*"}, broken)
    assert delete_each({}, broken) == DeleteOutcome((), (), {})


def test_the_outcome_of_one_object_is_whether_it_is_removed() -> None:
    """Its failure is raised."""
    assert is_removed(DeleteOutcome(("a",), (), {}))
    assert not is_removed(DeleteOutcome((), ("a",), {}))
    with pytest.raises(StoreThrottled):
        is_removed(DeleteOutcome((), (), {"a": StoreThrottled("slow down")}))


def test_a_rejected_condition_is_of_another_object_or_of_none() -> None:
    """HEAD shows which; an object that has the ETag is neither."""

    def head(etag: str) -> ObjectInfo:
        if not etag:
            raise ObjectNotFound("a")
        return ObjectInfo("a", 1, etag, 0.0)

    rejection = PreconditionFailed("DELETE a: 412")
    assert is_missing_after(rejection, lambda: head(""), "e")
    assert not is_missing_after(rejection, lambda: head("other"), "e")
    with pytest.raises(StoreUnavailable, match=r"^DELETE a: 412; HEAD .* the same ETag e"):
        is_missing_after(rejection, lambda: head("e"), "e")
