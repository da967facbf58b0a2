"""`tsctl erase versions` killed after each request, on two stores: nothing else is lost, and the next run completes it.

A version that was deleted has its SHA-256 in the evidence before.
"""

from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.erased.canary import Canary
from tests.made_archive import CLUSTER
from tests.matrix import cases
from tests.tsctl.erase.keeping import Keeping
from tests.tsctl.erase.killing import Killed, KilledAt, shown, values
from tests.tsctl.erase.test_running import NOW, lines, once, state, with_request
from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.store.contract import ObjectStore, ObjectVersion
from ts_reader.options.archive_name import name_archive
from tsctl.archive_options import OpenArchive
from tsctl.erase.erased_copies import Did
from tsctl.erase.versions_run import remove_in_archive


class KilledAtVersions(KilledAt):
    """Counts the requests about versions too."""

    def versions(self, prefix: str) -> Iterator[ObjectVersion] | None:
        found: Iterator[ObjectVersion] | None = self._do(lambda: self._inner.versions(prefix))
        return found

    def open_version(self, *arguments: Any, **named: Any) -> Any:
        return self._do(lambda: self._inner.open_version(*arguments, **named))

    def delete_version(self, version: ObjectVersion) -> None:
        self._do(lambda: self._inner.delete_version(version), writes=True)


class Bucket:
    """A store with versions, whose runs have rewritten and removed the segment of a request."""

    def __init__(self, path: Path) -> None:
        self.person: Canary = with_request(path)
        self.kept = Keeping(self.person.archive.store)
        self.kept.deleting = self.check_noted
        once(self.person, self.kept)
        assert state(self.person) == "hidden"
        self.before = self.current()

    def current(self) -> dict[str, str]:
        """Return the ETag of each object of the partition, by key."""
        return {info.key: info.etag for info in self.kept.list(self.person.keys.prefix)}

    def check_noted(self, data: bytes) -> None:
        """Check that the evidence has the sum of a version before it is deleted."""
        noted = [each["before"] for each in lines(self.person) if each.get("did") == "removing version"]
        assert sha256(data).hexdigest() in noted

    def has_person(self) -> bool:
        """Return whether a version of a segment has an erased record; those from offset 100 on are of no request."""
        listed = chain.from_iterable(each for key, each in self.kept.kept.items() if key.endswith(LOG_SUFFIX))
        return any(b"value of " + self.person.person in values(each.data) for each in listed)

    def check_ended(self) -> None:
        """Check that a later run notes the end of the request, and that no object has changed."""
        assert not self.has_person()
        assert self.current() == self.before
        once(self.person, self.kept)
        assert state(self.person) == "erased"


def remove(buckets: list[Bucket], stores: list[ObjectStore]) -> list[Did]:
    """Do what `tsctl erase versions` does without a grace; return what became of each version."""
    name = name_archive(None, buckets[0].person.archive.location, CLUSTER, 0)
    archive = OpenArchive(name, stores, pytest.fail)
    found = remove_in_archive(archive, NOW, pytest.fail)
    return [outcome.did for each in found for _, outcome in each.outcomes()]


def killed_at_each(path: Path, which: int, *, only_writes: bool) -> int:
    """Kill a run after each of its requests to one of two stores; return their number."""
    at, ended = 0, False
    while not ended:
        at += 1
        buckets = [Bucket(path / f"{at}-{name}") for name in "ab"]
        rows = [shown(each.person.archive) for each in buckets]
        stores: list[ObjectStore] = [each.kept for each in buckets]
        stores[which] = killed = KilledAtVersions(stores[which], at, after=True, only_writes=only_writes)
        with suppress(Killed):
            remove(buckets, stores)
        ended = killed.count < at
        assert [shown(each.person.archive) for each in buckets] == rows
        assert [each.current() for each in buckets] == [each.before for each in buckets]
        assert buckets[1 - which].has_person() is (which == 0 and not ended)
        assert set(remove(buckets, [each.kept for each in buckets])) <= {Did.REMOVED}
        for each in buckets:
            each.check_ended()
    return at


@pytest.mark.parametrize("which", cases([0, 1], quick=[0]))
def test_killed_after_each_write_the_next_run_completes_it(tmp_path: Path, which: int) -> None:
    """Evidence before, a deletion, evidence after: in the first store the second one is not begun."""
    assert killed_at_each(tmp_path, which, only_writes=True) == 4


@pytest.mark.full
@pytest.mark.parametrize("which", [0, 1])
def test_killed_after_each_request_the_next_run_completes_it(tmp_path: Path, which: int) -> None:
    """Requests that only read too."""
    assert killed_at_each(tmp_path, which, only_writes=False) > 20
