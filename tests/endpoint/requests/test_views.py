"""Fetch shows an archive that is not whole as the reader's rows do, to a consumer with Java's rules."""

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from tests.endpoint.clients import FetchError, fetch, read_all, run, serving
from tests.made_archive import MadeArchive, batches
from tests.made_damage import DAMAGES, LOG
from tests.reader.test_views import CASES, IDS, JAVA, Case
from ts_common.archive.object_keys import ClusterKeys
from ts_common.store.factory import open_store
from ts_endpoint.data import reads

SIZES = (1, 200, 1 << 20)  # bytes of a Fetch: one batch, a few, all
SHOWN = {
    name: case
    for name, case in CASES.items()
    if case.error is None and not {"starting_offsets", "incarnation"} & case.arguments.keys()
}


@pytest.mark.parametrize("most_bytes", SIZES)
@pytest.mark.parametrize("case", SHOWN.values(), ids=SHOWN)
def test_e01_a_consumer_gets_the_rows_of_the_reader(tmp_path: Path, case: Case, most_bytes: int) -> None:
    """Each offset once and in order, whatever the size of a Fetch."""
    archive = MadeArchive(tmp_path / "archive")
    case.make(archive)
    allows_loss = not case.arguments.get("fail_on_data_loss", True)
    committed = case.arguments.get("isolation_level") == "read_committed"

    async def read() -> list[tuple[int, bytes | None]]:
        with serving(archive.store, archive.keys, passes_holes=allows_loss) as served:
            rows = await read_all(served, "t", committed=committed, most_bytes=most_bytes)
            return [(row["offset"], row["value"]) for row in rows]

    assert run(read) == case.rows


@pytest.mark.parametrize("name", ["r03 holes", "r12c no segment"])
def test_e01_a_hole_ends_the_partition_with_an_error(tmp_path: Path, name: str) -> None:
    """The error is CORRUPT_MESSAGE, which clients neither repeat in silence nor pass over."""
    archive = MadeArchive(tmp_path / "archive")
    CASES[name].make(archive)

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            await read_all(served, "t")

    with pytest.raises(FetchError) as caught:
        run(read)
    assert caught.value.error is ErrorCode.corrupt_message


def test_offsets_below_log_start_are_out_of_range(tmp_path: Path) -> None:
    """A client with `auto.offset.reset` begins where the archive begins."""
    archive = MadeArchive(tmp_path / "archive")
    CASES["log.start"].make(archive)

    async def read() -> None:
        with serving(archive.store, archive.keys) as served:
            await read_all(served, "t", start=20)

    with pytest.raises(FetchError) as caught:
        run(read)
    assert caught.value.error is ErrorCode.offset_out_of_range


def test_each_incarnation_is_a_topic_by_option(tmp_path: Path) -> None:
    """`t` is the newest one, and `t~id` each of them."""
    archive = MadeArchive(tmp_path / "archive")
    CASES["newest incarnation"].make(archive)

    async def read() -> list[list[bytes]]:
        with serving(archive.store, archive.keys, with_incarnations=True) as served:
            return [
                [row["value"] for row in await read_all(served, name)] for name in ("t", f"t~{IDS[0]}", f"t~{IDS[1]}")
            ]

    newest, first, second = run(read)
    assert newest == second == [b"second"] * 5
    assert first == [b"first"] * 9


@pytest.mark.parametrize("how", DAMAGES)
def test_r04_damage_ends_the_partition_and_an_intact_copy_replaces_it(tmp_path: Path, how: str) -> None:
    """Rows before the damage are sent; the offsets behind it only if another copy has them intact."""
    damage, _ = DAMAGES[how]
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, LOG, body=damage(LOG))
    archive.commit("t", 50)

    async def read() -> list[int]:
        with serving(archive.store, archive.keys) as served:
            return [row["offset"] for row in await read_all(served, "t", most_bytes=1)]

    with pytest.raises(FetchError) as caught:
        run(read)
    assert caught.value.error is ErrorCode.corrupt_message
    archive.put_segment("t", 0, LOG, variant=True)
    assert run(read) == list(range(50))


def test_r04_damage_in_one_of_several_compacted_copies_costs_no_record(tmp_path: Path) -> None:
    """Each copy has all records of the other, and none has every offset: both are read."""
    log = batches((0, 8), (10, 20), (20, 30), (30, 40), (45, 50))
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, log, body=DAMAGES["flipped bit"][0](log))
    archive.put_segment("t", 0, log, variant=True)
    archive.commit("t", 50)

    async def read() -> list[int]:
        with serving(archive.store, archive.keys) as served:
            return [row["offset"] for row in await read_all(served, "t")]

    assert run(read) == [*range(8), *range(10, 40), *range(45, 50)]


def test_r04_an_object_that_was_put_back_is_read_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key and size are those of the damaged object, so no listing shows the change."""
    now = [100.0]
    monkeypatch.setattr(reads, "monotonic", lambda: now[0])
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, LOG, body=DAMAGES["flipped bit"][0](LOG))
    archive.commit("t", 50)

    async def read() -> list[int]:
        with serving(archive.store, archive.keys) as served:
            assert (await fetch(served, "t", 20)).error is ErrorCode.corrupt_message
            archive.put_segment("t", 0, LOG)
            now[0] += reads.DAMAGE_SECONDS
            return [row["offset"] for row in await read_all(served, "t", start=20)]

    assert run(read) == list(range(20, 50))


def test_a_bucket_of_the_java_uploader_is_served_up_to_its_commit() -> None:
    """It has no metadata, and its commit names the segment at 200."""

    async def read() -> list[int]:
        with open_store(JAVA) as store, serving(store, ClusterKeys("my_test_kafka_cluster", 3)) as served:
            return [row["offset"] for row in await read_all(served, "appendtime")]

    assert run(read) == list(range(287))
