"""Where and how each topic's objects are stored: a store URL with its base prefix, and S3 options.

The page docs/store.md describes it for operators.

`storage.service.endpoint.provider.class` selects a provider::

    url (or absent)    one URL for all topics: storage.service.endpoint.url
    json               a file with a bucket and prefix by topic: storage.service.endpoint.json.path
    module:Class       the operator's own class, called as Class(cluster_id, config_dir, properties)

A topic's location must stay the same as long as readers need its objects. The agent reads a provider at start. It reads
it again on SIGHUP, only to log the differences.

S3 options in the properties file (`ts_common.store.option_table`) apply to all topics, whatever the provider. The file
of `json` can override them for an endpoint or a topic.
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
    """The store of each topic. Every method always returns the same result and is safe to call from any thread.

    A subclass implements `location` and `locations`. The options of the properties file then apply to all of them.

    Attributes:
        options: S3 options of the properties file.

    Args:
        config_dir: the directory of `<clusterId>.properties`.
        properties: all keys of that file, including the provider's own.

    Raises:
        ConfigurationError: the configuration is invalid; it lists all problems.
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
        """Return the store URL of the topic's objects, with the base prefix.

        Raises:
            ConfigurationError: the topic has no endpoint.
        """

    @abstractmethod
    def locations(self) -> frozenset[str]:
        """Return every URL that `location` can return. The agent checks them at start."""

    def endpoint(self, topic: str) -> Endpoint:
        """Return where and how the topic's objects are stored.

        Raises:
            ConfigurationError: the topic has no endpoint.
        """
        return Endpoint(self.location(topic), self.options)

    def endpoints(self) -> frozenset[Endpoint]:
        """Return every endpoint that `endpoint` can return. The agent checks them at start."""
        return frozenset(Endpoint(location, self.options) for location in self.locations())


class UrlEndpointProvider(EndpointProvider):
    """One URL for all topics."""

    def __init__(self, cluster_id: str, config_dir: Path, properties: Mapping[str, str]) -> None:
        super().__init__(cluster_id, config_dir, properties)
        source = _source(cluster_id, config_dir)
        url = properties.get(URL_KEY, "")
        if not url:
            missing = f"{URL_KEY} is missing; set it to a store URL, for instance s3://bucket/base/prefix"
            raise ConfigurationError(source, [missing])
        try:
            location = parse_location(url)
            if location.scheme is not Scheme.S3:
                refuse_for_others(url, self.options)
        except ConfigurationError as error:
            raise ConfigurationError(source, [f"{URL_KEY}: {problem}" for problem in error.problems]) from error
        self._url = str(location)

    def location(self, topic: str) -> str:  # noqa: ARG002 - one URL for all topics
        """Return the URL."""
        return self._url

    def locations(self) -> frozenset[str]:
        """Return the URL."""
        return frozenset({self._url})


class JsonEndpointProvider(EndpointProvider):
    """A bucket, a prefix and options by topic, from a file, with an optional default for all other topics."""

    def __init__(self, cluster_id: str, config_dir: Path, properties: Mapping[str, str]) -> None:
        super().__init__(cluster_id, config_dir, properties)
        self._path = config_dir / (properties.get(JSON_PATH_KEY) or f"{cluster_id}.endpoints.json")
        self._default, self._topics = read_endpoints(self._path, options_of(properties))

    def location(self, topic: str) -> str:
        """Return the topic's own location, or else the default's."""
        return self.endpoint(topic).location

    def locations(self) -> frozenset[str]:
        """Return the locations that the file assigns to topics."""
        return frozenset(endpoint.location for endpoint in self.endpoints())

    def endpoint(self, topic: str) -> Endpoint:
        """Return the topic's own endpoint, or else the default."""
        found = self._topics.get(topic, self._default)
        if found is None:
            problem = (
                f'topic {topic!r} has no endpoint: add it to topics, or set "default": {{"bucket": ..., "prefix": ...}}'
            )
            raise ConfigurationError(str(self._path), [problem])
        return found

    def endpoints(self) -> frozenset[Endpoint]:
        """Return the endpoints that the file assigns to topics."""
        return frozenset(self._topics.values()) | ({self._default} if self._default is not None else set())


def open_provider(
    name: str | None, cluster_id: str, config_dir: Path, properties: Mapping[str, str]
) -> EndpointProvider:
    """Return the provider that a configuration selects.

    Args:
        name: value of `storage.service.endpoint.provider.class`; None if it is absent.
        config_dir: the directory of `<clusterId>.properties`.
        properties: all keys of that file, including the provider's own.

    Raises:
        ConfigurationError: the configuration is invalid; it lists all problems.
    """
    match name:
        case None | "" | "url":
            return UrlEndpointProvider(cluster_id, config_dir, properties)
        case "json":
            return JsonEndpointProvider(cluster_id, config_dir, properties)
        case _ if ":" in name:
            return _open_class(name, cluster_id, config_dir, properties)
        case _ if name.rpartition(".")[2] == _JAVA_EXAMPLE:
            instead = f"use json, with {JSON_PATH_KEY}=<path of its file>; the file needs no change"
        case _ if "." in name:
            instead = "Java classes are unsupported; use url, json or a Python class as module:Class"
        case _:
            instead = "unknown provider; expected url, json or module:Class"
    raise ConfigurationError(_source(cluster_id, config_dir), [f"{PROVIDER_KEY}={name}: {instead}"])


def _source(cluster_id: str, config_dir: Path) -> str:
    return str(config_dir / f"{cluster_id}.properties")


def _open_class(name: str, cluster_id: str, config_dir: Path, properties: Mapping[str, str]) -> EndpointProvider:
    """Return an instance of the operator's class whose locations are valid."""
    source = f"{_source(cluster_id, config_dir)}: {PROVIDER_KEY}"
    try:
        # mypy rejects an abstract class here; the loaded one is concrete.
        found = load_class(name, EndpointProvider, source)  # type: ignore[type-abstract]
        provider = found(cluster_id, config_dir, properties)
        locations = sorted(provider.locations())
    except ConfigurationError:
        raise
    except Exception as error:
        # The class is the operator's code, so any exception is a problem of the configuration.
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
