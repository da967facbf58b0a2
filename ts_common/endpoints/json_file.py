"""The file of the endpoint provider `json`: endpoints by name, and the one of each topic.

::

    {"endpoints": {"restricted": {"bucket": "b", "prefix": "p", "s3": {"server.side.encryption": "aws:kms"}}},
     "default": {"bucket": "archive"},
     "topics": {"payments": "restricted",
                "audit": {"endpoint": "restricted", "s3": {"tags": {"team": "audit"}}}}}

Where an endpoint is expected, its name, or `endpoint` with a name, or the endpoint itself may stand. Options below `s3`
count before those of the endpoint, and these before those of the properties file; null takes one back.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ts_common.errors import ConfigurationError, CorruptData
from ts_common.json_objects import parse_json
from ts_common.store.factory import parse_location
from ts_common.store.option_table import parse_options
from ts_common.store.options import Endpoint, StorageOptions
from ts_common.suggestions import nearest

JSON_PATH_KEY = "storage.service.endpoint.json.path"

_MOST_BYTES = 16 << 20  # a line for each of a hundred thousand topics
_JAVA_KEYS = {"bucket_public", "bucket_pii", "prefix", "topics"}
_KEYS = {"default", "endpoints", "topics"}
_NOWHERE = Endpoint("")  # where a problem stands instead
_HERE = {"bucket", "prefix", "s3"}
_ELSEWHERE = {"endpoint", "s3"}
_PLAIN = {"bucket", "prefix", "endpoint"}  # whose values a message may show
_ACCEPTED = '{"bucket": ..., "prefix": ..., "s3": {...}}'


def read_endpoints(path: Path, given: Mapping[str, object]) -> tuple[Endpoint | None, Mapping[str, Endpoint]]:
    """The default, if the file says one, and the endpoint of each topic that it names.

    Args:
        path: of the file.
        given: options that the properties file says, by name.

    Raises:
        ConfigurationError: the file cannot be read, or anything in it is wrong; all problems at once.
    """
    content = _read_object(path)
    if {"bucket_public", "bucket_pii"} & content.keys():
        content = _from_java(path, content)
    reader = _Reader(given)
    reader.problems += [
        f"unknown key {key!r}: known are default, endpoints and topics" for key in sorted(content.keys() - _KEYS)
    ]
    topics = _named("topics", content, reader.problems)
    if not topics and "default" not in content:
        reader.problems.append(
            'no topic has a place: name one in topics, or say "default": {"bucket": ..., "prefix": ...}'
        )
    for name, entry in _named("endpoints", content, reader.problems).items():
        reader.name(name, entry)
    default = reader.endpoint("default", content["default"]) if "default" in content else None
    by_topic = {topic: reader.endpoint(f"topics.{topic}", entry) for topic, entry in topics.items()}
    if reader.problems:
        raise ConfigurationError(str(path), reader.problems)
    return default, by_topic


def _read_object(path: Path) -> Mapping[str, Any]:
    """A file's JSON object."""
    try:
        with path.open("rb") as file:
            content = parse_json(file.read(_MOST_BYTES + 1), "the file", _MOST_BYTES)
    except OSError as error:
        raise ConfigurationError(str(path), [f"cannot be read: {error}; {JSON_PATH_KEY} names another file"]) from error
    except CorruptData as error:
        reason = str(error).removeprefix("the file: ").partition("; found ")[0]  # what is found may be a password
        raise ConfigurationError(str(path), [f"is {reason}"]) from error
    if not isinstance(content, dict):
        raise ConfigurationError(str(path), ["is not a JSON object"])
    return content


