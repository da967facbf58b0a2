"""The ledger: which files a table has, and the order of its commits.

A commit is one entry, put where none exists, so two runs cannot both land. Then its files get their names: the store
copies each from staging to a name that no object has. Then `files.json` has them. A run that finds an entry after
`files.json` completes it before it plans; it copies, and never decodes again.

Staging of a plan is deleted only after `files.json` has passed the entry that the plan could be. So a run that was
paused amid an entry finds no bytes to copy when a later one has removed a file, and cannot bring it back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ts_common.errors import (
    CorruptData,
    DataLoss,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
)
from ts_common.store.contract import ByteRange, IfAbsent, IfMatch, ObjectStore
from ts_common.store.retry import OPERATION_POLICY, OWN_OBJECT_POLICY
from ts_common.wording import counted
from ts_reader.reading.parallel import in_threads
from ts_tables.plain.entries import MOST_BYTES, OWN, Contents, LedgerEntry, PlainFile
from ts_tables.targets import HeadMoved, TableMissing

_CONTENTS: Final = "_ts/files.json"
_TRIES: Final = 5
_BOUNDED: Final = ByteRange(0, MOST_BYTES + 1)


@dataclass(frozen=True, slots=True)
class Read:
    """Contents, with what a change of them must find."""

    contents: Contents
    etag: str


class Ledger:
    """The ledger of one table; it raises what the store raises, too.

    Args:
        store: of the table's location.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def create(self, contents: Contents) -> bool:
        """Write the contents of a new table, and return whether it had no contents.

        Raises:
            OperatorError: others have objects there, or the store copies over objects.
        """
        found = self._found()
        if found is not None and not found.contents.is_dropped:
            return False
        if other := next((each.key for each in self._store.list() if not each.key.startswith(OWN)), None):
            raise OperatorError(
                f"{self._store.location} has objects of no table of this program, such as {other}: remove them, or "
                "choose an empty location"
            )
        self._check_copies(contents)
        # Listed between the read of `files.json` and its write on that ETag, so none of them is of a table in use.
        directories = [each.rstrip("/") for each in self._store.list_directories(OWN)]
        former = [each for each in directories if each != contents.generation]  # its own can appear without an object
        try:
            # What is left of a dropped table is replaced, and never deleted: a delete has no condition.
            condition = IfAbsent() if found is None else IfMatch(found.etag)
            OPERATION_POLICY(self._store.put, _CONTENTS, contents.encode(), condition=condition)
        except (PreconditionFailed, OutcomeUnknown):
            return self.read().contents.generation == contents.generation
        for generation in former:
            self.remove_generation(generation)
        return True

    def read(self) -> Read:
        """Return the contents after the last complete entry.

        Raises:
            OperatorError: there is no table.
            CorruptData, NewerFormat: they cannot be read.
        """
        found = self._found()
        if found is None or found.contents.is_dropped:
            raise TableMissing(f"{self._store.location} has no table of this program; `tsctl tables create` makes it")
        return found

    def current(self, read: Read) -> Contents:
        """Return the contents, after each entry that has landed is complete.

        Args:
            read: the contents before.

        Raises:
            DataLoss, CorruptData: an entry cannot be completed.
            OperatorError, NewerFormat: as `read`.
        """
        while (entry := self._entry(read.contents, read.contents.number + 1)) is not None:
            read = self._completed(read, entry)
        return read.contents

    def commit(self, contents: Contents, entry: LedgerEntry) -> Contents:
        """Put the next entry, complete it, and return the contents after it.

        Raises:
            HeadMoved: another run has put it.
            OutcomeUnknown: no attempt has landed so far; one still can, before another run commits.
        """
        if max(len(entry.encode()), len(contents.after(entry).encode())) > MOST_BYTES:
            raise OperatorError(
                f"{self._store.location}: the list of files would have more than {MOST_BYTES:,} bytes: a larger "
                "target_size makes fewer files, and format: sequence needs no list of offsets, as text does; create "
                "another table"
            )
        key = self._key(contents, entry.number)
        for _ in range(_TRIES):
            try:
                OPERATION_POLICY(self._store.put, key, entry.encode(), condition=IfAbsent())
                break
            except (PreconditionFailed, OutcomeUnknown):
                there = self._entry(contents, entry.number)
                if there is not None and there.plan != entry.plan:
                    raise HeadMoved(
                        f"{self._store.location}: another run has committed since this one was planned; run it again"
                    ) from None
                if there is not None:
                    break
        else:
            raise OutcomeUnknown(f"{self._store.location}: entry {entry.number} has no answer; run it again")
        read = self.read()
        if read.contents.generation != contents.generation:
            raise HeadMoved(
                f"{self._store.location}: the table was created again since this run was planned; run it again"
            )
        return (self._completed(read, entry) if read.contents.number < entry.number else read).contents

    def pending(self, contents: Contents) -> LedgerEntry | None:
        """Return the entry that has landed and is not complete; None if there is no such entry."""
        return self._entry(contents, contents.number + 1)

    def drop(self) -> Contents:
        """Mark the table as dropped, and remove its ledger and staging; return what it had.

        Raises:
            HeadMoved: another run has committed, or created it again.
            OperatorError, CorruptData, NewerFormat: as `read`.
        """
        read = self.read()
        try:
            OPERATION_POLICY(self._store.put, _CONTENTS, read.contents.dropped().encode(), condition=IfMatch(read.etag))
        except (PreconditionFailed, OutcomeUnknown):
            there = self._found()
            if there is None or there.contents != read.contents.dropped():
                raise HeadMoved(f"{self._store.location}: another run has changed the table; run it again") from None
        return read.contents

    def remove_generation(self, generation: str) -> None:
        """Remove the ledger and the staging of a table that was dropped.

        Args:
            generation: of that table, and never of one in use.
        """
        self._store.delete([info.key for info in self._store.list(f"{OWN}{generation}/")])

    def _check_copies(self, contents: Contents) -> None:
        """Check that the store does not copy over an object.

        Raises:
            OperatorError: it does.
        """
        keys = [f"{OWN}{contents.generation}/probe-{name}" for name in ("a", "b")]
        try:
            for key in keys:
                OWN_OBJECT_POLICY(self._store.put, key, key.encode())
            self._store.copy_if_absent(*keys)
        except PreconditionFailed:
            return
        finally:
            self._store.delete(keys)
        raise OperatorError(
            f"{self._store.location}: the store copies over an object, although the request forbids it: plain files "
            "need a store that supports If-None-Match of CopyObject"
        )

    def _found(self) -> Read | None:
        try:
            data, info = self._store.get(_CONTENTS, _BOUNDED)
        except ObjectNotFound:
            return None
        return Read(Contents.decode(data, f"{self._store.location}/{_CONTENTS}"), info.etag)

    def _entry(self, contents: Contents, number: int) -> LedgerEntry | None:
        key = self._key(contents, number)
        try:
            data, _ = self._store.get(key, _BOUNDED)
        except ObjectNotFound:
            return None
        return LedgerEntry.decode(data, f"{self._store.location}/{key}", number=number)

    def _completed(self, read: Read, entry: LedgerEntry) -> Read:
        """Give the files of an entry their names, and return the contents after it."""
        contents = read.contents
        # After a restored, older `files.json`: an entry with a successor is complete, and its staging is deleted.
        if self._entry(contents, entry.number + 1) is None:
            known = {each.path for each in contents.files}
            gone = [path for path, _ in contents.removed]
            self._store.delete([*gone, *(path for path in entry.removed if path in known)])
            in_threads(lambda file: self._show(file, entry), entry.shown)
        return self._advanced(read, contents.after(entry))

    def _show(self, file: PlainFile, entry: LedgerEntry) -> None:
        for _ in range(_TRIES):
            try:
                size = OPERATION_POLICY(self._store.copy_if_absent, file.staged, file.path).size
            except PreconditionFailed:
                size = self._store.head(file.path).size
            except OutcomeUnknown:
                continue
            except ObjectNotFound:
                try:
                    size = self._store.head(file.path).size
                except ObjectNotFound:
                    if self.read().contents.number >= entry.number:
                        return  # another run has completed it, and a later entry removed the file
                    raise DataLoss(
                        f"{self._store.location}/{file.path} is missing, and so is its source {file.staged}: "
                        f"entry {entry.number} cannot be completed; drop the table, and create it again"
                    ) from None
            if size != file.size:
                raise CorruptData(
                    f"{self._store.location}/{file.path} has {counted(size, 'byte')}, and entry {entry.number} "
                    f"has {file.size}: another program wrote it; remove it, and run again"
                )
            return
        raise OutcomeUnknown(f"{self._store.location}/{file.path}: {_TRIES} copies have no answer; run it again")

    def _advanced(self, read: Read, after: Contents) -> Read:
        """Write contents, unless those there are as new; return what is there."""
        for _ in range(_TRIES):
            try:
                info = OPERATION_POLICY(self._store.put, _CONTENTS, after.encode(), condition=IfMatch(read.etag))
            except (PreconditionFailed, OutcomeUnknown):
                read = self.read()
                if read.contents.generation != after.generation or read.contents.number >= after.number:
                    return read
                continue
            return Read(after, info.etag)
        raise OutcomeUnknown(f"{self._store.location}/{_CONTENTS}: {_TRIES} writes have no answer; run it again")

    @staticmethod
    def _key(contents: Contents, number: int) -> str:
        return f"{OWN}{contents.generation}/ledger/{number:08d}.json"


def staged_plans(store: ObjectStore, generation: str) -> Iterator[tuple[str, int, str]]:
    """Yield the prefix of each plan's staging, the entry that the plan began from, and its id."""
    root = f"{OWN}{generation}/staging/"
    for directory in store.list_directories(root):
        number, _, plan = directory.rstrip("/").partition("-")
        if number.isdecimal() and plan:
            yield root + directory, int(number), plan


def staging_of(generation: str, number: int, plan: str) -> str:
    """Return the prefix of a plan's staging.

    Args:
        number: of the entry that the plan begins from.
    """
    return f"{OWN}{generation}/staging/{number}-{plan}/"
