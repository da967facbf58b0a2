"""A consumer's configuration: our keys, those of the store, and librdkafka's, which keep their names.

=================================== ===================================================================================
`tiered.storage.mode`               a `Mode`; `KAFKA_PREFERRED` without it
`kafka.cluster.id`                  the cluster's part of the archive's keys
`storage.service.endpoint...`       where the archive is, as in the agents' `<clusterId>.properties`
`tiered.storage.config`             path of that file, instead of the two above
`tiered.storage.on.gap`             `wait`, `error` or `skip`: the archive ends below Kafka's log start
`tiered.storage.on.hole`            `error` or `pass`: offsets that the archive lost
`tiered.storage.max.buffered.bytes` of records that were read ahead from the archive
`tiered.storage.max.batch.bytes`    of memory that one record batch of the archive may use
`tiered.storage.refresh.ms`         between two looks at a partition of the archive, where a consumer waits for it
`tiered.storage.report.after.ms`    an error that may pass becomes an event after this time
=================================== ===================================================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from ts_common.archive.object_keys import MAX_ENTROPY_BITS
from ts_common.config.keys import ENTROPY_BITS_KEY
from ts_common.endpoints.provider import PROVIDER_KEY, EndpointProvider, open_provider
from ts_common.errors import ConfigurationError
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.model import is_cluster_id
from ts_common.store.options import Endpoint
from ts_common.suggestions import nearest
from ts_consumer.modes import Mode
from ts_reader.reading.cluster_file import SUFFIX, for_reading, read_cluster_file

MODE_KEY: Final = "tiered.storage.mode"
CLUSTER_KEY: Final = "kafka.cluster.id"
CONFIG_KEY: Final = "tiered.storage.config"
GAP_KEY: Final = "tiered.storage.on.gap"
HOLE_KEY: Final = "tiered.storage.on.hole"
BYTES_KEY: Final = "tiered.storage.max.buffered.bytes"
BATCH_KEY: Final = "tiered.storage.max.batch.bytes"
REFRESH_KEY: Final = "tiered.storage.refresh.ms"
REPORT_KEY: Final = "tiered.storage.report.after.ms"
_OWN: Final = (
    MODE_KEY,
    CLUSTER_KEY,
    CONFIG_KEY,
    GAP_KEY,
    HOLE_KEY,
    BYTES_KEY,
    BATCH_KEY,
    REFRESH_KEY,
    REPORT_KEY,
    ENTROPY_BITS_KEY,
)
_PREFIX: Final = "tiered.storage."
_STORE_PREFIX: Final = "storage.service."
_SOURCE: Final = "configuration of TieredConsumer"
_LEAST_BYTES: Final = 1 << 20
_BYTES: Final = 32 << 20
_MOST_BYTES: Final = 1 << 40
_DIGITS: Final = 20
_REFRESH_MS: Final = 5000
_REPORT_MS: Final = 30_000
_LEAST_REFRESH_MS, _MOST_MS = 100, 3_600_000
E = TypeVar("E", bound=StrEnum)
_TRUE: Final = frozenset({"true", "t", "1"})  # as librdkafka parses it
_FALSE: Final = frozenset({"false", "f", "0"})
_RESETS: Final = {  # librdkafka's values of auto.offset.reset
    "smallest": "earliest",
    "earliest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "latest": "latest",
    "end": "latest",
    "error": "error",
}


class OnGap(StrEnum):
    """What a partition does whose archive ends below Kafka's log start."""

    WAIT = "wait"  # for the next commit of an agent
    ERROR = "error"  # an error of the partition, which stays there
    SKIP = "skip"  # continue at Kafka's log start, logged and counted


class OnHole(StrEnum):
    """What a partition does at offsets that the archive lost."""

    ERROR = "error"
    PASS = "pass"  # noqa: S105  # continue behind them, logged and counted


