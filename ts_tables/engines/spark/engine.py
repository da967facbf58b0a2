"""Tasks on Spark: a Python data source with one partition for each task.

It needs no RDD, so Spark Connect runs it too, and no pandas, which `mapInArrow` needs. Spark runs the tasks again for
each action on a DataFrame, so there is exactly one: `collect`. An attempt that is lost or slow can run twice, and leave
files. Their names are unique, `collect` returns one answer for each task, and the commit has no other file.
"""

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from secrets import token_hex
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ts_common.errors import StoreUnavailable, TieredStorageError
from ts_common.wording import counted

_SCHEMA: Final = "number int, answer binary"


class _Task(InputPartition):
    """One task, pickled: Spark's own pickles are between the same two sides."""

    def __init__(self, number: int, task: bytes) -> None:
        super().__init__(number)
        self.number = number
        self.task = task


class _Reader(DataSourceReader):
    def __init__(self, tasks: Sequence[bytes]) -> None:
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each task."""
        return [_Task(number, task) for number, task in enumerate(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        """Run a task on an executor; yield its answer, or the error of this project that ended it."""
        assert isinstance(partition, _Task)  # noqa: S101  (what `partitions` returned)
        task: Callable[[], Any] = pickle.loads(partition.task)  # noqa: S301  (see `_Task`)
        try:
            answer: Any = task()
        except StoreUnavailable:
            raise  # Spark tries it again
        except TieredStorageError as error:
            answer = error
        yield partition.number, pickle.dumps(answer)


class SparkEngine:
    """Runs tasks on a Spark session; thread-safe.

    Args:
        spark: with this package on its executors.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._name = f"ts_tables_{token_hex(4)}"
        self._lock = threading.Lock()

    def __call__(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return the result of each task, in their order.

        Raises:
            TieredStorageError: what a task raises.
            pyspark.errors.PySparkException: Spark gave up a task, or the session ended.
        """
        if not tasks:
            return []
        with self._lock:
            # The session keeps the last registration of a name only, so that a loop does not fill its memory.
            self._spark.dataSource.register(_source(self._name, [pickle.dumps(task) for task in tasks]))
            rows = self._spark.read.format(self._name).load().collect()
            self._spark.dataSource.register(_source(self._name, []))
        answers = {row["number"]: pickle.loads(row["answer"]) for row in rows}  # noqa: S301  (see `_Task`)
        if failed := next((each for each in answers.values() if isinstance(each, TieredStorageError)), None):
            raise failed
        if len(rows) != len(tasks) or answers.keys() != set(range(len(tasks))):
            raise StoreUnavailable(
                f"Spark returned {counted(len(rows), 'answer')} for {counted(len(tasks), 'task')}; run it again"
            )
        return [answers[number] for number in range(len(tasks))]


def _source(name: str, tasks: Sequence[bytes]) -> type[DataSource]:
    """Return a data source of tasks: Spark sends the class to its executors, with what it refers to."""

    class Tasks(DataSource):
        """Tasks of one plan."""

        @classmethod
        def name(cls) -> str:
            """Return the format's name."""
            return name

        def schema(self) -> str:
            """Return the columns."""
            return _SCHEMA

        def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002  (Spark's signature)
            """Return the tasks."""
            return _Reader(tasks)

    return Tasks
