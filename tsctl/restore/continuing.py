"""The archive that continues a restored cluster: its `restored.json`, and a hold on the old topics.

The collector of the new archive reads no other cluster's prefix, so only a hold keeps the old history there. If a topic
continues in the same archive, its collector reads `restored.json` and keeps the former place, so the hold ends.
"""

import getpass
import socket
import time
from collections.abc import Callable, Iterator

from ts_common.archive.catalog import read_commit
from ts_common.archive.commit import Commit
from ts_common.archive.holds import MOST_TOPICS, Hold
from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.restored import Restored, RestoredPartition, RestoredTopic, record_restored
from ts_common.errors import QueryError
from ts_common.model import TopicPartition
from ts_reader.reading.parallel import in_threads
from tsctl.archive_options import OpenArchive
from tsctl.holds import add_hold
from tsctl.restore.documents import Created, RestorePlan
from tsctl.restore.partition_plan import PartitionPlan

_PURPOSE = "restore"
_SHOWN = 10
_SAME_ARCHIVE = 7 * 86_400_000  # ms of a hold in the same archive: it would also hold what the topic gets


def check_unchanged(old: OpenArchive, plan: RestorePlan) -> None:
    """Check that agents have shipped nothing of the deleted topics since the plan was made.

    Readers would not return it: the topics that continue them begin at the plan's ends.

    Raises:
        QueryError: they have.
        CorruptData, NewerFormat, StoreUnavailable, AccessDenied: from the stores.
    """

    def later(item: tuple[TopicPartition, PartitionPlan]) -> str | None:
        name, part = item
        keys = old.keys.partition(name, plan.topics[name.topic].directory)
        commit, _ = read_commit(old.store_of(name.topic), keys)
        if part.end < part.stored_end or not isinstance(commit, Commit) or commit.next_offset <= part.end:
            return None
        return f"{name}: the archive has offsets up to {commit.next_offset - 1}, and the plan ends at {part.end}"

    if found := [each for each in in_threads(later, plan.partitions.items()) if each is not None]:
        raise QueryError(
            f"{'; '.join(found[:_SHOWN])}: agents shipped the rest of the deleted topic meanwhile; make the plan "
            "again, in another directory. Nothing was created"
        )


def restored_part(part: PartitionPlan) -> RestoredPartition:
    """Return what readers find in the former archive: its closed segments.

    Packs of a live tail are not kept. Their records are a segment of the new log, so its agent ships them, and the
    markers behind them.
    """
    end = part.closed_end
    ended = tuple(each for each in part.ended if each.first_offset < end)
    return RestoredPartition(end, part.lineage, part.epochs.below(end), ended)


def hold_topics(old: OpenArchive, plan: RestorePlan, warn: Callable[[str], None]) -> None:
    """Set a hold on the restored topics in their own archive; a repeated call completes it.

    Raises:
        QueryError: another hold has its name.
        CorruptData, StoreUnavailable, AccessDenied, OutcomeUnknown: from the stores.
    """
    names = sorted(plan.topics)
    for number, first in enumerate(range(0, len(names), MOST_TOPICS)):
        hold = Hold(
            name=f"restored-{plan.plan}" + (f"-{number + 1}" if number else ""),
            topics=tuple(names[first : first + MOST_TOPICS]),
            reason="restored: the new cluster's archive refers to the records here",
            time=plan.time,
            until=plan.time + _SAME_ARCHIVE if plan.is_served else None,
            purpose=_PURPOSE,
        )
        add_hold(old.stores, old.keys, hold, warn)


def continue_archive(old: OpenArchive, new: OpenArchive, plan: RestorePlan, created: Created) -> Iterator[str]:
    """Write `restored.json` into each store of the new archive; yield the location of each.

    Raises:
        QueryError: a topic has no id, or the record has another restore of it.
        CorruptData, PreconditionFailed, StoreUnavailable, AccessDenied: from the stores.
    """
    topics: dict[str, dict[str, RestoredTopic]] = {}
    for name, topic in plan.topics.items():
        store, former, topic_id = new.store_of(name), old.store_of(name), created.topics[name]
        if topic_id is None:
            raise QueryError(f"topic {name}: the new cluster has no topic ids, which an archive of it needs")
        known, _ = read_incarnations(store, new.keys, name)
        entry = known.find(topic_id)
        chosen = known.opened(topic_id, 0, new.keys).newest_directory if entry is None else entry.directory
        url = None if former.location == store.location else former.location
        if url is None and new.keys == old.keys and chosen == topic.directory:
            raise QueryError(
                f"topic {name}: {new.keys.cluster} has no list of its incarnations, so the new topic would continue "
                f"the old directory {chosen}; give the new cluster's agents another cluster id, and its file here"
            )
        partitions = {number: restored_part(part) for number, part in topic.partitions.items()}
        topics.setdefault(store.location, {})[chosen] = RestoredTopic(
            url, plan.cluster, max(old.keys.entropy_bits, 0), topic.directory, partitions
        )

    def refuse(directory: str) -> None:
        raise QueryError(
            f"{new.keys.restored} has another restore of {directory}; a topic is restored once: create it again"
        )

    by = f"{getpass.getuser()}@{socket.gethostname()}"
    for store in new.stores:
        if found := topics.get(store.location):
            record_restored(store, new.keys, Restored(int(time.time() * 1000), by, found), refuse)
            yield store.location
