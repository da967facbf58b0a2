"""Where and how each topic's objects are stored: a store URL with its base prefix, and options of S3, by topic. See
docs/endpoints.md.

`storage.service.endpoint.provider.class` selects a provider::

    url (or absent)    one URL for all topics: storage.service.endpoint.url
    json               a file with a bucket and prefix by topic: storage.service.endpoint.json.path
    module:Class       a class of the operator's, called as Class(cluster_id, config_dir, properties)

What a topic's location is must not change while its objects are to be found: a provider is read at start, and again on
SIGHUP only to say what differs.

Options of S3 in the properties file (`ts_common.store.option_table`) hold for all topics, whatever the provider; the
file of `json` may say others for an endpoint or a topic.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from ts_common.config.plugins import load_class
from ts_common.endpoints.json_file import JSON_PATH_KEY, read_endpoints
from ts_common.errors import ConfigurationError
from ts_common.store.factory import Scheme, parse_location
from ts_common.store.option_table import options_of, parse_options
from ts_common.store.options import PREFIX, Endpoint, refuse_for_others

PROVIDER_KEY = "storage.service.endpoint.provider.class"
URL_KEY = "storage.service.endpoint.url"

_JAVA_EXAMPLE = "ExampleS3StorageServiceEndpointProvider"


class EndpointProvider(ABC):
    """Names the store of each topic. Every method answers the same whenever it is asked, from any thread.

    A provider that knows locations only need not think of options: those of the properties file hold for all of them.

    Attributes:
        options: what the properties file says of S3.

    Args:
        cluster_id: of Kafka.
        config_dir: the directory of `<clusterId>.properties`.
        properties: all of that file, for a provider's own keys.

    Raises:
        ConfigurationError: with every problem found.
    """

    def __init__(self, cluster_id: str, config_dir: Path, properties: Mapping[str, str]) -> None:
        self.cluster_id = cluster_id
        self.config_dir = config_dir
        self.properties = properties
        problems: list[str] = []
        self.options = parse_options(options_of(properties), PREFIX, problems)
        if problems:
            raise ConfigurationError(_source(cluster_id, config_dir), problems)

    @abstractmethod
    def location(self, topic: str) -> str:
        """The store URL, base prefix included, under which the topic's objects lie.

        Raises:
            ConfigurationError: the topic has no place.
        """

    @abstractmethod
    def locations(self) -> frozenset[str]:
        """Every URL that `location` may return, to be checked at start."""

    def endpoint(self, topic: str) -> Endpoint:
        """Where and how the topic's objects are stored.

        Raises:
            ConfigurationError: the topic has no place.
        """
        return Endpoint(self.location(topic), self.options)

    def endpoints(self) -> frozenset[Endpoint]:
        """All that `endpoint` may return, to be checked at start."""
        return frozenset(Endpoint(location, self.options) for location in self.locations())


class UrlEndpointProvider(EndpointProvider):
    """One URL for all topics."""

    def __init__(self, cluster_id: str, config_dir: Path, properties: Mapping[str, str]) -> None:
        super().__init__(cluster_id, config_dir, properties)
        source = _source(cluster_id, config_dir)
        url = properties.get(URL_KEY, "")
        if not url:
            missing = f"{URL_KEY} is missing: say where objects go, as in s3://bucket/base/prefix"
            raise ConfigurationError(source, [missing])
        try:
            location = parse_location(url)
            if location.scheme is not Scheme.S3:
                refuse_for_others(url, self.options)
        except ConfigurationError as error:
            raise ConfigurationError(source, [f"{URL_KEY}: {problem}" for problem in error.problems]) from error
        self._url = str(location)

    def location(self, topic: str) -> str:  # noqa: ARG002 - the same for all
        """The one URL."""
        return self._url

    def locations(self) -> frozenset[str]:
        """The one URL."""
        return frozenset({self._url})


class JsonEndpointProvider(EndpointProvider):
    """A bucket, a prefix and options by topic, and perhaps one for all other topics, from a file."""

    def __init__(self, cluster_id: str, config_dir: Path, properties: Mapping[str, str]) -> None:
        super().__init__(cluster_id, config_dir, properties)
        self._path = config_dir / (properties.get(JSON_PATH_KEY) or f"{cluster_id}.endpoints.json")
        self._default, self._topics = read_endpoints(self._path, options_of(properties))

    def location(self, topic: str) -> str:
        """The topic's own, or else the default's."""
        return self.endpoint(topic).location

    def locations(self) -> frozenset[str]:
        """All that the file names."""
        return frozenset(endpoint.location for endpoint in self.endpoints())

    def endpoint(self, topic: str) -> Endpoint:
        """The topic's own, or else the default."""
        found = self._topics.get(topic, self._default)
        if found is None:
            problem = (
                f'topic {topic!r} has no place: name it in topics, or say "default": {{"bucket": ..., "prefix": ...}}'
            )
            raise ConfigurationError(str(self._path), [problem])
        return found

    def endpoints(self) -> frozenset[Endpoint]:
        """All that the file gives to topics."""
        return frozenset(self._topics.values()) | ({self._default} if self._default is not None else set())


def open_provider(
    name: str | None, cluster_id: str, config_dir: Path, properties: Mapping[str, str]
) -> EndpointProvider:
    """The provider that a configuration selects.

    Args:
        name: the value of `storage.service.endpoint.provider.class`; None where it is absent.
        cluster_id: of Kafka.
        config_dir: the directory of `<clusterId>.properties`.
        properties: all of that file, for a provider's own keys.

    Raises:
        ConfigurationError: with every problem found.
    """
    match name:
        case None | "" | "url":
            return UrlEndpointProvider(cluster_id, config_dir, properties)
        case "json":
            return JsonEndpointProvider(cluster_id, config_dir, properties)
        case _ if ":" in name:
            return _open_class(name, cluster_id, config_dir, properties)
        case _ if name.rpartition(".")[2] == _JAVA_EXAMPLE:
            instead = f"use json, with {JSON_PATH_KEY}=<path of its file>: that is understood as it is"
        case _ if "." in name:
            instead = "a Java class cannot be loaded here: use url or json, or a Python class as module:Class"
        case _:
            instead = "accepted are url, json and module:Class"
    raise ConfigurationError(_source(cluster_id, config_dir), [f"{PROVIDER_KEY}={name}: {instead}"])


def _source(cluster_id: str, config_dir: Path) -> str:
    return str(config_dir / f"{cluster_id}.properties")


def _open_class(name: str, cluster_id: str, config_dir: Path, properties: Mapping[str, str]) -> EndpointProvider:
    """An operator's class, called, and its locations looked at."""
    source = f"{_source(cluster_id, config_dir)}: {PROVIDER_KEY}"
    try:
        # An abstract class is what mypy sees; the operator's is not.
        found = load_class(name, EndpointProvider, source)  # type: ignore[type-abstract]
        provider = found(cluster_id, config_dir, properties)
        locations = sorted(provider.locations())
    except ConfigurationError:
        raise
    except Exception as error:
        # It is not our code: whatever it raises is about the configuration.
        raise ConfigurationError(source, [f"{name}: {type(error).__name__}: {error}"]) from error
    problems: list[str] = []
    for url in locations:
        try:
            parse_location(url)
        except ConfigurationError as error:
            problems += [f"{name}: locations(): {problem}" for problem in error.problems]
    if problems:
        raise ConfigurationError(source, problems)
    return provider
