"""Measures the agents: memory, threads, descriptors."""

import threading
import time
from dataclasses import dataclass, field
from itertools import dropwhile
from statistics import median

import psutil

from dev.local.process import ServerNotRunningError
from tests.soak.stage import Stage

_EVERY_SECONDS = 0.5
_SETTLED_SECONDS = 6.0  # from its start until an agent has all its threads and connections, if nothing is away
_FEWER_THREADS = 4  # than usual: it still waits for ZooKeeper or the store, and has no workers yet
_LIVED_SECONDS = 15.0
_MOST_MIB = 200.0
_MOST_THREADS, _MORE_THREADS = 80, 8
_MOST_DESCRIPTORS, _MORE_DESCRIPTORS = 200, 32
_MORE_MIB = 40.0


@dataclass(frozen=True)
class Sample:
    """One measurement of a process."""

    seconds: float
    mib: float
    threads: int
    descriptors: int


@dataclass
class Gauges:
    """Samples by process; owned by the thread that calls `watch`, and after it by the thread that joined it."""

    stage: Stage
    samples: dict[int, list[Sample]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """End `watch` soon."""
        self._stop.set()

    def watch(self) -> None:
        """Measure each running agent, until `stop`."""
        while not self._stop.wait(_EVERY_SECONDS):
            for agent in self.stage.agents.values():
                try:
                    process = psutil.Process(agent.pid)
                    with process.oneshot():
                        sample = Sample(
                            time.time() - process.create_time(),
                            process.memory_info().rss / (1 << 20),
                            process.num_threads(),
                            process.num_fds(),
                        )
                except (psutil.Error, ServerNotRunningError):
                    continue  # it is being killed
                self.samples.setdefault(process.pid, []).append(sample)

    def lives(self) -> list[list[Sample]]:
        """Return the samples of each agent that ran for long, from the first with its seconds and its threads on."""
        usual = median(one.threads for life in self.samples.values() for one in life)

        def is_starting(one: Sample) -> bool:
            return one.seconds <= _SETTLED_SECONDS or one.threads < usual - _FEWER_THREADS

        settled = (list(dropwhile(is_starting, life)) for life in self.samples.values())
        return [life for life in settled if life and life[-1].seconds - life[0].seconds >= _LIVED_SECONDS]

    def check(self) -> None:
        """Check that no value was too high, and that none grew from the first quarter of a process to its last."""
        for sample in (sample for life in self.samples.values() for sample in life):
            assert sample.mib < _MOST_MIB, sample
            assert sample.threads < _MOST_THREADS, sample
            assert sample.descriptors < _MOST_DESCRIPTORS, sample
        lives = self.lives()
        assert lives, "no agent lived for long enough"
        for life in lives:
            quarter = max(1, len(life) // 4)
            early, late = life[:quarter], life[-quarter:]
            assert median(s.threads for s in late) <= median(s.threads for s in early) + _MORE_THREADS, (early, late)
            fds = [median(s.descriptors for s in part) for part in (early, late)]
            assert fds[1] <= fds[0] + _MORE_DESCRIPTORS, (early, late)
            assert median(s.mib for s in late) <= median(s.mib for s in early) + _MORE_MIB, (early, late)

    def summary(self) -> str:
        """Return one line."""
        every = [sample for life in self.samples.values() for sample in life]
        if not every:
            return "no samples"
        longest = max((life[-1].seconds for life in self.samples.values()), default=0.0)
        return (
            f"{len(self.samples)} agents lived, the longest for {longest:.0f} s; most: "
            f"{max(s.mib for s in every):.0f} MiB, {max(s.threads for s in every)} threads, "
            f"{max(s.descriptors for s in every)} descriptors"
        )
