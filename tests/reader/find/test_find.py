"""A look-up returns what a full scan returns, in drawn archives; without one of its rules it does not."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.made_archive import CLUSTER
from tests.matrix import sampled
from tests.md5_etags import Md5Etags
from tests.reader.find.made import KEYS, PARTITIONS, Drawn
from ts_common.archive.catalog import read_catalog
from ts_common.model import TopicPartition
from ts_reader import Archive, Scan
from ts_reader.decode.hashed_key import HashedKey
from ts_reader.find import keeping, lookup, merging, rules, runs
from ts_reader.find.building import build
from ts_reader.find.merging import clear, merge, stored_in
from ts_reader.query import read_split
from ts_reader.query.plan_query import plan_query
from ts_reader.query.query import Query, Subscription

SEEDS = sampled(range(60), step=30)
LATER = 10 * 86_400.0


def rows(scan: Scan) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in scan.to_table().to_pylist())


def scan(drawn: Drawn, keys: list[bytes] | None, **arguments: Any) -> Scan:
    archive = Archive(drawn.archive.location, CLUSTER, workers=1)
    columns = ["key", "partition", "offset", "value"]
    return archive.scan("t", columns=columns, key_equals=keys, fail_on_data_loss=False, **arguments)


def wrong(drawn: Drawn, rnd: Random, count: int = 5, **arguments: Any) -> int:
    """Return the number of look-ups that differ from a full scan: of some keys, of two, and of one that is nowhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_split, "rows_with", RIGHT)
        every = rows(scan(drawn, None, **arguments))
    asked = [[key] for key in rnd.sample(KEYS, count)] + [rnd.sample(KEYS, 2), [b"nobody"]]
    return sum(rows(scan(drawn, keys, **arguments)) != [row for row in every if row[0] in keys] for keys in asked)


def history(directory: Path, seed: int) -> Iterator[Drawn]:
    """Yield an archive without an index; with one of some segments; after an election and retention; with one of more.

    Then as the runs are merged, as the inputs are removed, and as files of the index are lost.
    """
    drawn = Drawn.of(directory, seed)
    store = drawn.archive.store
    yield drawn
    drawn.index()
    yield drawn
    drawn.elect()
    yield drawn
    drawn.index(0.8, drawn.rnd.choice([0.0, 10.0]))
    drawn.retain()
    yield drawn
    merge(store, drawn.prefix, "202601", drawn.runs(), stored_in(drawn.views))
    yield drawn
    assert clear(store, drawn.prefix, drawn.runs(), store.current_time() + LATER).files
    (run,) = drawn.runs()
    yield drawn
    for digits in run.files:
        key = f"{run.prefix}{digits}.parquet"
        change = drawn.rnd.choice(["lost", "other", None])
        if change == "lost":
            store.delete([key])
        elif change == "other":
            runs.put_file(store, f"{run.prefix}other/", digits, runs.joined(()))
            store.put(key, store.get(f"{run.prefix}other/{digits}.parquet")[0])
    yield drawn


@pytest.mark.parametrize("seed", SEEDS)
def test_r18_a_look_up_returns_what_a_full_scan_returns(tmp_path: Path, seed: int) -> None:
    """Whatever the index covers, and whichever copy the planner chooses since."""
    rnd = Random(seed)
    for number, drawn in enumerate(history(tmp_path, seed)):
        assert not wrong(drawn, rnd), number
    assert not wrong(drawn, rnd, 2, view="latest")
    assert not wrong(drawn, rnd, 2, mode="DROPMALFORMED")


def test_a_plan_by_expected_commits_is_one_by_commits_that_were_read(tmp_path: Path) -> None:
    """In drawn archives, before and after elections: with a clock that is ahead, no commit of an index is expected."""
    for seed in range(4):
        drawn = Drawn.of(tmp_path / str(seed), seed)
        keys, store = drawn.archive.keys, Md5Etags(drawn.archive.store, threads=1)
        catalogs = [read_catalog(store, keys.partition(TopicPartition("t", number))) for number in range(PARTITIONS)]
        keeping.keep(store, catalogs, lambda *given, of=store: build(of, *given[:2], commits=given[2]))
        for moved in (0, PARTITIONS):
            for key in drawn.rnd.sample(KEYS, 3):
                query = Query(
                    drawn.archive.location,
                    CLUSTER,
                    0,
                    Subscription(("t",)),
                    key_equals=frozenset([key]),
                    fail_on_data_loss=False,
                )
                plans, reads = list[Any](), list[int]()
                for ahead in (0.0, 1e11):
                    store.later = ahead
                    store.reads.clear()
                    plans.append([replace(split, scan="") for split in plan_query(store, query).splits])
                    reads.append(sum(store.reads[each.keys.commit] for each in catalogs))
                assert plans[0] == plans[1]
                assert reads == [moved, PARTITIONS]
            drawn.elect()


RIGHT = read_split.rows_with


def _every_row(_keys: Collection[bytes] | None, names: Sequence[str], read: Any) -> Iterator[pa.RecordBatch]:
    return RIGHT(None, names, read)


def _by_murmur2(_: rules.Certificate, partition: int, key: HashedKey) -> bool:
    return key.murmur2 % PARTITIONS == partition


def _of_stem(copy: Any, entries: Any) -> rules.Entry | None:
    """Return the entry of another object of the same offsets."""
    return next((entry for entry in entries.values() if (entry.base, entry.end) == (copy.base, copy.end)), None)


def _unchecked(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reader of pairs that finds nothing in a file that is lost or another one."""

    def read_pairs(*given: Any) -> Any:
        try:
            return read(*given)
        except lookup._LOST:
            return runs.joined(())

    return read_pairs


def _unmoved(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reader of pairs for a merge whose rows of objects are those of another run."""

    def read_pairs(store: Any, run: Any, *given: Any) -> Any:
        pairs = read(store, run, *given)
        return runs.Pairs(pairs.place, (pairs.row + 1) % max(len(run.entries), 1), pairs.part)

    return read_pairs


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "an object that no index covers is not read": (lookup, "window_of", lambda copy: (copy.base, copy.base)),
    "an entry is of offsets, not of an object": (lookup, "entry_of", _of_stem),
    "only the first part of a segment is a window": (lookup, "windows_of", lambda entry, _: [entry.window(0)]),
    "a partitioner is trusted without evidence": (rules.Certificate, "allows", _by_murmur2),
    "rows are not compared with the key": (read_split, "rows_with", _every_row),
    "a lost file has no keys": (lookup, "read_pairs", _unchecked(runs.read_pairs)),
    "a merge does not number objects again": (merging, "read_pairs", _unmoved(runs.read_pairs)),
}


@pytest.mark.parametrize("rule", MUTANTS)
def test_a_look_up_without_a_rule_differs(tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule is needed: some drawn archive shows it."""
    monkeypatch.setattr(*MUTANTS[rule])
    for seed in range(12):
        rnd = Random(seed)
        if any(wrong(drawn, rnd, 3) for drawn in history(tmp_path / str(seed), seed)):
            return
    pytest.fail("no archive shows it")
