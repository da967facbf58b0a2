"""Holds in all stores of an archive: each store has each hold, and a change is complete when all have it.

A hold is set in one store after the other. If one fails, the hold is in some of them; it stops retention everywhere,
because retention reads the holds of all stores. The same command completes it.

A removal first checks the hold in every store. It writes the traces to all of them, and only then deletes the holds,
each on condition of the ETag that it read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from shlex import quote

from ts_common.archive.holds import (
    LARGEST,
    Hold,
    Removal,
    check_hold_name,
    is_same_identity,
    read_hold,
    read_holds,
    read_removals,
)
from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.small_objects import get_small
from ts_common.errors import (
    CorruptData,
    NewerFormat,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
    QueryError,
    StaleStateError,
)
from ts_common.store.contract import IfAbsent, ObjectStore
from ts_common.store.deletions import is_removed
from ts_common.suggestions import nearest
from ts_reader.query.timestamps import time_text

_UNNAMED = (
    "{location} gives no identity of these credentials, which the rule of two people needs: use an access key of a "
    "user, or a role of AWS whose STS is reached (docs/retention.md)"
)


class HoldState(StrEnum):
    """The state of a hold."""

    HELD = "held"
    EXPIRED = "expired"
    REMOVED = "removed"


@dataclass(slots=True)
class ListedHold:
    """A hold of the archive.

    Attributes:
        hold: as the first store has it.
        state: whether it stops anything.
        set_by: each identity that set it, in the order of the stores.
        missing_in: locations of stores that lack it; retention of their topics is stopped all the same.
        removal: who removed it; None for a hold that exists.
    """

    hold: Hold
    state: HoldState
    set_by: list[str] = field(default_factory=list)
    missing_in: list[str] = field(default_factory=list)
    removal: Removal | None = None


def add_hold(stores: Sequence[ObjectStore], keys: ClusterKeys, wanted: Hold, warn: Callable[[str], None]) -> list[str]:
    """Write a hold to every store that lacks it; return the locations of these stores.

    Args:
        wanted: the hold; `set_by` is replaced by the identity in each store.
        warn: is called with what is left to do.

    Raises:
        QueryError: a store has another hold of this name.
        OperatorError: the rule of two people needs an identity, and a store gives none.
        CorruptData, NewerFormat: the hold of this name cannot be read.
        StoreUnavailable, AccessDenied, BucketMissing, OutcomeUnknown: a store failed; `warn` got what some have.
    """
    read = [(store, read_hold(store, keys, wanted.name)) for store in stores]
    found = [(store, existing[0]) for store, existing in read if existing is not None]
    for store, existing in found:
        _refuse_other_terms(store, existing, wanted)
    lacking = [store for store, existing in read if existing is None]
    own = {store.location: _identity(store) if wanted.two_people else store.identity() for store in lacking}
    if found:
        wanted = replace(wanted, time=found[0][1].time)
        _warn_of_two(found[0][1], wanted, own.values(), warn)
    have = [store.location for store, _ in found]
    for store in lacking:
        try:
            _put(store, keys, replace(wanted, set_by=own[store.location]))
        except BaseException:
            _warn_of_part(wanted, have, store, warn)
            raise
        have.append(store.location)
    _check_all(stores, keys, wanted)
    return [store.location for store in lacking]


def _warn_of_part(wanted: Hold, have: Sequence[str], lacks: ObjectStore, warn: Callable[[str], None]) -> None:
    if have:
        warn(
            f"hold {wanted.name} is not complete: {', '.join(have)} has it and stops retention, "
            f"{lacks.location} lacks it; {_again(wanted)}"
        )


def _check_all(stores: Sequence[ObjectStore], keys: ClusterKeys, wanted: Hold) -> None:
    """Check that each store has a hold: another process can have removed it, or set another one."""
    for store in stores:
        existing = read_hold(store, keys, wanted.name)
        if existing is None:
            raise StaleStateError(f"hold {wanted.name}: {store.location} does not have it any more; {_again(wanted)}")
        _refuse_other_terms(store, existing[0], wanted)


def _warn_of_two(former: Hold, wanted: Hold, own: Iterable[str | None], warn: Callable[[str], None]) -> None:
    """Warn if the rule of two people lets neither of the identities that set a hold remove it."""
    others = {who for who in own if who and former.set_by and not is_same_identity(who, former.set_by)}
    if wanted.two_people and others:
        warn(
            f"hold {wanted.name}: {former.set_by} set it in one store and {', '.join(sorted(others))} in another; "
            "neither of them can remove it"
        )


def remove_hold(
    stores: Sequence[ObjectStore],
    keys: ClusterKeys,
    name: str,
    reason: str,
    now: int,
    lift: Callable[[ObjectStore, Hold], object] = lambda *_: None,
) -> list[str]:
    """Remove a hold from every store that has it; return the locations of these stores.

    Args:
        reason: for the trace.
        now: milliseconds since the epoch.
        lift: is called for each store with a hold that has `lock`, after the traces and before a delete: if it fails,
            the hold exists, and the command may be repeated.

    Raises:
        QueryError: no store has it.
        OperatorError: the rule of two people refuses this identity; nothing was changed.
        StaleStateError: it was replaced meanwhile; the stores before keep what was done.
        CorruptData, NewerFormat: it cannot be read; nothing was changed.
        StoreUnavailable, AccessDenied, BucketMissing, OutcomeUnknown: a store failed; the command may be repeated.
    """
    found = _found(stores, keys, name)
    by_two = any(hold.two_people for _, (hold, _) in found)
    own = {store.location: _identity(store) if by_two else store.identity() for store, _ in found}
    if by_two:
        _refuse_same(name, [who for who in own.values() if who], [hold.set_by for _, (hold, _) in found])
    for store, (hold, _) in found:
        _put_trace(store, keys, Removal(hold, own[store.location], reason, now))
    for store, (hold, _) in found:
        if hold.lock:
            lift(store, hold)
    for store, (_, etag) in found:
        key = keys.hold(name)
        if not is_removed(store.delete_matching({key: etag})):
            raise StaleStateError(f"{key}: {store.location} has another hold of this name by now; it was kept")
    return [store.location for store, _ in found]


def _found(stores: Sequence[ObjectStore], keys: ClusterKeys, name: str) -> list[tuple[ObjectStore, tuple[Hold, str]]]:
    """Return the stores that have a hold, with it and its ETag; raise QueryError if no store has it."""
    found = [(store, one) for store in stores if (one := read_hold(store, keys, name)) is not None]
    if not found:
        held = {hold.name for store in stores for hold in read_holds(store, keys)}
        raise QueryError(f"hold {name}: cluster {keys.cluster} has no such hold{nearest(name, held)}")
    return found


def list_holds(
    stores: Sequence[ObjectStore],
    keys: ClusterKeys,
    now: int,
    unreadable: Callable[[str], None] | None = None,
    damaged: Callable[[str], None] | None = None,
) -> list[ListedHold]:
    """Return the holds of all stores by name, or those and the expired and removed ones.

    Two stores with different holds of one name give two entries.

    Args:
        now: milliseconds since the epoch.
        unreadable: as in `read_removals`; None: expired and removed holds are left out.
        damaged: is called with a message for each object that is no readable hold; None: that is an error.

    Raises:
        CorruptData, NewerFormat: an object is no readable hold, without `damaged`.
        StoreUnavailable, AccessDenied, BucketMissing: a store failed.
    """
    listed: dict[tuple[object, ...], ListedHold] = {}
    has: dict[tuple[object, ...], set[str]] = {}
    for store in stores:
        for hold in read_holds(store, keys) if damaged is None else _readable(store, keys, damaged):
            state = HoldState.EXPIRED if hold.is_expired(now) else HoldState.HELD
            entry = listed.setdefault(hold.terms, ListedHold(hold, state))
            if hold.set_by is not None and hold.set_by not in entry.set_by:
                entry.set_by.append(hold.set_by)
            has.setdefault(hold.terms, set()).add(store.location)
    for terms, entry in listed.items():
        entry.missing_in = [store.location for store in stores if store.location not in has[terms]]
    if unreadable is None:
        found = [entry for entry in listed.values() if entry.state is HoldState.HELD]
    else:
        removals = (each for store in stores for each in read_removals(store, keys, unreadable))
        found = [*listed.values(), *_removed(removals, listed.values())]
    return sorted(found, key=lambda entry: (entry.hold.name, entry.hold.time, entry.state))


def _removed(removals: Iterable[Removal], listed: Iterable[ListedHold]) -> Iterable[ListedHold]:
    """Return the removed holds that do not exist."""
    existing = {(entry.hold.terms, entry.hold.time) for entry in listed}
    removed: dict[tuple[object, ...], ListedHold] = {}
    for removal in removals:
        hold = removal.hold
        if (hold.terms, hold.time) not in existing:  # else the removal ended early
            who = [hold.set_by] if hold.set_by is not None else []
            removed.setdefault((hold.terms, removal.time), ListedHold(hold, HoldState.REMOVED, who, [], removal))
    return removed.values()


def _readable(store: ObjectStore, keys: ClusterKeys, damaged: Callable[[str], None]) -> Iterator[Hold]:
    """Yield the holds of a store by name, and report each other object below `holds/`."""
    for info in store.list(keys.holds):
        if info.key.startswith(keys.removed_holds):
            continue
        name = info.key.removeprefix(keys.holds).removesuffix(".json")
        try:
            if info.key != keys.hold(check_hold_name(name)):
                raise CorruptData(f"{info.key}: it has no name of a hold")
            found = read_hold(store, keys, name)
        except (CorruptData, NewerFormat) as error:
            damaged(f"{store.location}: {error}")
        except ValueError as error:
            damaged(f"{store.location}: {info.key}: {error}")
        else:
            if found is not None:  # None: it was removed since
                yield found[0]


def _refuse_same(name: str, own: Sequence[str], setters: Sequence[str | None]) -> None:
    for setter in setters:
        if setter is None:
            raise OperatorError(
                f"hold {name}: it has the rule of two people, and does not name who set it; nothing was changed; "
                "docs/retention.md describes the way out"
            )
        for who in own:
            if is_same_identity(who, setter):
                raise OperatorError(
                    f"hold {name}: {setter} set it with the rule of two people, and these credentials are of the same "
                    f"identity ({who}); another person must remove it; nothing was changed"
                )


def _identity(store: ObjectStore) -> str:
    """Return the identity of this store's requests.

    Raises:
        OperatorError: the store gives none.
    """
    if (who := store.identity()) is None:
        raise OperatorError(_UNNAMED.format(location=store.location))
    return who


def _put(store: ObjectStore, keys: ClusterKeys, hold: Hold) -> None:
    """Write a hold if absent. If another process wrote one, or the response was lost, the caller compares what exists.

    Raises:
        OutcomeUnknown: no response, and the hold does not exist.
    """
    try:
        store.put(keys.hold(hold.name), hold.encode(), condition=IfAbsent())
    except (PreconditionFailed, OutcomeUnknown):
        if read_hold(store, keys, hold.name) is None:
            raise


def _put_trace(store: ObjectStore, keys: ClusterKeys, removal: Removal) -> None:
    key, data = keys.removed_hold(removal.hold.name, removal.time), removal.encode()
    try:
        store.put(key, data, condition=IfAbsent())
    except (PreconditionFailed, OutcomeUnknown):
        if get_small(store, key, LARGEST)[0] != data:
            raise


def _refuse_other_terms(store: ObjectStore, existing: Hold, wanted: Hold) -> None:
    if not existing.has_terms_of(wanted):
        raise QueryError(
            f"hold {wanted.name}: {store.location} has another hold of this name ({described(existing)}); choose "
            f"another name; if the command is to complete that hold, give its options: {_options(existing)}"
        )


def described(hold: Hold) -> str:
    """Return topics, end and reason of a hold in one line."""
    end = "until it is removed" if hold.until is None else f"until {time_text(hold.until)}"
    return f"{named(hold)}; {end}; {hold.reason}"


def named(hold: Hold) -> str:
    """Return the topics, patterns and prefix of a hold in one line."""
    return ", ".join([*hold.topics, *([] if hold.prefix is None else [f"{hold.prefix}..."])])


def _again(hold: Hold) -> str:
    end = "" if hold.until is None else f" with --until @{hold.until}"
    return f"repeat the command{end}"


def _options(hold: Hold) -> str:
    words = [f"--topic {quote(topic)}" for topic in hold.topics]
    words += [] if hold.prefix is None else [f"--prefix {hold.prefix}"]
    words += [f"--reason {quote(hold.reason)}"]
    words += [] if hold.until is None else [f"--until @{hold.until}"]
    words += ["--lock"] if hold.lock else []
    return " ".join([*words, *(["--two-people"] if hold.two_people else [])])
