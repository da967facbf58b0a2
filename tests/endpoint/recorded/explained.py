"""Every difference between the replies of a broker and of an endpoint over its archive, and why it is right.

A difference that none of these explains is a fault. So is an explanation that no reply needs any more.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tests.endpoint.recorded.comparison import ORDER, Difference
from ts_common.archive.epoch_history import NO_EPOCH
from ts_endpoint.protocol.versions import Api


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why replies differ.

    Attributes:
        apis: kinds of the requests.
        paths: of the fields, as in `Difference`.
        reason: why the endpoint's value is right.
        holds: whether a difference is this one, from the values.
    """

    apis: tuple[Api, ...]
    paths: tuple[str, ...]
    reason: str
    holds: Callable[[Difference], bool]


def unexplained(found: Iterable[Difference]) -> tuple[list[Difference], list[Explanation]]:
    """Return the differences that no entry explains, and the entries that explain none."""
    left, used = [], set[int]()
    for difference in found:
        numbers = [
            number
            for number, each in enumerate(EXPLAINED)
            if difference.request.api in each.apis and difference.path in each.paths and each.holds(difference)
        ]
        used.update(numbers)
        if not numbers:
            left.append(difference)
    return left, [each for number, each in enumerate(EXPLAINED) if number not in used]


def _has_the_same_elements(difference: Difference) -> bool:
    return sorted(difference.broker) == sorted(difference.endpoint)


def _is_narrower(difference: Difference) -> bool:
    offered = {each["api_key"]: range(each["min_version"], each["max_version"] + 1) for each in difference.broker}
    return all(
        {each["min_version"], each["max_version"]} <= set(offered.get(each["api_key"], ()))
        for each in difference.endpoint
    )


def _has_nothing(difference: Difference) -> bool:
    return difference.endpoint in ([], -1, 0, None)


def _has_fewer(difference: Difference) -> bool:
    return {each["name"] for each in difference.endpoint} <= {each["name"] for each in difference.broker}


def _names_all(difference: Difference) -> bool:
    topics = difference.request.body.topics
    return difference.endpoint == NO_EPOCH and (topics is None or (not topics and difference.request.version == 0))


EXPLAINED: Final = (
    Explanation(
        (Api.API_VERSIONS,),
        ("api_keys",),
        "an archive serves fewer requests, each in versions of the broker",
        _is_narrower,
    ),
    Explanation(
        (Api.API_VERSIONS,),
        ("supported_features", "finalized_features", "finalized_features_epoch"),
        "features are those of a cluster that elects and coordinates; an archive has none",
        _has_nothing,
    ),
    Explanation(
        (Api.FETCH,),
        ("session_id",),
        "the endpoint keeps no fetch session, so each request names its partitions",
        _has_nothing,
    ),
    Explanation(
        (Api.METADATA, Api.LIST_OFFSETS, Api.OFFSET_FETCH, Api.LIST_GROUPS),
        tuple(
            f"{path}{ORDER}"
            for path in ("topics", "topics.partitions", "groups.topics", "groups.topics.partitions", "groups")
        ),
        "a broker's order is that of its hash tables, on which no client can rely",
        _has_the_same_elements,
    ),
    Explanation(
        (Api.METADATA,),
        ("topics.partitions.leader_epoch",),
        "Metadata of all topics reads no partition: it has the epochs that are in memory",
        _names_all,
    ),
    Explanation(
        (Api.DESCRIBE_CONFIGS,),
        ("results.configs",),
        "an archive has the settings that are true of it; a broker has all, some of them set for the topic",
        _has_fewer,
    ),
    Explanation(
        (Api.METADATA,),
        ("topics.topic_authorized_operations",),
        "an archive permits to read and to describe, and a broker without an authorizer everything",
        lambda difference: difference.endpoint & ~difference.broker == 0,
    ),
)
