"""The histories of `test_histories.py` in a bucket with versions: no deletion of one loses a record of other people.

Objects are lost and found again, and erasers delete earlier versions at any time. At the end no version has a record
that the list hides.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.tsctl.erase.keeping import VERSIONED, Keeping, keeping_archive
from tests.tsctl.erase.killing import logs, not_held, values
from tests.tsctl.erase.test_histories import World, value
from ts_common.archive.object_keys import LOG_SUFFIX
from ts_common.errors import CorruptData
from tsctl.erase.erased_copies import Did, Outcome
from tsctl.erase.versions import remaining_versions, remove_versions

STEPS = 12
FOUND = 28, 181  # a ring of names; a copy of a dead tail that replaces another segment of the same name


class VersionedWorld(World):
    """An archive in a bucket with versions; each deletion of one is checked."""

    @property
    def bucket(self) -> Keeping:
        """The store."""
        store = self.archive.store
        assert isinstance(store, Keeping)
        return store

    def hidden(self) -> set[bytes]:
        """Return the values of all records that the list hides, in whatever epoch."""
        offsets = (offset for run in self.erased for offset in range(run.start, run.end))
        return {value(offset, epoch) for offset in offsets for epoch in self.hidden_epochs(offset)}

    def stored(self) -> set[bytes]:
        """Return the values of records in current objects that can be read."""
        found = set[bytes]()
        for log in logs(self.archive).values():
            with suppress(CorruptData):
                found |= values(log)
        return found

    def purge(self) -> list[Outcome]:
        """An eraser deletes versions: each other record of them is in a current object."""
        accounted = self.hidden() | self.stored()  # no deletion of a version changes them

        def deleting(data: bytes) -> None:
            with suppress(CorruptData):  # no repair uses a damaged one
                assert values(data) <= accounted

        self.bucket.deleting = deleting
        keys = self.archive.partition("t")
        return [*remove_versions(self.bucket, keys, protection=VERSIONED, grace=-1, held=not_held)]

    def lose(self) -> None:
        """Objects are lost while an eraser runs, and are put back."""
        store, keys = self.bucket, self.archive.partition("t")
        names = self.chance.sample(sorted(logs(self.archive)), min(2, len(logs(self.archive))))
        lost = {keys.prefix + name: store._inner.get(keys.prefix + name) for name in names}
        metadata = {key: dict(store.head(key).metadata) for key in lost}
        store._inner.delete(lost)
        self.purge()
        for key, (data, _) in lost.items():
            store._inner.put(key, data, metadata=metadata[key])

    def end(self) -> None:
        """As before; and no version has a record of the list."""
        super().end()
        outcomes = self.purge()
        assert [each for each in outcomes if each.did is not Did.REMOVED] == []
        keys = self.archive.partition("t")
        assert [*remaining_versions(self.bucket, keys, protection=VERSIONED, grace=-1, held=not_held)] == []
        self.check("the versions are gone")
        hidden = self.hidden()
        for key, versions in self.bucket.kept.items():
            for each in versions if key.endswith(LOG_SUFFIX) else ():
                assert not hidden.intersection(values(each.data)), key

    def steps(self) -> list[Callable[[], object]]:
        """Add deletions of versions, and losses; more removals than kills."""
        return [*self.changes(), *[self.remove] * 3, self.kill, *[self.purge] * 2, *[self.lose] * 2]


def world_of(path: Path, seed: int) -> VersionedWorld:
    """Return the world of a history before its first step."""
    return VersionedWorld(keeping_archive(path), random.Random(seed))


@pytest.mark.parametrize("seed", FOUND)
def test_no_deletion_of_a_version_loses_a_record(tmp_path: Path, seed: int) -> None:
    """With overlapping copies, elections, repairs, second shipping, kills and lost objects."""
    world_of(tmp_path / "bucket", seed).play(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(200))
def test_no_deletion_of_a_version_loses_a_record_in_many_histories(tmp_path: Path, seed: int) -> None:
    """More of the same."""
    world_of(tmp_path / "bucket", seed).play(seed)
