"""The archives of the benchmark of look-ups: their records have the keys that it looks for."""

from pathlib import Path

import numpy as np
import pytest

from dev.bench.find import RARE, drawn
from dev.bench.find_listings import files_of, nightly
from dev.bench.measuring.keyed_archives import KeyedSegments, key_of, partitions_of, put_partition
from dev.bench.measuring.made_archives import CLUSTER, RECORDS_A_BATCH
from ts_common.store.factory import open_store
from ts_reader import Archive
from ts_reader.decode.codecs import Codec
from ts_reader.decode.hashed_key import hashed


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_have_the_keys_that_were_drawn(tmp_path: Path, codec: Codec) -> None:
    """In their order, at each offset, and the rare key as often as the benchmark expects."""
    numbers = drawn(np.random.default_rng(1), np.arange(30), 4 * RECORDS_A_BATCH)
    assert np.count_nonzero(numbers == 29) == RARE
    assert {*numbers.tolist()} == {*range(30)}
    with open_store(tmp_path.as_uri()) as store:
        put_partition(store, "t", 0, KeyedSegments(codec), numbers, 2)
    rows = Archive(tmp_path.as_uri(), CLUSTER, workers=1).scan("t", columns=["offset", "key"]).to_table()
    assert rows["offset"].to_pylist() == list(range(len(numbers)))
    assert rows["key"].to_pylist() == [key_of(int(number)) for number in numbers]


def test_partitions_are_those_of_javas_producer() -> None:
    """By its hash of each key."""
    numbers = np.arange(100)
    assert partitions_of(numbers, 7).tolist() == [hashed(key_of(int(each))).murmur2 % 7 for each in numbers]


def test_the_nights_leave_few_runs() -> None:
    """No night of three years has as many as a month has days."""
    runs = list(nightly())
    assert len(runs) == 366 + 365 + 365
    assert max(len([run for run in each if len(run.nights) == 1]) for each in runs) < 10
    assert sorted(
        night
        for run in runs[-1]
        if run.name not in {name for each in runs[-1] for name in each.replaces}
        for night in run.nights
    ) == list(range(len(runs)))
    assert max(map(files_of, runs)) < 60
