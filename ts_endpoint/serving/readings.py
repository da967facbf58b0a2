"""The number that each metric is, and its room."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ts_endpoint.data.feeds import Feeds
from ts_endpoint.data.reads import Reads
from ts_endpoint.groups.groups import GroupNumbers
from ts_endpoint.network.server import Server
from ts_endpoint.peers.cluster import Peers
from ts_endpoint.serving.stores import Stores
from ts_endpoint.status.metric_families import Reading
from ts_endpoint.status.pages import Pulse
from ts_endpoint.status.request_counts import RequestCounts
from ts_endpoint.topics.archive import ServedArchive


def readings(
    *,
    is_serving: Callable[[], bool],
    server: Server,
    requests: RequestCounts,
    archive: ServedArchive,
    feeds: Feeds,
    reads: Reads,
    groups: Callable[[], GroupNumbers],
    lost: Callable[[], int],
    stores: Stores,
    peers: Peers,
    pulse: Pulse,
) -> Mapping[str, Reading]:
    """Return the readings of all metrics; they are called on a thread of the pages.

    Args:
        is_serving: returns whether clients are served.
        requests: counted around handlers.
        groups: returns the numbers of groups, on any thread.
        lost: returns how many topics and partitions cannot be opened, on any thread.
    """
    network, in_flight, cache = server.counters, server.in_flight, feeds.cache
    return {
        "serving": lambda: float(is_serving()),
        "connections": lambda: server.connections,
        "connections_accepted": lambda: network.accepted,
        "connections_refused": lambda: _labelled(network.refused),
        "connections_ended": lambda: _labelled(network.ended),
        "accept_pauses": lambda: network.accept_pauses,
        "failed_logins": lambda: _labelled(network.failed_logins),
        "requests": lambda: _labelled(network.requests),
        "request_errors": lambda: dict(requests.errors),
        "failed_requests": lambda: _labelled(network.failed_requests),
        "received_bytes": lambda: network.bytes_received,
        "sent_bytes": lambda: network.bytes_sent,
        "fetch_seconds": requests.fetches,
        "throttled_seconds": lambda: network.throttled_seconds,
        "in_flight_bytes": lambda: in_flight.used,
        "in_flight_limit_bytes": lambda: in_flight.limit,
        "cache_bytes": lambda: cache.nbytes,
        "cache_limit_bytes": lambda: cache.most_bytes,
        "cache_hits": lambda: cache.hits,
        "cache_misses": lambda: cache.misses,
        "segment_reads": lambda: feeds.begun,
        "shared_segment_reads": lambda: feeds.shared,
        "rewritten_ranges": lambda: reads.rewritten,
        "used_partitions": lambda: archive.used,
        "lost_partitions": lost,
        "holes_passed_over": lambda: reads.holes_passed_over,
        "hole_offsets_passed_over": lambda: reads.offsets_passed_over,
        "store_requests": lambda: _labelled(stores.counts.requests),
        "store_failures": lambda: _labelled(stores.counts.failures),
        "store_received_bytes": lambda: stores.counts.bytes_received,
        "store_throttled_requests": lambda: stores.pace.refused,
        "groups": lambda: _labelled(groups().groups),
        "group_members": lambda: groups().members,
        "group_rebalances": lambda: groups().rebalances,
        "offset_commits": lambda: groups().commits,
        "offset_bytes": lambda: groups().offset_bytes,
        "offset_limit_bytes": lambda: groups().offset_limit_bytes,
        "offset_unwritten_groups": lambda: groups().unwritten_groups,
        "offset_flush_failures": lambda: groups().flush_failures,
        "offset_read_failures": lambda: groups().read_failures,
        "offset_flush_age_seconds": lambda: groups().seconds_since_flush,
        "peer_up": lambda: {(each.address,): float(each.is_up) for each in peers.others()},
        "peers_differ": lambda: sum(each.differs for each in peers.others()),
        "loop_age_seconds": lambda: pulse.age,
    }


def _labelled(counted: Counter[Any] | Mapping[Any, int]) -> Mapping[tuple[str], float]:
    """Return the numbers with the names of their keys as labels; the copy is safe while the event loop counts."""
    return {(getattr(key, "name", str(key)),): float(number) for key, number in dict(counted).items()}
