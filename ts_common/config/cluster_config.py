"""A cluster's configuration: one properties file, `<clusterId>.properties`, described here once.

`ClusterConfig` is the description: it parses the file, rejects errors, and has the texts of the reference page
(`ts_common.config.config_page`). A file of the Java uploader is valid: a key that has a meaning here keeps it, and any
other key is accepted with a warning (`ts_common.config.java_keys`).
"""

import re
from collections.abc import Container, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import javaproperties
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from ts_common.archive.object_keys import MAX_ENTROPY_BITS
from ts_common.config import zookeeper_options
from ts_common.config.java_keys import find_java_key, is_of_collection
from ts_common.config.keys import ENTROPY_BITS_KEY, STUCK_AFTER_MS
from ts_common.config.setting_types import UPPER_CASE, HostNames, IoClass, Leadership, Patterns, Reporter, TailGroups
from ts_common.errors import ConfigurationError
from ts_common.model import is_cluster_id
from ts_common.store.option_table import OPTIONS, options_of, parse_options
from ts_common.store.options import PREFIX
from ts_common.suggestions import nearest
from ts_common.wording import some

KAFKA_CLIENT: Final = "ts.segment.uploader.kafka.client."
REPORTER: Final = "metrics.reporter."
TAIL_GROUP: Final = "ts.segment.uploader.tail.group."
ALLOWED_HOSTS_KEY: Final = "ts.segment.uploader.http.allowed.hosts"
_UNIT: Final = "unit"  # in a field's `json_schema_extra`: the unit of a number
_MILLISECONDS: Final = 1000
_CHANGEABLE: Final[dict[str, JsonValue]] = {"changeable": True}  # in `json_schema_extra`, see `is_changeable`


class OffsetReset(StrEnum):
    """Where an archive without a commit begins."""

    EARLIEST = "EARLIEST"
    LATEST = "LATEST"


