"""Files of a restore that another program changed: one clear error, and no path outside the partition's directory."""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.mutate import json_text
from tests.matrix import examples
from tests.tsctl.restore.test_hosts import Broker, brokers
from tests.tsctl.running import Run, runner
from ts_common.errors import CorruptData, OperatorError, PermanentError, QueryError, StaleStateError, TransientError
from ts_common.store.wrappers.bandwidth import Allowance
from ts_reader.options.archive_name import name_archive
from tsctl.archive_options import OpenArchive, open_archive
from tsctl.restore.restore_directory import RestoreDirectory
from tsctl.restore.texts import plan_text

__all__ = ["brokers"]  # a fixture
FILES = ("plan.json", "created.json", "broker-2.json", "state.json")
# In a log dir, with the checkpoints.
_OURS = (
    "meta.properties",
    "meta.properties.restore",
    ".lock",
    ".kafka_cleanshutdown",
)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenArchive]:
    with open_archive(name_archive(None, (tmp_path / "archive").as_uri(), "prod", 0), lambda _: None) as found:
        yield found


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(capfd)


def path_of(broker: Broker, file: str) -> Path:
    return (broker.partition if file == "state.json" else broker.restore) / (
        f"restore/{file}" if file == "state.json" else file
    )


def tree(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def reset(directory: Path, before: dict[Path, bytes]) -> None:
    for path in tree(directory).keys() - before.keys():
        path.unlink()
    for path, content in before.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def is_ours(path: Path, broker: Broker) -> bool:
    """Return whether the steps of a host may write a path."""
    is_of_log_dir = path.parent in broker.log_dirs and (path.name in _OURS or path.name.endswith("-checkpoint"))
    return is_of_log_dir or path.parent == broker.restore or broker.partition in path.parents


@pytest.mark.parametrize("file", FILES)
def test_a_changed_file_is_used_or_is_an_error(
    brokers: list[Broker], opened: OpenArchive, tmp_path: Path, file: str
) -> None:
    """A seeded random change of a field, the form or bytes; whatever the steps do then, they write only their files."""
    for broker in brokers:
        broker.record()
    host, chance, refused = brokers[0], random.Random(file), 0
    before = tree(tmp_path)
    path = path_of(host, file)
    healthy = json.loads(before[path])
    for _ in range(examples(1_000, quick=40)):
        changed = json_text(chance, healthy)
        path.write_bytes(changed)
        try:
            _ = "\n".join(plan_text(RestoreDirectory(host.restore).plan, 100, 0))
            host.run.fetch(opened, Allowance(), lambda _: None)
            host.run.place()
            host.run.check()
        except (OperatorError, TransientError, StaleStateError, PermanentError) as error:
            refused += 1
            assert len(str(error)) < 2_000, changed  # noqa: PT017  (a harmless change is no error)
        after = tree(tmp_path)
        written = {each for each in before.keys() | after.keys() if before.get(each) != after.get(each)}
        assert [each for each in written if not is_ours(each, host)] == [], changed
        reset(tmp_path, before)
    assert refused


def _set(value: object, *place: Any) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        *holders, last = place
        for each in holders:
            content = content[each]
        content[last] = value

    return change


_PART = ("topics", "t", "partitions", "0")
_STEP = (*_PART, "steps", 0)
_BAD_NAMES = ("../../../outside", "/tmp/outside", "..", "", "a/b", "x\0y", "partition.metadata", "0" * 20)
_BAD_KEYS = ("../prod/t-0/" + "0" * 20 + ".log", "/" + "0" * 20 + ".log", "prod/t-0/x.log", "0" * 20 + ".index")
CHANGES: list[tuple[str, Callable[[Any], None]]] = [
    *(("state.json", _set(name, "files", 0, 0)) for name in _BAD_NAMES),
    *(("plan.json", _set(key, *_STEP, 2, 0, 0)) for key in _BAD_KEYS),
    *(("plan.json", _set(name, "topics", "t", "directory")) for name in ("..", "../../x", "u", "t/..", "t~\0")),
    ("plan.json", lambda content: content["topics"].update({"..": content["topics"].pop("t")})),
    ("plan.json", _set([], *_STEP, 2)),
    ("plan.json", _set(1 << 62, *_STEP, 0)),
    ("plan.json", _set([], *_PART, "replicas")),
    ("plan.json", _set([1, 1], *_PART, "replicas")),
    ("plan.json", _set([[1, 1 << 15, 0, "abort"]], *_PART, "ended")),
    ("plan.json", _set(int("9" * 4000), "time")),
    ("plan.json", lambda content: content.pop("groups")),
    ("created.json", _set("../../x", "topics", "t")),
    ("created.json", lambda content: content.pop("kafka")),
    ("broker-2.json", lambda content: content["partitions"].update({"../t-0": content["partitions"].pop("t-0")})),
    ("broker-2.json", _set("finished", "done")),
    ("state.json", _set(1 << 40, "steps")),
    ("state.json", _set((1 << 63) - 1, "end")),
    ("state.json", _set([[1, 1 << 15, 0, 5]], "open")),
]


@pytest.mark.parametrize(("file", "change"), CHANGES)
def test_a_field_that_no_step_writes_is_named_and_nothing_moves(
    brokers: list[Broker], opened: OpenArchive, tmp_path: Path, file: str, change: Callable[[Any], None]
) -> None:
    """Names with `..`, `/` and NUL, offsets that do not ascend, numbers beyond their types, missing fields."""
    for broker in brokers:
        broker.record()
    path = path_of(brokers[0], file)
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))
    before = tree(tmp_path)
    place = re.escape(str(brokers[0].partition if file == "state.json" else path))
    with pytest.raises((CorruptData, QueryError), match=place):
        brokers[0].run.place()
    if file == "state.json":
        with pytest.raises(CorruptData, match=place):
            brokers[0].run.fetch(opened, Allowance(), lambda _: None)
    found = tree(tmp_path)
    assert {each: found.get(each) for each in before} == before
    assert {each.name for each in found.keys() - before.keys()} <= {".lock"}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe{}", b"[" * 100_000, b'{"plan":' + b"9" * 5000 + b"}", b"{}"], ids=lambda data: data[:9]
)
def test_bytes_that_are_no_such_file_are_one_line(brokers: list[Broker], run: Run, file: str, data: bytes) -> None:
    """It names the file; the exit code is not zero."""
    for broker in brokers:
        broker.record()
    path = path_of(brokers[0], file)
    path.write_bytes(data)
    ended = run("restore", "place", brokers[0].restore, "--server-properties", brokers[0].properties)
    assert (ended.code != 0, ended.out, ended.err.count("\n")) == (True, "", 1)
    assert str(path) in ended.err


def test_a_file_that_cannot_be_read_is_named(brokers: list[Broker], run: Run) -> None:
    """A directory has its name."""
    broker = brokers[0]
    path = broker.restore / "plan.json"
    path.unlink()
    path.mkdir()
    ended = run("restore", "place", broker.restore, "--server-properties", broker.properties)
    assert (ended.code != 0, ended.err) == (True, f"tsctl: {path}: Is a directory; mend it, and repeat the command\n")
