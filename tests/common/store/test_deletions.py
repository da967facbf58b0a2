"""The outcome of a delete of many objects."""

import pytest

from ts_common.errors import AccessDenied, StoreThrottled, StoreUnavailable
from ts_common.store.deletions import Deletions


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
