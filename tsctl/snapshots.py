"""Metadata snapshots of an archive with several stores: the one at a time, and the differences between two."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ts_common.archive.object_keys import ClusterKeys
from ts_common.archive.snapshots import MINUTE, Acl, ClusterSnapshot, Quota, Snapshot
from ts_common.store.contract import ObjectStore
from ts_common.wording import counted
from ts_reader.query.timestamps import time_text

_Snapshot = TypeVar("_Snapshot", bound=Snapshot)
_DEFAULT: Final = "<default>"  # as kafka-configs shows an entity without a name

# The parts of a snapshot by kind and name: what each has, by name; None if it is unknown.
_Parts = Mapping[tuple[str, str], Mapping[str, str] | None]


def snapshot_at(
    stores: Iterable[ObjectStore],
    keys: ClusterKeys,
    kind: type[_Snapshot],
    at: int,
    notes: list[str] | None = None,
) -> _Snapshot | None:
    """Return the newest snapshot at or before a time; each store of an archive has all, unless a write failed.

    Args:
        at: milliseconds since the epoch.
        notes: gets a sentence for each damaged one that is newer; they are left out. None: the first one is an error.

    Raises:
        CorruptData, NewerFormat: it is damaged, or of a later release.
        StoreUnavailable, AccessDenied, BucketMissing: a store failed.
    """
    damaged: list[tuple[int, str]] = []
    found: list[_Snapshot] = []
    for store in stores:
        its_damaged: dict[int, str] | None = None if notes is None else {}
        newest = kind.newest(store, keys, at, its_damaged)
        found += [] if newest is None else [newest]
        damaged += (its_damaged or {}).items()
    chosen = max(found, key=lambda each: each.time, default=None)
    if notes is not None:
        for time, what in sorted(damaged):
            age = "no older one is intact"
            if chosen is not None:
                minutes = max(0, time - chosen.time) // MINUTE
                age = f"the one of {time_text(chosen.time)} is used, {counted(minutes, 'minute')} older"
            notes.append(f"damaged snapshot: {what}; {age}")
    return chosen


def times_of(
    stores: Iterable[ObjectStore], keys: ClusterKeys, kind: type[Snapshot], since: int
) -> dict[int, ObjectStore]:
    """Return the times of all snapshots from a time on, ascending, each with a store that has it.

    Raises:
        StoreUnavailable, AccessDenied, BucketMissing: a store failed.
    """
    found = {time: store for store in stores for time in kind.times(store, keys, since)}
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between two snapshots.

    Attributes:
        kind: such as `topic`, `topic config`, `acl`.
        name: of the topic, broker, entity or user.
        what: a setting, a partition, a limit.
        before: None if it was not there.
        after: None if it is not there any more.
    """

    kind: str
    name: str
    what: str
    before: str | None
    after: str | None


def changes(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[Change]:
    """Yield the differences by kind and name. What is unknown in one of the two is no difference."""
    one, other = dict(_parts(before)), dict(_parts(after))
    unknown = _unknown_kinds(before) | _unknown_kinds(after)
    for part in sorted(one.keys() | other.keys()):
        old, new = one.get(part, {}), other.get(part, {})
        if part[0] in unknown or old is None or new is None:
            continue
        if part[0].startswith("topic") and _may_lack(part, before, one) | _may_lack(part, after, other):
            continue
        for what in sorted(old.keys() | new.keys()):
            if old.get(what) != new.get(what):
                yield Change(*part, what, old.get(what), new.get(what))


def _may_lack(part: tuple[str, str], snapshot: ClusterSnapshot, parts: _Parts) -> bool:
    """Return whether a snapshot lacks a topic that the agent might not describe."""
    return part not in parts and not snapshot.all_topics


def _unknown_kinds(snapshot: ClusterSnapshot) -> set[str]:
    fields = {"quota": snapshot.quotas, "acl": snapshot.acls, "user": snapshot.users, "cluster": snapshot.kafka}
    return {kind for kind, value in fields.items() if value is None}


def _parts(snapshot: ClusterSnapshot) -> Iterator[tuple[tuple[str, str], Mapping[str, str] | None]]:
    yield ("cluster", ""), {"version": snapshot.kafka or ""}
    for name, topic in snapshot.topics.items():
        partitions = {f"replicas of partition {n}": _listed(each) for n, each in enumerate(topic.partitions)}
        yield ("topic", name), {"id": topic.id or "", **partitions}
        yield ("topic config", name), topic.configs
    for name, broker in snapshot.brokers.items():
        if broker.host is not None:
            yield ("broker", name), {"address": f"{broker.host}:{broker.port}", "rack": broker.rack or ""}
        yield ("broker config", name), broker.configs
    for quota in snapshot.quotas or ():
        yield ("quota", entity_of(quota)), {name: limit_text(value) for name, value in quota.limits.items()}
    for resource, rules in _rules(snapshot.acls).items():
        yield ("acl", resource), rules
    for user in snapshot.users or ():
        yield ("user", user.name), {name: f"{count} iterations" for name, count in user.mechanisms.items()}


def _rules(acls: Iterable[Acl] | None) -> Mapping[str, Mapping[str, str]]:
    """Return the permissions by resource and rule; a rule can be both allowed and denied."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for acl in acls or ():
        rules, rule = found[resource_of(acl)], rule_of(acl)
        rules[rule] = f"{rules[rule]}, {acl.permission}" if rule in rules else acl.permission
    return found


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def entity_of(quota: Quota) -> str:
    """Return the entity of a quota as one text, such as `client-id=<default>, user=etl`."""
    return ", ".join(f"{kind}={_DEFAULT if name is None else name}" for kind, name in sorted(quota.entity.items()))


def limit_text(limit: float) -> str:
    """Return a limit of a quota with all its digits, such as `1048576` or `12.5`."""
    return str(int(limit) if limit.is_integer() else limit)


def resource_of(acl: Acl) -> str:
    """Return the resource of an ACL as one text, such as `TOPIC orders` or `TOPIC orders* (prefix)`."""
    name = f"{acl.name}* (prefix)" if acl.pattern == "PREFIXED" else acl.name
    return f"{acl.resource_type} {name}"


def rule_of(acl: Acl) -> str:
    """Return who may or must not do what, such as `User:etl READ`; with the host, unless it is any."""
    return f"{acl.principal} {acl.operation}{'' if acl.host == '*' else f' from {acl.host}'}"
