"""Wait at the agent's start while a store denies access, visibly in log, metrics and status page.

Denied access (403) may be temporary: the service that decides it is unavailable, a role is granted a minute after the
host was created, or a load balancer answers for the store. Requests rejected for this host's time succeed after its
clock is set. An agent that ended then would stay down, because nothing restarts it after exit code 2. It ends with that
code only for problems that require a change of configuration: a missing bucket, another entropy width.
"""

from collections.abc import Callable

import structlog

from ts_common.errors import AccessDenied, WrongClock
from ts_common.store.retry import backoff_seconds
from ts_uploader.health.store_health import failure_reason
from ts_uploader.metrics.counters import CHECK_STORES, Metrics
from ts_uploader.status.last_errors import LastErrors

log = structlog.get_logger()


def wait_for_admission(
    check: Callable[[], None],
    reopen: Callable[[], None],
    wait: Callable[[float], bool],
    metrics: Metrics,
    errors: LastErrors,
) -> bool:
    """Check the stores until none denies access, and return True; return False if `wait` does.

    Args:
        check: checks all stores.
        reopen: opens the stores again, so that the next check uses new credentials.
        wait: waits for a number of seconds; returns False if the agent must end.
        errors: keeps the last one for the status page.

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
