"""The index of keys that tasks of Spark build and merge is the one that a process builds."""

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER
from tests.made_views import view_of
from tests.spark.archives import Archive
from ts_common.errors import ConfigurationError
from ts_common.store.contract import ObjectStore
from ts_reader import Archive as Reader
from ts_reader.find.building import build, lacking
from ts_reader.find.lookup import read_runs
from ts_reader.find.runs import FILES, Run, put_objects, read_pairs, read_run
from ts_spark.find_index import keep_index, main

SEGMENTS = 6


@pytest.fixture
def filled(archive: Archive) -> Archive:
    """Topic `t`: two partitions of six segments; the last one is small for its keys."""
    for partition in (0, 1):
        for number in range(SEGMENTS):
            value = bytes(3000 if number < SEGMENTS - 1 else 300)
            records = [record(at, b"k%d" % (at % 7), value) for at in range(40)]
            archive.put_segment("t", 40 * number, batch(40 * number, records), partition=partition)
        archive.commit("t", 40 * SEGMENTS, partition=partition, highest_base=40 * (SEGMENTS - 1))
    return archive


def content(store: ObjectStore, run: Run) -> tuple[Any, Any]:
    """Return the entries of a run without their rows, and for each object its places and parts."""
    entries = {identity: (e.base, e.end, e.parts, e.certificate) for identity, e in run.entries.items()}
    names = {entry.row: identity for identity, entry in run.entries.items()}
    pairs = Counter(
        (names[row], place, part)
        for digits in FILES
        for found in [read_pairs(store, run, digits)]
        for place, row, part in zip(found.place.tolist(), found.row.tolist(), found.part.tolist(), strict=True)
    )
    return entries, pairs


def test_tasks_build_the_index_that_a_process_builds(spark: SparkSession, filled: Archive) -> None:
    """Equal entries in one merged run, with the same bound, and equal rows; a second job has nothing to do."""
    copies = [each for partition in (0, 1) for each in lacking(view_of(filled, partition=partition), [])]
    (name,) = build(filled.store, "elsewhere/", copies, most_share=0.01).runs
    local = read_run(filled.store, "elsewhere/", name)
    rows = Reader(filled.location, CLUSTER, workers=1).scan("t", key_equals="k3").to_table().to_pylist()
    kept = keep_index(spark, filled.options(subscribe="t"), most_share=0.01, task_bytes=5 * copies[0][1].segment.size)[
        "t"
    ]
    assert (kept.built.objects, kept.built.too_many, kept.warnings) == (2 * SEGMENTS, 2, ())
    assert len(kept.built.runs) == kept.merged == 3
    runs = read_runs(filled.store, filled.keys, "t")
    (merged,) = (run for run in runs if run.replaces)
    assert {*merged.replaces} == {*kept.built.runs}
    assert content(filled.store, merged) == content(filled.store, local)
    scan = Reader(filled.location, CLUSTER, workers=1).scan("t", key_equals="k3")
    assert scan.found is not None
    assert (scan.found.indexed, scan.found.unindexed) == (2 * SEGMENTS, 0)
    assert scan.to_table().to_pylist() == rows
    again = keep_index(spark, filled.options(subscribe="t"))["t"]
    assert (again.built.objects, again.merged, again.removed) == (0, 0, 0)


def test_a_damaged_run_is_named_and_the_job_continues(spark: SparkSession, filled: Archive) -> None:
    """A task returns the damage, which no further attempt mends."""
    for name in ("20250101-00000001", "20250102-00000002"):
        prefix = f"{filled.keys.find('t')}{name}/"
        etag = filled.store.put(f"{prefix}7f.parquet", b"damage").etag
        put_objects(filled.store, prefix, [], {"7f": (6, etag)})
    kept = keep_index(spark, filled.options(subscribe="t"), most_share=0)["t"]
    assert (kept.built.objects, kept.merged) == (2 * SEGMENTS, 0)
    (warning,) = kept.warnings
    assert "runs of 2025 are not merged: " in warning
    assert "7f.parquet" in warning


def test_the_program_prints_what_it_did(
    spark: SparkSession, filled: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each topic, and mistakes in one message."""
    arguments = [f"{name}={value}" for name, value in filled.options(subscribe="t").items() if name != "path"]
    assert main([filled.location, *arguments, "mostShare=0"]) == 0
    assert "t: 12 segments" in capsys.readouterr().out
    assert main([filled.location, *arguments, "mostShare=much"]) == 1
    assert "could not convert" in capsys.readouterr().err
    assert main([]) == 1
    assert "cluster: missing" in capsys.readouterr().err
    assert spark.sparkContext is not None  # the program ends no session of its caller


def test_an_index_is_of_whole_topics(spark: SparkSession, filled: Archive) -> None:
    """A merge of some partitions would drop what the index has of the others."""
    options = {name: value for name, value in filled.options().items() if not name.startswith("subscribe")}
    with pytest.raises(ConfigurationError, match="an index is of whole topics"):
        keep_index(spark, {**options, "assign": '{"t":[0]}'})
