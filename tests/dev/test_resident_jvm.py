"""The JVM that later tests share: what a lost call costs, and that its consumer is Kafka's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.local.consumed_logs import ConsumedRecord, consume
from dev.local.kafka.tools import DUMP_LOG, output_of
from dev.local.resident_jvm import CommandFailedError, JvmLostError, ResidentJvm
from tests.common.log_format import build


@pytest.fixture(scope="module")
def jvm() -> Iterator[ResidentJvm]:
    jvm = ResidentJvm()
    yield jvm
    jvm.close()


def test_a_call_that_fails_or_times_out_does_not_spoil_the_next(jvm: ResidentJvm) -> None:
    """A command that throws has its stack trace as the error; after a missed deadline another JVM starts."""
    with pytest.raises(CommandFailedError, match=r"no command nonsense; expected one of \[consume, dump, produce"):
        jvm.call("nonsense")
    with pytest.raises(CommandFailedError, match="EOFException"):
        jvm.call("consume", b"no arguments")
    with pytest.raises(JvmLostError, match="no answer in time"):
        consume(jvm, [build.batch()] * 1000, seconds=0.0)
    assert [each.uncommitted.records for each in consume(jvm, [b"", build.batch()])] == [
        [],
        [ConsumedRecord(0, 1000, 0, 0, b"k", b"v", ())],
    ]


def test_a_reading_has_what_the_consumer_returned_before_it_refused(jvm: ResidentJvm) -> None:
    """The refusal has the consumer's exception and the batch's position; committed readings lack aborted records."""
    good = build.batch(0, [build.record(0), build.record(1)], attributes=build.TRANSACTIONAL, producer_id=7)
    marker = build.marker(2, 7, 0)
    bad = bytearray(build.batch(3, [build.record(0)]))
    bad[-2] ^= 1
    (found,) = consume(jvm, [good + marker + bad])
    assert [record.offset for record in found.uncommitted.records] == [0, 1]
    assert found.committed.records == []
    assert found.aborted == ((7, 0, 2),)
    assert found.uncommitted.refusal == "org.apache.kafka.common.KafkaException"
    assert "is corrupt" in found.uncommitted.message
    assert found.uncommitted.position == len(good + marker)
    (unchecked,) = consume(jvm, [good + marker + bad], check_crcs=False, start=1, aborted=())
    assert [record.offset for record in unchecked.committed.records] == [1, 3]
    assert unchecked.uncommitted.refusal == ""


def test_each_run_of_a_tool_has_its_own_output(tmp_path: Path) -> None:
    """Tools in Scala keep the standard output that the first of them found."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(build.batch())
    first, second = (output_of(DUMP_LOG, ["--files", str(path)]) for _ in range(2))
    assert "baseOffset: 0 " in first
    assert second == first
