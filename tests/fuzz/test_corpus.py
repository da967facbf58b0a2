"""What failed once does not fail again."""

import json
from pathlib import Path

import pytest

from tests.fuzz import retention
from tests.fuzz.excuses import COUNT_BY_HEADER, EXCUSES
from tests.fuzz.parent import replay
from tests.fuzz.parsers import PARSERS, Parsers
from tests.fuzz.target import CORPUS, corpus_of
from tests.fuzz.targets import TARGETS
from tests.matrix import cases
from tests.stored_objects import FIRST_LINE


@pytest.mark.parametrize("name", cases(TARGETS, quick=[name for name in TARGETS if name != "codecs"]))
def test_the_corpus_of_a_target_passes(name: str, tmp_path: Path) -> None:
    """Each input ends in time, within its memory, and with no other error than the project's; no excuse is unused."""
    files = corpus_of(name)
    assert files
    outcome = replay(name, files, tmp_path)
    assert outcome.inputs == len(files)
    if name == "decoder":
        assert {COUNT_BY_HEADER, *(excuse.text for excuse in EXCUSES)} <= outcome.counts.keys()
    assert [f"{failure.file}: {failure.kind}\n{failure.traceback}" for failure in outcome.failures] == []


def test_every_directory_of_the_corpus_is_of_a_target() -> None:
    """Inputs of a target that was renamed would not be run."""
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)


def test_an_input_is_read_by_the_parser_that_its_first_line_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names have spaces; an input of another parser would test nothing."""
    target, read = Parsers("parsers"), list[bytes]()
    target.open()
    for name in PARSERS:
        monkeypatch.setitem(PARSERS, name, read.append)
        target.run(f"{name}\n{name}".encode())
    assert read == [name.encode() for name in PARSERS]


def test_the_reader_of_an_object_of_retention_reads_a_whole_one(tmp_path: Path) -> None:
    """Otherwise each input would end with the same error."""
    made = retention.Retention(tmp_path / "store", lambda _: None)
    for name, fields in retention.JSON.items():
        made.run(name, FIRST_LINE * (name in retention.WITH_FIRST_LINE) + json.dumps(fields).encode() + b"\n")
