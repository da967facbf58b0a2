"""What failed once does not fail again."""

from pathlib import Path

import pytest

from tests.fuzz.excuses import COUNT_BY_HEADER, EXCUSES
from tests.fuzz.parent import replay
from tests.fuzz.target import CORPUS, corpus_of
from tests.fuzz.targets import TARGETS
from tests.matrix import cases


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
