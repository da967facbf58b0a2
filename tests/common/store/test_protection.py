"""Locks of many objects, read in parallel, and which of them hold."""

import threading

import pytest

from ts_common.errors import AccessDenied
from ts_common.store.protection import Lock, locks_held


@pytest.mark.parametrize(
    ("lock", "holds"),
    [
        (Lock(101, legal_hold=False, mode="GOVERNANCE"), True),
        (Lock(100, legal_hold=False, mode="COMPLIANCE"), False),
        (Lock(99, legal_hold=True, mode="COMPLIANCE"), True),
        (Lock(None, legal_hold=True, mode=""), True),
        (Lock(None, legal_hold=False, mode=""), False),
    ],
)
def test_a_lock_holds_until_its_date_or_while_it_is_a_legal_hold(lock: Lock, *, holds: bool) -> None:
    """At its date it has ended; a legal hold has no date."""
    assert lock.holds(100) is holds
    assert locks_held(lambda _: lock, ["a"], 100) == ({"a": lock} if holds else {})


@pytest.mark.parametrize(
    ("lock", "reason"),
    [
        (Lock(0, legal_hold=False, mode="GOVERNANCE"), "retained until 1970-01-01 00:00:00 UTC (GOVERNANCE)"),
        (Lock(0, legal_hold=True, mode=""), "retained until 1970-01-01 00:00:00 UTC, legal hold"),
        (Lock(None, legal_hold=True, mode=""), "legal hold"),
        (Lock(1e15, legal_hold=False, mode=""), "retained until 1000000000000000 s since the epoch"),
    ],
)
def test_the_reason_of_a_lock_is_a_text(lock: Lock, reason: str) -> None:
    """A report has it; a store can retain an object beyond the calendar."""
    assert lock.reason == reason


def test_eight_locks_are_read_at_once_and_every_key_is_read() -> None:
    """Of 1,100 keys each has its own answer; the first eight requests wait for one another."""
    eight = threading.Barrier(8)
    every = [f"{number:04}" for number in range(1100)]

    def lock_of(key: str) -> Lock | None:
        if key < "0008":
            eight.wait(20)
        return Lock(float(key), legal_hold=False, mode="GOVERNANCE") if int(key) % 2 else None

    assert list(locks_held(lock_of, iter(every), 1000)) == [key for key in every if int(key) % 2 and int(key) > 1000]


def test_a_lock_that_cannot_be_read_is_an_error_of_all() -> None:
    """Doubt deletes nothing: the keys that could be read are not returned without the others."""

    def lock_of(key: str) -> Lock | None:
        if key == "c":
            raise AccessDenied("c is denied")
        return None

    with pytest.raises(AccessDenied, match="c is denied"):
        locks_held(lock_of, "abcd", 0)
