"""The option `config`: a cluster's properties file, the agent's own, so that a query need not repeat what stands there.

Read on the driver only, by the agent's parser: the cluster (the file's name), the entropy bits and, through the
endpoint provider, the location of each topic. Executors get locations alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ts_common.errors import ConfigurationError
from ts_common.model import is_cluster_id
from ts_common.store.factory import parse_location

if TYPE_CHECKING:
    from ts_common.endpoints import EndpointProvider

OPTION: Final = "config"
_SUFFIX: Final = ".properties"

Locations = tuple[tuple[str, tuple[str, ...]], ...]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a query's topics lie; None for what nothing says.

    Attributes:
        location: of the store, a URL.
        cluster: whose topics.
        entropy_bits: of the store's keys; 0 means none.
        topics_elsewhere: other locations and the topics that lie there; the other topics lie in `location`.
    """

    location: str | None
    cluster: str | None
    entropy_bits: int | None
    topics_elsewhere: Locations = ()


def completed(place: Place, file: str, topics: Iterable[str] | None, problems: list[str]) -> Place:
    """What the options say of the place, and the file of `config` for the rest; they may not contradict.

    Args:
        place: as the options `path`, `cluster` and `prefixEntropyBits` say.
        file: the value of `config`.
        topics: that are asked for; None where a pattern asks for them, empty where nothing does.
        problems: to which those of the file are added, and each contradiction.
    """
    from ts_common.config import load_config  # noqa: PLC0415  (pydantic: Spark loads the options for any source)
    from ts_common.endpoints import open_provider  # noqa: PLC0415  (as above)

    path = Path(file)
    if path.suffix != _SUFFIX or not is_cluster_id(path.stem):
        problems.append(f"{OPTION}={file}: a file named <clusterId>{_SUFFIX} is expected, on the driver's host")
        return place

    def told(error: ConfigurationError) -> None:
        problems.extend(f"{OPTION}: {error.source}: {problem}" for problem in error.problems)

    try:
        config, _ = load_config(path)
        endpoints = open_provider(config.endpoint_provider, path.stem, path.parent, config.endpoint_properties)
    except ConfigurationError as error:
        told(error)
        return place
    found: Locations = ()
    try:
        found = _locations(endpoints, topics, path)
    except ConfigurationError as error:
        told(error)

    def agreed(name: str, said: _T | None, stated: _T | None) -> _T | None:
        if said is not None and stated is not None and said != stated:
            problems.append(f"{name}={said}: {OPTION}={file} says {stated}; drop one of the two")
        return said if stated is None else stated

    if place.location is not None and len(found) > 1:
        several = ", ".join(f"{location} for {' and '.join(names)}" for location, names in found)
        problems.append(f"path={place.location}: {OPTION}={file} says {several}; drop one of the two")
    location = found[0][0] if found else None
    return Place(
        location if len(found) > 1 else agreed("path", place.location, location),
        agreed("cluster", place.cluster, path.stem),
        agreed("prefixEntropyBits", place.entropy_bits, max(0, config.entropy_bits)),
        found[1:],
    )


def _locations(endpoints: "EndpointProvider", topics: Iterable[str] | None, path: Path) -> Locations:
    """The locations of the topics, each with those that lie there; none where no topic is named.

    Raises:
        ConfigurationError: a topic has no place, or a pattern could find topics in several.
    """
    if topics is None:
        known = {str(parse_location(url)) for url in endpoints.locations()}
        if len(known) == 1:
            return ((known.pop(), ()),)
        told = f"topics lie in {', '.join(sorted(known))}, and a pattern is looked for in one location: use subscribe"
        raise ConfigurationError(str(path), [told])
    by_location: dict[str, list[str]] = {}
    homeless: list[str] = []
    for topic in topics:
        try:
            by_location.setdefault(str(parse_location(endpoints.location(topic))), []).append(topic)
        except ConfigurationError as error:
            homeless += error.problems
    if homeless:
        raise ConfigurationError(str(path), homeless)
    return tuple((location, tuple(names)) for location, names in by_location.items())
