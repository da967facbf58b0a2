"""A cluster's configuration: one properties file, `<clusterId>.properties`, described here once.

The description (`KEYS`) is what reads the file, refuses what is wrong in it, and writes the reference page
(`python -m ts_common.config.cluster_config`). A file written for the Java uploader is understood: keys that
have a meaning here keep it, keys that have none are accepted with a warning that says why.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import javaproperties
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from ts_common.archive.object_keys import MAX_ENTROPY_BITS
from ts_common.config import zookeeper_options
from ts_common.config.setting_types import UNIT, extra_of, type_of
from ts_common.errors import ConfigurationError
from ts_common.store.option_table import OPTIONS, options_of, parse_options
from ts_common.store.options import PREFIX
from ts_common.suggestions import nearest

_UPLOADER = "ts.segment.uploader."
KAFKA_CLIENT = _UPLOADER + "kafka.client."
REPORTERS = ("graphite", "statsd")
ENTROPY_BITS_KEY: Final = "ts.segment.uploader.s3.prefix.entropy.bits"
ALLOWED_HOSTS_KEY: Final = "ts.segment.uploader.http.allowed.hosts"
REPORTER = "metrics.reporter."
_MILLISECONDS = 1000
STUCK_AFTER_MS = 900_000  # by default

_CHANGEABLE: dict[str, JsonValue] = {"changeable": True}  # takes effect while the agent runs, see `is_changeable`

_JAVA_PACKAGE = "com.pinterest."
_JAVA_LEADERSHIP = {
    "com.pinterest.kafka.tieredstorage.uploader.leadership.ZookeeperLeadershipWatcher": "zookeeper",
    "com.pinterest.kafka.tieredstorage.uploader.leadership.KRaftLeadershipWatcher": "kraft",
}


class OffsetReset(StrEnum):
    """Where an archive without a commit begins."""

    EARLIEST = "EARLIEST"
    LATEST = "LATEST"


def _patterns(value: object) -> tuple[re.Pattern[str], ...]:
    patterns = []
    for text in str(value).split(","):
        if text.strip():
            try:
                patterns.append(re.compile(text.strip()))
            except re.error as error:
                raise ValueError(f"{text.strip()!r} is no regular expression: {error}") from error
    return tuple(patterns)


def _leadership(value: object) -> str | None:
    if value is None:
        return None
    name = _JAVA_LEADERSHIP.get(str(value), str(value))
    if name not in {"zookeeper", "kraft"} and not re.fullmatch(r"[\w.]+:\w+", name):
        raise ValueError(f"{value!r} is none of zookeeper, kraft, module:Class")
    return name


def _reporter(value: object) -> str | None:
    if value is None:
        return None
    if value not in REPORTERS and not re.fullmatch(r"[\w.]+:\w+", str(value)):
        raise ValueError(f"{value!r} is none of {', '.join(REPORTERS)}, module:Class")
    return str(value)


def _ionice(value: object) -> str:
    text = str(value).strip().lower()
    if not re.fullmatch(r"none|idle|best-effort:[0-7]", text):
        raise ValueError(f"{value!r} is none of idle, best-effort:0 to best-effort:7, none")
    return text


def _host_names(value: object) -> tuple[str, ...]:
    names = tuple(name for text in str(value).split(",") if (name := text.strip().lower().rstrip(".")))
    for name in names:
        if not re.fullmatch(r"\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*", name):
            raise ValueError(f"{name!r} is no host name; give names without a port, or .example.com for all below it")
    return names


def _upper(value: object) -> str:
    return str(value).strip().upper()


Patterns = Annotated[tuple[re.Pattern[str], ...], BeforeValidator(_patterns)]


class ClusterConfig(BaseModel):
    """One cluster's settings, validated. Field descriptions are the reference page's text."""

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
    offset_reset: Annotated[OffsetReset, BeforeValidator(_upper)] = Field(
        OffsetReset.EARLIEST,
        alias="ts.segment.uploader.offset.reset.strategy",
        description=(
            "Where a partition without a commit starts: EARLIEST, its lowest segment; LATEST, its "
            "active segment. The agent writes it once, as `log.start`."
        ),
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
        json_schema_extra={UNIT: "ms"},
    )
    upload_max_bytes_per_second: int | None = Field(
        None,
        ge=1024,
        alias="ts.segment.uploader.upload.max.bytes.per.second",
        description=("Limit of all uploads of the agent together, in bytes per second. Default: no limit."),
        json_schema_extra={**_CHANGEABLE, UNIT: "bytes/s"},
    )
    nice: int = Field(
        10,
        ge=0,
        le=19,
        alias="ts.segment.uploader.nice",
        description=(
            "Nice value that the agent sets at its start, so that the broker has priority. Never "
            "lower than the value it is started with."
        ),
    )
    ionice: Annotated[str, BeforeValidator(_ionice)] = Field(
        "best-effort:7",
        alias="ts.segment.uploader.ionice.class",
        description=(
            "I/O scheduling class that the agent sets at its start: best-effort:0 to best-effort:7 "
            "(lowest), idle, or none (unchanged). With idle, shipping may never catch up next to a "
            "busy broker. Never a higher priority than the one it is started with."
        ),
    )
    entropy_bits: int = Field(
        -1,
        le=MAX_ENTROPY_BITS,
        alias=ENTROPY_BITS_KEY,
        description="Number of MD5 bits at the start of each key, to spread the load of a bucket. Below 1: none.",
    )
    leadership: Annotated[str | None, BeforeValidator(_leadership)] = Field(
        None,
        alias="ts.segment.uploader.leadership.watcher.class",
        description=("Source of leadership: zookeeper, kraft, or module:Class. Default: from the broker's file."),
    )
    leadership_poll_seconds: float = Field(
        60.0,
        gt=0,
        alias="ts.segment.uploader.leadership.watcher.poll.interval.seconds",
        description="Seconds between full reads of leadership, in addition to the watches.",
        json_schema_extra={UNIT: "s"},
    )
    kafka_client: dict[str, str] = Field(
        {},
        repr=False,  # passwords
        alias="ts.segment.uploader.kafka.client.*",
        description=(
            "With kraft: settings of librdkafka, passed unchanged, if those of the broker's file are not enough."
        ),
    )
    # Below `ts_common.config.zookeeper_options.PREFIX`, by its names; passwords may be among them.
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
        description=(
            "false for a store without conditional writes: two agents that both act as leader of a "
            "partition can then overwrite each other's commits in silence."
        ),
    )
    http_allowed_hosts: Annotated[tuple[str, ...], BeforeValidator(_host_names)] = Field(
        (),
        alias=ALLOWED_HOSTS_KEY,
        description=(
            "Comma-separated host names of the status pages, in addition to IP addresses, localhost "
            "and this host's names; `.example.com` matches every name below it. Add the names of "
            "proxies and DNS aliases. `/metrics`, `/healthz` and `/readyz` accept any name."
        ),
        json_schema_extra=_CHANGEABLE,
    )
    stuck_after_ms: int = Field(
        STUCK_AFTER_MS,
        ge=1000,
        alias="ts.segment.uploader.stuck.after.ms",
        description=(
            "Milliseconds without a commit after which a partition with closed segments is stuck. "
            "Metrics, log and status page then have the reason."
        ),
        json_schema_extra={**_CHANGEABLE, UNIT: "ms"},
    )
    metrics_partitions: bool = Field(
        False,
        alias="metrics.partitions",
        description=(
            "Whether `/metrics` and reporters have nine series for each partition "
            "(`ts_uploader_partition_*`). The alerts need only the agent's sums, counts and worst "
            "values, which are always there."
        ),
        json_schema_extra=_CHANGEABLE,
    )
    reporter: Annotated[str | None, BeforeValidator(_reporter)] = Field(
        None,
        alias="metrics.reporter.class",
        description=(
            "Reporter that sends metrics to a server: graphite, statsd, or your class as "
            "module:Class. Default: none. `/metrics` is always served."
        ),
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
        repr=False,  # perhaps a token
        alias="metrics.reporter.*",
        description="Other keys, for your class; it gets them without `metrics.reporter.`.",
    )
    # Below `PREFIX`, as `ts_common.store.option_table` describes them; a proxy's password may be among them.
    storage: dict[str, str] = Field(default_factory=dict, repr=False)

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
        """What the file says of endpoints and of S3, by key."""
        said = {"storage.service.endpoint.url": self.endpoint_url}
        said["storage.service.endpoint.json.path"] = self.endpoint_json_path
        return {**{key: value for key, value in said.items() if value is not None}, **self.storage}

    def ships(self, topic: str) -> bool:
        """Whether a topic is shipped: included, and not excluded."""
        return any(p.fullmatch(topic) for p in self.topics_include) and not any(
            p.fullmatch(topic) for p in self.topics_exclude
        )


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A key of the Java uploader that has no meaning here.

    Attributes:
        pattern: of the key.
        reason: what the warning says.
        accepts: values that are accepted; None means all.
    """

    pattern: str
    reason: str
    accepts: Callable[[str], bool] = field(default=lambda _: True)


