"""Starts the Spark program in its own session, yields its answers, and ends all its processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from dev.demo.query import Question
from dev.local.process import tail_of

_END_SECONDS = 10.0


class QueryFailedError(RuntimeError):
    """The Spark program failed, or ended without all answers. The message has the end of its log."""


@contextmanager
def ask(question: Question, log: Path) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield the program's answers as they arrive.

    Args:
        question: what to compute.
        log: the file for the output of Spark and Java.

    Raises:
        QueryFailedError: from the iterator.
    """
    scratch = Path(question.scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    ours = {"PYSPARK_PYTHON": sys.executable, "TMPDIR": str(scratch)}
    with log.open("ab") as errors:
        program = subprocess.Popen(
            # It ends with this process, and its Java and workers end with it, when their parent's pipe closes.
            ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "dev.demo.query", question.to_json()],
            cwd=scratch,
            env={**os.environ, **ours},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield _answers(program, log)
    finally:
        _end(program)


def _answers(program: "subprocess.Popen[bytes]", log: Path) -> Iterator[dict[str, Any]]:
    for line in program.stdout or ():
        yield json.loads(line)
    status = program.wait()
    if status:
        raise QueryFailedError(f"the Spark program ended with status {status}.\n{tail_of(log, 60)}")


def _end(program: "subprocess.Popen[bytes]") -> None:
    """Kill the remaining processes. Spark's workers leave the program's process group, but not its session."""
    left = [process for process in psutil.process_iter() if _session(process.pid) == program.pid]
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    program.wait()
    psutil.wait_procs([process for process in left if process.pid != program.pid], timeout=_END_SECONDS)
    if program.stdout is not None:
        program.stdout.close()


def _session(process: int) -> int:
    try:
        return os.getsid(process)
    except OSError:
        return -1
