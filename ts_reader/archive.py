"""`Archive`: the entry of the Python API. It names an archive, lists its topics, and makes scans."""

import logging
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from os import PathLike
from typing import Any

import structlog

from ts_common.errors import QueryError
from ts_common.log_format.limits import MAX_BATCH_BYTES
from ts_common.logs import LogFormat, configure_structlog
from ts_common.store.contract import ObjectStore
from ts_common.store.options import Endpoint
from ts_common.store.shared_stores import shared_store
from ts_reader.arguments import (
    MEMORY_LIMIT,
    SOURCE,
    KeysArgument,
    Moment,
    OffsetsArgument,
    PartitionsArgument,
    TimestampArgument,
    TopicArgument,
    columns_of,
    cut_of,
    keys_of,
    query_of,
)
from ts_reader.decoding import CodecArgument, RegistryArgument, decoding_of, source_of
from ts_reader.options.given import Given
from ts_reader.options.scan_options import CORRUPT_COLUMN, WORKERS
from ts_reader.partition_info import PartitionInfo, partitions_of
from ts_reader.place import SOURCE as OF_ARCHIVE
from ts_reader.place import place_of_arguments, place_of_file
from ts_reader.planned_query import PlannedQuery, Warn
from ts_reader.query.query import PYTHON, Cut, Query, Wording, settled
from ts_reader.query.timestamps import time_text
from ts_reader.reading.topics import nothing_under, topic_names
from ts_reader.scan import Scan
from ts_reader.schemas.contract import Codec, Part


