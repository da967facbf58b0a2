"""`tsctl` in a process that kills itself before its n-th change: of a file, of a store or of a cluster."""

import os
import signal
import stat
import sys
from collections.abc import Callable, Mapping
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from tests.tsctl.running import Ended
from ts_common.store.s3.driver import S3Store
from tsctl.cli import run as run_tsctl
from tsctl.restore.new_cluster import NewCluster

KILLED: Final = -signal.SIGKILL
_SECONDS: Final = 300
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES: Final = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir"})
_REQUESTS: Final[tuple[tuple[type, str], ...]] = (
    (S3Store, "put"),
    (NewCluster, "create"),
    (NewCluster, "set_offsets"),
    (NewCluster, "configure"),
)
_CONTEXT: Final = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.tsctl.restore.killing", "tsctl.commands.restore", "boto3.s3.inject"])


class Killer:
    """Runs command lines that are killed.

    Args:
        roots: changes of files below them count; the first also gets the processes' output.
        environment: of the processes.

    Attributes:
        kills: how often one was killed.
    """

    def __init__(self, *roots: Path, environment: Mapping[str, str] | None = None) -> None:
        self.kills = 0
        self._roots = roots
        self._environment = dict(environment or {})

    def run(self, at: int, *arguments: object) -> Ended:
        """Run `tsctl` once; it is killed before the change with the number `at`, from 1. Its code is `KILLED` then."""
        output = self._roots[0] / "output"
        command = [str(argument) for argument in arguments]
        process = _CONTEXT.Process(target=_run, args=(at, self._roots, output, self._environment, command))
        process.start()
        process.join(_SECONDS)
        code = process.exitcode
        assert code is not None, command
        out, err = (output.with_suffix(each).read_text() for each in (".out", ".err"))
        assert "Traceback" not in err, err
        self.kills += code == KILLED
        return Ended(code, out, err)


def _run(at: int, roots: tuple[Path, ...], output: Path, environment: Mapping[str, str], arguments: list[str]) -> None:
    os.environ.update(environment)
    for number, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(output.with_suffix(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    changes = count(1)

    def change(tear: Callable[[], None] = lambda: None) -> None:
        if next(changes) == at:
            tear()
            os.kill(os.getpid(), signal.SIGKILL)

    def is_below(path: object) -> bool:
        if not isinstance(path, str | os.PathLike):
            return False
        return not Path(path).is_absolute() or any(Path(path).is_relative_to(root) for root in roots)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if (event in _CHANGES or (event == "open" and arguments[2] & _WRITES)) and is_below(arguments[0]):
            change()

    fsync = os.fsync

    def synced(descriptor: int) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):  # as if it were killed in the middle of a write
            change(lambda: os.ftruncate(descriptor, found.st_size // 2))
        change()
        fsync(descriptor)

    def wrapped(request: Callable[..., Any]) -> Callable[..., Any]:
        def requested(*positional: Any, **named: Any) -> Any:
            change()
            result = request(*positional, **named)
            change()
            return result

        return requested

    setattr(os, "fsync", synced)  # noqa: B010  (a typed assignment needs the types of all callers)
    for owner, name in _REQUESTS:
        setattr(owner, name, wrapped(getattr(owner, name)))
    sys.addaudithook(audit)
    sys.exit(int(run_tsctl(arguments)))
