"""The process that runs inputs: `python -m tests.fuzz.child <arguments as JSON>`. `parent` starts it and watches it.

It prints a line of JSON for each kind of failure, and one with the target's counts from time to time.
"""

import faulthandler
import hashlib
import importlib
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.ledger import Ledger
from tests.fuzz.target import Target
from tests.fuzz.targets import Entry

_ADDRESS_SLACK = 1 << 30  # threads' stacks and arenas, which are address space before they are memory
_OURS = ("ts_common", "ts_uploader", "ts_spark", "ts_reader", "ts_tables", "ts_endpoint", "tsctl", "tests/fuzz")
_MINIMISE_SECONDS = 15.0
FULL = 3  # the exit code after an input that used too much memory
_NEVER = 1_000_000  # seconds; the parent looks for hangs, and 0 means at once here


@dataclass(frozen=True, slots=True)
class Job:
    """What a child does.

    Attributes:
        target: its name.
        entry: its module and the limits of one input.
        ledger: path of the file that `Ledger` keeps.
        found: directory for inputs that fail.
        seed: of what is drawn.
        seconds: of drawing; 0 to run `files` alone.
        files: inputs that are run first.
        guide: let atheris choose, where it can.
        minimise: cut down the one file of `files`, in its place.
    """

    target: str
    entry: Entry
    ledger: str
    found: str
    seed: int = 0
    seconds: float = 0.0
    files: tuple[str, ...] = ()
    guide: bool = False
    minimise: bool = False


class _TooMuchMemory(AssertionError):
    """The process grew by more than its target allows."""


class _Runner:
    def __init__(self, target: Target, entry: Entry, ledger: Ledger, found: Path) -> None:
        self._target = target
        self._most = entry.mib << 20
        self._ledger = ledger
        self._found = found
        self._start = resident_bytes()
        self.grows_itself = False  # atheris keeps inputs: each may add as much then
        self._seen: set[str] = set()

    def attempt(self, data: bytes) -> tuple[str, str]:
        """Run an input; return the kind of its failure and the traceback, both empty if it passes."""
        self._ledger.begin(data)
        kind = trace = ""
        try:
            self._target.run(data)
            grown = resident_bytes() - self._start
            if grown > self._most:
                raise _TooMuchMemory(f"memory: at most {self._most >> 20} MiB may be added")
        except BaseException as error:  # noqa: BLE001 - every other one than the target's own is what is looked for
            kind, trace = _kind(error), traceback.format_exc()
        self._ledger.end()
        if self.grows_itself:
            self._start = resident_bytes()
        return kind, trace

    def run(self, data: bytes, name: str = "") -> None:
        """Run an input; report its failure if it has a file, or if the kind of failure is new."""
        kind, trace = self.attempt(data)
        if kind and (name or kind not in self._seen):
            self._seen.add(kind)
            path = Path(name or self._found / f"{self._target.name}-{hashlib.sha256(data).hexdigest()[:12]}.input")
            if not name:
                path.write_bytes(data)
            sys.stdout.write(json.dumps({"kind": kind, "file": str(path), "traceback": trace[-3000:]}) + "\n")
            sys.stdout.flush()
            if "TooMuchMemory" in kind or "MemoryError" in kind:
                self.write_counts()
                os._exit(FULL)  # the memory is not freed, so another process continues

    def write_counts(self) -> None:
        """Report what the target counted so far; the parent reads the last report of a process."""
        if counts := self._target.counts():
            sys.stdout.write(json.dumps({"counts": dict(counts)}) + "\n")
            sys.stdout.flush()


def resident_bytes() -> int:
    """The most memory that this program had; `getrusage` counts what the process had before it became this program."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) << 10


def main(arguments: str) -> None:
    """Do one job."""
    fields = json.loads(arguments)
    entry = Entry(**{**fields["entry"], "known": tuple(fields["entry"]["known"])})
    job = Job(**{**fields, "entry": entry, "files": tuple(fields["files"])})
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the parent wants to see where an input hangs
    ledger = Ledger(Path(job.ledger))
    atheris = _atheris() if job.guide and job.entry.guided else None
    module, _, name = job.entry.place.partition(":")
    around = atheris.instrument_imports(include=["ts_common", "ts_uploader"]) if atheris else nullcontext()
    with around:
        target: Target = getattr(importlib.import_module(module), name)(job.target)
        target.open()
    sizes = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    most = (int(sizes["VmSize"].split()[0]) << 10) + (job.entry.mib << 20) + _ADDRESS_SLACK
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    ledger.open()
    runner = _Runner(target, job.entry, ledger, Path(job.found))
    if job.minimise:
        _minimise(runner, Path(job.files[0]))
        return
    for path in job.files:
        runner.run(Path(path).read_bytes(), path)
    runner.write_counts()
    if not job.seconds:
        return
    chance = random.Random(job.seed)
    ends = time.monotonic() + job.seconds
    if atheris is not None:
        _guided(atheris, target, runner, chance, job)
    while time.monotonic() < ends:
        inputs = [target.drawn(chance) for _ in range(target.at_once)]
        target.run_ahead(inputs)
        for data in inputs:
            runner.run(data)
        runner.write_counts()


def _atheris() -> Any:
    """The module, None where this Python has none."""
    try:
        return importlib.import_module("atheris")
    except ImportError:
        return None


def _guided(atheris: Any, target: Target, runner: _Runner, chance: random.Random, job: Job) -> None:
    """Draw by the code that inputs reach; this ends the process."""

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        own = random.Random(seed)
        changed = target.drawn(own) if own.random() < 0.3 else atheris.Mutate(data, most)
        return bytes(changed[:most])

    runner.grows_itself = True
    corpus = Path(job.ledger).with_suffix(".reached")
    corpus.mkdir(exist_ok=True)
    for number in range(200):
        (corpus / f"drawn-{number}").write_bytes(target.drawn(chance)[:20_000])
    options = [
        f"-max_total_time={max(1, int(job.seconds))}",
        f"-seed={job.seed % (1 << 31) + 1}",
        "-max_len=20000",
        "-rss_limit_mb=0",
        f"-timeout={_NEVER}",
        "-handle_segv=0",
        "-handle_abrt=0",
        "-verbosity=0",
        "-print_final_stats=0",
        str(corpus),
    ]
    atheris.Setup(["fuzz", *options], runner.run, custom_mutator=mutated)
    atheris.Fuzz()


def _minimise(runner: _Runner, path: Path) -> None:
    """Leave out parts of a failing input for as long as it fails in the same way."""
    data = path.read_bytes()
    kind, _ = runner.attempt(data)
    if not kind:
        return
    ends = time.monotonic() + _MINIMISE_SECONDS
    size = max(1, len(data) // 2)
    while time.monotonic() < ends:
        at = 0
        shorter = False
        while at < len(data) and time.monotonic() < ends:
            rest = data[:at] + data[at + size :]
            if runner.attempt(rest)[0] == kind:
                data, shorter = rest, True
                path.write_bytes(data)
            else:
                at += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)


def _kind(error: BaseException) -> str:
    """Return the kind of a failure: its type, and the innermost line of the project."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if any(f"/{part}" in frame.filename for part in _OURS)]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} at {where}"


def arguments_of(job: Job) -> str:
    """Return the argument of `main`."""
    return json.dumps(asdict(job))


if __name__ == "__main__":
    main(sys.argv[1])
