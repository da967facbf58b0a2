"""The fork server: a program is a process of its own, as its executable would be."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dev.local.forks import inherited, run, write_command
from dev.local.waiting import wait_for

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "more"),
    [
        pytest.param(("ts-uploader", "check", "none", "--cluster-id", "x"), {}, marks=pytest.mark.full),
        (("ts-uploader", "--version"), {"PYTHONPATH": str(CHECKOUT)}),
        pytest.param(("ts-endpoint", "serve", "--none"), {}, marks=pytest.mark.full),
        (("tsctl", "ls", "t\xe9", "--url", "file:///none", "--cluster", "x"), {}),
    ],
)
def test_a_fork_and_its_command_print_what_the_executable_prints(
    tmp_path: Path, words: tuple[str, ...], more: dict[str, str]
) -> None:
    """Output, errors and exit status, in its own directory and with its own variables."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"COLUMNS": "300"} | more
    name, *arguments = words
    write_command(tmp_path / "command", name)

    def printed(program: Path) -> tuple[int, str, str]:
        ended = subprocess.run(
            [program, *arguments],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            pass_fds=inherited(),
        )
        return ended.returncode, ended.stdout, ended.stderr

    expected = printed(Path(sys.executable).with_name(name))
    forked = run(words, cwd=tmp_path, env=env, timeout=60)
    assert (forked.returncode, forked.stdout, forked.stderr) == expected
    assert printed(tmp_path / "command") == expected


def test_a_fork_is_killed_alone_and_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Its exit status is the signal; no fork is left when a test's process ends, however that ends."""
    script = """
import os, sys
from pathlib import Path
from dev.local.forks import start
arguments = ["ts-uploader", "run", sys.argv[1], "--cluster-id", "x", "--server-properties", sys.argv[2]]
made = [start(arguments, cwd=Path("/"), env=dict(os.environ), output=2) for _ in range(2)]
made[0].kill()
print(made[0].wait(60), made[1].pid, os.getsid(made[1].pid) == made[1].pid, made[1].poll(), flush=True)
sys.stdin.read()
"""
    os.mkfifo(tmp_path / "x.properties")  # the program waits at it
    command = [sys.executable, "-c", script, str(tmp_path), str(tmp_path / "x.properties")]
    with subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        try:
            status, pid, is_leader, polled = starter.stdout.readline().split()
            is_there = Path(f"/proc/{pid}").exists()
        finally:
            starter.kill()
    assert (status, is_leader, polled, is_there) == (str(-signal.SIGKILL), "True", "None", True)
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the fork to end")
