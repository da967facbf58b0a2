"""Whether ZooKeeper still knows what the broker beside us leads, or the cluster has gone over to KRaft.

A cluster that migrates (KIP-866) passes these states, and can go back from all but the last::

    brokers in ZooKeeper mode     /brokers/ids/<id> stands                          ZooKeeper knows
    controllers take over         and so does /migration; they write what they      ZooKeeper knows
                                  decide to ZooKeeper as well
    the broker in KRaft mode      /brokers/ids/<id> is gone, /migration stands      it is no longer asked here
    migration finalised           likewise; nobody writes to ZooKeeper any more     what stands there is stale

So ZooKeeper is not believed where `/migration` stands and the broker is not registered. It may only be restarting: then
nothing is said until it is back. Where somebody removed `/migration`, or restored an old ZooKeeper, the broker's disk
tells: the controller writes an epoch to ZooKeeper before any leader writes it to its disk, so a leadership older than
the last epoch on the disk of a broker that ZooKeeper does not know is stale too.
"""

from collections.abc import Iterable
from pathlib import Path

from ts_common.errors import CorruptData
from ts_common.model import TopicPartition
from ts_uploader.events import Led
from ts_uploader.leadership.kraft.replica_state import find
from ts_uploader.log_dirs.local_log import local_epochs

MIGRATION = "/migration"


class Registration:
    """What ZooKeeper says of the migration and of one broker.

    Attributes:
        path: of the broker's registration.
        paths: what must be read.
    """

    def __init__(self, broker_id: int) -> None:
        self.path = f"/brokers/ids/{broker_id}"
        self.paths = frozenset({MIGRATION, self.path})
        self._stands: dict[str, bool] = {}
        self._outlived: TopicPartition | None = None

    def take(self, path: str, *, stands: bool) -> None:
        """Take one of `paths`."""
        self._stands[path] = stands
        if not self.absent:
            self._outlived = None

    def take_led(self, led: Led, log_dirs: Iterable[Path]) -> None:
        """Take what ZooKeeper says, and hold it against the disk of a broker that is not registered."""
        if self.absent and _is_outlived(led, log_dirs):
            self._outlived = led.partition

    @property
    def absent(self) -> bool:
        """Whether the broker is not registered; also while it restarts."""
        return not self._stands.get(self.path, True)

    @property
    def stale(self) -> str | None:
        """Why ZooKeeper is not believed; None where it is."""
        if not self.absent:
            return None
        if self._stands.get(MIGRATION, False):
            return f"{MIGRATION} stands, {self.path} does not"
        if self._outlived is not None:
            return f"{self.path} is absent, and the broker's disk holds a later leader epoch of {self._outlived}"
        return None


def _is_outlived(led: Led, log_dirs: Iterable[Path]) -> bool:
    directory = find(log_dirs, led.partition)
    if directory is None:
        return False
    try:
        local = local_epochs(directory)
    except (OSError, CorruptData):
        return False  # who ships it reads it again, and says what is wrong
    return local is not None and bool(local.pairs) and local.pairs[-1][0] > led.leadership.epoch
