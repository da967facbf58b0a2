"""What failed for a partition since its last progress, and the one retry that is pending. Pure.

A partition has one chain of retries, whatever fails and however often. If a segment changes while it is read, it is
held back until the delay of the pending listing ends; further changes schedule nothing. The delay doubles with
`failures`. Only progress resets it: a commit that moves the next offset or fills a gap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from ts_uploader.tracking.blocked import Wait, WaitReason

# One failure is normal: a file is renamed, a connection is cut.
_MORE_THAN_ORDINARY: Final = 2
# Keys next to base offsets, which are never negative: for the commit, and for the read of `.deleted` files.
_COMMIT: Final = -1
_LOOK_BELOW: Final = -2
_NOTHING: Final[frozenset[int]] = frozenset()
NO_ENTRIES: Final[Mapping[int, Any]] = MappingProxyType({})  # shared: five for each of 30,000 partitions need 10 MB


def no_entries() -> Mapping[int, Any]:
    """Return the shared empty mapping, as the default of a field."""
    return NO_ENTRIES


@dataclass(frozen=True, slots=True)
class Trouble:
    """One operation that failed.

    Attributes:
        times: failures in a row.
        text: of the last failure.
    """

    reason: WaitReason
    times: int
    text: str

    def wait(self) -> Wait:
        """Return the failure as what the partition waits for."""
        return Wait(self.reason, self.text, ordinary=self.times < _MORE_THAN_ORDINARY)


@dataclass(slots=True)
class Retries:
    """The failures of one partition.

    Attributes:
        failures: how many rounds of work failed since the last progress; sets the delay.
        look_pending: a listing of the directory is scheduled, and its delay has not ended.
        held_back: bases of segments that changed, and that wait for that listing.
    """

    failures: int = 0
    look_pending: bool = False
    held_back: frozenset[int] = _NOTHING
    _troubles: Mapping[int, Trouble] = field(default_factory=no_entries)

    def clear(self) -> None:
        """Forget everything. Results and listings under way no longer count."""
        self.failures = 0
        self.look_pending = False
        self.held_back = _NOTHING
        self._troubles = NO_ENTRIES

    def changed(self, base: int, text: str) -> bool:
        """Note a segment that changed while it was read; return whether to schedule a listing."""
        self._note(base, WaitReason.CHANGED, f"a segment that does not change during the read: {text}")
        self.held_back |= {base}
        if self.look_pending:
            return False
        self.failures += 1
        self.look_pending = True
        return True

    def upload_failed(self, base: int, text: str) -> None:
        """Note a failed upload."""
        self._note(base, WaitReason.UPLOAD, f"the upload of segment {base}: {text}")

    def commit_failed(self, text: str) -> None:
        """Note a commit that failed or was rejected."""
        self._note(_COMMIT, WaitReason.COMMIT, f"the commit: {text}")

    def look_below_failed(self, text: str) -> None:
        """Note that reading the `.deleted` files failed."""
        self._note(_LOOK_BELOW, WaitReason.GAP, f"a read of the .deleted files: {text}")

    def looked_below(self) -> None:
        """Forget a failed read of the `.deleted` files."""
        self._forget(_LOOK_BELOW)

    def shipped(self, base: int) -> None:
        """Forget the trouble with a segment that was shipped."""
        self._forget(base)

    def committed(self) -> None:
        """Forget the trouble with the commit."""
        self._forget(_COMMIT)

    def listed(self) -> None:
        """Release the segments that were held back, unless a listing is still pending."""
        if not self.look_pending:
            self.held_back = _NOTHING

    def keep(self, bases: Iterable[int]) -> None:
        """Forget the trouble with all other segments; call it with the bases of a whole listing."""
        if self._troubles:
            there = {_COMMIT, _LOOK_BELOW, *bases}
            self._troubles = {base: trouble for base, trouble in self._troubles.items() if base in there}

    def trouble(self, bases: Iterable[int]) -> Trouble | None:
        """Return the trouble that keeps failing, or else the first that failed once; None without any.

        The commit precedes the read of `.deleted` files; then the segments of `bases` follow in their order.
        """
        if not self._troubles:
            return None
        found = [
            trouble for base in (_COMMIT, _LOOK_BELOW, *bases) if (trouble := self._troubles.get(base)) is not None
        ]
        return next((trouble for trouble in found if trouble.times >= _MORE_THAN_ORDINARY), found[0] if found else None)

    def _note(self, key: int, reason: WaitReason, text: str) -> None:
        before = self._troubles.get(key)
        trouble = Trouble(reason, 1 if before is None else before.times + 1, text)
        self._troubles = {**self._troubles, key: trouble}

    def _forget(self, key: int) -> None:
        if key in self._troubles:
            self._troubles = {other: trouble for other, trouble in self._troubles.items() if other != key}