@dataclass(frozen=True)
class Configuration:
    """A consumer's configuration, validated.

    Attributes:
        mode: which tier is read.
        live: librdkafka's configuration, as the user has it.
        cluster: the cluster's id; empty in `KAFKA_ONLY`, like the next two.
        entropy_bits: of the archive's keys; None: as its layout has it.
        provider: of the topics' locations; None in `KAFKA_ONLY`.
        on_gap: see `OnGap`.
        on_hole: see `OnHole`.
        buffered_bytes: the limit of what is read ahead.
        batch_bytes: of memory that one record batch may use.
        refresh_seconds: between two looks at a partition that waits for the archive.
        report_seconds: how long an error that may pass is only logged.
        reset: what happens without an offset: "earliest", "latest" or "error".
        stores_offsets: whether a record's offset is stored for the next commit when the application gets the record.
        commits: whether stored offsets are committed without a call of the application.
        read_committed: whether aborted transactions are hidden.
    """

    mode: Mode
    live: Mapping[str, Any]
    cluster: str
    entropy_bits: int | None
    provider: EndpointProvider | None
    on_gap: OnGap
    on_hole: OnHole
    buffered_bytes: int
    batch_bytes: int
    refresh_seconds: float
    report_seconds: float
    reset: str
    stores_offsets: bool
    commits: bool
    read_committed: bool

    def endpoint(self, topic: str) -> Endpoint:
        """Return the location of a topic and the connection to it.

        Raises:
            ConfigurationError: the topic has no location.
        """
        if self.provider is None:
            raise ConfigurationError(_SOURCE, [f"topic {topic} has no location"])
        return for_reading(self.provider.endpoint(topic))

    def endpoints(self) -> frozenset[Endpoint]:
        """Return every endpoint that `endpoint` can return."""
        return frozenset() if self.provider is None else frozenset(map(for_reading, self.provider.endpoints()))

    @property
    def live_part(self) -> dict[str, Any]:
        """The configuration of the live part. It decides nothing about offsets: this package does.

        librdkafka would continue at the log's start, with a line in the log only, where `auto.offset.reset` is
        `earliest` and retention passed the position. It refuses stored offsets where it stores them itself.
        """
        return {**self.live, "auto.offset.reset": "error", "enable.auto.offset.store": False}

    @property
    def is_eager(self) -> bool:
        """Whether the group gives up all partitions at each rebalance. librdkafka refuses a mix of strategies."""
        if str(self.live.get("group.protocol", "classic")).lower() == "consumer":
            return False
        return "cooperative" not in str(self.live.get("partition.assignment.strategy", "range"))


def parse_configuration(given: Mapping[str, Any]) -> Configuration:
    """Return a configuration.

    Args:
        given: keys and values, as the application has them.

    Raises:
        ConfigurationError: with every problem of our keys. librdkafka checks its own when the consumer is made.
    """
    ours = {key: value for key, value in given.items() if _is_ours(key)}
    live = {key: value for key, value in given.items() if key not in ours}
    texts = {key: str(value) for key, value in ours.items()}
    unknown = [key for key in texts if key.startswith(_PREFIX) and key not in _OWN]
    problems = [f"{key} is unknown{nearest(key, _OWN)}" for key in unknown]
    problems += [f"{key!r}: its value is no Unicode text" for key, value in given.items() if not is_text(key, value)]
    mode = _one_of(Mode, MODE_KEY, texts.get(MODE_KEY, Mode.KAFKA_PREFERRED).upper(), problems)
    is_plain = mode is Mode.KAFKA_ONLY
    cluster, bits, provider = ("", None, None) if is_plain else _place(texts, problems)
    buffered = _number(BYTES_KEY, texts.get(BYTES_KEY, str(_BYTES)), _LEAST_BYTES, _MOST_BYTES, problems)
    batch = _number(BATCH_KEY, texts.get(BATCH_KEY, str(MAX_BATCH_BYTES)), _LEAST_BYTES, _MOST_BYTES, problems)
    refresh = _number(REFRESH_KEY, texts.get(REFRESH_KEY, str(_REFRESH_MS)), _LEAST_REFRESH_MS, _MOST_MS, problems)
    report = _number(REPORT_KEY, texts.get(REPORT_KEY, str(_REPORT_MS)), 0, _MOST_MS, problems)
    on_gap = _one_of(OnGap, GAP_KEY, texts.get(GAP_KEY, OnGap.WAIT).lower(), problems)
    on_hole = _one_of(OnHole, HOLE_KEY, texts.get(HOLE_KEY, OnHole.ERROR).lower(), problems)
    reset = _reset(live, problems)
    stores = _truth(live, "enable.auto.offset.store", True, problems)
    commits = _truth(live, "enable.auto.commit", True, problems)
    committed = str(live.get("isolation.level", "read_committed")).lower() == "read_committed"
    if problems or mode is None or on_gap is None or on_hole is None:
        raise ConfigurationError(_SOURCE, problems)
    return Configuration(
        mode=mode,
        live=live,
        cluster=cluster,
        entropy_bits=bits,
        provider=provider,
        on_gap=on_gap,
        on_hole=on_hole,
        buffered_bytes=buffered,
        batch_bytes=batch,
        refresh_seconds=refresh / 1000,
        report_seconds=report / 1000,
        reset=reset,
        stores_offsets=stores,
        commits=commits,
        read_committed=committed,
    )