class ClusterConfig(BaseModel):
    """The validated settings of one cluster. The reference page contains the descriptions of the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topics_include: Patterns = Field(
        (re.compile(".*"),),
        alias="ts.segment.uploader.kafka.topics.include",
        description="Comma-separated regular expressions. A topic is shipped if one of them matches its whole name.",
        json_schema_extra=_CHANGEABLE,
    )
    topics_exclude: Patterns = Field(
        (),
        alias="ts.segment.uploader.kafka.topics.exclude",
        description="Comma-separated regular expressions. A topic that one of them matches is not shipped, even "
        "if it is included.",
        json_schema_extra=_CHANGEABLE,
    )
    offset_reset: Annotated[OffsetReset, UPPER_CASE] = Field(
        OffsetReset.EARLIEST,
        alias="ts.segment.uploader.offset.reset.strategy",
        description="Where a partition without a commit starts: EARLIEST, its lowest segment; LATEST, its "
        "active segment. The agent writes it once, as `log.start`.",
    )
    upload_threads: int = Field(
        3,
        ge=1,
        le=64,
        alias="ts.segment.uploader.upload.thread.count",
        description="Number of parallel uploads.",
    )
    upload_timeout_ms: int = Field(
        60_000,
        ge=100,
        alias="ts.segment.uploader.upload.timeout.ms",
        description="Milliseconds without progress after which the agent aborts and retries an upload.",
        json_schema_extra={_UNIT: "ms"},
    )
    upload_max_bytes_per_second: int | None = Field(
        None,
        ge=1024,
        alias="ts.segment.uploader.upload.max.bytes.per.second",
        description="Limit of all uploads of the agent together, in bytes per second. Default: no limit.",
        json_schema_extra={**_CHANGEABLE, _UNIT: "bytes/s"},
    )
    nice: int = Field(
        10,
        ge=0,
        le=19,
        alias="ts.segment.uploader.nice",
        description="Nice value that the agent sets at its start, so that the broker has priority. Never "
        "lower than the value it is started with.",
    )
    ionice: IoClass = Field(
        "best-effort:7",
        alias="ts.segment.uploader.ionice.class",
        description="I/O scheduling class that the agent sets at its start: best-effort:0 to best-effort:7 "
        "(lowest), idle, or none (unchanged). With idle, shipping may never catch up next to a "
        "busy broker. Never a higher priority than the one it is started with.",
    )
    entropy_bits: int = Field(
        -1,
        le=MAX_ENTROPY_BITS,
        alias=ENTROPY_BITS_KEY,
        description="Number of MD5 bits at the start of each key, to spread the load of a bucket. Below 1: none.",
    )
    leadership: Leadership = Field(
        None,
        alias="ts.segment.uploader.leadership.watcher.class",
        description="Source of leadership: zookeeper, kraft, or module:Class. Default: from the broker's file.",
    )
    leadership_poll_seconds: float | None = Field(
        None,
        gt=0,
        alias="ts.segment.uploader.leadership.watcher.poll.interval.seconds",
        description="Seconds between full reads of leadership. Default: 600 from ZooKeeper, whose watches report "
        "each change at once, and 60 from another source.",
        json_schema_extra={_UNIT: "s"},
    )
    kafka_client: dict[str, str] = Field(
        {},
        repr=False,  # passwords
        alias="ts.segment.uploader.kafka.client.*",
        description="Settings of the connection to the broker, by librdkafka's names, if the broker's file does not "
        "suffice: for leadership with kraft, for metadata snapshots and for live tails.",
    )
    metadata_snapshots: bool = Field(
        True,
        alias="ts.segment.uploader.metadata.snapshots",
        description="Whether the agent writes metadata snapshots: topics, configurations, quotas, ACLs, users "
        "without secrets, and offsets of consumer groups.",
    )
    tail_interval_ms: int = Field(
        0,
        ge=0,
        le=60_000,
        alias="ts.segment.uploader.tail.interval.ms",
        description="Milliseconds between two packs of the live tail: records are visible that long after their "
        "acknowledgement, plus a put. 0: no live tail. Switch it on once each agent of the cluster has this release.",
        json_schema_extra={_UNIT: "ms"},
    )
    tail_topics_include: Patterns = Field(
        (re.compile(".*"),),
        alias="ts.segment.uploader.tail.topics.include",
        description="Comma-separated regular expressions: the shipped topics that have a live tail.",
        json_schema_extra=_CHANGEABLE,
    )
    tail_topics_exclude: Patterns = Field(
        (),
        alias="ts.segment.uploader.tail.topics.exclude",
        description="Comma-separated regular expressions: topics without a live tail, even if included.",
        json_schema_extra=_CHANGEABLE,
    )
    tail_groups: TailGroups = Field(
        {},
        alias="ts.segment.uploader.tail.group.*",
        description="`tail.group.<name>=` comma-separated regular expressions: their topics share no pack with others, "
        "so that an identity can be given this group's packs alone. The first name in byte order wins.",
    )
    tail_max_bytes_per_second: int | None = Field(
        None,
        ge=1024,
        alias="ts.segment.uploader.tail.max.bytes.per.second",
        description="Limit of the live tail's packs, in bytes per second. At the limit, readers see an earlier end. "
        "Default: the limit of all uploads.",
        json_schema_extra={**_CHANGEABLE, _UNIT: "bytes/s"},
    )
    # By the names in `ts_common.config.zookeeper_options`; it can contain passwords, hence no repr.
    zookeeper: dict[str, str] = Field(default_factory=dict, repr=False)
    endpoint_provider: str | None = Field(
        None,
        alias="storage.service.endpoint.provider.class",
        description="Provider of each topic's location: url (the default), json, or your class as module:Class.",
    )
    endpoint_url: str | None = Field(
        None,
        alias="storage.service.endpoint.url",
        description="With the provider url: the location of all topics, s3://bucket/base/prefix, gs://, az://, "
        "webhdfs:// or file:///.",
    )
    endpoint_json_path: str | None = Field(
        None,
        alias="storage.service.endpoint.json.path",
        description="With the provider json: its file. Default: <clusterId>.endpoints.json in the directory of "
        "this file.",
    )

    conditional_writes: bool = Field(
        True,
        alias="storage.service.conditional.writes",
        description="false for a store without conditional writes: two agents that both act as leader of a "
        "partition can then overwrite each other's commits in silence.",
    )
    http_allowed_hosts: HostNames = Field(
        (),
        alias=ALLOWED_HOSTS_KEY,
        description="Comma-separated host names of the status pages, in addition to IP addresses, localhost "
        "and this host's names; `.example.com` matches every name below it. Add the names of "
        "proxies and DNS aliases. `/metrics`, `/healthz` and `/readyz` accept any name.",
        json_schema_extra=_CHANGEABLE,
    )
    stuck_after_ms: int = Field(
        STUCK_AFTER_MS,
        ge=1000,
        alias="ts.segment.uploader.stuck.after.ms",
        description="Milliseconds without a commit after which a partition with closed segments is stuck. "
        "Metrics, log and status page then have the reason.",
        json_schema_extra={**_CHANGEABLE, _UNIT: "ms"},
    )
    metrics_partitions: bool = Field(
        False,
        alias="metrics.partitions",
        description="Whether `/metrics` and reporters have nine series for each partition "
        "(`ts_uploader_partition_*`). The alerts need only the agent's sums, counts and worst "
        "values, which are always there.",
        json_schema_extra=_CHANGEABLE,
    )
    reporter: Reporter = Field(
        None,
        alias="metrics.reporter.class",
        description="Reporter that sends metrics to a server: graphite, statsd, or your class as "
        "module:Class. Default: none. `/metrics` is always served.",
    )
    reporter_host: str = Field(
        "127.0.0.1", min_length=1, alias="metrics.reporter.host", description="Server of the reporter."
    )
    reporter_port: int | None = Field(
        None,
        ge=1,
        le=65_535,
        alias="metrics.reporter.port",
        description="Port of that server. Default: 2003 for graphite, 8125 for statsd.",
    )
    reporter_interval_seconds: float = Field(
        60.0, ge=1, le=86_400, alias="metrics.reporter.interval.seconds", description="Seconds between two reports."
    )
    reporter_prefix: str | None = Field(
        None,
        alias="metrics.reporter.prefix",
        description="Prefix of each name. Default: `<clusterId>.<broker id>`. Empty: no prefix.",
    )
    reporter_tags: bool = Field(
        False,
        alias="metrics.reporter.tags",
        description="Whether labels are sent as tags (Graphite 1.1, DogStatsD) instead of parts of the name.",
    )
    reporter_options: dict[str, str] = Field(
        {},
        repr=False,  # it can contain a token
        alias="metrics.reporter.*",
        description="Other keys, for your class; it gets them without `metrics.reporter.`.",
    )
    # By key; `ts_common.store.option_table` describes them. It can contain a proxy's password, hence no repr.
    storage: dict[str, str] = Field(default_factory=dict, repr=False)
    # By key: the Java uploader's collection of old segments. The agent ignores it, `tsctl gc` makes a policy of it.
    java_collection: dict[str, str] = Field(default_factory=dict)

    @property
    def upload_timeout_seconds(self) -> float:
        """`upload_timeout_ms` in seconds."""
        return self.upload_timeout_ms / _MILLISECONDS

    @property
    def stuck_after_seconds(self) -> float:
        """`stuck_after_ms` in seconds."""
        return self.stuck_after_ms / _MILLISECONDS

    @property
    def endpoint_properties(self) -> dict[str, str]:
        """The keys of the file that locate and configure stores, with their values."""
        located = {
            "storage.service.endpoint.url": self.endpoint_url,
            "storage.service.endpoint.json.path": self.endpoint_json_path,
        }
        return {key: value for key, value in located.items() if value is not None} | self.storage

    def ships(self, topic: str) -> bool:
        """Return whether the agent ships a topic: it is included and not excluded."""
        return _selects(self.topics_include, self.topics_exclude, topic)

    def tails(self, topic: str) -> bool:
        """Return whether the agent ships a live tail of a topic."""
        is_on = bool(self.tail_interval_ms) and self.ships(topic)
        return is_on and _selects(self.tail_topics_include, self.tail_topics_exclude, topic)

    def tail_group(self, topic: str) -> str | None:
        """Return the group whose packs a topic's live tail shares; None without a group."""
        return next((name for name, some in self.tail_groups.items() if any(p.fullmatch(topic) for p in some)), None)


