"""The agent's priority is below the broker's, as the kernel reports it, and its threads share heaps."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

import psutil
import pytest
import structlog

from dev.local.agent import AgentProcess
from dev.local.kafka.cluster import LocalCluster
from tests.uploader.beside import PREFIX, Archive
from tests.uploader.conftest import ArchiveOf
from ts_common.config.cluster_config import parse_config
from ts_common.errors import ConfigurationError
from ts_uploader.process.footprint import lower_priority

IDLE, LEAST = (3,), (2, 7)
FULL = pytest.mark.full
T = TypeVar("T")
NICE, IONICE = PREFIX + "nice", PREFIX + "ionice.class"


def class_of(thread: int) -> tuple[int, ...]:
    """The class of I/O of a thread and its level, which means nothing for idle."""
    told = subprocess.run(["ionice", "-p", str(thread or os.getpid())], capture_output=True, text=True, check=False)
    if told.returncode:
        raise ProcessLookupError(told.stderr)
    kind, _, level = told.stdout.strip().partition(": prio ")
    return IDLE if kind == "idle" else ({"none": 0, "best-effort": 2}[kind], int(level))


def threads_of(agent: AgentProcess) -> list[int]:
    """The kernel's numbers of an agent's threads."""
    return [thread.id for thread in psutil.Process(agent.pid).threads()]


def of_each(threads: Iterable[int], ask: Callable[[int], T]) -> set[T]:
    """What is so of each thread; a request to `/healthz` has one of its own, which may have ended."""
    found = set()
    for thread in threads:
        with suppress(ProcessLookupError):
            found.add(ask(thread))
    return found


@pytest.fixture
def archive(archive_of: ArchiveOf, request: pytest.FixtureRequest) -> Archive:
    return archive_of("none-of-these", properties=request.param)


@pytest.mark.parametrize(
    ("archive", "prefix", "nice", "io"),
    [
        pytest.param({}, (), 10, LEAST, id="by default"),
        pytest.param({}, ("nice", "-n15", "ionice", "-c3"), 15, IDLE, id="never raised"),
        pytest.param({NICE: "3", IONICE: "idle"}, (), 3, IDLE, id="as configured", marks=FULL),
        pytest.param(
            {NICE: "0", IONICE: "none"}, ("nice", "-n5"), 5, None, id="as it was started", marks=pytest.mark.full
        ),
    ],
    indirect=["archive"],
)
def test_every_thread_has_the_priority_of_the_configuration(
    cluster: LocalCluster, archive: Archive, prefix: Sequence[str], nice: int, io: tuple[int, ...] | None
) -> None:
    """Nice value and class of I/O of all threads of a real agent, whatever it was started with."""
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    started = min(19, ours + int(prefix[1][2:])) if prefix else ours
    agent = archive.agent(prefix=prefix)
    threads = threads_of(agent)
    assert len(threads) > 10
    assert of_each(threads, lambda thread: os.getpriority(os.PRIO_PROCESS, thread)) == {max(nice, started)}
    assert of_each(threads, class_of) == {class_of(0) if io is None else io}


def test_what_is_no_class_of_io_is_refused() -> None:
    """The message names the key, what was found and what is accepted."""
    for wrong in ("realtime:1", "best-effort", "best-effort:8", ""):
        with pytest.raises(ConfigurationError, match=r"ionice\.class=.*best-effort:0 to best-effort:7"):
            parse_config({IONICE: wrong}, "prod.properties")


def test_a_refusal_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernel rejects the call, the agent runs as it was started, and logs why."""

    def denied(*_: object) -> None:
        raise psutil.AccessDenied(1, "none such")

    monkeypatch.setattr(psutil.Process, "ionice", denied)
    config, _ = parse_config({NICE: "0", IONICE: "idle"}, "prod.properties")
    with structlog.testing.capture_logs() as logs:
        lower_priority(config)
    assert [event["log_level"] for event in logs] == ["warning"]
    assert "none such" in logs[0]["error"]


# Each thread holds what it allocated until all have. An arena of glibc's begins at a multiple of 64 MiB, as another
# mapping can by chance, and reserves all up to the next one.
_PROGRAM = """
import re, threading
{bound}
together, size = threading.Barrier(9), 64 << 20
def hold():
    held = [bytes(2000) for _ in range(500)]
    together.wait(60)
    together.wait(60)
for _ in range(8):
    threading.Thread(target=hold).start()
together.wait(60)
lines = re.findall("^([0-9a-f]+)-([0-9a-f]+) (...)", open("/proc/self/maps").read(), re.M)
maps = [(int(start, 16), int(end, 16), rights) for start, end, rights in lines]
reserved = {{start: end for start, end, rights in maps if rights == "---"}}
print(sum(not start % size and reserved.get(end, 0) >= start + size for start, end, rights in maps if rights == "rw-"))
together.wait(60)
"""


def arenas(bound: str) -> int:
    """How many arenas eight threads get in addition to the main heap."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM.format(bound=bound)], capture_output=True, check=True)
    return int(done.stdout)


def test_threads_share_two_arenas() -> None:
    """The main heap and one more; without the bound each of these threads has its own."""
    assert arenas("from ts_uploader.process.footprint import bound_arenas; bound_arenas()") <= 1
    assert arenas("") > 4