class Archive:
    """An archive of one Kafka cluster on object storage.

    It can be pickled, and used after a fork. It opens connections when it first needs them.

    Args:
        location: of the store, a URL: `s3://bucket/base/prefix`, `gs://`, `az://` or `file:///directory`.
        cluster: the cluster's id, its part of the keys.
        config: path of an agent's `<clusterId>.properties`, instead of location, cluster and entropy bits. Topics may
            then be in several locations.
        prefix_entropy_bits: of the keys; None reads it from the archive.
        storage_options: of the connection to S3: `endpoint_url`, `region`, `addressing_style`, `profile`, `role_arn`,
            `ca_bundle`, `proxy` and so on, as in `ts_common.store.options.Connection`; also `access_key_id`,
            `secret_access_key` and `session_token`. Without it, the SDK's environment applies.
        registry: of the schemas of keys and values: a URL, a `Registry` with credentials, or `topic:_schemas` for the
            topic of a registry that this archive has.
        workers: the number of processes that a large scan uses; None for the number of processors. With 1, all
            decoding is done in this process.
        wording: how messages name arguments, for a program with options of its own.
        warn: is called with each warning of a plan, each `Loss` that a scan allows, and once in each read with
            timestamps that do not fit their column; None: they are logged.

    Raises:
        ConfigurationError: with every problem of the arguments or the file.
    """

    def __init__(
        self,
        location: str | None = None,
        cluster: str | None = None,
        *,
        config: str | PathLike[str] | None = None,
        prefix_entropy_bits: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        registry: RegistryArgument = None,
        workers: int | None = None,
        wording: Wording = PYTHON,
        warn: Warn | None = None,
    ) -> None:
        values: dict[str, Any] = {
            "location": location,
            "cluster": cluster,
            "prefix_entropy_bits": prefix_entropy_bits,
            "storage_options": storage_options,
        }
        given = Given({**values, "workers": workers}, OF_ARCHIVE, wording)
        self._workers = given.read(WORKERS)
        if config is None:
            self._place = place_of_arguments(given)
        else:
            if several := [name for name, value in values.items() if value is not None]:
                given.problems.append(f"config sets {', '.join(several)} too: give one of the two")
            self._place = place_of_file(config, given)
        self._schemas = source_of(registry, self._place.query(self._place.endpoints[0]), given.problems)
        given.check()
        self._wording = wording
        self._warn = warn
        self._cut: Cut | None = None
        if not structlog.is_configured():  # its own default writes every event to standard output
            configure_structlog(LogFormat.TEXT, logging.WARNING)

    def __repr__(self) -> str:
        locations = ", ".join(endpoint.location for endpoint in self._place.endpoints)
        archive = f"Archive({locations!r}, cluster={self._place.cluster!r})"
        return archive if self._cut is None else f"{archive}.at({time_text(self._cut.milliseconds)!r})"

    @property
    def cluster(self) -> str:
        """The cluster's id."""
        return self._place.cluster

    @property
    def locations(self) -> tuple[str, ...]:
        """The URLs of the stores that may have topics of the archive."""
        return tuple(endpoint.location for endpoint in self._place.endpoints)

    def at(self, time: Moment, *, unproven: str = "error", topics: Sequence[str] | None = None) -> "Archive":
        """Return the archive as of a moment: a cut. Its scans show what docs/reader.md promises of a cut.

        A scan of it has the rows with a timestamp at or before the moment, and of transactions those whose commit
        marker has such a time, whatever its `isolation_level` is. `topics()` and `partitions()` are those of the whole
        archive.

        Args:
            time: a `datetime`, a `date` or ISO 8601 text, UTC without an offset; or milliseconds.
            unproven: what a scan does if nothing proves that all records of a partition up to then are in the store:
                "error", or "warn".
            topics: transactions over several of these topics are whole in scans of any of them; None: in a scan,
                between the partitions that it reads.

        Raises:
            ConfigurationError: with every problem of the arguments.
        """
        shown = copy(self)
        shown._cut = cut_of(time, unproven, topics)
        return shown

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted; without a topic `t-1` that has no data, if there is a topic `t`.

        Raises:
            QueryError: the archive has no objects of the cluster under these entropy bits.
            AccessDenied, BucketMissing, CorruptData, StoreUnavailable: from the store.
        """
        listed = {endpoint: self._listed(endpoint) for endpoint in self._place.endpoints}
        if not any(listed.values()):
            query = self._query(self._place.endpoints[0])
            store = shared_store(query.location, query.connection)
            raise QueryError(
                nothing_under([store], settled(store, query).keys, query.wording.sign("prefix_entropy_bits"))
            )
        return sorted(
            {name for endpoint, names in listed.items() for name in names if self._place.endpoint(name) == endpoint}
        )

    def partitions(self, topic: str, *, incarnation: str = "newest") -> list[PartitionInfo]:
        """Return the partitions of a topic, by number; empty for a topic without data.

        Args:
            incarnation: as of `scan`.

        Raises:
            QueryError: the archive has no such topic or incarnation.
            AccessDenied, BucketMissing, CorruptData, ObjectNotFound, StoreUnavailable: from the store.
        """
        return partitions_of(self.scan(topic, incarnation=incarnation).query)

    def scan(
        self,
        topic: TopicArgument,
        *,
        partitions: PartitionsArgument = None,
        columns: Sequence[str] | None = None,
        starting_offsets: OffsetsArgument = "earliest",
        ending_offsets: OffsetsArgument = "latest",
        starting_timestamp: TimestampArgument = None,
        ending_timestamp: TimestampArgument = None,
        starting_without_match: str = "error",
        isolation_level: str = "read_uncommitted",
        include_headers: bool = False,
        include_timestamp_ms: bool = False,
        key: CodecArgument = None,
        value: CodecArgument = None,
        undecoded: str = "error",
        incarnation: str = "newest",
        view: str = "log",
        key_equals: KeysArgument = None,
        tail: bool = True,
        mode: str = "FAILFAST",
        corrupt_column: str = CORRUPT_COLUMN,
        fail_on_data_loss: bool = True,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        memory_limit: int = MEMORY_LIMIT.default,
    ) -> Scan:
        """Return a scan of topics: lazy, and an Arrow stream each time it is read.

        Args:
            topic: a name, several names, or a compiled pattern that matches any part of a name.
            partitions: numbers, of each topic or by topic; None for all.
            columns: of `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, `timestampType`, `headers` and
                `timestampMs`.
            starting_offsets: "earliest", one offset for all partitions, or the first offset of each partition:
                `{0: 4711, 1: "earliest"}`, with several topics `{"orders": {0: 4711}}`. Each partition of the scan is
                named.
            ending_offsets: "latest", or the offset after the last one, as above.
            starting_timestamp: the scan starts at the first record, in the order of offsets, with this timestamp or a
                later one. A `datetime`, a `date` or ISO 8601 text, UTC without an offset; or milliseconds; or by
                partition.
            ending_timestamp: the scan ends before the first record with this timestamp or a later one.
            starting_without_match: what a partition without a record at or after `starting_timestamp` does: "error",
                or "latest": it returns no rows.
            isolation_level: "read_committed" leaves out aborted transactions and ends at the last stable offset. See
                `at` for a cut.
            include_headers: whether there is a column `headers`.
            include_timestamp_ms: whether there is a column `timestampMs`: the time as stored, in milliseconds. The
                column `timestamp` cannot hold times after the year 294,246.
            key: codec of keys: "utf8", "json", "int", "long", "registry", "avro,schema.file=order.avsc" or
                "module:Class", as in `ts_reader.schemas.opening`; by topic if topics have different ones. None: bytes.
            value: codec of values, as `key`.
            undecoded: what a key or value does that its codec refuses: "error", or "null": the column is null, and
                `key_error` or `value_error` has the reason.
            incarnation: of a topic that was deleted and created again: "newest", "oldest", a number from 1, or a
                topic id.
            view: "latest" returns the newest record of each key, unless it is a tombstone.
            key_equals: a key or several ones, as bytes, or as text in UTF-8: the scan has only their records, and reads
                what an index of keys does not leave out. None for all records.
            tail: whether the scan reads live tails: records that no closed segment has yet.
            mode: what corrupt batches do: "FAILFAST", "DROPMALFORMED", or "PERMISSIVE": one row each, with the bytes
                in `corrupt_column`.
            corrupt_column: name of that column.
            fail_on_data_loss: whether offsets that are lost end the scan; otherwise they are logged.
            max_batch_bytes: of memory that one record batch may use.
            memory_limit: bytes that the scan uses for objects, decoding and batches that wait, in all processes. What
                the caller holds does not count.

        Raises:
            ConfigurationError: with every problem of the arguments.
        """
        times = {"starting_timestamp": starting_timestamp, "ending_timestamp": ending_timestamp}
        given = Given(
            {
                **{name: time for name, time in times.items() if time is not None},
                "starting_offsets": starting_offsets,
                "ending_offsets": ending_offsets,
                "starting_without_match": starting_without_match,
                "isolation_level": isolation_level,
                "include_headers": include_headers,
                "include_timestamp_ms": include_timestamp_ms,
                "undecoded": undecoded,
                "incarnation": incarnation,
                "view": view,
                "tail": tail,
                "mode": mode,
                "corrupt_column": corrupt_column,
                "fail_on_data_loss": fail_on_data_loss,
                "max_batch_bytes": max_batch_bytes,
                "memory_limit": memory_limit,
            },
            SOURCE,
            self._wording,
        )
        place = replace(self._query(self._place.endpoints[0]), cut=self._cut)
        query = replace(query_of(given, place, topic, partitions), key_equals=keys_of(given, key_equals))
        topics = tuple(query.subscription.assigned or query.subscription.topics)
        decoding = decoding_of(key, value, topics, self._schemas, given)
        names = columns_of(given, columns, decoding.further_columns(query.tolerance.column))
        memory = given.read(MEMORY_LIMIT)
        given.check()
        locate = None
        if query.subscription.pattern is not None and len(self._place.endpoints) > 1:
            locate = self._located  # when the scan is planned, because that lists the topics of all locations
        else:
            query = self._located(query)
        return Scan(
            PlannedQuery(
                query,
                names,
                memory_limit=memory,
                workers=self._workers,
                locate=locate,
                decoding=decoding,
                warn=self._warn,
            )
        )

    def codec(self, topic: str, part: Part, name: str) -> Codec:
        """Return a codec of a topic's keys or values, as `scan` uses it.

        Args:
            name: as `key` and `value` of `scan`.

        Raises:
            ConfigurationError: the name or an option is wrong, or no schema is found.
            CorruptData, StoreUnavailable, AccessDenied: from the schemas.
        """
        given = Given({}, SOURCE, self._wording)
        names = {part.value: name}
        decoding = decoding_of(names.get("key"), names.get("value"), [topic], self._schemas, given)
        given.check()
        return decoding.open(part)[topic]

    def _located(self, query: Query) -> Query:
        """Return the query with the endpoints of its topics."""
        if len(self._place.endpoints) == 1:
            return query
        return self._place.located(query, self.topics)

    def _query(self, endpoint: Endpoint) -> Query:
        """Return a query of nothing at an endpoint."""
        return replace(self._place.query(endpoint), wording=self._wording)

    def _listed(self, endpoint: Endpoint) -> Collection[str]:
        """Return the names of the topics that an endpoint has objects of."""
        store: ObjectStore = shared_store(endpoint.location, endpoint.options.connection)
        store.check()
        return topic_names(store, settled(store, self._query(endpoint)).keys)