_COLLECTION = "remote retention is not built yet: nothing is deleted from the store"
JAVA_ONLY = (
    ForeignKey(_UPLOADER + "upload.max.retries", "the agent retries until the file is deleted"),
    ForeignKey(
        _UPLOADER + "segment.manager.class",
        _COLLECTION,
        lambda value: value.rpartition(".")[2] in {"S3SegmentManager", "NoOpSegmentManager", "NoOp", ""},
    ),
    ForeignKey(_UPLOADER + "segment.manager.gc.interval.seconds", _COLLECTION),
    ForeignKey(_UPLOADER + "segment.manager.gc.*.retention.seconds", _COLLECTION),
    ForeignKey(_UPLOADER + "segment.manager.gc.retention.seconds", _COLLECTION),
    ForeignKey(
        _UPLOADER + "dlq.*",
        "there is no dead-letter queue: the agent retries a segment that it cannot ship, and reports it",
    ),
    ForeignKey(
        f"{REPORTER}class={_JAVA_PACKAGE}*",
        f"the Java uploader's class; {', '.join(REPORTERS)} and module:Class are the ones here, and /metrics is served",
    ),
    ForeignKey("metrics.registry.manager.threadLocal", "the process has one metrics registry"),
)

KEYS: Mapping[str, str] = {info.alias: name for name, info in ClusterConfig.model_fields.items() if info.alias}
_ALL_KEYS = (
    *KEYS,
    *(PREFIX + option.name for option in OPTIONS),
    *(zookeeper_options.PREFIX + name for name in sorted(zookeeper_options.NAMES)),
)


