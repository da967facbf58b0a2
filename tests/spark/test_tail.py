"""Batch queries over a live tail: splits that executors get, and the option."""

import pickle

from tests.made_tail import MadeTail, plain, ship
from tests.spark.archives import Archive
from ts_reader.query.plan_query import plan_everywhere
from ts_reader.query.read_split import read_split
from ts_spark.options.parse import parse_options


def test_a_batch_query_reads_the_tail_in_its_executors(archive: Archive) -> None:
    """Each split is pickled on its way; with the option closed segments alone are read."""
    ship(archive)
    MadeTail(archive).put(plain(archive, (100, 110)), plain(archive, (110, 115)))
    found = {}
    for option in ({}, {"tail": "false"}):
        query = parse_options(archive.options(subscribe="t", **option)).query
        splits = pickle.loads(pickle.dumps(plan_everywhere(query).splits))
        rows = [rows for split in splits for rows in read_split(archive.store, split, ["offset"])]
        found[len(option)] = [offset for each in rows for offset in each["offset"].to_pylist()]
    assert found == {0: list(range(115)), 1: list(range(100))}
