"""What a partition is whose commit is missing or damaged, from times of the store."""

import pytest

from ts_common.archive.commit_state import CommitState, commit_state

NOW = 1_000_000.0
YOUNG, OLD, EARLY = NOW - 14 * 60, NOW - 15 * 60, NOW + 15 * 60


@pytest.mark.parametrize(
    ("written", "state"),
    [
        ((), CommitState.EMPTY),
        ((YOUNG,), CommitState.BEGINNING),
        ((OLD, YOUNG), CommitState.BEGINNING),
        ((NOW + 60,), CommitState.BEGINNING),  # two servers of a store differ a little
        ((OLD,), CommitState.MISSING),
        ((OLD, EARLY), CommitState.MISSING),  # no upload is later than now: a clock was wrong
        ((None,), CommitState.MISSING),
    ],
)
def test_r12c_only_a_young_segment_can_be_a_first_upload(written: tuple[float | None, ...], state: CommitState) -> None:
    """The newest one decides; an unknown time is old. With a commit, no time matters."""
    assert commit_state(has_commit=False, is_damaged=False, written=written, now=NOW) is state
    assert commit_state(has_commit=True, is_damaged=False, written=written, now=NOW) is CommitState.COMMITTED
    damaged = commit_state(has_commit=False, is_damaged=True, written=written, now=NOW)
    assert (damaged, damaged.is_loss) == (CommitState.DAMAGED, True)
