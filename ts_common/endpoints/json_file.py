"""The file of the endpoint provider `json`: endpoints by name, and the endpoint of each topic.

::

    {"endpoints": {"restricted": {"bucket": "b", "prefix": "p", "s3": {"server.side.encryption": "aws:kms"}}},
     "default": {"bucket": "archive"},
     "topics": {"payments": "restricted",
                "audit": {"endpoint": "restricted", "s3": {"tags": {"team": "audit"}}}}}

`default` and each topic accept an endpoint, the name of one, or `endpoint` with a name. Options below `s3` of a topic
override those of its endpoint, and these override those of the properties file. The value null removes an option.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ts_common.errors import ConfigurationError, CorruptData
from ts_common.json_objects import parse_json
from ts_common.store.factory import parse_location
from ts_common.store.option_table import parse_options
from ts_common.store.options import Endpoint, StorageOptions
from ts_common.suggestions import nearest

JSON_PATH_KEY: Final = "storage.service.endpoint.json.path"

_MOST_BYTES: Final = 16 << 20  # a line for each of a hundred thousand topics
_NOWHERE: Final = Endpoint("")  # stands for an endpoint that was reported as a problem
_PLAIN: Final = {"bucket", "prefix", "endpoint"}  # messages may show the values of these keys
_ACCEPTED: Final = '{"bucket": ..., "prefix": ..., "s3": {...}}'
_EXPECTED: Final = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "string_type": "a string",
}


class _Shape(BaseModel):
    """An object of the file: types are exact, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class _Place(_Shape):
    """An entry of `endpoints`."""

    bucket: str
    prefix: str = ""
    s3: dict[str, object] = {}


class _Choice(_Shape):
    """A topic or the default that uses an entry of `endpoints`; a bare name is the short form."""

    endpoint: str
    s3: dict[str, object] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, entry: object) -> object:
        return {"endpoint": entry} if isinstance(entry, str) else entry


class _File(_Shape):
    """The file; `read_endpoints` validates each entry on its own, so that one bad entry hides no other problem."""

    endpoints: dict[str, object] = {}
    default: object = None
    topics: dict[str, object] = {}


class _JavaTopic(_Shape):
    """A topic in the file of the Java example provider."""

    pii: bool


class _JavaFile(_Shape):
    """The file of the Java example provider: two buckets; the flag `pii` of a topic selects one of them."""

    bucket_public: str
    bucket_pii: str
    prefix: str
    topics: dict[str, _JavaTopic]

    def in_our_form(self) -> Mapping[str, object]:
        """Return the same endpoints as a file of this module."""
        private = {"bucket": self.bucket_pii, "prefix": self.prefix}
        return {
            "default": {"bucket": self.bucket_public, "prefix": self.prefix},
            "topics": {topic: private for topic, flag in self.topics.items() if flag.pii},
        }


_AnyShape = TypeVar("_AnyShape", bound=_Shape)


def read_endpoints(path: Path, given: Mapping[str, object]) -> tuple[Endpoint | None, Mapping[str, Endpoint]]:
    """Return the default endpoint, None without one, and the endpoint of each topic that the file names.

    Args:
        given: S3 options of the properties file, by name.

    Raises:
        ConfigurationError: the file cannot be read, or an entry is invalid; it lists all problems.
    """
    content = _read_object(path)
    reader = _Reader(given)
    file = reader.parse_file(content)
    for name, entry in file.endpoints.items():
        reader.add_named(name, entry)
    default = reader.endpoint("default", file.default) if "default" in file.model_fields_set else None
    by_topic = {topic: reader.endpoint(f"topics.{topic}", entry) for topic, entry in file.topics.items()}
    if reader.problems:
        raise ConfigurationError(str(path), reader.problems)
    return default, by_topic