class _Reader:
    """Reads endpoints, and collects what is wrong with them."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given
        self._named: dict[str, Mapping[str, Any]] = {}  # as they stand in the file
        self._read: dict[str, Endpoint] = {}
        self.problems: list[str] = []

    def name(self, name: str, entry: Any) -> None:
        """Take one of `endpoints` in."""
        found = self._plain(f"endpoints.{name}", entry)
        self._named[name] = entry if found is not None else {}
        self._read[name] = found or _NOWHERE

    def endpoint(self, where: str, entry: Any) -> Endpoint:
        """The endpoint of a topic or of the default; any, and a problem more, where it is none."""
        if isinstance(entry, dict) and "endpoint" not in entry:
            return self._plain(where, entry) or _NOWHERE
        name = entry if isinstance(entry, str) else entry.get("endpoint") if isinstance(entry, dict) else None
        if not isinstance(name, str) or (isinstance(entry, dict) and not entry.keys() <= _ELSEWHERE):
            self.problems.append(
                f"{where} is {_shown(entry)}: accepted are {_ACCEPTED}, the name of an endpoint, and "
                '{"endpoint": name, "s3": {...}}'
            )
            return _NOWHERE
        if name not in self._read:
            shown = "of that text" if "@" in name else repr(name)  # an option in the wrong place, perhaps
            self.problems.append(f"{where}: there is no endpoint {shown}{nearest(name, self._read)}")
            return _NOWHERE
        read = self._read[name]
        if isinstance(entry, str) or read is _NOWHERE:
            return read
        options = {**_as_options(name, self._named[name], []), **_as_options(where, entry, self.problems)}
        return Endpoint(read.location, self._options(where, options))

    def _plain(self, where: str, entry: Any) -> Endpoint | None:
        if not isinstance(entry, dict) or not {"bucket"} <= entry.keys() <= _HERE:
            self.problems.append(f"{where} is {_shown(entry)}: accepted is {_ACCEPTED}")
            return None
        bucket, prefix = entry["bucket"], entry.get("prefix", "")
        if not isinstance(bucket, str) or not isinstance(prefix, str):
            self.problems.append(f"{where}: bucket and prefix are texts, not {_shown(entry)}")
            return None
        options = self._options(where, _as_options(where, entry, self.problems))
        try:
            return Endpoint(str(parse_location(f"s3://{bucket}/{prefix.strip('/')}")), options)
        except ConfigurationError as error:
            self.problems += [f"{where}: {problem}" for problem in error.problems]
            return None

    def _options(self, where: str, said: Mapping[str, Any]) -> StorageOptions:
        both = {name: value for name, value in {**self._given, **said}.items() if value is not None}
        return parse_options(both, f"{where}.s3.", self.problems)


def _shown(entry: Any) -> str:
    """An entry's keys, and its plain values: any other may be an option in the wrong place, and hold a password."""
    if isinstance(entry, dict):
        shown = {key: value if key in _PLAIN and isinstance(value, str) else "..." for key, value in entry.items()}
        return json.dumps(shown)
    return "a text" if isinstance(entry, str) else "a list" if isinstance(entry, list) else json.dumps(entry)


def _named(key: str, content: Mapping[str, Any], problems: list[str]) -> Mapping[str, Any]:
    named = content.get(key, {})
    if isinstance(named, dict):
        return named
    problems.append(f"{key} is {_shown(named)}, not an object by name")
    return {}


def _as_options(name: str, entry: Mapping[str, Any], problems: list[str]) -> Mapping[str, Any]:
    given = entry.get("s3", {})
    if isinstance(given, dict):
        return given
    problems.append(f"{name}.s3 is {_shown(given)}, not an object of options")
    return {}


def _from_java(path: Path, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Java example provider's file in our form: two buckets, and a flag by topic that chooses; public without."""
    beside = "in a file with bucket_public and bucket_pii"
    problems = [f"{key} is missing {beside}" for key in sorted(_JAVA_KEYS - content.keys())]
    problems += [f"unknown key {key!r} {beside}" for key in sorted(content.keys() - _JAVA_KEYS)]
    flags = _named("topics", content, problems)
    problems += [
        f'topics.{topic} is {_shown(flag)}: accepted are {{"pii": true}} and {{"pii": false}}'
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
