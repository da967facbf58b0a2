"""A consumer's configuration: our keys, those of the store, and librdkafka's, which keep their names.

=================================== ===================================================================================
`tiered.storage.mode`               a `TierMode`; `KAFKA_PREFERRED` without it
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
from typing import Any, Final

from ts_common.config.keys import ENTROPY_BITS_KEY
from ts_common.endpoints.provider import PROVIDER_KEY, EndpointProvider, open_provider
from ts_common.errors import ConfigurationError
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.store.options import Endpoint
from ts_common.suggestions import nearest
from ts_consumer.modes import TierMode
from ts_reader.options.given import Given, Option
from ts_reader.options.scan_options import CLUSTER_ID, CONFIG, ENTROPY_BITS
from ts_reader.options.value_types import member_of, one_of, whole
from ts_reader.query.query import OnHole, Wording
from ts_reader.reading.cluster_file import for_reading, read_cluster_file

MODE_KEY: Final = "tiered.storage.mode"
CLUSTER_KEY: Final = "kafka.cluster.id"
CONFIG_KEY: Final = "tiered.storage.config"
GAP_KEY: Final = "tiered.storage.on.gap"
HOLE_KEY: Final = "tiered.storage.on.hole"
BYTES_KEY: Final = "tiered.storage.max.buffered.bytes"
BATCH_KEY: Final = "tiered.storage.max.batch.bytes"
REFRESH_KEY: Final = "tiered.storage.refresh.ms"
REPORT_KEY: Final = "tiered.storage.report.after.ms"
_PREFIX: Final = "tiered.storage."
_STORE_PREFIX: Final = "storage.service."
_SOURCE: Final = "configuration of TieredConsumer"
CONSUMER: Final = Wording(
    names={
        CLUSTER_ID.name: CLUSTER_KEY,
        CONFIG.name: CONFIG_KEY,
        ENTROPY_BITS.name: ENTROPY_BITS_KEY,
        "max_batch_bytes": BATCH_KEY,
    },
    has_texts=True,
    despite_loss=f"To read what is left, set {HOLE_KEY}=pass",
    despite_corruption="Repair it from another replica: docs/runbook.md",
)


class OnGap(StrEnum):
    """What a partition does whose archive ends below Kafka's log start."""

    WAIT = "wait"  # for the next commit of an agent
    ERROR = "error"  # an error of the partition, which stays there
    SKIP = "skip"  # continue at Kafka's log start, logged and counted


_BYTES_RANGE: Final = (1 << 20, 1 << 40)
_MOST_MS: Final = 3_600_000
_TRUTH: Final = one_of({"true": True, "t": True, "1": True, "false": False, "f": False, "0": False})  # as librdkafka
_RESETS: Final = {  # librdkafka's values of auto.offset.reset
    "smallest": "earliest",
    "earliest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "latest": "latest",
    "end": "latest",
    "error": "error",
}
_MODE: Final = Option(MODE_KEY, member_of(TierMode), TierMode.KAFKA_PREFERRED)
_ON_GAP: Final = Option(GAP_KEY, member_of(OnGap), OnGap.WAIT)
_ON_HOLE: Final = Option(HOLE_KEY, one_of({"error": OnHole.FAIL, "pass": OnHole.PASS}), OnHole.FAIL)
_BUFFERED: Final = Option(BYTES_KEY, whole(*_BYTES_RANGE), 32 << 20)
_BATCH: Final = Option(BATCH_KEY, whole(*_BYTES_RANGE), MAX_BATCH_BYTES)
_REFRESH: Final = Option(REFRESH_KEY, whole(100, _MOST_MS), 5000)
_REPORT: Final = Option(REPORT_KEY, whole(0, _MOST_MS), 30_000)
_OPTIONS: Final = (_MODE, _ON_GAP, _ON_HOLE, _BUFFERED, _BATCH, _REFRESH, _REPORT)
_OWN: Final = (CLUSTER_KEY, CONFIG_KEY, ENTROPY_BITS_KEY, *(option.name for option in _OPTIONS))
_RESET: Final = Option("auto.offset.reset", one_of(_RESETS), "latest")
_STORES: Final = Option("enable.auto.offset.store", _TRUTH, True)
_COMMITS: Final = Option("enable.auto.commit", _TRUTH, True)


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

    mode: TierMode
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
    ours = {key: str(value) for key, value in given.items() if _is_ours(key)}
    live = {key: value for key, value in given.items() if key not in ours}
    aliases = {CLUSTER_KEY: CLUSTER_ID.name, CONFIG_KEY: CONFIG.name, ENTROPY_BITS_KEY: ENTROPY_BITS.name}
    texts = {aliases.get(key, key): str(value) for key, value in given.items()}
    options = Given(texts, _SOURCE, CONSUMER)
    unknown = [key for key in ours if key.startswith(_PREFIX) and key not in _OWN]
    options.problems += [f"{key} is unknown{nearest(key, _OWN)}" for key in unknown]
    options.problems += [
        f"{key!r}: its value is no Unicode text" for key, value in given.items() if not is_text(key, value)
    ]
    mode = options.read(_MODE)
    cluster, bits, provider = ("", None, None) if mode is TierMode.KAFKA_ONLY else _place(options, ours)
    found = Configuration(
        mode=mode,
        live=live,
        cluster=cluster,
        entropy_bits=bits,
        provider=provider,
        on_gap=options.read(_ON_GAP),
        on_hole=options.read(_ON_HOLE),
        buffered_bytes=options.read(_BUFFERED),
        batch_bytes=options.read(_BATCH),
        refresh_seconds=options.read(_REFRESH) / 1000,
        report_seconds=options.read(_REPORT) / 1000,
        reset=options.read(_RESET),
        stores_offsets=options.read(_STORES),
        commits=options.read(_COMMITS),
        read_committed=str(live.get("isolation.level", "read_committed")).lower() == "read_committed",
    )
    options.check()
    return found


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


def _place(options: Given, ours: Mapping[str, str]) -> tuple[str, int | None, EndpointProvider | None]:
    """Return the cluster, its entropy bits, and the provider of locations."""
    if CONFIG.name in options:
        if both := [key for key in ours if key in {CLUSTER_KEY, ENTROPY_BITS_KEY} or key.startswith(_STORE_PREFIX)]:
            options.problems.append(f"{CONFIG_KEY} sets {', '.join(both)} too: give one of the two")
        return _place_of_file(options.read(CONFIG), options.problems)
    if CLUSTER_ID.name not in options:
        options.problems.append(f"{CLUSTER_KEY} is missing: the cluster's part of the archive's keys, or {CONFIG_KEY}")
    if (cluster := options.read(CLUSTER_ID)) is None:
        return "", None, None
    try:
        provider = open_provider(ours.get(PROVIDER_KEY), cluster, Path(), ours)
    except ConfigurationError as error:
        options.problems += error.problems
        provider = None
    return cluster, options.read(ENTROPY_BITS), provider


def _place_of_file(path: Path | None, problems: list[str]) -> tuple[str, int | None, EndpointProvider | None]:
    if path is None:
        return "", None, None
    try:
        file = read_cluster_file(path)
    except ConfigurationError as error:
        problems += [f"{path}: {problem}" for problem in error.problems]
        return "", None, None
    return path.stem, file.keys.entropy_bits, file.provider
