"""What went wrong with a partition since it last moved on, and the one retry that is pending. Pure.

A partition has one chain of retries, whatever fails and however often. A segment that changed while it was read is held
back until the delay of the pending look is over; other changes meanwhile schedule nothing. The delay doubles with
`failures`, which only progress sets to 0: a commit that moved the next offset, or that filled a gap.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ts_uploader.tracking.blocked import Wait, WaitReason

# One failure is the ordinary course of things: a file is renamed, a request is cut.
_MORE_THAN_ORDINARY: Final = 2
# These stand among base offsets, none of which is negative, for the commit and for a look at `.deleted` files.
_COMMIT: Final = -1
_LOOK_BELOW: Final = -2
_NOTHING: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that was tried in vain.

    Attributes:
        reason: what it is.
        times: how often in a row.
        text: of the last time.
    """

    reason: WaitReason
    times: int
    text: str

    def wait(self) -> Wait:
        """As what the partition waits for."""
        return Wait(self.reason, self.text, ordinary=self.times < _MORE_THAN_ORDINARY)


@dataclass(slots=True)
class Retries:
    """Of one partition.

    Attributes:
        failures: how many rounds of work failed since the partition last moved on; delays go by it.
        look_pending: a look at the directory is scheduled, and its delay is not over.
        held_back: bases of segments that changed, and that wait for that look.
    """

    failures: int = 0
    look_pending: bool = False
    held_back: frozenset[int] = _NOTHING
    _troubles: dict[int, Trouble] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget everything: results and looks under way no longer count."""
        self.failures = 0
        self.look_pending = False
        self.held_back = _NOTHING
        self._troubles.clear()

    def changed(self, base: int, text: str) -> bool:
        """A segment changed while it was read; whether a look is to be scheduled, as none is pending."""
        self._note(base, WaitReason.CHANGED, f"a segment that stays as it is while it is read: {text}")
        self.held_back |= {base}
        if self.look_pending:
            return False
        self.failures += 1
        self.look_pending = True
        return True

    def upload_failed(self, base: int, text: str) -> None:
        """An upload failed."""
        self._note(base, WaitReason.UPLOAD, f"the upload of segment {base}: {text}")

    def commit_failed(self, text: str) -> None:
        """A commit failed, or was refused."""
        self._note(_COMMIT, WaitReason.COMMIT, f"the commit: {text}")

    def look_below_failed(self, text: str) -> None:
        """The `.deleted` files could not be looked at."""
        self._note(_LOOK_BELOW, WaitReason.GAP, f"a look at the .deleted files: {text}")

    def looked_below(self) -> None:
        """The `.deleted` files were looked at."""
        self._troubles.pop(_LOOK_BELOW, None)

    def shipped(self, base: int) -> None:
        """A segment is whole in the store."""
        self._troubles.pop(base, None)

    def committed(self) -> None:
        """A commit stands in the store."""
        self._troubles.pop(_COMMIT, None)

    def listed(self) -> None:
        """A listing came: it releases what the look held back, if that is over."""
        if not self.look_pending:
            self.held_back = _NOTHING

    def keep(self, bases: Iterable[int]) -> None:
        """Forget the trouble with segments other than these: a whole listing shows no others."""
        if self._troubles:
            there = {_COMMIT, _LOOK_BELOW, *bases}
            self._troubles = {base: trouble for base, trouble in self._troubles.items() if base in there}

    def trouble(self, bases: Iterable[int]) -> Trouble | None:
        """What keeps failing: the commit before all segments, then the lowest of these; else what failed once."""
        if not self._troubles:
            return None
        found = [
            trouble for base in (_COMMIT, _LOOK_BELOW, *bases) if (trouble := self._troubles.get(base)) is not None
        ]
        return next((trouble for trouble in found if trouble.times >= _MORE_THAN_ORDINARY), found[0] if found else None)

    def _note(self, key: int, reason: WaitReason, text: str) -> None:
        before = self._troubles.get(key)
        self._troubles[key] = Trouble(reason, 1 if before is None else before.times + 1, text)
