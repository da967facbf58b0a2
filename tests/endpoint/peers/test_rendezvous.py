"""Rendezvous hashing: who owns a key, and what moves."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ts_endpoint.peers.addresses import parse_peers
from ts_endpoint.peers.cluster import Peers, owner, seed_of

NAMES = st.lists(st.from_regex(r"[a-z]{1,8}:[1-9][0-9]{0,3}", fullmatch=True), min_size=2, max_size=7, unique=True)
KEYS = st.lists(st.text(max_size=20), max_size=50)


def owners(names: list[str], keys: list[str]) -> dict[str, str]:
    """Return the owner of each key."""
    candidates = [(seed_of(name), name) for name in names]
    return {key: owner(key, candidates) for key in keys}


@given(names=NAMES, keys=KEYS, order=st.randoms())
def test_all_processes_find_the_same_owner_in_any_order(names: list[str], keys: list[str], order: Random) -> None:
    """The owner is one of the candidates."""
    shuffled = list(names)
    order.shuffle(shuffled)
    found = owners(names, keys)
    assert owners(shuffled, keys) == found
    assert set(found.values()) <= set(names)


@given(names=NAMES, keys=KEYS, data=st.data())
def test_when_a_process_ends_only_its_keys_move(names: list[str], keys: list[str], data: st.DataObject) -> None:
    """And none of them to it."""
    gone = data.draw(st.sampled_from(names))
    before, after = owners(names, keys), owners([name for name in names if name != gone], keys)
    assert {key: value for key, value in before.items() if value != gone} == {
        key: value for key, value in after.items() if before[key] != gone
    }
    assert gone not in after.values()


def test_partitions_and_groups_spread_evenly() -> None:
    """Of 6,000 each of three processes owns a third; of those of one that ends each of the others gets half."""
    names = ["a:9092", "b:9092", "c:9092"]
    keys = [f"partition topic-{number}" for number in range(6000)]
    before = owners(names, keys)
    assert all(abs(count - 2000) < 300 for count in Counter(before.values()).values())
    after = owners(names[1:], keys)
    moved = Counter(after[key] for key in keys if before[key] == "a:9092")
    assert all(abs(count - sum(moved.values()) / 2) < 150 for count in moved.values())


def test_each_partition_and_each_group_has_one_owner_among_the_processes() -> None:
    """Each process answers for itself; together they claim each once, and all name the same."""
    listed = parse_peers("a:9092,b:9092,c:9092", 9465)
    processes = [Peers("prod", listed, own) for own in listed]
    for number in range(200):
        assert len({each.leader_of("topic", number) for each in processes}) == 1
        (coordinator,) = {each.coordinator_of(f"group-{number}") for each in processes}
        assert [each.self_id for each in processes if each.owns_group(f"group-{number}")] == [coordinator]
    assert {processes[0].leader_of("topic", number) for number in range(200)} == {0, 1, 2}


def test_a_process_alone_owns_everything() -> None:
    """It is the one broker, and needs no event loop."""
    (own,) = parse_peers("a:9092", 9465)
    alone = Peers("prod", [own], own)
    assert alone.brokers() == [(0, "a", 9092)]
    assert alone.owns_group("any")
    assert (alone.leader_of("any", 7), alone.coordinator_of("any"), alone.controller()) == (0, 0, 0)
