"""Keep the index of keys by a Spark cluster, for archives whose keys one machine would read for days.

    spark-submit ts_spark/find_index.py s3://bucket/base/prefix cluster=prod subscribe=orders

The options are those of the data source that name the archive and whole topics, `maxBatchBytes`, and `mostShare`: the
bound of `tsctl find index`. The driver lists what the index lacks. A task reads the keys of some gigabytes of segments,
and puts a run as `tsctl find index` does. Then tasks merge these runs, each a part of the hashes, and the driver
finishes the merged run. A task that is killed leaves files without a list. A later run of the job or of
`tsctl find index` removes them.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ts_common.errors import ConfigurationError, CorruptData, ObjectNotFound, TieredStorageError
from ts_common.log_format.limits import BatchLimit
from ts_common.store.options import Connection
from ts_common.store.shared_stores import shared_store
from ts_common.wording import counted
from ts_reader.find.building import MOST_SHARE, Built, Lacking, build
from ts_reader.find.keeping import Kept, keep
from ts_reader.query.query import by_location, settled
from ts_reader.query.subscription import find_topics
from ts_spark.options.parse import SOURCE, parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES: Final = 8 << 30  # of segments
_SHARE: Final = "mostShare"

_Copies = Sequence[Lacking]


def keep_index(
    spark: "SparkSession",
    options: Mapping[str, str],
    *,
    most_share: float = MOST_SHARE,
    task_bytes: int = TASK_BYTES,
) -> dict[str, Kept]:
    """Bring the indexes of topics up to date; return what was done, by topic.

    Args:
        spark: a session with a context, whose executors have this package.
        options: of the data source.
        most_share: the bound: of a segment's bytes that its keys may have in the index.
        task_bytes: of the segments of one task, at least one.

    Raises:
        ConfigurationError: with every problem of the options.
        QueryError: the archive does not have a topic.
        CorruptData, StoreUnavailable, AccessDenied, BucketMissing: from the store, on the driver.
        pyspark.errors.PySparkException: a task failed each time.
    """
    asked, done = parse_options(options).query, dict[str, Kept]()
    if asked.subscription.assigned is not None:  # a merge would drop what the index has of other partitions
        raise ConfigurationError(SOURCE, ["assign: an index is of whole topics; use subscribe or subscribePattern"])
    for part in by_location(asked):
        store = shared_store(part.location, part.connection)
        query = settled(store, part)
        mapped = partial(_mapped, spark, (query.location, query.connection))
        for topic in find_topics(store, query):
            add = partial(_add, mapped, query.limit, most_share, task_bytes)
            done[topic.name] = keep(store, topic.partitions, add, mapped, merges_at_once=True)
    return done


def _add(
    mapped: Any,
    limit: BatchLimit,
    most_share: float,
    task_bytes: int,
    prefix: str,
    copies: _Copies,
    commits: Mapping[str, str],
) -> Built:
    """Add segments to an index, those of each task as a run."""
    built = Built()
    bundles = [*_bundles(copies, task_bytes)]
    for each in mapped(partial(_build, limit, most_share, prefix, commits), bundles, tasks=len(bundles)):
        built.add(each)
    return built


def _build(
    limit: BatchLimit, most_share: float, prefix: str, commits: Mapping[str, str], store: Any, copies: _Copies
) -> Built:
    return build(store, prefix, copies, most_share=most_share, commits=commits, limit=limit)


def _bundles(copies: _Copies, most_bytes: int) -> Iterator[_Copies]:
    """Yield copies together up to a number of bytes, at least one."""
    found: list[Lacking] = []
    size = 0
    for each in copies:
        if found and size + each.copy.segment.size > most_bytes:
            yield found
            found, size = [], 0
        found.append(each)
        size += each.copy.segment.size
    if found:
        yield found


def _mapped(
    spark: "SparkSession",
    place: tuple[str, Connection],
    function: Any,
    items: Sequence[Any],
    *,
    tasks: int | None = None,
) -> list[Any]:
    """Return what a function returns for the store and each item.

    Args:
        tasks: among which the items are divided; None: four for each core. A file of a merge is small, and a task costs
            as much as many of them.

    Raises:
        CorruptData, ObjectNotFound: from the function; no further attempt of the task would help.
    """
    if not items:
        return []
    context = spark.sparkContext
    tasks = min(len(items), tasks or 4 * context.defaultParallelism)
    results = context.parallelize(items, tasks).map(partial(_called, place, function)).collect()
    for result in results:
        if isinstance(result, TieredStorageError):
            raise result
    return results


def _called(place: tuple[str, Connection], function: Any, item: Any) -> Any:
    try:
        return function(shared_store(*place), item)
    except (CorruptData, ObjectNotFound) as error:
        return error


def main(arguments: Sequence[str]) -> int:
    """Keep the indexes that the command line names, and print a line for each topic."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  (an import of this module needs no Spark)

    location, *pairs = arguments or [""]
    options = {"path": location, **dict(pair.partition("=")[::2] for pair in pairs)}
    try:
        share = float(options.pop(_SHARE, MOST_SHARE))
        found = keep_index(SparkSession.builder.appName("find_index").getOrCreate(), options, most_share=share)
    except (TieredStorageError, ValueError) as error:
        print(f"find_index: {error}", file=sys.stderr)  # noqa: T201  (the program's own voice)
        return 1
    for topic, kept in found.items():
        built = kept.built
        added = f"{counted(built.objects, 'segment')} of {counted(built.bytes, 'byte')}, {counted(built.pairs, 'pair')}"
        bound = f"{counted(built.too_many, 'segment')} above the bound"
        runs = f"{counted(kept.merged, 'run')} merged, {counted(kept.removed, 'run')} removed"
        print(f"{topic}: {added}; {bound}; {runs}")  # noqa: T201  (as above)
        for warning in kept.warnings:
            print(f"{topic}: {warning}", file=sys.stderr)  # noqa: T201  (as above)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
