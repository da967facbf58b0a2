"""A streaming query without Spark: the calls of Spark 4.1's `MicroBatchExecution` to a source, in its order."""

import json
from typing import Any

from tests.spark.archives import Archive
from ts_reader.query.read_split import read_split
from ts_spark.options.parse import QueryKind, parse_options
from ts_spark.options.schema import full_schema
from ts_spark.streaming.driver import StreamDriver

EARLIEST = {"subscribe": "t", "startingOffsets": "earliest"}
LENIENT = {**EARLIEST, "failOnDataLoss": "false"}


def warnings_of(logs: list[Any]) -> list[str]:
    """Return the messages of the warnings."""
    return [entry["message"] for entry in logs if entry["log_level"] == "warning"]


class Query:
    """One query with its checkpoint and its sink, which keeps the rows of each batch apart.

    Args:
        archive: what it reads.
        options: as a user would write them.

    Attributes:
        offsets: the checkpoint's, as text: where each batch ends.
        committed: the number of batches in the sink that never run again.
        sink: the rows of each batch.
        pauses: seconds that the source slept.
    """

    def __init__(self, archive: Archive, **options: str) -> None:
        self.archive = archive
        self.offsets: list[str] = []
        self.committed = 0
        self.sink: dict[int, list[dict[str, Any]]] = {}
        self.pauses: list[float] = []
        self.now = 1000.0
        self.start(**options)

    def start(self, **options: str) -> None:
        """As a new process, with the checkpoint that there is; a batch that was not committed runs again."""
        query = parse_options(self.archive.options(**options), QueryKind.STREAM)
        column = query.query.tolerance.column
        self._names = full_schema(include_headers=query.include_headers, corrupt_column=column).fieldNames()
        self._driver = StreamDriver(query, lambda: self.now, self.pauses.append)
        if self.offsets:
            last = json.loads(self.offsets[-1])
            assert list(self._driver.plan(last, last)) == []
        if self.committed < len(self.offsets):
            self._run()

    def trigger(self, *, dies: bool = False) -> list[tuple[str, int, int]]:
        """The next batch's rows: topic, partition, offset; none where there is nothing new.

        Args:
            dies: whether the driver is killed after the sink has the rows and before the checkpoint has the batch.
        """
        end = json.dumps(self._driver.latest_offset())
        if self.offsets and end == self.offsets[-1]:
            return []
        self.offsets.append(end)
        self._run(dies=dies)
        return [(row["topic"], row["partition"], row["offset"]) for row in self.sink[len(self.offsets) - 1]]

    def rows(self) -> list[tuple[str, int, int]]:
        """Of all batches in order: topic, partition, offset."""
        return [(row["topic"], row["partition"], row["offset"]) for batch in self.sink.values() for row in batch]

    def offsets_of(self, topic: str = "t", partition: int = 0) -> list[int]:
        """The offsets of one partition's rows, batch by batch."""
        return [offset for *found, offset in self.rows() if found == [topic, partition]]

    def positions(self) -> Any:
        """The last offset of the checkpoint."""
        return json.loads(self.offsets[-1])

    def _run(self, *, dies: bool = False) -> None:
        number = len(self.offsets) - 1
        start = (
            json.loads(self.offsets[number - 1]) if number else json.loads(json.dumps(self._driver.initial_offset()))
        )
        splits = self._driver.plan(start, json.loads(self.offsets[number]))
        store = self.archive.store
        self.sink[number] = [
            row for split in splits for part in read_split(store, split, self._names) for row in part.to_pylist()
        ]
        self.committed = number if dies else number + 1
