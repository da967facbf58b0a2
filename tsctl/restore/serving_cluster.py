"""A cluster that serves other topics while one is restored: what `create` refuses, and the move to the homes.

A seed is a temporary broker. It has all replicas until the files are placed and compared, and no client reaches it.
So no producer writes into the empty topic, and no serving broker restarts.

Without a seed, serving brokers are stopped for their files, one after the other. Clients reach the empty topic, so it
has a fence: it refuses records, and accepts the markers of transactions that name it. A coordinator that cannot write
a marker never ends the transaction.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ts_common.errors import QueryError
from ts_common.model import TopicPartition
from ts_common.wording import counted
from tsctl.restore.documents import Created, RestorePlan, Seed
from tsctl.restore.new_cluster import UNLIMITED, NewCluster, check_offsets, other_topics, retried
from tsctl.restore.planning import listed
from tsctl.restore.raw_requests import list_transactions, reassign
from tsctl.restore.transactions import Coordinated, naming

RATE: Final = "follower.replication.throttled.rate"  # of a broker, bytes per second
_THROTTLED: Final = "follower.replication.throttled.replicas"  # of a topic
_STATES: Final = "__transaction_state"
_FENCE: Final = "max.message.bytes"
# Of a batch with one marker: 61 of the header, 17 of the record (Kafka's EndTransactionMarker, version 0). A record
# with at most 10 bytes of key and value is not larger; `place` finds it, and refuses.
_MARKER_BYTES: Final = 78
FENCED: Final = {**UNLIMITED, _FENCE: str(_MARKER_BYTES)}
_MIN_IN_SYNC: Final = "min.insync.replicas"
_UNSET: Final = frozenset({None, "", str((1 << 63) - 1)})  # values of `RATE` without a throttle
_FENCE_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 1.0
_MOST: Final = 10  # names in a message


@dataclass(frozen=True, slots=True)
class Serving:
    """What a serving cluster has.

    Attributes:
        brokers: `host:port` of each registered broker, as clients see it.
        replicas: broker ids of each partition.
        behind: partitions with replicas that are out of sync, or without a leader.
        coordinated: the last transaction of each transactional id.
        members: of each group of the plan, the client ids.
        is_fenced: whether the address of the seed, as clients see it, accepts no connection from here; true without.
    """

    brokers: Mapping[int, str]
    replicas: Mapping[TopicPartition, Sequence[int]]
    behind: Sequence[TopicPartition]
    coordinated: Sequence[Coordinated]
    members: Mapping[str, Sequence[str]]
    is_fenced: bool

    @classmethod
    def read(cls, cluster: NewCluster, plan: RestorePlan) -> "Serving":
        """Return what a cluster has.

        Raises:
            ClusterAway, NoAnswer, RequestDelayed, OperatorError, CorruptData: a request failed.
        """
        brokers, seed = cluster.brokers(), plan.seed
        return cls(
            brokers,
            {name: each[0] for name, each in cluster.replicas().items()},
            _behind(cluster, None),
            read_coordinated(cluster, seed),
            {group: cluster.members(group) for group in plan.groups.offsets},
            seed is None or seed.broker not in brokers or not _accepts(brokers[seed.broker]),
        )


def read_coordinated(cluster: NewCluster, seed: Seed | None) -> tuple[Coordinated, ...]:
    """Return the last transaction of each transactional id of a cluster.

    Raises:
        QueryError: a coordinator is missing, so that its transactions are unknown.
        ClusterAway, NoAnswer, RequestDelayed, OperatorError, CorruptData: a request failed.
    """
    away = [str(name) for name, (_, _, leader) in cluster.replicas().items() if name.topic == _STATES and leader < 0]
    if away:
        raise QueryError(
            f"{', '.join(away[:_MOST])}: no leader, so it is unknown which transactions name the topics; start the "
            "brokers that have them, then repeat the command"
        )
    found: list[Coordinated] = []
    for broker, address in cluster.brokers().items():
        if seed is None or broker != seed.broker:  # it coordinates nothing
            with cluster.connect(address) as connection:
                found += list_transactions(connection)
    return tuple(found)


def check_serving(plan: RestorePlan, found: Serving) -> None:
    """Check that topics can be created on the seed, or on the brokers that are restarted.

    Raises:
        QueryError: with every reason that they cannot.
    """
    if problems := [*_problems(plan, found)]:
        raise QueryError(". ".join(problems[:_MOST]) + ". Nothing was created")


def _problems(plan: RestorePlan, found: Serving) -> Iterator[str]:
    homes = {broker for part in plan.partitions.values() for broker in part.homes}
    for broker in sorted(homes.union(plan.brokers) - found.brokers.keys()):
        yield f"broker {broker} is not registered: start it"
    for name, part in plan.partitions.items():
        replicas = found.replicas.get(name)
        if replicas is not None and list(replicas) != list(part.replicas):
            yield (
                f"{name} exists on brokers {list(replicas)}; if its records are not needed, delete the topic, and let "
                "no client create it again"
            )
    if plan.seed is None:
        behind, until = found.behind, "`tsctl restore move` has ended"
        if behind:
            yield _not_in_sync(behind)
    else:
        until = "this command has ended"
        yield from _problems_of_seed(plan, plan.seed, found)
    yield from naming(found.coordinated, plan.topics)
    for group, members in found.members.items():
        if members:
            yield (
                f"group {group} has members ({', '.join(members[:_MOST])}), so its offsets cannot be set: stop its "
                f"consumers until {until}"
            )


def _problems_of_seed(plan: RestorePlan, seed: Seed, found: Serving) -> Iterator[str]:
    others = sorted(
        str(name) for name, each in found.replicas.items() if seed.broker in each and name.topic not in plan.topics
    )
    if others:
        yield (
            f"broker {seed.broker} has replicas of {', '.join(others[:_MOST])}: a seed has no other topic; move them "
            "to other brokers, or start an empty broker"
        )
    if not found.is_fenced:
        yield (
            f"broker {seed.broker} accepts clients at {found.brokers[seed.broker]}: producers would write into the "
            "empty topic; set its advertised.listeners to an address where no process listens, and restart it"
        )


def restart_notes(cluster: NewCluster, restarted: Sequence[int]) -> Iterator[str]:
    """Yield what the clients of other topics meet while brokers are restarted, one after the other.

    Raises:
        ClusterAway, OperatorError: a request failed.
    """
    least: dict[str, int] = {}  # topics with a replica there, with the least number of replicas
    for name, (replicas, _, _) in cluster.replicas().items():
        if not set(replicas).isdisjoint(restarted):
            least[name.topic] = min(least.get(name.topic, len(replicas)), len(replicas))
    settings = cluster.reading.settings(least)
    alone = sorted(topic for topic, replicas in least.items() if replicas == 1)
    needed = sorted(
        topic for topic, replicas in least.items() if 1 < replicas <= int(settings[topic].get(_MIN_IN_SYNC, "1"))
    )
    stopped = f"while {' or '.join(f'broker {each}' for each in restarted)} is stopped"
    if alone:
        yield f"{stopped}, partitions there have no leader, because they have one replica: {listed(alone)}"
    if needed:
        yield (
            f"{stopped}, partitions there refuse producers with acks=all, because {_MIN_IN_SYNC} is the replication "
            f"factor: {listed(needed)}"
        )


def check_in_sync(cluster: NewCluster, stopped: int | None) -> None:
    """Check that a broker can be stopped: every replica of the cluster is in sync, and every partition has a leader.

    Args:
        stopped: the broker is stopped already; None if it runs.

    Raises:
        QueryError: a replica on another broker is out of sync, or away.
        ClusterAway, OperatorError: a request failed.
    """
    if behind := _behind(cluster, stopped):
        raise QueryError(_not_in_sync(behind))


def _behind(cluster: NewCluster, stopped: int | None) -> list[TopicPartition]:
    away = {stopped}
    return sorted(
        name
        for name, (replicas, in_sync, leader) in cluster.replicas().items()
        if set(replicas) - set(in_sync) - away or (leader < 0 and set(replicas) != away)
    )


def _not_in_sync(behind: Sequence[TopicPartition]) -> str:
    return (
        f"{listed([*map(str, behind)])}: a replica is out of sync, or there is no leader; no broker is stopped "
        "before every replica is in sync: start its broker, and wait"
    )


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _FENCE_SECONDS).close()
    except OSError:
        return False
    return True


def move_home(
    cluster: NewCluster,
    plan: RestorePlan,
    created: Created,
    rate: int | None,
    note: Callable[[str], None],
    set_groups: Callable[[], None] = lambda: None,
) -> list[str]:
    """Move the partitions to their homes; return what other replicas the seed has. It can be repeated.

    Args:
        rate: bytes per second that each home fetches; None for no throttle.
        note: is called with a line for each change.
        set_groups: is called once the topics are those of the restore: an offset would count in any other one.

    Raises:
        QueryError: a partition is not as planned, all brokers are new, or another throttle is set.
        ClusterAway, NoAnswer, RequestDelayed, OperatorError, CorruptData: a request failed.
    """
    if not plan.is_served:
        raise QueryError("all brokers are new, so the replicas are where they belong; continue with `finish`")
    _check_topics(cluster, created)
    homes = {name: list(part.homes) for name, part in plan.partitions.items()}
    found = cluster.replicas()
    if all(found.get(name, ([],))[0] == list(part.replicas) for name, part in plan.partitions.items()):
        check_offsets(cluster, plan, created)
        note(f"{len(homes)} partitions: start and end as planned, on brokers {list(plan.brokers)}")
    set_groups()
    brokers = sorted({broker for each in homes.values() for broker in each})
    _throttle(cluster, plan, brokers, rate)
    moving = {name: each for name, each in homes.items() if found.get(name, ([],))[0] != each}
    if moving:
        with cluster.connect(next(iter(cluster.brokers().values()))) as connection:
            reassign(connection, moving)
        note(f"{len(moving)} partitions: being moved to brokers {brokers}")
        _wait_until_home(cluster, homes, created, note)
    for broker in brokers:
        if cluster.setting_of_broker(broker, RATE) in _UNSET | {str(rate)}:  # another reassignment can have set its own
            cluster.configure_broker(broker, RATE, None)
    for name in plan.topics:
        cluster.configure(name, {}, [_THROTTLED])
    retried(lambda: check_offsets(cluster, plan.at_homes, created))
    if plan.seed is None:
        for name, topic in plan.topics.items():
            own = {_FENCE: topic.configurations[_FENCE]} if _FENCE in topic.configurations else {}
            cluster.configure(name, own, [] if own else [_FENCE])
        note(f"{counted(len(plan.topics), 'topic')}: accepts records again")
        return []
    seed = plan.seed.broker
    return sorted(str(name) for name, (replicas, _, _) in cluster.replicas().items() if seed in replicas)


def _throttle(cluster: NewCluster, plan: RestorePlan, brokers: Sequence[int], rate: int | None) -> None:
    wanted = None if rate is None else str(rate)
    for broker in brokers:
        found = cluster.setting_of_broker(broker, RATE)
        if found not in _UNSET | {wanted}:
            raise QueryError(
                f"broker {broker}: {RATE}={found} is set, and this command would remove it at its end; repeat it "
                "with the same --throttle, or wait for the other reassignment"
            )
    if rate is not None:
        for topic in plan.topics:
            cluster.configure(topic, {_THROTTLED: "*"}, [])
        for broker in brokers:
            cluster.configure_broker(broker, RATE, str(rate))


def _check_topics(cluster: NewCluster, created: Created) -> None:
    if wrong := other_topics(cluster.reading.topics(), created):
        raise QueryError(f"{'; '.join(wrong[:_MOST])}. Delete it, and begin again with another directory")


def _wait_until_home(
    cluster: NewCluster,
    homes: Mapping[TopicPartition, Sequence[int]],
    created: Created,
    note: Callable[[str], None],
) -> None:
    left = len(homes)
    while left:
        time.sleep(_POLL_SECONDS)
        retried(lambda: _check_topics(cluster, created))
        found = retried(cluster.replicas)
        now = sum(
            name not in found or found[name][0] != list(each) or not set(each) <= set(found[name][1])
            for name, each in homes.items()
        )
        if now < left:
            note(f"{len(homes) - now} of {len(homes)} partitions moved")
        left = now
