"""A cluster's properties file as readers use it: whose topics, under which entropy bits, and where each of them lies.

It is the agent's own file, `<clusterId>.properties`, read by the agent's parser, so that nobody repeats elsewhere what
stands there. How objects are stored means nothing to readers; where, and how S3 is spoken to, does.
"""

from dataclasses import dataclass
from pathlib import Path

from ts_common.archive.object_keys import ClusterKeys
from ts_common.config.cluster_config import STUCK_AFTER_MS, load_config
from ts_common.endpoints.provider import EndpointProvider, open_provider
from ts_common.store.factory import parse_location
from ts_common.store.options import Endpoint, StorageOptions

SUFFIX = ".properties"
STUCK_AFTER_SECONDS = STUCK_AFTER_MS / 1000  # where no file says otherwise


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What readers want of a cluster's properties file.

    Attributes:
        path: of the file.
        keys: how the cluster's keys are made.
        provider: of the file, which says where each topic lies.
        stuck_after_seconds: after which agents call a partition stuck.
    """

    path: Path
    keys: ClusterKeys
    provider: EndpointProvider
    stuck_after_seconds: float = STUCK_AFTER_SECONDS

    def endpoint(self, topic: str) -> Endpoint:
        """Where a topic lies, and how S3 is spoken to there.

        Raises:
            ConfigurationError: the topic has no endpoint.
        """
        return _for_reading(self.provider.endpoint(topic))

    def endpoints(self) -> frozenset[Endpoint]:
        """All that `endpoint` may return."""
        return frozenset(_for_reading(endpoint) for endpoint in self.provider.endpoints())


def read_cluster_file(path: Path) -> ClusterFile:
    """Read `<clusterId>.properties`.

    Raises:
        ConfigurationError: the file is not there, or anything in it is wrong; all problems at once.
    """
    config, _ = load_config(path)
    provider = open_provider(config.endpoint_provider, path.stem, path.parent, config.endpoint_properties)
    keys = ClusterKeys(path.stem, max(0, config.entropy_bits))
    return ClusterFile(path, keys, provider, config.stuck_after_seconds)


def _for_reading(endpoint: Endpoint) -> Endpoint:
    return Endpoint(str(parse_location(endpoint.location)), StorageOptions(endpoint.options.connection))