def is_changeable(name: str) -> bool:
    """Whether a field of `ClusterConfig` takes effect when the file is read again (SIGHUP), without a restart."""
    return bool(extra_of(ClusterConfig.model_fields[name]).get("changeable"))


def load_config(path: Path) -> tuple[ClusterConfig, tuple[str, ...]]:
    """Read a cluster's properties file.

    Returns:
        the configuration, and a warning for each key that is accepted and has no effect.

    Raises:
        ConfigurationError: the file is not there, or anything in it is wrong; all problems at once.
    """
    try:
        text = path.read_text(encoding="iso-8859-1")  # as Java reads properties
    except FileNotFoundError:
        raise ConfigurationError(
            str(path), ["there is no such file; each cluster has one, named <clusterId>.properties"]
        ) from None
    except OSError as error:
        raise ConfigurationError(str(path), [f"it cannot be read: {error}"]) from error
    try:
        properties = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigurationError(str(path), [f"it is no properties file: {error}"]) from error
    return parse_config(properties, str(path))


def parse_config(properties: Mapping[str, str], source: str) -> tuple[ClusterConfig, tuple[str, ...]]:
    """As `load_config`, from what a file holds; `source` names it in messages."""
    problems: list[str] = []
    warnings: list[str] = []
    known: dict[str, Any] = {}
    storage = {key: value.strip() for key, value in properties.items() if key.startswith(PREFIX)}
    parse_options(options_of(storage), PREFIX, problems)
    zookeeper = zookeeper_options.options_of(properties, problems)
    for key, value in properties.items():
        if key == f"{REPORTER}class" and (java := _foreign(f"{key}={value.strip()}")) is not None:
            warnings.append(f"{key} has no effect: {java.reason}")
        elif key.startswith(REPORTER) and key not in KEYS and ":" in properties.get(f"{REPORTER}class", ""):
            known.setdefault(REPORTER + "*", {})[key.removeprefix(REPORTER)] = value.strip()
        elif key.startswith(KAFKA_CLIENT):
            known.setdefault(KAFKA_CLIENT + "*", {})[key.removeprefix(KAFKA_CLIENT)] = value.strip()
        elif key in KEYS:
            known[key] = value.strip()
        elif key in storage or key.startswith(zookeeper_options.PREFIX):
            continue
        elif (foreign := _foreign(key)) is not None:
            if foreign.accepts(value.strip()):
                warnings.append(f"{key} has no effect: {foreign.reason}")
            else:
                problems.append(f"{key}={value}: no such class here; remove the key: {foreign.reason}")
        else:
            problems.append(f"{key}: unknown key{nearest(key, _ALL_KEYS)}")
    config = None
    try:
        config = ClusterConfig.model_validate({**known, "storage": storage, "zookeeper": zookeeper})
    except ValidationError as error:
        for problem in error.errors():
            key = str(problem["loc"][0])
            message = problem["msg"].removeprefix("Value error, ")
            problems.append(f"{key}={known.get(key, '')}: {message[0].lower()}{message[1:]}")
    if config is None or problems:
        raise ConfigurationError(source, sorted(problems))
    return config, tuple(warnings)


