"""E03: members of a group that are killed while they read."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from dev.local.waiting import wait_for
from tests.endpoint.running import PARTITIONS, RECORDS, TOPIC, Running, made_archive, running

EVERY = {(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)}


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Running]:
    """One process over an archive with one topic."""
    with running(made_archive(tmp_path / "archive").location, tmp_path) as (found,):
        yield found


def printed(out: Path) -> list[tuple[int, int]]:
    """Return the records that a member has printed, without a line that is not whole."""
    whole = out.read_text().rpartition("\n")[0]
    return [(int(partition), int(offset)) for partition, offset in map(str.split, whole.splitlines())]


def has_read(out: Path) -> bool:
    """Return whether a member has committed some of what it read."""
    return len(printed(out)) > 60


def test_e03_the_others_read_what_killed_members_had_not_committed(endpoint: Running, tmp_path: Path) -> None:
    """Two of three members are killed, one after the other: no record is lost, and the third reads none twice."""
    outs = [tmp_path / f"member-{number}" for number in range(3)]
    with ExitStack() as ending:
        members = []
        for out in outs:
            command = [sys.executable, "-m", "tests.endpoint.groups.member", endpoint.address, TOPIC, "g"]
            with out.open("wb") as file:
                members.append(subprocess.Popen(command, stdout=file, cwd=Path(__file__).parents[3]))
            ending.callback(members[-1].wait)
            ending.callback(members[-1].kill)
        for member, out in zip(members[:2], outs, strict=False):
            wait_for(partial(has_read, out), "a member to read", 60, state=partial(printed, out))
            member.kill()
        wait_for(
            lambda: {record for out in outs for record in printed(out)} == EVERY,
            "all records",
            120,
            state=lambda: [len(printed(out)) for out in outs],
        )

    survivor = printed(outs[2])
    assert len(set(survivor)) == len(survivor)  # it committed what it read, so it reads nothing twice
