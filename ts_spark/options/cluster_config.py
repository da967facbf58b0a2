"""The option `config`: the agent's properties file of a cluster, so that a query need not repeat its settings.

Only the driver reads it, with the agent's parser: the cluster (the file's name), the entropy bits, and through the
endpoint provider the location of each topic and its connection options. Executors get location and connection only.
Options for writing objects have no effect on readers.
"""

from dataclasses import replace
from pathlib import Path

from ts_common.errors import ConfigurationError
from ts_common.store.options import BY_ENVIRONMENT
from ts_reader.query.query import Locations, Query, Subscription
from ts_reader.reading.cluster_file import ClusterFile, read_cluster_file


def completed(place: Query, path: Path, subscription: Subscription, problems: list[str]) -> Query:
    """Return the place of the options, completed from the file of `config`; the two may not contradict.

    Args:
        place: from the options `path`, `cluster` and `prefixEntropyBits`; empty where they specify nothing.
        problems: receives the problems of the file, and each contradiction.
    """

    def told(error: ConfigurationError) -> None:
        problems.extend(f"config: {error.source}: {problem}" for problem in error.problems)

    try:
        cluster = read_cluster_file(path)
    except ConfigurationError as error:
        told(error)
        return place
    found: Locations = ()
    try:
        found = _locations(cluster, subscription)
    except ConfigurationError as error:
        told(error)
    location = found[0][0].location if found else place.location
    connection = found[0][0].options.connection if found else BY_ENVIRONMENT
    has = ", ".join(f"{endpoint.location} for {' and '.join(names)}" for endpoint, names in found)
    bits = cluster.keys.entropy_bits
    for name, option, stated in (
        ("path", place.location, has if len(found) > 1 else location),
        ("cluster", place.cluster, path.stem),
        ("prefixEntropyBits", bits if place.entropy_bits is None else place.entropy_bits, bits),
    ):
        if option not in {"", stated}:
            problems.append(f"{name}={option}: config={path} has {stated}; drop one of the two")
    return replace(
        place,
        location=location,
        cluster=path.stem,
        entropy_bits=bits,
        topics_elsewhere=found[1:],
        connection=connection,
    )


def _locations(cluster: ClusterFile, subscription: Subscription) -> Locations:
    """Return the endpoints of the topics, each with its topics; empty if no topic is named.

    Raises:
        ConfigurationError: a topic has no location, or a pattern could match topics in several locations.
    """
    if subscription.pattern is not None:
        known = set(cluster.endpoints())
        if len(known) == 1:
            return ((known.pop(), ()),)
        said = ", ".join(sorted(endpoint.location for endpoint in known))
        told = f"topics are in {said}, and a pattern is matched in one location only: use subscribe"
        raise ConfigurationError(str(cluster.path), [told])
    return cluster.locations(subscription.assigned or subscription.topics)
