"""The part of the contract about the bucket: rules, retention and locks that act without a request of this project.

A driver overrides what its service has. `ts_common.store.contract.ObjectStore` derives from this class.
"""

from abc import ABC
from collections.abc import Iterable, Mapping

from ts_common.errors import ObjectNotFound, OperatorError
from ts_common.store.lifecycle import LifecycleRule
from ts_common.store.protection import Lock, Protection, locks_held


class BucketContract(ABC):  # noqa: B024  (its methods have defaults: a store without such things)
    """What a bucket does by itself; every method may raise `StoreUnavailable` and `BucketMissing`."""

    def enforces_deletes(self) -> bool | None:
        """Return whether the store itself compares the ETags of conditional deletes, and not a HEAD before each.

        Without that, an object that is overwritten between the two requests is lost. None until a conditional delete
        has removed an object of a store that can lack it.
        """
        return True

    def lifecycle_rules(self) -> tuple[LifecycleRule, ...] | None:
        """Return the rules of the store that remove or move objects; None if it does not support such rules.

        Raises:
            AccessDenied: this identity may not read the rules.
        """
        return None

    def protection(self) -> Protection:
        """Return the settings of the bucket that keep what is deleted.

        Raises:
            AccessDenied: this identity may not read them; the message names the permission.
        """
        return Protection(versioned=False, locks=False, default_retention=None)

    def locked_until(self, key: str) -> Lock | None:
        """Return the lock of an object, also one that has ended; None without a lock.

        A store that refuses to delete a locked object reports that as a failure of the delete. S3 hides it instead, and
        reports success: read the lock before the delete, if `Protection.locks` is true.

        Raises:
            AccessDenied: this identity may not read the lock; the message names the permission.
            ObjectNotFound: the object does not exist, and the store has locks.
        """
        del key
        return None

    def has_legal_hold(self, key: str, version: str) -> bool:
        """Return whether a version of an object has a legal hold.

        Raises:
            AccessDenied: this identity may not read it; the message names the permission.
            ObjectNotFound: the version does not exist.
            OperatorError: this project sets no legal holds in such a store.
        """
        del version
        raise OperatorError(f"{key}: legal holds are set in buckets of S3 with Object Lock only")

    def set_legal_hold(self, key: str, version: str, *, is_held: bool) -> None:
        """Set or lift the legal hold of a version of an object; both may be repeated.

        Raises:
            AccessDenied, ObjectNotFound, OperatorError: as `has_legal_hold`.
        """
        del version, is_held
        raise OperatorError(f"{key}: legal holds are set in buckets of S3 with Object Lock only")

    def locked(self, keys: Iterable[str], now: float) -> Mapping[str, Lock]:
        """Return the locks that hold at a time, by key; eight are read at once. Missing objects have no lock.

        Args:
            now: seconds since the epoch, by the store's clock.

        Raises:
            AccessDenied: as `locked_until`.
        """
        return locks_held(self._lock_if_present, keys, now)

    def _lock_if_present(self, key: str) -> Lock | None:
        try:
            return self.locked_until(key)
        except ObjectNotFound:
            return None
