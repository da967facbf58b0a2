"""A cluster's properties file as readers use it: the cluster, its entropy bits, and the location of each topic.

It is the agent's own file, `<clusterId>.properties`, read by the agent's parser, so that an operator writes each
setting once. Readers use locations and connections, and ignore the settings for writing objects.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ts_common.archive.object_keys import ClusterKeys
from ts_common.config.keys import STUCK_AFTER_MS
from ts_common.errors import ConfigurationError
from ts_common.store.factory import parse_location
from ts_common.store.options import Endpoint, StorageOptions

if TYPE_CHECKING:
    from ts_common.endpoints.provider import EndpointProvider

SUFFIX = ".properties"
STUCK_AFTER_SECONDS = STUCK_AFTER_MS / 1000  # without a file


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A cluster's properties file, for readers.

    Attributes:
        provider: returns the endpoint of each topic.
        stuck_after_seconds: a partition that waits longer is stuck.
    """

    path: Path
    keys: ClusterKeys
    provider: "EndpointProvider"
    stuck_after_seconds: float = STUCK_AFTER_SECONDS

    def endpoint(self, topic: str) -> Endpoint:
        """Return the location of a topic and the connection to it.

        Raises:
            ConfigurationError: the topic has no location.
        """
        return for_reading(self.provider.endpoint(topic))

    def locations(self, topics: Iterable[str]) -> tuple[tuple[Endpoint, tuple[str, ...]], ...]:
        """Return the endpoints of some topics, each with its topics.

        Raises:
            ConfigurationError: topics have no location; one problem for each.
        """
        found: dict[Endpoint, list[str]] = {}
        problems: list[str] = []
        for topic in topics:
            try:
                found.setdefault(self.endpoint(topic), []).append(topic)
            except ConfigurationError as error:
                problems += error.problems
        if problems:
            raise ConfigurationError(str(self.path), problems)
        return tuple((endpoint, tuple(names)) for endpoint, names in found.items())

    def endpoints(self) -> frozenset[Endpoint]:
        """Return all endpoints that `endpoint` may return."""
        return frozenset(for_reading(endpoint) for endpoint in self.provider.endpoints())


def read_cluster_file(path: Path) -> ClusterFile:
    """Read `<clusterId>.properties`.

    Raises:
        ConfigurationError: the file is missing, or settings in it are wrong; the error lists all of them.
    """
    # pydantic: most readers name a location and have no file.
    from ts_common.config.cluster_config import load_config  # noqa: PLC0415
    from ts_common.endpoints.provider import open_provider  # noqa: PLC0415

    config, _ = load_config(path)
    provider = open_provider(config.endpoint_provider, path.stem, path.parent, config.endpoint_properties)
    keys = ClusterKeys(path.stem, max(0, config.entropy_bits))
    return ClusterFile(path, keys, provider, config.stuck_after_seconds)


def for_reading(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint with the options that reading needs, and its location in one form."""
    return Endpoint(str(parse_location(endpoint.location)), StorageOptions(endpoint.options.connection))
