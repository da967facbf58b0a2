"""An endpoint under the restrictions of deploy/ts-endpoint.service: see tests/deploy/sandbox.py."""

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from dev.local.ports import free_ports
from dev.local.waiting import wait_for
from tests.endpoint.running import RECORDS, TOPIC, Running, made_archive

UNIT = Path(__file__).parents[2] / "deploy" / "ts-endpoint.service"


@pytest.mark.parametrize("compiles", [False, pytest.param(True, marks=pytest.mark.full)])
def test_an_endpoint_serves_inside_the_sandbox_of_its_unit(tmp_path: Path, compiles: bool) -> None:
    """With each forbidden system call deadly; decoders are compiled, or loaded as code, and a client reads by TCP."""
    port, http_port = free_ports(2)
    sandbox = (sys.executable, "-m", "tests.deploy.sandbox", "calls", str(UNIT))
    environment = {**os.environ, **({"NUMBA_CACHE_DIR": str(tmp_path / "cache")} if compiles else {})}
    archive = made_archive(tmp_path / "archive").location
    process = Running(archive, tmp_path / "log", port, http_port, prefix=sandbox, environment=environment)
    try:
        process.wait_until_ready()
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{process.process.pid}/status").read_text().splitlines()
        )
        assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
        options = {"bootstrap.servers": process.address, "group.id": "g", "enable.auto.commit": False}
        with closing(Consumer(options)) as consumer:
            at_time = TopicPartition(TOPIC, 0, 1000 + RECORDS // 2)  # the lookup of a time decodes records
            (found,) = consumer.offsets_for_times([at_time], timeout=60)
            assert found.offset == RECORDS // 2
            consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
            read = [0]

            def all_records() -> bool:
                read[0] += sum(message.error() is None for message in consumer.consume(RECORDS, 0.1))
                return read[0] == RECORDS

            wait_for(all_records, "all records", every=0)
        assert "process_start_time_seconds" in process.page("/metrics")[1]
        assert process.stop() == 0
    finally:
        process.process.kill()