def _selects(include: Patterns, exclude: Patterns, topic: str) -> bool:
    return any(p.fullmatch(topic) for p in include) and not any(p.fullmatch(topic) for p in exclude)


KEYS: Final[Mapping[str, str]] = {info.alias: name for name, info in ClusterConfig.model_fields.items() if info.alias}
_ALL_KEYS: Final = (
    *KEYS,
    *(PREFIX + option.name for option in OPTIONS),
    *(zookeeper_options.PREFIX + name for name in sorted(zookeeper_options.NAMES)),
)


def is_changeable(name: str) -> bool:
    """Return whether a field of `ClusterConfig` is applied on SIGHUP, without a restart of the agent."""
    return bool(_extra_of(name).get("changeable"))


def unit_of(name: str) -> str:
    """Return the unit of a field of `ClusterConfig`, such as `ms`; empty if it has none."""
    return str(_extra_of(name).get(_UNIT, ""))


def _extra_of(name: str) -> dict[str, JsonValue]:
    extra = ClusterConfig.model_fields[name].json_schema_extra
    return extra if isinstance(extra, dict) else {}


def load_config(path: Path, choice: str = "") -> tuple[ClusterConfig, tuple[str, ...]]:
    """Read a cluster's properties file.

    Args:
        choice: for a missing file whose directory has others, how the caller chooses one; `{}` is its cluster's id.

    Returns:
        the configuration, and a warning for each key that is accepted and has no effect on the agent.

    Raises:
        ConfigurationError: the file is missing, unreadable or invalid; the message lists all problems.
    """
    try:
        text = path.read_text(encoding="iso-8859-1")  # Java reads properties in this encoding
    except FileNotFoundError:
        raise ConfigurationError(str(path), [_missing(path, choice)]) from None
    except OSError as error:
        raise ConfigurationError(str(path), [f"cannot read the file: {error}"]) from error
    try:
        properties = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigurationError(str(path), [f"invalid properties file: {error}"]) from error
    return parse_config(properties, str(path))


