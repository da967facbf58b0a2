"""The other doors of the archive: SQL, a table, a Kafka client and a drill. A user can repeat the command of each."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds
from confluent_kafka import Consumer, TopicPartition

from dev.demo.answers import DemoFailedError
from dev.demo.screen import Screen
from dev.local.kafka.distribution import kafka_directory
from dev.local.loopback_http import ERRORS, request
from dev.local.ports import LOOPBACK, free_ports
from dev.local.process import Server

_BIN: Final = Path(sys.executable).parent
_COMMAND_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 60.0
_STATEMENT: Final = """\
SELECT value->>'country' AS country, count(*) AS views
FROM {topic} GROUP BY country ORDER BY country"""
_TABLE: Final = """\
archive:
  url: {location}
  cluster: {cluster}
tables:
  demo.views:
    topics: {topic}
    format: parquet
    location: {files}
    partition_by: [country]
    parser:
      type: json
      columns: {{view: long, user: string, page: string, country: string, milliseconds: int}}
"""


class Endpoint(Server):
    """A Kafka endpoint over the archive.

    Args:
        directory: its working directory.
        logs: directory of its log.
        config: the agents' configuration directory.
    """

    def __init__(self, directory: Path, logs: Path, config: Path) -> None:
        super().__init__("endpoint", directory, logs / "endpoint.log")
        port, self._http_port = free_ports(2)
        self.bootstrap = f"{LOOPBACK}:{port}"
        self._config = config

    def command(self) -> list[str]:
        """Return `ts-endpoint serve` of this process's virtual environment."""
        http = f"{LOOPBACK}:{self._http_port}"
        program = str(_BIN / "ts-endpoint")
        options = ["--config", str(self._config), "--groups", "memory", "--listen", self.bootstrap]
        return [program, "serve", *options, "--http-address", http]

    def not_ready(self) -> str | None:
        """Request `/readyz`."""
        try:
            status, body = request(self._http_port, "/readyz", seconds=5.0)
        except ERRORS as error:
            return str(error)
        return None if status == 200 else body.decode()


