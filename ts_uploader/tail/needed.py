"""Which entries a reader can still need (tail rule 5, clause 2).

A reader that has read a commit reads the packs later. So an entry is needed until a commit that was read a grace ago
does without it: its next offset is at or above the entry's end, at a leader epoch that is not lower; or its leader
epoch is higher, and it does not name the entry's leadership. The newest commit has to do without it too: it can have a
lower next offset, or replace one that was lost.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from ts_common.archive.commit import Commit
from ts_common.archive.tail_chain import TailEntry
from ts_common.json_objects import MAX_INT32, MAX_INT64
from ts_uploader.tail.pack_log import GRACE_SECONDS

_APART_SECONDS: Final = GRACE_SECONDS / 4  # between two commits of a directory that are kept


@dataclass(frozen=True, slots=True)
class _Seen:
    """What counts of a commit that was read."""

    at: float
    next_offset: int
    epoch: int
    former: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, commit: Commit, at: float) -> "_Seen":
        return cls(at, commit.next_offset, commit.epoch, () if commit.live is None else commit.live.former)

    def needs(self, entry: TailEntry, log: str) -> bool:
        if self.next_offset >= entry.end and self.epoch >= entry.epoch:
            return False
        return self.epoch <= entry.epoch or (log, entry.epoch) in self.former


class Needed:
    """The commits that one log's agent has read, by directory.

    Args:
        log: name of the log.
        seconds: a clock that counts suspension.
    """

    def __init__(self, log: str, seconds: Callable[[], float]) -> None:
        self._log = log
        self._seconds = seconds
        self._seen: dict[str, list[_Seen]] = {}

    def note(self, directory: str, commit: Commit | None) -> None:
        """Note the commit that a directory has now; None: it has none, or a Java uploader's.

        Neither has a tail, and the commit that an agent then rebuilds names no former leadership.
        """
        now = self._seconds()
        seen = self._seen.setdefault(directory, [])
        if seen and now - seen[-1].at < _APART_SECONDS:
            return
        if commit is None:
            seen.append(_Seen(now, MAX_INT64, MAX_INT32, ()))
        else:
            seen.append(_Seen.of(commit, now))
        old = [each for each in seen if each.at <= now - GRACE_SECONDS]
        del seen[: max(0, len(old) - 1)]  # the newest of them decides

    def forget_others(self, directories: set[str]) -> None:
        """Forget the directories that are not among these."""
        for directory in self._seen.keys() - directories:
            del self._seen[directory]

    def needs(self, entry: TailEntry) -> bool:
        """Return whether a reader can still need an entry of a partition that is led elsewhere."""
        return self.at_once(dict)(entry)

    def at_once(self, newest: Callable[[], Mapping[str, Commit]]) -> Callable[[TailEntry], bool]:
        """Return whether a reader can still need an entry, as of now, for many entries.

        Args:
            newest: returns the newest commits of the partitions that this broker leads, by directory. It is called
                once, for the first entry that an older commit does without.
        """
        due, deciding, led = self._seconds() - GRACE_SECONDS, dict[str, _Seen | None](), cache(newest)

        def needs(entry: TailEntry) -> bool:
            name = entry.directory
            if name not in deciding:
                deciding[name] = next((each for each in reversed(self._seen.get(name, ())) if each.at <= due), None)
            old = deciding[name]
            if old is None or old.needs(entry, self._log):
                return True
            commit = led().get(name)
            return commit is not None and _Seen.of(commit, 0.0).needs(entry, self._log)

        return needs
