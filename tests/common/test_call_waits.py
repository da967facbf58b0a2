"""Calls that wait for a store, apart from calls that wait for a processor."""

import os
import subprocess
import sys
import time

from ts_common.call_waits import CallWaits, queued_seconds


def test_a_thread_that_waits_for_a_processor_does_not_wait_for_a_store() -> None:
    """Another process uses half of the same processor. Else a busy host would look like a slow store."""
    allowed = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            os.sched_setaffinity(other.pid, {min(allowed)})
            os.sched_setaffinity(0, {min(allowed)})
            computed, queued = time.thread_time(), queued_seconds()
            while time.thread_time() - computed < 0.3:
                pass
            queued = queued_seconds() - queued
        finally:
            os.sched_setaffinity(0, allowed)
            other.kill()
    assert queued > 0.06


def test_a_share_of_a_processor_is_no_wait_and_the_rest_is() -> None:
    """A call of a second that computed for a tenth was in the queue for the rest; later ones were not."""
    now = computed = queued = 0.0
    waits = CallWaits(lambda: now, lambda: computed, lambda: queued)

    def call(in_queue: float) -> None:
        nonlocal now, computed, queued
        now, computed, queued = now + 1, computed + 0.1, queued + in_queue

    for _ in range(4):
        waits.measure(lambda: call(0.9))
    assert not waits.prevail.is_set()
    for _ in range(8):
        waits.measure(lambda: call(0.0))
    assert waits.prevail.is_set()
