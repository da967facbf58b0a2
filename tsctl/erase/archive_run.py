"""A run of `tsctl erase run` on all stores of an archive."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ts_common.archive.object_keys import ClusterKeys
from ts_common.errors import QueryError
from ts_common.store.contract import ObjectStore
from tsctl.archive_options import OpenArchive
from tsctl.erase.erased_copies import Held
from tsctl.erase.evidence import Progress, read_progress
from tsctl.erase.places import Place
from tsctl.erase.run import Found, Work, run_once
from tsctl.gc.archive_run import locked_by
from tsctl.gc.policy import parse_policy
from tsctl.gc.policy_retention import PolicyRetention
from tsctl.gc.retention import LeftOut
from tsctl.scan_options import batch_limit

_MILLISECONDS: Final = 1000


def run_archive(
    archive: OpenArchive,
    grace: float,
    warn: Callable[[str], None],
    *,
    topic: str | None = None,
    writes: bool = True,
    others: Sequence[ObjectStore] = (),
    begun: Callable[[Found], object] = lambda _: None,
) -> Iterator[Found]:
    """Rewrite and remove on each location of an archive, and yield what was done there.

    Args:
        grace: seconds from a put until what it replaces is removed.
        warn: is called with a sentence for the operator.
        topic: whose requests alone are looked at; None for all.
        writes: False for a dry run.
        others: further stores, with former places of its topics.
        begun: is called with the result of each location before it has anything: an error can end the run later.

    Raises:
        QueryError: no request names the topic.
        Others: as `run_once`.
    """
    by_store = dict[ObjectStore, list[Progress]]()
    for store in archive.stores:
        store.check()
        read = read_progress(store, archive.keys)
        by_store[store] = [each for each in read if topic is None or each.request.topic == topic]
    if topic is not None and not any(by_store.values()):  # a misspelt name would erase nothing without a message
        raise QueryError(f"--topic={topic}: no request names it; tsctl erase status lists them")
    open_ones = {store.location.rstrip("/"): store for store in (*archive.stores, *others)}
    for store, requests in by_store.items():
        found = Found(store.location)
        begun(found)
        now = int(store.current_time() * _MILLISECONDS)
        held, locked = holds_of(archive, now), locked_by(store, now)
        work = Work(store, archive.keys, grace, held, locked, warn, batch_limit(), writes, open_ones)
        run_once(work, requests, found)
        yield found


def holds_of(archive: OpenArchive, now: int) -> Callable[[Place], Held]:
    """Return a function that names the hold which keeps the bytes of a place; holds are read again after a few seconds.

    Those of all stores count, and those of a cluster that has a former place.

    Args:
        now: milliseconds since the epoch.
    """
    known = dict[ClusterKeys, PolicyRetention]()

    def retention_of(cluster: ClusterKeys) -> PolicyRetention:
        if cluster not in known:
            policy = parse_policy({"cluster": cluster.cluster, "rules": []}, "erase")
            known[cluster] = PolicyRetention(policy, archive.stores, cluster, now)
        return known[cluster]

    def held_of(place: Place) -> Held:
        clusters = dict.fromkeys((archive.keys, place.keys.cluster))

        def held() -> str | None:
            try:
                for cluster in clusters:
                    retention_of(cluster).check_holds(place.keys.partition.topic)
            except LeftOut as error:
                return str(error)
            return None

        return held

    return held_of
