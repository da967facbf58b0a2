"""The harness notices failures; otherwise a run without failures would prove nothing."""

import ctypes
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.fuzz import __main__ as fuzz_main
from tests.fuzz.guard import guarded
from tests.fuzz.ledger import Ledger
from tests.fuzz.parent import fuzz, minimise, replay
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS, Entry, shared

NAME = "broken"
SIZE = 100
BREAKS = "FUZZ_TEST_BREAKS_OFF"
OF_FUZZING = pytest.mark.full  # a replay of the corpus, as `make test` does it, draws and reduces nothing


class Broken(Target):
    """A target that fails as its input describes."""

    def draw(self, chance: random.Random) -> bytes:
        """A number; one in ten fails."""
        return b"wrong" if chance.random() < 0.1 else b"%d" % chance.randrange(1 << 30)

    def run(self, data: bytes) -> None:
        """Fail in the way that the input names."""
        if b"hang" in data:
            while True:
                pass
        if b"memory" in data:
            bytearray(b"x" * (200 << 20))
        if b"beyond" in data:
            buffer = guarded(SIZE)
            ctypes.memset(ctypes.addressof(buffer), 1, SIZE + 1)
        if b"wrong" in data:
            raise KeyError("wrong")

    def run_ahead(self, inputs: Sequence[bytes]) -> None:
        """End the process between two inputs after a hundred of them, if the environment wants it."""
        self._runs = getattr(self, "_runs", 0) + 1
        if self._runs > 100 and BREAKS in os.environ:
            os._exit(9)

    def counts(self) -> Mapping[str, int]:
        """The number of calls of `run_ahead`."""
        return {"runs": getattr(self, "_runs", 0)}


@pytest.fixture(autouse=True)
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, NAME, Entry("tests.fuzz.test_harness:Broken", seconds=2.0, mib=100))


def inputs(directory: Path, *contents: bytes) -> list[Path]:
    """A file for each."""
    files = [directory / f"{at}.input" for at in range(len(contents))]
    for path, content in zip(files, contents, strict=True):
        path.write_bytes(content)
    return files


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"hang", "hang"),
        (b"memory", "_TooMuchMemory"),
        (b"beyond", "died: signal SIGSEGV"),
        (b"wrong", "KeyError"),
    ],
)
def test_an_input_that_fails_is_named_and_the_others_are_run(tmp_path: Path, content: bytes, kind: str) -> None:
    """If a process hangs, ends or grows, its input is reported, and another process continues after it."""
    files = inputs(tmp_path, b"fine", content, b"wrong", b"fine")
    if content == b"wrong":
        bytearray(b"x" * (200 << 20))  # the peak of this process must not count in the other
    outcome = replay(NAME, files, tmp_path, timeout_factor=1.0 if kind == "hang" else 60.0)
    assert outcome.inputs == len(files)
    first, second = outcome.failures
    assert (first.file, first.kind.split(" at ")[0]) == (files[1], kind)
    assert (second.file, second.kind.split(" at ")[0]) == (files[2], "KeyError")


@OF_FUZZING
def test_what_is_drawn_fails_once_for_each_kind_and_is_kept(tmp_path: Path) -> None:
    """The seed decides what is drawn; the input is written to a file, and fails again when it is read."""
    first, again = (fuzz(NAME, 0.5, 7, tmp_path / directory) for directory in ("first", "again"))
    (failure,) = first.failures
    assert failure.file.read_bytes() == b"wrong"
    assert first.inputs > 10
    assert [each.file.name for each in again.failures] == [failure.file.name]
    assert replay(NAME, [failure.file], tmp_path).kinds == first.kinds


@OF_FUZZING
def test_a_target_that_breaks_off_shows_what_it_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its process ended between two inputs: the inputs so far, the counts and the failures are printed."""
    monkeypatch.setenv(BREAKS, "1")
    monkeypatch.setattr(fuzz_main, "_FOUND", tmp_path)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--seconds", "30", "--seed", "7", NAME])
    assert fuzz_main.main() == 1
    shown = capsys.readouterr().out
    assert "broken ended with exit 9 between inputs" in shown
    assert "100 inputs" in shown
    assert "100 runs" in shown
    assert "broken: KeyError" in shown


@OF_FUZZING
def test_a_failing_input_is_cut_down_to_what_fails(tmp_path: Path) -> None:
    """Other bytes are removed while it fails in the same way."""
    (file,) = inputs(tmp_path, b"around " * 50 + b"wrong" + b" it" * 50)
    (failure,) = replay(NAME, [file], tmp_path).failures
    minimise(failure)
    assert file.read_bytes() == b"wrong"


@OF_FUZZING
def test_a_process_that_runs_inputs_always_looks_open(tmp_path: Path) -> None:
    """The one that watches it reads at any time, also while the other writes."""
    ledger = Ledger(tmp_path / "ledger")
    ledger.open()
    lines = "ledger = Ledger(Path(sys.argv[1]))\nfor _ in range(10_000):\n    ledger.begin(b'')\n    ledger.end()"
    program = f"import sys\nfrom pathlib import Path\nfrom tests.fuzz.ledger import Ledger\n{lines}"
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "ledger")])
    while process.poll() is None:
        assert all(state.opened and state.since <= time.monotonic() for state in (ledger.state for _ in range(1000)))
    assert (process.returncode, ledger.state.inputs) == (0, 10_000)


def test_a_run_of_all_targets_gives_the_decoder_the_most_seconds() -> None:
    """Five minutes compare more than 10,000 logs with Kafka's consumer, and leave each other target a part."""
    seconds = shared(300.0, list(TARGETS))
    assert sum(seconds.values()) == pytest.approx(300.0)
    assert seconds.pop("decoder") >= 75.0
    assert min(seconds.values()) >= 15.0
    assert shared(300.0, ["decoder"]) == {"decoder": 300.0}
