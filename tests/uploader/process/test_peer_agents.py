"""Which other agents work beside the same broker, by what the kernel knows of them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ts_local.cluster import wait_for
from ts_uploader.process.peer_agents import Presence

STORES = ["s3://bucket/one", "s3://bucket/two"]
PROGRAM = """
import sys
from pathlib import Path
from ts_uploader.process.peer_agents import Presence

presence = Presence(sys.argv[1], [Path(sys.argv[2])], sys.argv[3:])
print(len(presence.others()), flush=True)
sys.stdin.read()
"""


@contextmanager
def neighbour(log_dir: Path, cluster: str = "prod") -> Iterator[tuple[int, int]]:
    """The id of a process of its own that is present, and how many others it sees; killed at the end."""
    command = [sys.executable, "-c", PROGRAM, cluster, str(log_dir), *reversed(STORES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def test_a_neighbour_is_known_for_as_long_as_it_lives(tmp_path: Path) -> None:
    """Each sees the other, by its process; one that is killed leaves nothing behind."""
    presence = Presence("prod", [tmp_path], STORES)
    assert presence.others() == ()
    with neighbour(tmp_path) as (process, seen):
        assert [other.process for other in presence.others()] == [process]
        assert seen == 1
    wait_for(lambda: presence.others() == (), "the killed one to be forgotten")
    presence.close()


def test_other_work_is_no_neighbour(tmp_path: Path) -> None:
    """Another broker's disks, or another cluster id in the keys; a log dir that is gone is no reason to fail."""
    (tmp_path / "other").mkdir()
    presence = Presence("prod", [tmp_path, tmp_path / "gone"], STORES)
    with neighbour(tmp_path / "other") as (_, of_disks), neighbour(tmp_path, "test") as (_, of_keys):
        assert (presence.others(), of_disks, of_keys) == ((), 0, 0)
    presence.close()


def test_the_same_disks_by_another_path_are_the_same(tmp_path: Path) -> None:
    """As a container sees them, that mounts them elsewhere."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "mounted").symlink_to(tmp_path / "disk")
    presence = Presence("prod", [tmp_path / "mounted"], STORES)
    with neighbour(tmp_path / "disk") as (_, seen):
        assert seen == 1
    presence.close()
