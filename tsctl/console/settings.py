"""Settings of the console consumer: those of options, a file and `--consumer-property` together.

Source of the rules: Kafka's `org.apache.kafka.tools.consumer.ConsoleConsumerOptions`.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_ISOLATIONS: Final = ("read_committed", "read_uncommitted")
_CALLBACKS: Final = ("error_cb", "stats_cb", "throttle_cb", "on_commit", "oauth_cb", "logger")
_RESET: Final = "auto.offset.reset"


@dataclass(frozen=True)
class Options:
    """Options that settings can contradict.

    Attributes:
        from_beginning: whether a group without offsets begins at the first record.
    """

    bootstrap_server: str | None
    group: str | None
    isolation: str | None
    from_beginning: bool
    partition: int | None


def consumer_settings(
    options: Options, file: Mapping[str, str], given: Mapping[str, str], problems: list[str]
) -> dict[str, Any]:
    """Return librdkafka's settings.

    Args:
        options: of the command line; they are stronger than settings.
        file: settings of `--consumer.config`.
        given: settings of `--consumer-property`, stronger than the file.
        problems: one sentence is appended for each mistake.
    """
    settings: dict[str, Any] = {"client.id": "console-consumer", **file, **given}
    problems += [f"{name}: a command line has no callbacks" for name in _CALLBACKS if name in settings]
    groups = {*filter(lambda group: group is not None, (options.group, file.get("group.id"), given.get("group.id")))}
    if len(groups) > 1:
        problems.append(f"the groups differ: {', '.join(sorted(map(repr, groups)))}; give one")
    if "" in groups:
        problems.append("group.id is empty")
    if groups and options.partition is not None:
        problems.append("--partition and a group: give one of the two")
    if options.from_beginning and settings.get(_RESET, "earliest") not in {"earliest", "smallest", "beginning"}:
        problems.append(f"--from-beginning and {_RESET}={settings[_RESET]}: give one of the two")
    isolation = options.isolation or settings.get("isolation.level", "read_uncommitted")
    if isolation not in _ISOLATIONS:
        problems.append(f"isolation level {isolation}: accepted are {', '.join(_ISOLATIONS)}")
    settings["isolation.level"] = isolation
    settings.setdefault(_RESET, "earliest" if options.from_beginning else "latest")
    settings["bootstrap.servers"] = options.bootstrap_server or settings.get("bootstrap.servers", "")
    if groups:
        settings["group.id"] = groups.pop()
    else:
        settings["group.id"] = f"tsctl-consume-{secrets.token_hex(4)}"
        settings.setdefault("enable.auto.commit", "false")  # nothing uses the offsets of such a group again
    return settings


def pairs_of(option: str, given: Sequence[str] | None, problems: list[str]) -> dict[str, str]:
    """Return the settings of an option that may be repeated, each `KEY=VALUE`; append mistakes to `problems`."""
    pairs = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign:
            problems.append(f"{option} {text}: KEY=VALUE is expected")
        pairs[name] = value
    return pairs


def settings_of(option: str, file: Path | None, problems: list[str]) -> dict[str, str]:
    """Return the settings of a properties file; append mistakes to `problems`."""
    if file is None:
        return {}
    import javaproperties  # noqa: PLC0415  (only with a file)

    try:
        return dict(javaproperties.loads(file.read_text()))
    except (OSError, ValueError) as error:
        problems.append(f"{option} {file}: {error}")
        return {}
