"""Starts the processes that run inputs, watches them, and reports what they found."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from tests.fuzz.child import FULL, Job, arguments_of
from tests.fuzz.ledger import Ledger
from tests.fuzz.targets import TARGETS

_POLL_SECONDS = 0.05
_OPEN_SECONDS = 240.0  # kernels are compiled
_GRACE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Failure:
    """One input that failed.

    Attributes:
        target: whose.
        kind: type and place.
        file: the input.
        traceback: how it failed.
    """

    target: str
    kind: str
    file: Path
    traceback: str


@dataclass(slots=True)
class Outcome:
    """What became of a target.

    Attributes:
        target: its name.
        seed: of its first process.
        inputs: that were run.
        seconds: of running.
        slowest: seconds of the slowest input.
        peak_bytes: of memory.
        failures: of each kind one, or those of files that were given.
        counts: of the target.
    """

    target: str
    seed: int
    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    peak_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds of failures."""
        return frozenset(failure.kind for failure in self.failures)

    def add(self, failure: Failure, *, is_drawn: bool) -> None:
        """Add a failure; of drawn inputs only one of each kind."""
        if not is_drawn or failure.kind not in self.kinds:
            self.failures.append(failure)

    def lines(self) -> str:
        """For a reader."""
        rate = self.inputs / self.seconds if self.seconds else 0.0
        counts = "".join(f"\n    {count:>9,} {what}" for what, count in self.counts.most_common())
        return (
            f"{self.target:16} {self.inputs:>9,} inputs {rate:>9,.1f}/s  slowest {self.slowest:7.3f} s  "
            f"peak {self.peak_bytes >> 20:>5} MiB  seed {self.seed}  failures {len(self.failures)}{counts}"
        )


class HarnessError(Exception):
    """A target that could not be opened, or whose process ended between two inputs.

    Args:
        message: what happened.
        outcome: of the target so far.
    """

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.outcome = outcome


def fuzz(target: str, seconds: float, seed: int, found: Path, *, guide: bool = True) -> Outcome:
    """Draw inputs of a target for some seconds.

    Args:
        target: its name.
        seconds: of running, without opening the target.
        seed: decides what is drawn, where atheris does not choose.
        found: directory for inputs that fail.
        guide: let atheris choose, where it can.

    Raises:
        HarnessError: the target cannot be opened.
    """
    outcome = Outcome(target, seed)
    restart = 0
    while (left := seconds - outcome.seconds) > 0:
        job = Job(target, TARGETS[target], "", str(found), seed + restart, left, guide=guide)
        if not _watched(job, outcome, found):
            break
        restart += 1
    return outcome


def replay(target: str, files: Sequence[Path], found: Path, *, timeout_factor: float = 10.0) -> Outcome:
    """Run these inputs.

    Args:
        target: its name.
        files: the inputs.
        found: directory for what fails.
        timeout_factor: multiplies the target's seconds for one input, because other tests may run on the machine.

    Raises:
        HarnessError: the target cannot be opened.
    """
    outcome = Outcome(target, 0)
    left = list(files)
    while left:
        entry = replace(TARGETS[target], seconds=TARGETS[target].seconds * timeout_factor)
        job = Job(target, entry, "", str(found), files=tuple(map(str, left)))
        ended = outcome.inputs
        _watched(job, outcome, found)
        left = left[outcome.inputs - ended :]
    return outcome


def minimise(failure: Failure) -> None:
    """Make the file of a failure smaller, where that is simple."""
    job = Job(failure.target, TARGETS[failure.target], "", str(failure.file.parent), files=(str(failure.file),))
    kept = failure.file.read_bytes()
    outcome = Outcome(failure.target, 0)
    _watched(replace(job, minimise=True), outcome, failure.file.parent)
    if failure.kind not in replay(failure.target, [failure.file], failure.file.parent).kinds:
        failure.file.write_bytes(kept)


def _watched(job: Job, outcome: Outcome, found: Path) -> bool:
    """Run a process to its end; True where an input ended it."""
    found.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        ledger_file, log, said = (Path(directory) / name for name in ("ledger", "log", "said"))
        ledger = Ledger(ledger_file)
        command = [sys.executable, "-m", "tests.fuzz.child", arguments_of(replace(job, ledger=str(ledger_file)))]
        environment = {**os.environ, "MALLOC_ARENA_MAX": "2", "PYTHONHASHSEED": "0"}
        with log.open("wb") as errors, said.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment)
        try:
            hung = _wait(process, ledger, job, outcome)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        state = ledger.state
        outcome.inputs += state.inputs + state.running
        outcome.slowest = max(outcome.slowest, state.slowest)
        counts: dict[str, int] = {}
        for line in said.read_text().splitlines():
            if line.startswith("{"):
                fields = json.loads(line)
                if "counts" in fields:
                    counts = fields["counts"]
                    continue
                failure = Failure(job.target, fields["kind"], Path(fields["file"]), fields["traceback"])
                outcome.add(failure, is_drawn=bool(job.seconds))
        outcome.counts.update(counts)
        tail = log.read_text(errors="replace")[-3000:]
        if not state.opened:
            raise HarnessError(f"{job.target} could not be opened:\n{tail}", outcome)
        if state.running:
            ended = "hang" if hung else f"died: {_ending(process.returncode)}"
            file = _keep(job, ledger.data, found)
            outcome.add(Failure(job.target, ended, file, tail), is_drawn=bool(job.seconds))
        elif process.returncode not in {0, FULL}:
            ended = _ending(process.returncode)
            raise HarnessError(f"{job.target} ended with {ended} between inputs:\n{tail}", outcome)
        return state.running or process.returncode == FULL


def _keep(job: Job, data: bytes, found: Path) -> Path:
    """The file of an input that ended its process: its own, or a new one."""
    for path in map(Path, job.files):
        if path.read_bytes() == data:
            return path
    file = found / f"{job.target}-{abs(hash(data)):x}.input"
    file.write_bytes(data)
    return file


def _wait(process: "subprocess.Popen[bytes]", ledger: Ledger, job: Job, outcome: Outcome) -> bool:
    """Wait until a process ends, or kill it; True where its input hung."""
    watched = psutil.Process(process.pid)
    began = time.monotonic()
    opened_at = 0.0
    try:
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            now, state = time.monotonic(), ledger.state
            opened_at = state.opened_at or opened_at
            try:
                outcome.peak_bytes = max(outcome.peak_bytes, watched.memory_info().rss)
            except psutil.Error:
                continue
            if not state.opened:
                if now > began + _OPEN_SECONDS:
                    return False
                continue
            if state.running and now - state.since > job.entry.seconds and ledger.state.since == state.since:
                process.send_signal(signal.SIGUSR1)
                time.sleep(_GRACE_SECONDS)
                return True
    finally:
        if opened_at:
            outcome.seconds += time.monotonic() - opened_at
    return False


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
