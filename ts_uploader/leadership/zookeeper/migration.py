"""Decide whether ZooKeeper is current for the local broker, or the cluster has migrated to KRaft.

A cluster that migrates (KIP-866) passes these states, and can return from all but the last::

    brokers in ZooKeeper mode     /brokers/ids/<id> exists                          ZooKeeper is current
    controllers in charge         /migration exists as well; the controllers also   ZooKeeper is current
                                  write their decisions to ZooKeeper
    the broker in KRaft mode      /migration exists, /brokers/ids/<id> does not     ZooKeeper is ignored
    migration finalised           the same; no process writes to ZooKeeper          ZooKeeper is stale

So ZooKeeper is ignored if `/migration` exists and the broker is not registered. The broker may only be restarting; then
the source emits nothing until it is registered again. If an operator removed `/migration` or restored an old ZooKeeper,
the broker's disk decides: the controller writes an epoch to ZooKeeper before any leader writes it to its disk. So a
leadership older than the last epoch on the disk of an unregistered broker is stale too.
"""

from collections.abc import Iterable
from pathlib import Path

from ts_common.errors import CorruptData, TransientError
from ts_common.model import TopicPartition
from ts_uploader.leadership.kraft.replica_state import find
from ts_uploader.log_dirs.local_log import local_epochs
from ts_uploader.messages.observations import Led

MIGRATION = "/migration"


class BrokerMigrated(TransientError):
    """The broker runs in KRaft mode now, by its own file; an agent that starts now uses the broker."""


class Registration:
    """The state of the migration and of one broker's registration in ZooKeeper.

    Attributes:
        paths: to read.
    """

    def __init__(self, broker_id: int) -> None:
        self.path = f"/brokers/ids/{broker_id}"
        self.paths = frozenset({MIGRATION, self.path})
        self._exists: dict[str, bool] = {}
        self._outlived: TopicPartition | None = None

    def take(self, path: str, *, exists: bool) -> None:
        """Note whether one of `paths` exists."""
        self._exists[path] = exists
        if not self.absent:
            self._outlived = None

    def take_led(self, led: Led, log_dirs: Iterable[Path]) -> None:
        """Compare a leadership in ZooKeeper with the disk, if the broker is not registered."""
        if self.absent and _is_outlived(led, log_dirs):
            self._outlived = led.partition

    @property
    def absent(self) -> bool:
        """Whether the broker is not registered; also while it restarts."""
        return not self._exists.get(self.path, True)

    @property
    def stale(self) -> str | None:
        """Why ZooKeeper is ignored; None if it is current."""
        if not self.absent:
            return None
        if self._exists.get(MIGRATION, False):
            return f"{MIGRATION} exists, {self.path} does not"
        if self._outlived is not None:
            return f"{self.path} is absent, and the broker's disk has a later leader epoch of {self._outlived}"
        return None


def _is_outlived(led: Led, log_dirs: Iterable[Path]) -> bool:
    directory = find(log_dirs, led.partition)
    if directory is None:
        return False
    try:
        local = local_epochs(directory)
    except (OSError, CorruptData):
        return False  # the uploader reads it again, and reports what is wrong
    return local is not None and bool(local.pairs) and local.pairs[-1][0] > led.leadership.epoch