def _read_object(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            content = parse_json(file.read(_MOST_BYTES + 1), "the file", _MOST_BYTES)
    except OSError as error:
        raise ConfigurationError(
            str(path), [f"cannot read the file: {error}; create it, or set {JSON_PATH_KEY}"]
        ) from error
    except CorruptData as error:
        reason = str(error).removeprefix("the file: ").partition("; found ")[0]  # the bytes may contain a password
        raise ConfigurationError(str(path), [f"is {reason}"]) from error
    if not isinstance(content, dict):
        raise ConfigurationError(str(path), ["is not a JSON object"])
    return content


class _Reader:
    """Validates the entries of a file and collects their problems."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given
        self._named: dict[str, tuple[_Place, Endpoint] | None] = {}  # None: a problem was reported
        self.problems: list[str] = []

    def parse_file(self, content: Mapping[str, Any]) -> _File:
        """Return the file's entries, of both its forms; invalid parts are left out."""
        if {"bucket_public", "bucket_pii"} & content.keys():
            java = self._validate(_JavaFile, "", content)
            return _File.model_validate(java.in_our_form()) if java is not None else _File()
        file = self._validate(_File, "", content)
        if file is None:  # the entries of the valid parts may have problems too
            valid = {
                key: value
                for key, value in content.items()
                if key == "default" or (key in _File.model_fields and isinstance(value, dict))
            }
            file = _File.model_construct(_fields_set=set(valid), **valid)
        if "default" not in content and not content.get("topics"):
            self.problems.append(f'no topic has an endpoint: add it to topics, or set "default": {_ACCEPTED}')
        return file

    def add_named(self, name: str, entry: object) -> None:
        """Validate an entry of `endpoints`."""
        self._named[name] = self._place(f"endpoints.{name}", entry)

    def endpoint(self, where: str, entry: object) -> Endpoint:
        """Return the endpoint of a topic or of the default; `_NOWHERE` if its problem was reported."""
        if not isinstance(entry, str | dict):
            self.problems.append(
                f'{where} is {_shown(entry)}; expected {_ACCEPTED}, the name of an endpoint, or {{"endpoint": name}}'
            )
            return _NOWHERE
        if isinstance(entry, dict) and "endpoint" not in entry:
            place = self._place(where, entry)
            return _NOWHERE if place is None else place[1]
        choice = self._validate(_Choice, where, entry)
        if choice is None:
            return _NOWHERE
        if choice.endpoint not in self._named:
            shown = "of that name" if "@" in choice.endpoint else repr(choice.endpoint)  # it may be a misplaced option
            self.problems.append(f"{where}: no endpoint {shown}{nearest(choice.endpoint, self._named)}")
            return _NOWHERE
        chosen = self._named[choice.endpoint]
        if chosen is None:
            return _NOWHERE
        named, endpoint = chosen
        if not choice.s3:
            return endpoint
        return Endpoint(endpoint.location, self._options(where, {**named.s3, **choice.s3}))

    def _place(self, where: str, entry: object) -> tuple[_Place, Endpoint] | None:
        place = self._validate(_Place, where, entry)
        if place is None:
            return None
        options = self._options(where, place.s3)
        try:
            location = parse_location(f"s3://{place.bucket}/{place.prefix.strip('/')}")
        except ConfigurationError as error:
            self.problems += [f"{where}: {problem}" for problem in error.problems]
            return None
        return place, Endpoint(str(location), options)

    def _options(self, where: str, own: Mapping[str, object]) -> StorageOptions:
        options = {name: value for name, value in {**self._given, **own}.items() if value is not None}
        return parse_options(options, f"{where}.s3.", self.problems)

    def _validate(self, shape: type[_AnyShape], where: str, entry: object) -> _AnyShape | None:
        try:
            return shape.model_validate(entry)
        except ValidationError as error:
            self.problems += _problems(error, shape, where)
            return None


def _problems(error: ValidationError, shape: type[_Shape], where: str) -> Iterator[str]:
    """Yield a sentence for each problem of an entry, without values that may be secret."""
    for detail in error.errors(include_url=False, include_context=False):
        path = ".".join([where, *map(str, detail["loc"])]).lstrip(".") or "the file"
        key = str(detail["loc"][-1]) if detail["loc"] else ""
        match detail["type"]:
            case "missing":
                yield f"{path} is missing; expected {_accepted_by(shape)}"
            case "extra_forbidden":
                known = nearest(key, shape.model_fields) or f"; known keys are {', '.join(shape.model_fields)}"
                yield f"{path}: unknown key{known}"
            case "string_unicode":
                yield f"{path} contains a key or a value that UTF-8 cannot represent; correct it"
            case kind:
                expected = _EXPECTED.get(kind, detail["msg"]) if key else _accepted_by(shape)
                yield f"{path} is {_shown(detail['input'])}; expected {expected}"


def _accepted_by(shape: type[_Shape]) -> str:
    if shape is _JavaFile:
        return f'{", ".join(shape.model_fields)}, and {{"pii": true}} or {{"pii": false}} for each topic'
    return '{"endpoint": name, "s3": {...}}' if shape is _Choice else _ACCEPTED


def _shown(entry: object) -> str:
    """Return an entry's keys and plain values. Other values are hidden: one may be an option in the wrong place."""
    if isinstance(entry, dict):
        return json.dumps(
            {key: value if key in _PLAIN and isinstance(value, str) else "..." for key, value in entry.items()}
        )
    return "a string" if isinstance(entry, str) else "a list" if isinstance(entry, list) else json.dumps(entry)
