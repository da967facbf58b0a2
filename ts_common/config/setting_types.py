"""The types of settings that pydantic lacks: each reads the text of a properties file, or names what is accepted."""

import re
from typing import Annotated, Final

from pydantic import BeforeValidator

REPORTERS: Final = ("graphite", "statsd")

_CLASS_PATH: Final = re.compile(r"[\w.]+:\w+")
_JAVA_LEADERSHIP: Final = {
    "com.pinterest.kafka.tieredstorage.uploader.leadership.ZookeeperLeadershipWatcher": "zookeeper",
    "com.pinterest.kafka.tieredstorage.uploader.leadership.KRaftLeadershipWatcher": "kraft",
}
_TAIL_GROUP: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")  # a part of a key
_HOST_NAME: Final = re.compile(r"\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*")


def _patterns(value: object) -> tuple[re.Pattern[str], ...]:
    patterns = []
    for text in str(value).split(","):
        if text.strip():
            try:
                patterns.append(re.compile(text.strip()))
            except re.error as error:
                raise ValueError(f"{text.strip()!r} is not a regular expression: {error}") from error
    return tuple(patterns)


def _leadership(value: object) -> str | None:
    if value is None:
        return None
    name = _JAVA_LEADERSHIP.get(str(value), str(value))
    return _one_of(("zookeeper", "kraft"), name)


def _reporter(value: object) -> str | None:
    return None if value is None else _one_of(REPORTERS, str(value))


def _one_of(names: tuple[str, ...], value: str) -> str:
    if value not in names and not _CLASS_PATH.fullmatch(value):
        raise ValueError(f"{value!r} is unknown; expected {', '.join(names)} or module:Class")
    return value


def _io_class(value: object) -> str:
    text = str(value).strip().lower()
    if not re.fullmatch(r"none|idle|best-effort:[0-7]", text):
        raise ValueError(f"{value!r} is unknown; expected best-effort:0 to best-effort:7, idle or none")
    return text


def _host_names(value: object) -> tuple[str, ...]:
    names = tuple(name for text in str(value).split(",") if (name := text.strip().lower().rstrip(".")))
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a host name; use names without ports, or .example.com for all names below it"
            )
    return names


def _tail_groups(value: object) -> dict[str, tuple[re.Pattern[str], ...]]:
    groups = dict(value) if isinstance(value, dict) else {}
    for name in groups:
        if not _TAIL_GROUP.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a group; use at most 32 of a to z, 0 to 9, _ and -")
    return {name: _patterns(groups[name]) for name in sorted(groups)}


def _upper(value: object) -> str:
    return str(value).strip().upper()


TailGroups = Annotated[dict[str, tuple[re.Pattern[str], ...]], BeforeValidator(_tail_groups)]
Patterns = Annotated[tuple[re.Pattern[str], ...], BeforeValidator(_patterns)]
HostNames = Annotated[tuple[str, ...], BeforeValidator(_host_names)]
Leadership = Annotated[str | None, BeforeValidator(_leadership)]
Reporter = Annotated[str | None, BeforeValidator(_reporter)]
IoClass = Annotated[str, BeforeValidator(_io_class)]
UPPER_CASE: Final = BeforeValidator(_upper)
