"""Compare this host's clock with a store's, by the time that the store gives an object."""

from typing import Final

DATE_SECONDS: Final = 1.0  # precision of an HTTP date
REPORTED_SKEW_SECONDS: Final = 30.0


def skew_between(before: float, stored_at: float, after: float) -> float:
    """Return by how many seconds this host's clock is ahead of the store's at least; below 0 if it is behind.

    Args:
        before: this host's time before a put, in seconds since the epoch.
        stored_at: `ObjectInfo.modified` of the put.
        after: this host's time after it.
    """
    ahead = before - stored_at - DATE_SECONDS
    return ahead if ahead > 0 else -max(0.0, stored_at - after)
