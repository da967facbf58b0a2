"""Where each topic's objects go: a store URL with its base prefix, by topic. See docs/endpoints.md.

`storage.service.endpoint.provider.class` selects a provider::

    url (or absent)    one URL for all topics: storage.service.endpoint.url
    json               a file with a bucket and prefix by topic: storage.service.endpoint.json.path
    module:Class       a class of the operator's, called as Class(cluster_id, config_dir, properties)

What a topic's location is must not change while its objects are to be found: a provider is read once, at start.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ts_common.errors import ConfigurationError
from ts_common.plugins import load_class
from ts_common.store.factory import parse_location

PROVIDER_KEY = "storage.service.endpoint.provider.class"
URL_KEY = "storage.service.endpoint.url"
JSON_PATH_KEY = "storage.service.endpoint.json.path"

_JAVA_EXAMPLE = "ExampleS3StorageServiceEndpointProvider"
_JAVA_KEYS = {"bucket_public", "bucket_pii", "prefix", "topics"}


class EndpointProvider(ABC):
    """Names the store of each topic. Both methods answer the same whenever they are asked, from any thread.

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

    @abstractmethod
    def location(self, topic: str) -> str:
        """The store URL, base prefix included, under which the topic's objects lie.

        Raises:
            ConfigurationError: the topic has no place.
        """

    @abstractmethod
    def locations(self) -> frozenset[str]:
        """Every URL that `location` may return, to be checked at start."""


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
            self._url = str(parse_location(url))
        except ConfigurationError as error:
            raise ConfigurationError(source, [f"{URL_KEY}: {problem}" for problem in error.problems]) from error

    def location(self, topic: str) -> str:  # noqa: ARG002 - the same for all
        """The one URL."""
        return self._url

    def locations(self) -> frozenset[str]:
        """The one URL."""
        return frozenset({self._url})


class JsonEndpointProvider(EndpointProvider):
    """A bucket and prefix by topic, and perhaps one for all other topics, from a file."""

    def __init__(self, cluster_id: str, config_dir: Path, properties: Mapping[str, str]) -> None:
        super().__init__(cluster_id, config_dir, properties)
        self._path = config_dir / (properties.get(JSON_PATH_KEY) or f"{cluster_id}.endpoints.json")
        problems: list[str] = []
        content = _read_object(self._path)
        if {"bucket_public", "bucket_pii"} & content.keys():
            content = _from_java(self._path, content)
        problems += [
            f"unknown key {key!r}: known are default and topics"
            for key in sorted(content.keys() - {"default", "topics"})
        ]
        topics = _topics(content, problems)
        if not topics and "default" not in content:
            problems.append(
                'no topic has a place: name one in topics, or say "default": {"bucket": ..., "prefix": ...}'
            )
        self._default = _entry("default", content["default"], problems) if "default" in content else None
        self._topics = {topic: _entry(f"topics.{topic}", entry, problems) for topic, entry in topics.items()}
        if problems:
            raise ConfigurationError(str(self._path), problems)

    def location(self, topic: str) -> str:
        """The topic's own, or else the default."""
        found = self._topics.get(topic, self._default)
        if found is None:
            problem = (
                f'topic {topic!r} has no place: name it in topics, or say "default": {{"bucket": ..., "prefix": ...}}'
            )
            raise ConfigurationError(str(self._path), [problem])
        return found

    def locations(self) -> frozenset[str]:
        """All that the file names."""
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


def _read_object(path: Path) -> Mapping[str, Any]:
    """A file's JSON object."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(str(path), [f"cannot be read: {error}; {JSON_PATH_KEY} names another file"]) from error
    except ValueError as error:
        raise ConfigurationError(str(path), [f"is not JSON: {error}"]) from error
    if not isinstance(content, dict):
        raise ConfigurationError(str(path), ["is not a JSON object"])
    return content


def _topics(content: Mapping[str, Any], problems: list[str]) -> Mapping[str, Any]:
    topics = content.get("topics", {})
    if isinstance(topics, dict):
        return topics
    problems.append(f"topics is {json.dumps(topics)}, not an object of topic names")
    return {}


def _entry(name: str, entry: Any, problems: list[str]) -> str:
    """The URL of one `{"bucket": ..., "prefix": ...}`; empty, and a problem more, where it is none."""
    if not isinstance(entry, dict) or not {"bucket"} <= entry.keys() <= {"bucket", "prefix"}:
        problems.append(f'{name} is {json.dumps(entry)}: accepted is {{"bucket": ..., "prefix": ...}}')
        return ""
    bucket, prefix = entry["bucket"], entry.get("prefix", "")
    if not isinstance(bucket, str) or not isinstance(prefix, str):
        problems.append(f"{name}: bucket and prefix are texts, not {json.dumps(entry)}")
        return ""
    try:
        return str(parse_location(f"s3://{bucket}/{prefix.strip('/')}"))
    except ConfigurationError as error:
        problems += [f"{name}: {problem}" for problem in error.problems]
        return ""


def _from_java(path: Path, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Java example provider's file in our form: two buckets, and a flag by topic that chooses; public without."""
    beside = "in a file with bucket_public and bucket_pii"
    problems = [f"{key} is missing {beside}" for key in sorted(_JAVA_KEYS - content.keys())]
    problems += [f"unknown key {key!r} {beside}" for key in sorted(content.keys() - _JAVA_KEYS)]
    flags = _topics(content, problems)
    problems += [
        f'topics.{topic} is {json.dumps(flag)}: accepted are {{"pii": true}} and {{"pii": false}}'
        for topic, flag in flags.items()
        if not (isinstance(flag, dict) and flag.keys() == {"pii"} and isinstance(flag["pii"], bool))
    ]
    if problems:
        raise ConfigurationError(str(path), problems)
    private = {"bucket": content["bucket_pii"], "prefix": content["prefix"]}
    return {
        "default": {"bucket": content["bucket_public"], "prefix": content["prefix"]},
        "topics": {topic: private for topic, flag in flags.items() if flag["pii"]},
    }
