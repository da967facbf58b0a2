"""The error of an agent whose leadership is over: `workers` counts it, and the tracker gives up the leadership."""

from ts_common.errors import TieredStorageError


class FencedLeaderEpoch(TieredStorageError):
    """The store or a segment shows a later leader epoch than the agent's, or the store a later incarnation."""