def reference_page() -> str:
    """The configuration reference as Markdown, from the descriptions above."""
    lines = [
        "# Configuration of a cluster",
        "",
        "Generated from `ts_common/config/cluster_config.py`; `make docs` writes it anew.",
        "",
        "Each cluster has one file, `<clusterId>.properties`, in the form of Java properties.",
        "An unknown key is an error. Credentials of S3 come from the ordinary AWS chain, never from this file.",
        "On SIGHUP the agent reads the file again. Changeable keys take effect. The log lists other changes, which",
        "need a restart. A file with errors changes nothing.",
        "",
        "| key | type | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for name, info in ClusterConfig.model_fields.items():
        if info.alias is None:
            continue
        default = getattr(info.default, "value", info.default)
        if isinstance(default, bool):
            default = str(default).lower()
        if isinstance(default, tuple):
            default = ",".join(pattern.pattern for pattern in default)
        shown = f"`{default}`" if default or default == 0 else ""
        if name == "entropy_bits":
            shown = "none"
        changeable = " Changeable while the agent runs." if is_changeable(name) else ""
        lines.append(f"| `{info.alias}` | {type_of(info)} | {shown} | {info.description}{changeable} |")
    lines += [
        "",
        "These keys configure S3 requests and stored objects, for all topics. The file of the provider `json` can",
        "override them for an endpoint or a topic ([endpoints.md](endpoints.md)). Absent options are left to the AWS",
        "configuration and to the bucket. [store.md](store.md) lists how each option was tested.",
        "",
        "| key | meaning |",
        "| --- | --- |",
    ]
    lines += [f"| `{PREFIX}{option.name}` | {option.doc} |" for option in OPTIONS]
    lines += [
        "",
        "How the agent connects to ZooKeeper, where the broker's own file is not enough. A key with `ssl` replaces the",
        "setting `zookeeper.ssl.*` of that name in the broker's file. The files that keys name are read again for each",
        "connection, and the keys at the agent's start ([deploy.md](deploy.md#zookeeper-over-tls-and-sasl)).",
        "",
        "| key | meaning |",
        "| --- | --- |",
        *zookeeper_options.reference_rows(),
        "",
        "Keys of the Java uploader that are accepted with a warning:",
        "",
        "| key | why it has no effect |",
        "| --- | --- |",
    ]
    lines += [f"| `{key.pattern}` | {key.reason} |" for key in JAVA_ONLY]
    return "\n".join(lines) + "\n"


def _foreign(key: str) -> ForeignKey | None:
    for foreign in JAVA_ONLY:
        if re.fullmatch(re.escape(foreign.pattern).replace(r"\*", ".+"), key):
            return foreign
    return None


if __name__ == "__main__":
    print(reference_page(), end="")  # noqa: T201  (writing the page is this command's work)