def _missing(path: Path, choice: str) -> str:
    message = "there is no such file; each cluster has one, named <clusterId>.properties"
    others = sorted(file.stem for file in path.parent.glob(f"*{path.suffix}") if is_cluster_id(file.stem))
    if not others:
        return message
    message += f"; the directory has {some(f'{name}{path.suffix}' for name in others)}"
    return message + (f": {choice.format(others[0] if len(others) == 1 else 'NAME')}" if choice else "")


def parse_config(properties: Mapping[str, str], source: str) -> tuple[ClusterConfig, tuple[str, ...]]:
    """Validate the content of a cluster's file; see `load_config`.

    Args:
        properties: the content, by key.
        source: the file's name in messages.

    Raises:
        ConfigurationError: the content is invalid; the message lists all problems.
    """
    problems: list[str] = []
    warnings: list[str] = []
    storage = {key: value.strip() for key, value in properties.items() if key.startswith(PREFIX)}
    parse_options(options_of(storage), PREFIX, problems)
    zookeeper = zookeeper_options.options_of(properties, problems)
    collection = {key: value.strip() for key, value in properties.items() if is_of_collection(key)}
    known = _known(properties, storage, problems, warnings)
    config = None
    try:
        config = ClusterConfig.model_validate(
            {**known, "storage": storage, "zookeeper": zookeeper, "java_collection": collection}
        )
    except ValidationError as error:
        for problem in error.errors():
            key = str(problem["loc"][0])
            message = problem["msg"].removeprefix("Value error, ")
            problems.append(f"{key}={known.get(key, '')}: {message[0].lower()}{message[1:]}")
    if config is not None and config.tail_interval_ms and not config.conditional_writes:
        problems.append(
            "ts.segment.uploader.tail.interval.ms: a live tail needs conditional writes; remove it, or "
            "storage.service.conditional.writes=false"
        )
    if config is None or problems:
        raise ConfigurationError(source, sorted(problems))
    return config, tuple(warnings)


def _known(
    properties: Mapping[str, str], storage: Container[str], problems: list[str], warnings: list[str]
) -> dict[str, Any]:
    """Return the values of the agent's keys, with those of a reporter and of Kafka's client by name.

    Args:
        storage: the keys of options of stores, which are checked elsewhere.
        problems: receives unknown keys.
        warnings: receives keys of the Java uploader that have no effect.
    """
    known: dict[str, Any] = {}
    for key, untrimmed in properties.items():
        value = untrimmed.strip()
        if key == f"{REPORTER}class" and (java_class := find_java_key(f"{key}={value}")) is not None:
            warnings.append(f"{key} has no effect on the agent: {java_class.reason}")
        elif key.startswith(REPORTER) and key not in KEYS and ":" in properties.get(f"{REPORTER}class", ""):
            known.setdefault(REPORTER + "*", {})[key.removeprefix(REPORTER)] = value
        elif key.startswith(KAFKA_CLIENT):
            known.setdefault(KAFKA_CLIENT + "*", {})[key.removeprefix(KAFKA_CLIENT)] = value
        elif key.startswith(TAIL_GROUP):
            known.setdefault(TAIL_GROUP + "*", {})[key.removeprefix(TAIL_GROUP)] = value
        elif key in KEYS:
            known[key] = value
        elif key in storage or key.startswith(zookeeper_options.PREFIX):
            continue
        elif (java_key := find_java_key(key)) is None:
            problems.append(f"{key}: unknown key{nearest(key, _ALL_KEYS)}")
        elif java_key.accepts(value):
            warnings.append(f"{key} has no effect on the agent: {java_key.reason}")
        else:
            problems.append(f"{key}={value}: this class is unsupported; remove the key: {java_key.reason}")
    return known