@dataclass(frozen=True)
class Doors:
    """What the doors show.

    Attributes:
        screen: where they are shown.
        logs: directory of the endpoint's log.
        config: the agents' configuration directory.
        location: of the archive, a URL.
        ends: of partition 0, 1, ...: all lower offsets must be found.
        journal: directory of the journal's files.
    """

    screen: Screen
    directory: Path
    logs: Path
    config: Path
    location: str
    cluster: str
    topic: str
    ends: Sequence[int]
    journal: Path

    @property
    def shown(self) -> str:
        """The configuration directory as a user of this checkout writes it."""
        return os.path.relpath(self.config)

    def sql(self) -> None:
        """Count the views of each country by DuckDB.

        Raises:
            DemoFailedError: the counts are not those of all records.
        """
        statement = _STATEMENT.format(topic=self.topic)
        command = ["tsctl", "sql", "--config", self.shown, "--value", "json"]
        self.screen.code([f'{" ".join(command)} "{statement.splitlines()[0]}', f'  {statement.splitlines()[1]}"'])
        rows = [json.loads(line) for line in _output([*command, "--json", statement]).splitlines()]
        self.screen.table(("country", "views"), [(row["country"], row["views"]) for row in rows])
        self._expect(sum(row["views"] for row in rows), "rows of SQL")

    def table(self) -> None:
        """Make a table of Parquet files, with a column for each field of the values.

        Raises:
            DemoFailedError: its rows are not all records.
        """
        files = self.directory / "views"
        text = _TABLE.format(location=self.location, cluster=self.cluster, topic=self.topic, files=files.as_uri())
        file = self.directory / "tables.yaml"
        file.write_text(text)
        self.screen.code([*text.splitlines()[3:], ""])
        for action in ("create", "run"):
            command = ["tsctl", "tables", action, "--file", os.path.relpath(file)]
            self.screen.code([" ".join(command)])
            _output(command)
        table = ds.dataset(files, format="parquet", partitioning="hive")
        rows = table.count_rows()
        self.screen.say(
            f"{rows:,} rows in {len(table.files)} Parquet files below {files}, a directory for each country."
        )
        self._expect(rows, "rows of the table")

    def client(self, endpoint: Endpoint, first_ms: int, end_ms: int) -> None:
        """Read a range of time from the endpoint by Kafka's protocol.

        Args:
            endpoint: which has started.
            first_ms: the first time, in ms since 1970.
            end_ms: the time after the last.

        Raises:
            DemoFailedError: the records are not those of the journal.
        """
        self.screen.code(
            [
                f"ts-endpoint serve --config {self.shown} --listen {endpoint.bootstrap} --groups memory",
                f"kcat -b {endpoint.bootstrap} -C -t {self.topic} -o s@{first_ms} -o e@{end_ms}",
            ]
        )
        found = self._consumed(endpoint.bootstrap, first_ms, end_ms)
        written = ds.dataset(self.journal, format="parquet").to_table(columns=["partition", "offset", "timestamp"])
        times = written["timestamp"].cast("int64").to_pylist()
        places = zip(written["partition"].to_pylist(), written["offset"].to_pylist(), times, strict=True)
        produced = {(partition, offset) for partition, offset, time in places if first_ms <= time < end_ms}
        self.screen.say(
            f"A Kafka client reads 12:00 to 13:00: {len(found):,} records; the journal has {len(produced):,}.", "bold"
        )
        if sorted(found) != sorted(produced):
            raise DemoFailedError(
                f"a Kafka client read {len(found):,} records of the range, {len(produced - set(found)):,} are missing"
            )

    def drill(self) -> None:
        """Restore the topic into a throw-away broker of Kafka 4, and compare every record with the archive.

        Raises:
            DemoFailedError: the drill failed, or did not restore all records.
        """
        kafka = os.path.relpath(kafka_directory("4"))
        command = ["tsctl", "drill", self.topic, "--kafka", kafka, "--config", self.shown, "--whole"]
        self.screen.code([" ".join(command)])
        found = json.loads(_output([*command, "--directory", str(self.directory), "--json"]))
        rows = [
            (each["partition"], each["isolation_level"], each["start"], each["end"], each["records"])
            for each in found["compared"]
        ]
        self.screen.table(("partition", "isolation level", "first offset", "next offset", "equal records"), rows)
        self.screen.say(
            f"The topic is back at its offsets in {found['recovery_seconds']:.1f} s: {found['records']:,} records of "
            "Kafka 3.9 in Kafka 4, each equal to the archive.",
            "bold",
        )
        self._expect(found["records"], "records of the drill")

    def _consumed(self, bootstrap: str, first_ms: int, end_ms: int) -> list[tuple[int, int]]:
        """Return partition and offset of each record of a range of time."""
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False})
        found: list[tuple[int, int]] = []
        try:
            starts = [TopicPartition(self.topic, number, first_ms) for number in range(len(self.ends))]
            ends = [TopicPartition(self.topic, number, end_ms) for number in range(len(self.ends))]
            begun = consumer.offsets_for_times(starts, _POLL_SECONDS)
            bounds = {part.partition: part.offset for part in consumer.offsets_for_times(ends, _POLL_SECONDS)}
            for number, bound in bounds.items():
                if bound < 0:  # no record is later
                    bounds[number] = self.ends[number]
            left = {part.partition for part in begun if 0 <= part.offset < bounds[part.partition]}
            consumer.assign([part for part in begun if part.partition in left])
            while left:
                message = consumer.poll(_POLL_SECONDS)
                if message is None or message.error() is not None:
                    reason = "no record" if message is None else message.error()
                    raise DemoFailedError(f"the endpoint returned {reason} for partitions {sorted(left)}")
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if offset < bounds[partition]:
                    found.append((partition, offset))
                if offset + 1 >= bounds[partition]:
                    left.discard(partition)
        finally:
            consumer.close()
        return found

    def _expect(self, rows: int, what: str) -> None:
        expected = sum(self.ends)
        if rows != expected:
            raise DemoFailedError(f"{rows:,} {what}; {expected:,} records were acknowledged")


def _output(command: Sequence[str]) -> str:
    """Run a command of this virtual environment; return its standard output.

    Raises:
        DemoFailedError: it failed, or did not end in time.
    """
    arguments = [str(_BIN / command[0]), *command[1:]]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise DemoFailedError(f"{' '.join(command)} ran for {_COMMAND_SECONDS:g} s without an end") from error
    if done.returncode:
        raise DemoFailedError(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
