"""`log.start`: where an archive began, written once, and anew where it is gone (protocol rule 8)."""

import structlog

from ts_common.commit import Commit, decode_log_start, encode_log_start
from ts_common.errors import OutcomeUnknown, PreconditionFailed
from ts_common.object_keys import PartitionKeys, SegmentName
from ts_common.store.contract import IfAbsent, ObjectStore

log = structlog.get_logger()


def restore_log_start(store: ObjectStore, keys: PartitionKeys, commit: Commit) -> None:
    """Write `log.start` anew where a commit stands and it is gone: with the lowest segment, as readers do meanwhile."""
    named = (SegmentName.parse(info.key.removeprefix(keys.prefix)) for info in store.list(keys.prefix))
    lowest = next((name[0].base for name in named if name is not None), commit.next_offset)
    log.error(
        "log.start is gone, and is written anew; does a lifecycle rule of the bucket remove it?",
        key=keys.log_start,
        log_start=lowest,
    )
    write_log_start(store, keys, lowest)


def write_log_start(store: ObjectStore, keys: PartitionKeys, log_start: int) -> int:
    """Write `log.start`, or take what somebody else wrote there first."""
    try:
        store.put(keys.log_start, encode_log_start(log_start), condition=IfAbsent())
    except (PreconditionFailed, OutcomeUnknown):
        return decode_log_start(store.get(keys.log_start)[0], keys.log_start)
    return log_start
