"""Each reader on an archive with frozen segments: it names the way out, and reads them after `tsctl thaw`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from dev.local.stores.moto import MotoServer
from dev.local.waiting import wait_for
from tests.consumer.archives import error_of, place
from tests.endpoint.clients import FetchError, read_all, run, serving
from tests.made_cold import STEP, TOPIC, ColdArchive, cold_archive
from tests.tables.made_tables import MadeTable
from tests.tsctl.running import Run, runner
from ts_common.errors import ObjectFrozen
from ts_consumer import TieredConsumer, TierMode
from ts_reader import Archive
from ts_reader.query.plan_query import plan_query
from ts_spark.options.parse import parse_options

FOUND = "t-0: 2 of 3 segments to read, "
COMMAND = "`tsctl thaw t -p 0 --from 0 --to 20 --url {} --cluster prod`"
ALL = list(range(3 * STEP))


@pytest.fixture
def cold(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ColdArchive]:
    """Make an archive whose first two of three segments are frozen."""
    with cold_archive(moto_server, monkeypatch) as archive:
        archive.freeze(0, STEP)
        yield archive


@pytest.fixture
def tsctl(capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(capfd)


def in_python(archive: ColdArchive, _directory: Path) -> list[int]:
    rows = Archive(archive.location, "prod").scan(TOPIC, columns=["offset"]).to_table()
    return [int(offset) for offset in rows.column("offset").to_pylist()]


def in_spark(archive: ColdArchive, _directory: Path) -> list[int]:
    """Plan as `partitions()` does on the driver."""
    options = parse_options({"path": archive.location, "cluster": "prod", "subscribe": TOPIC})
    ranges = [part for split in plan_query(archive.store, options.query).splits for part in split.ranges]
    return [offset for part in ranges for offset in range(part.start, part.end)]


def in_a_table(archive: ColdArchive, directory: Path) -> list[int]:
    table = MadeTable(archive, directory)
    table.create()
    return list(range(table.run().records))


@pytest.mark.parametrize("read", [in_python, in_spark, in_a_table])
def test_a_reader_names_the_way_out_before_it_reads(
    cold: ColdArchive, tsctl: Run, tmp_path: Path, read: Callable[[ColdArchive, Path], list[int]]
) -> None:
    """The command of the message thaws what it needs; then it reads all."""
    with pytest.raises(ObjectFrozen) as frozen:
        read(cold, tmp_path / "first")
    message = str(frozen.value)
    assert message.startswith(FOUND)
    assert COMMAND.format(cold.location) in message
    arguments = message.partition("`tsctl ")[2].partition("`")[0].split()
    assert tsctl(*arguments).code == 0
    assert read(cold, tmp_path / "second") == ALL


def test_a_consumer_gets_an_error_and_continues_after_the_thaw(cold: ColdArchive, tsctl: Run) -> None:
    """The error is not fatal: the consumer plans again, and an operator thaws meanwhile."""
    given = {**place(cold), "tiered.storage.mode": TierMode.TIERED_STORAGE_ONLY, "auto.offset.reset": "earliest"}
    offsets: list[int | None] = []
    with TieredConsumer(given) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = wait_for(lambda: consumer.poll(1), "the error")
        assert message is not None
        assert f"archive: {FOUND}" in error_of(message).str()
        assert tsctl("thaw", TOPIC, "--url", cold.location, "--cluster", "prod").code == 0

        def all_read() -> bool:
            offsets.extend(each.offset() for each in consumer.consume(100, 0.2) if each.error() is None)
            return len(offsets) >= len(ALL)

        wait_for(all_read, "all records", 120)
    assert offsets == ALL


def test_a_client_of_the_endpoint_gets_an_error_that_it_does_not_repeat_in_silence(
    cold: ColdArchive, tsctl: Run
) -> None:
    """CORRUPT_MESSAGE; the log has the reason. What is not frozen is served, and the rest after the thaw."""

    async def read(start: int) -> list[int]:
        with serving(cold.store, cold.keys) as served:
            return [row["offset"] for row in await read_all(served, TOPIC, start=start)]

    with capture_logs() as logs, pytest.raises(FetchError) as caught:
        run(lambda: read(0))
    assert caught.value.error is ErrorCode.corrupt_message
    (reason,) = {line["reason"] for line in logs if line["event"] == "fetch_failed"}
    assert reason.startswith(FOUND)
    assert COMMAND.format(cold.location) in reason
    assert run(lambda: read(2 * STEP)) == ALL[2 * STEP :]
    assert tsctl("thaw", TOPIC, "--url", cold.location, "--cluster", "prod").code == 0
    assert run(lambda: read(0)) == ALL
