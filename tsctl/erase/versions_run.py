"""One run of `tsctl erase versions` on all stores of an archive, by an identity that may delete versions.

Partitions are those that a request names with a list. Before anything of a partition is deleted, the evidence has the
SHA-256 of each version. The next `tsctl erase run` finds what remains, and notes the end of a request.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ts_common.errors import AccessDenied, BucketMissing
from ts_common.store.protection import Protection
from tsctl.archive_options import OpenArchive
from tsctl.erase.archive_run import holds_of
from tsctl.erase.erased_copies import Did, Outcome
from tsctl.erase.evidence import Evidence, read_progress
from tsctl.erase.index_versions import remove_index_versions
from tsctl.erase.run import FAILS, Visited, Work, removed_of, targets
from tsctl.erase.versions import remove_versions
from tsctl.gc.archive_run import locked_by
from tsctl.scan_options import batch_limit

_MILLISECONDS: Final = 1000


@dataclass(slots=True)
class Found:
    """What a run did in one store.

    Attributes:
        has_versions: whether the bucket keeps what is deleted.
        indexes: of the versions of indexes of keys.
    """

    location: str
    has_versions: bool = True
    partitions: list[Visited] = field(default_factory=list)
    indexes: list[Outcome] = field(default_factory=list)

    @property
    def is_finding(self) -> bool:
        """Whether a person must act."""
        return any(each.is_finding for each in self.partitions)

    def outcomes(self) -> Iterator[tuple[str, Outcome]]:
        """Yield what became of each version, with the name of its partition; that is empty for an index."""
        yield from ((each.place.name, outcome) for each in self.partitions for outcome in each.outcomes.values())
        yield from (("", outcome) for outcome in self.indexes)


def remove_in_archive(
    archive: OpenArchive, grace: float, warn: Callable[[str], None], *, writes: bool = True
) -> Iterator[Found]:
    """Delete the versions with erased records in each location of an archive, and yield what was done there.

    Args:
        grace: seconds since a later version or a delete marker replaced a version.
        warn: is called with a sentence for the operator.
        writes: False for a dry run.

    Raises:
        CorruptData, NewerFormat: an object that names places or requests is damaged, or of a later release.
        AccessDenied: this identity may not do what it has to; the message names the permission.
        StoreUnavailable, BucketMissing: the store failed; the next run continues.
    """
    for store in archive.stores:
        store.check()
        protection = store.protection()
        found = Found(store.location, protection.versioned)
        if protection.versioned:
            now = int(store.current_time() * _MILLISECONDS)
            held, locked = holds_of(archive, now), locked_by(store, now)
            _remove(Work(store, archive.keys, grace, held, locked, warn, batch_limit(), writes), protection, found)
        yield found


def _remove(work: Work, protection: Protection, found: Found) -> None:
    requests = read_progress(work.store, work.cluster)
    evidence = Evidence(work.store, work.cluster, requests)
    found.partitions += targets(work, requests, work.known_places())
    try:
        for visited in found.partitions:
            try:
                _visit(work, visited, protection, evidence)
            except (AccessDenied, BucketMissing):
                raise
            except FAILS as error:
                visited.fail(error)
        removed = removed_of(work, requests, found.partitions).values()
        its = [*(each.place.keys for each in found.partitions), *removed]
        for index in dict.fromkeys((keys.cluster, keys.incarnation) for keys in its):
            found.indexes += remove_index_versions(work.store, *index, protection=protection, writes=work.writes)
    finally:
        if work.writes:
            evidence.put()


def _visit(work: Work, visited: Visited, protection: Protection, evidence: Evidence) -> None:
    def note(outcome: Outcome, did: str) -> None:
        fields = {"partition": visited.place.name, "key": outcome.key, "version_id": outcome.version}
        evidence.note(visited.concerned(outcome), did, **fields, before=outcome.before, records=outcome.records)

    def removing(outcomes: Sequence[Outcome]) -> None:
        for each in outcomes:
            note(each, "removing version")
        evidence.put()

    for outcome in remove_versions(
        work.store,
        visited.place.keys,
        protection=protection,
        grace=work.grace,
        held=work.held(visited.place),
        limit=work.limit,
        noted=evidence.made,
        removing=removing,
        writes=work.writes,
    ):
        visited.outcomes[f"{outcome.key} {outcome.version}"] = outcome
        if outcome.did is Did.REMOVED:
            note(outcome, "removed version")