def is_text(*values: Any) -> bool:
    """Return whether all texts of some values can be encoded: the binding ends the process at one that cannot."""
    try:
        for value in values:
            if isinstance(value, str):
                value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_ours(key: str) -> bool:
    return key.startswith((_PREFIX, _STORE_PREFIX)) or key in _OWN


def _place(texts: Mapping[str, str], problems: list[str]) -> tuple[str, int | None, EndpointProvider | None]:
    """Return the cluster, its entropy bits, and the provider of locations."""
    if CONFIG_KEY in texts:
        if both := [key for key in texts if key in {CLUSTER_KEY, ENTROPY_BITS_KEY} or key.startswith(_STORE_PREFIX)]:
            problems.append(f"{CONFIG_KEY} sets {', '.join(both)} too: give one of the two")
        return _place_of_file(Path(texts[CONFIG_KEY]), problems)
    cluster = texts.get(CLUSTER_KEY, "")
    if not is_cluster_id(cluster):
        found = f"{CLUSTER_KEY}={cluster}" if cluster else f"{CLUSTER_KEY} is missing"
        problems.append(f"{found}: the cluster's part of the archive's keys is expected, or {CONFIG_KEY}")
        return cluster, None, None
    bits = None
    if ENTROPY_BITS_KEY in texts:
        bits = _number(ENTROPY_BITS_KEY, texts[ENTROPY_BITS_KEY], 0, MAX_ENTROPY_BITS, problems)
    try:
        provider = open_provider(texts.get(PROVIDER_KEY), cluster, Path(), texts)
    except ConfigurationError as error:
        problems += error.problems
        return cluster, bits, None
    return cluster, bits, provider


def _place_of_file(path: Path, problems: list[str]) -> tuple[str, int | None, EndpointProvider | None]:
    if path.suffix != SUFFIX or not is_cluster_id(path.stem):
        problems.append(f"{CONFIG_KEY}={path}: a file named <clusterId>{SUFFIX} is expected")
        return "", None, None
    try:
        file = read_cluster_file(path)
    except ConfigurationError as error:
        problems += [f"{path}: {problem}" for problem in error.problems]
        return "", None, None
    return path.stem, file.keys.entropy_bits, file.provider


def _reset(live: Mapping[str, Any], problems: list[str]) -> str:
    given = str(live.get("auto.offset.reset", "largest"))
    if given not in _RESETS:
        problems.append(f"auto.offset.reset={given}: one of {', '.join(_RESETS)} is expected")
    return _RESETS.get(given, "error")


def _truth(live: Mapping[str, Any], key: str, default: bool, problems: list[str]) -> bool:
    given = str(live.get(key, default)).lower()
    if given not in _TRUE | _FALSE:
        problems.append(f"{key}={given}: true or false is expected")
    return given in _TRUE


def _one_of(kind: type[E], key: str, given: str, problems: list[str]) -> E | None:
    try:
        return kind(given)
    except ValueError:
        problems.append(f"{key}={given}: one of {', '.join(kind)} is expected")
        return None


def _number(key: str, given: str, least: int, most: int, problems: list[str]) -> int:
    number = int(given) if given.isascii() and given.isdigit() and len(given) < _DIGITS else least - 1
    if not least <= number <= most:
        problems.append(f"{key}={given}: a whole number from {least} to {most} is expected")
    return number
