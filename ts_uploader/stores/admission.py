"""The agent's start before stores that refuse it: it stays, asks again, and is seen to wait.

A refusal of the identity (403) may pass: an outage of what decides it, a role that is granted a minute after the host
was made, a balancer that answers in the store's place. A refusal of this host's time passes when its clock is set. An
agent that ended on either would be gone for good, since nothing starts it again after exit code 2. What is certain to
need a change of configuration (a bucket that does not exist, another entropy width) ends it with that code.
"""

from collections.abc import Callable

import structlog

from ts_common.errors import AccessDenied, WrongClock
from ts_uploader.metrics.counters import CHECK_STORES, Metrics
from ts_uploader.metrics.failure_reasons import failure_reason
from ts_uploader.status.last_errors import LastErrors
from ts_uploader.workers import backoff_seconds

log = structlog.get_logger()


def wait_for_admission(
    check: Callable[[], None],
    reopen: Callable[[], None],
    wait: Callable[[float], bool],
    metrics: Metrics,
    errors: LastErrors,
) -> bool:
    """Ask until every store admits the agent.

    Args:
        check: asks all of them.
        reopen: makes the next question one with the credentials of then.
        wait: waits so many seconds; False asks for an end.
        metrics: counts each refusal.
        errors: keeps the last one for the status page.

    Returns:
        Whether they do; False where `wait` asked for an end before.

    Raises:
        ConfigurationError, StoreUnavailable: as `check`.
    """
    attempt = 0
    while True:
        try:
            check()
        except (AccessDenied, WrongClock) as refused:
            attempt += 1
            seconds = backoff_seconds(attempt)
            metrics.errors.labels(CHECK_STORES, failure_reason(refused)).inc()
            errors.note(CHECK_STORES, "", str(refused))
            log.error(
                "store_access_denied",
                message="nothing is shipped; retried",
                error=str(refused),
                retry_in_seconds=round(seconds, 1),
            )
            if not wait(seconds):
                return False
            reopen()
        else:
            return True
