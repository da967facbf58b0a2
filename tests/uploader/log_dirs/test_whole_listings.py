"""A listing counts for neighbours only if it is one instant (protocol rule 2): against the broker's own renames."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from dev.local.jars import BUILD
from tests.uploader.local_directory import INDEXES, TP, LocalDirectory
from ts_common.errors import SegmentChanged
from ts_uploader.log_dirs.directory_scan import list_partition, whole_listing
from ts_uploader.messages.observations import Listing

SUFFIXES = (".log", *INDEXES)
SOURCES = range(100, 300, 10)


@pytest.fixture
def local(tmp_path: Path) -> LocalDirectory:
    return LocalDirectory(tmp_path)


def listed(local: LocalDirectory, earlier: Listing | None = None) -> Listing:
    listing = list_partition(TP, local.log_dir, earlier=earlier)
    assert listing is not None
    return listing


def long_ago(listing: Listing) -> Listing:
    return replace(listing, stamp_seen=0.0)


def test_a_first_look_is_not_whole(local: LocalDirectory) -> None:
    """A change in the same tick of the kernel's clock would leave the same stamp."""
    local.segments(0, 100)
    first = listed(local)
    assert not first.whole
    assert not listed(local, replace(first, stamp_seen=time.monotonic() + 1000)).whole
    assert listed(local, long_ago(first)).whole


def test_a_look_after_a_change_is_not_whole(local: LocalDirectory) -> None:
    """Whatever was seen of the directory before does not bear on it as it is now."""
    local.segments(0, 100)
    first = long_ago(listed(local))
    local.segments(200)
    assert not listed(local, first).whole


def test_a_directory_that_changes_while_it_is_read_is_not_whole(
    local: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its names may be of two instants."""
    local.segments(0, 100)
    first = long_ago(listed(local))

    def names_then_change(path: Path) -> list[str]:
        names = [entry.name for entry in os.scandir(path)]
        local.segments(200)
        return names

    monkeypatch.setattr("ts_uploader.log_dirs.directory_scan.os.listdir", names_then_change)
    assert not listed(local, first).whole


def test_a_whole_listing_waits_for_as_long_as_it_must(local: LocalDirectory) -> None:
    """Also straight after a change."""
    local.segments(0, 100)
    first = listed(local)
    local.segments(200)
    whole = whole_listing(first)
    assert (whole.whole, whole.bases) == (True, (0, 100, 200))


def test_u25_renames_that_do_not_end_give_no_whole_listing(local: LocalDirectory) -> None:
    """A `.swap` exists from the first rename to the last."""
    local.segments(0, 100)
    (local.path / f"{0:020d}.index.swap").touch()
    with pytest.raises(SegmentChanged, match="renames were in progress in every listing"):
        whole_listing(listed(local))


def test_another_directory_gives_no_whole_listing(local: LocalDirectory) -> None:
    """The topic was created again meanwhile."""
    local.segments(0, 100)
    with pytest.raises(SegmentChanged, match="another directory"):
        whole_listing(replace(listed(local), identity=(1, 1)))


class State(NamedTuple):
    """What of the renamed segments a listing can show."""

    bases: tuple[int, ...]
    deleted: tuple[int, ...]
    swapping: bool


class Cleaner(threading.Thread):
    """Merges segments into the first of them and puts all back, again and again, by the broker's order of renames.

    Source: Kafka's `LocalLog.replaceSegments`.
    """

    def __init__(self, local: LocalDirectory) -> None:
        super().__init__(daemon=True)
        self._path = local.path
        self._names = {f"{base:020d}.log" for base in (*SOURCES, 300)}
        self._states = deque([(0.0, self._state())], maxlen=5000)  # each with the time before the step that led to it
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.025):
            self._put(100, ".cleaned")
            self._rename(".cleaned", ".swap", 100)
            for base in SOURCES:
                self._rename("", ".deleted", base)
            self._rename(".swap", "", 100)
            self._ended.wait(0.025)
            for base in SOURCES:
                for suffix in SUFFIXES:
                    name = f"{base:020d}{suffix}.deleted"
                    self._step((self._path / name).unlink, gone=name)
            for base in SOURCES[1:]:
                self._put(base, "")

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def states_between(self, began: float, ended: float) -> set[State]:
        """What the directory may have held at some time between."""
        states = self._states.copy()
        begins = [at for at, _ in states]
        # A state ends when the next step is done, at the latest when the step after that begins.
        ends = [*begins[2:], inf, inf]
        return {state for (begin, state), end in zip(states, ends, strict=False) if begin <= ended and end >= began}

    def _put(self, base: int, name: str) -> None:
        for suffix in SUFFIXES:
            file = f"{base:020d}{suffix}{name}"
            self._step((self._path / file).touch, come=file)

    def _rename(self, old: str, new: str, base: int) -> None:
        for suffix in SUFFIXES:
            file = f"{base:020d}{suffix}"
            self._step(partial((self._path / (file + old)).rename, self._path / (file + new)), file + old, file + new)

    def _step(self, change: Callable[[], object], gone: str = "", come: str = "") -> None:
        self._names = (self._names - {gone}) | {come}
        self._states.append((time.monotonic(), self._state()))
        change()

    def _state(self) -> State:
        return State(
            tuple(base for base in (*SOURCES, 300) if f"{base:020d}.log" in self._names),
            tuple(base for base in (*SOURCES, 300) if f"{base:020d}.log.deleted" in self._names),
            any(name.endswith(".swap") for name in self._names),
        )


@pytest.fixture
def on_disk() -> Iterator[LocalDirectory]:
    """A file system in memory returns a directory of any size as it was at one instant."""
    with TemporaryDirectory(dir=BUILD, prefix="listing-") as directory:
        yield LocalDirectory(Path(directory))


@pytest.mark.parametrize("wanted", [8, pytest.param(1000, marks=pytest.mark.full)])
def test_u25_a_whole_listing_shows_what_was_so_at_one_instant(on_disk: LocalDirectory, wanted: int) -> None:
    """A directory of thousands of files is read in several calls, and the broker renames between them."""
    on_disk.segments(*SOURCES, 300, *range(1000, 1500))
    cleaner = Cleaner(on_disk)
    cleaner.start()
    met = {"torn": 0, "merged": 0}
    deadline = time.monotonic() + 600
    listing = listed(on_disk)
    try:
        while met["merged"] < wanted or met["torn"] < 3:
            assert time.monotonic() < deadline, met
            began = time.monotonic()
            listing = listed(on_disk, listing)
            shown = State(listing.bases[:-500], listing.deleted, listing.swapping)
            true = shown in cleaner.states_between(began, time.monotonic())
            assert true or not listing.whole
            met["torn"] += not true
            met["merged"] += listing.whole and shown.bases == (100, 300)
    finally:
        cleaner.stop()
