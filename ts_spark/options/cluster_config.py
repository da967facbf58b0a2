"""The option `config`: the agent's properties file of a cluster, so that a query need not repeat its settings.

Only the driver reads it, with the agent's parser: the cluster (the file's name), the entropy bits, and through the
endpoint provider the location of each topic and its connection options. Executors get location and connection only.
Options for writing objects have no effect on readers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ts_common.errors import ConfigurationError
from ts_common.model import is_cluster_id
from ts_common.store.options import BY_ENVIRONMENT, Connection, Endpoint
from ts_reader.query.query import Locations

if TYPE_CHECKING:
    from ts_reader.reading.cluster_file import ClusterFile

OPTION: Final = "config"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a query's topics are; None for what no option specifies.

    Attributes:
        location: of the store, a URL.
        cluster: whose topics.
        entropy_bits: of the store's keys; 0 means none.
        topics_elsewhere: other endpoints and their topics; all other topics are in `location`.
        connection: of `location`.
    """

    location: str | None
    cluster: str | None
    entropy_bits: int | None
    topics_elsewhere: Locations = ()
    connection: Connection = BY_ENVIRONMENT


def completed(place: Place, file: str, topics: Iterable[str] | None, problems: list[str]) -> Place:
    """Return the place of the options, completed from the file of `config`; the two may not contradict.

    Args:
        place: from the options `path`, `cluster` and `prefixEntropyBits`.
        file: the value of `config`.
        topics: of the query; None for a pattern, empty without a subscription.
        problems: receives the problems of the file, and each contradiction.
    """
    # pydantic: Spark loads the options for any source.
    from ts_reader.reading.cluster_file import SUFFIX, read_cluster_file  # noqa: PLC0415

    path = Path(file)
    if path.suffix != SUFFIX or not is_cluster_id(path.stem):
        problems.append(f"{OPTION}={file}: a file named <clusterId>{SUFFIX} is expected, on the driver's host")
        return place

    def told(error: ConfigurationError) -> None:
        problems.extend(f"{OPTION}: {error.source}: {problem}" for problem in error.problems)

    try:
        cluster = read_cluster_file(path)
    except ConfigurationError as error:
        told(error)
        return place
    found: Locations = ()
    try:
        found = _locations(cluster, topics)
    except ConfigurationError as error:
        told(error)

    def agreed(name: str, said: _T | None, stated: _T | None) -> _T | None:
        if said is not None and stated is not None and said != stated:
            problems.append(f"{name}={said}: {OPTION}={file} has {stated}; drop one of the two")
        return said if stated is None else stated

    if place.location is not None and len(found) > 1:
        several = ", ".join(f"{endpoint.location} for {' and '.join(names)}" for endpoint, names in found)
        problems.append(f"path={place.location}: {OPTION}={file} has {several}; drop one of the two")
    location = found[0][0].location if found else None
    return Place(
        location if len(found) > 1 else agreed("path", place.location, location),
        agreed("cluster", place.cluster, path.stem),
        agreed("prefixEntropyBits", place.entropy_bits, cluster.keys.entropy_bits),
        found[1:],
        found[0][0].options.connection if found else BY_ENVIRONMENT,
    )


def _locations(cluster: "ClusterFile", topics: Iterable[str] | None) -> Locations:
    """Return the endpoints of the topics, each with its topics; empty if no topic is named.

    Raises:
        ConfigurationError: a topic has no location, or a pattern could match topics in several locations.
    """
    if topics is None:
        known = set(cluster.endpoints())
        if len(known) == 1:
            return ((known.pop(), ()),)
        said = ", ".join(sorted(endpoint.location for endpoint in known))
        told = f"topics are in {said}, and a pattern is matched in one location only: use subscribe"
        raise ConfigurationError(str(cluster.path), [told])
    by_endpoint: dict[Endpoint, list[str]] = {}
    homeless: list[str] = []
    for topic in topics:
        try:
            by_endpoint.setdefault(cluster.endpoint(topic), []).append(topic)
        except ConfigurationError as error:
            homeless += error.problems
    if homeless:
        raise ConfigurationError(str(cluster.path), homeless)
    return tuple((endpoint, tuple(names)) for endpoint, names in by_endpoint.items())
