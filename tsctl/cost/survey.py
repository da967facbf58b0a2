"""Counts the objects of an archive that the command line names, for a bill."""

import time
from collections.abc import Iterable, Sequence

from ts_common.errors import ConfigurationError, QueryError
from ts_common.store.factory import Scheme, parse_location
from ts_common.suggestions import nearest
from ts_reader.reading.archive_name import SOURCE, ArchiveName
from ts_reader.reading.topics import some
from tsctl.archive import chooser, open_archive
from tsctl.cost.listing import Directory, Measure, count, find_directories, topics_in
from tsctl.cost.prices import Prices
from tsctl.cost.usage import OWN, Usage, edges_of
from tsctl.output import Output


def check_priced(name: ArchiveName) -> None:
    """Reject an archive outside S3 without a price file, because the example has the prices of S3.

    Raises:
        ConfigurationError: a location is in another store.
    """
    others = [each.location for each in name.endpoints if parse_location(each.location).scheme is not Scheme.S3]
    if others:
        raise ConfigurationError(
            SOURCE,
            [f"--prices is missing: {some(others)} is not S3; edit a copy of what tsctl cost --example-prices writes"],
        )


def survey(
    name: ArchiveName, topics: Sequence[str], prices: Prices, further_days: Iterable[float], output: Output
) -> Usage:
    """Return what an archive holds.

    Args:
        name: of the archive.
        topics: names and regular expressions; empty: all, with the cluster's own objects.
        prices: its classes decide what is counted.
        further_days: ages that a change needs as an edge.
        output: of the command.

    Raises:
        QueryError: the archive has no object, or no such topic.
        ConfigurationError: a topic is no regular expression.
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    choose = chooser(topics)
    minimums = (each.minimum_days for each in prices.classes.values())
    edges = edges_of(days for days in (*minimums, *further_days) if days)
    measure = Measure(edges, prices.thresholds, prices.default_class, time.time())
    with open_archive(name, output.warn) as archive:
        found: list[Directory] = []
        for store in archive.stores:
            store.check()
            found += find_directories(store, archive.keys)
        if topics and not topics_in(found):
            archive.names()  # it raises, with what the store has instead
        _check_topics(topics, topics_in(found), archive.keys.cluster)
        chosen = [each for each in found if not topics or (each.topic != OWN and choose(each.topic))]
        with output.progress("directories", len(chosen)) as advance:
            usage = count(chosen, archive.keys, measure, warn=output.warn, advance=advance)
        if not usage.parts:
            archive.names()
    return usage


def _check_topics(topics: Sequence[str], known: set[str], cluster: str) -> None:
    for text in topics:
        if not any(map(chooser([text]), known)):
            hint = nearest(text, known) or (f"; it contains {some(sorted(known))}" if known else "")
            raise QueryError(f"topic {text}: cluster {cluster} has no such topic{hint}")
