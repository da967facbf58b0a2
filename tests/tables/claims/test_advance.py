"""What a table claims next of a partition, and how its state is stored."""

import re
from dataclasses import replace

import pytest

from ts_common.archive.commit import Lineage
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.read_log import ReadLog
from ts_common.errors import CorruptData
from ts_reader.query.query import OnHole
from ts_tables.claims.advance import OnLost, OnTakenBack, Policy, Seen, advance, begin, needs_view, parting
from ts_tables.claims.state import IncarnationState, Kept, PartitionClaims, PassedHole, TableState, without

LINE = EpochHistory(((0, 0), (3, 120)))
KNOWN = PartitionClaims(0, 200, ReadLog(LINE))
STRICT = Policy()
PASSING = Policy(on_hole=OnHole.PASS)


def seen(
    end: int,
    *holes: PassedHole,
    start: int = 0,
    stable: int | None = None,
    line: EpochHistory = LINE,
    floor: int | None = None,
) -> Seen:
    return Seen(start, end, end if stable is None else stable, ReadLog(line), holes, floor)


def test_a_new_partition_is_claimed_from_the_start_of_its_log() -> None:
    """Or from where the table begins, up to its stable end."""
    shown = seen(250, start=40, stable=230)
    assert advance(begin(shown, None), shown, STRICT).claims == ((40, 230),)
    assert advance(begin(shown, 100), shown, STRICT).claims == ((100, 230),)


def test_a_table_continues_where_its_claims_end() -> None:
    """Without news it needs no view of the partition."""
    step = advance(KNOWN, seen(250), STRICT)
    assert step.claims == ((200, 250),)
    assert step.state.claims == ((0, 250),)
    assert not needs_view(KNOWN, 200, 200, ReadLog(LINE))
    assert not needs_view(KNOWN, 260, 200, ReadLog(LINE))  # a transaction is open
    assert needs_view(KNOWN, 260, 210, ReadLog(LINE))
    assert advance(KNOWN, seen(200), STRICT).is_empty


def test_rows_that_an_election_removed_end_the_run() -> None:
    """The problem names the offsets, from where the epochs part, and the ways out."""
    later = EpochHistory(((0, 0), (3, 120), (4, 150)))
    step = advance(KNOWN, seen(300, line=later), STRICT)
    assert step.problem is not None
    assert (step.problem.start, step.problem.end) == (150, 200)
    assert "on_taken_back: delete" in step.problem.reason
    assert needs_view(KNOWN, 200, 200, ReadLog(later))


@pytest.mark.parametrize("choice", [OnTakenBack.DELETE, OnTakenBack.KEEP])
def test_rows_that_an_election_removed_are_claimed_again(choice: OnTakenBack) -> None:
    """From where the epochs part, with the epochs of the new leader."""
    later = EpochHistory(((0, 0), (3, 120), (4, 150)))
    step = advance(KNOWN, seen(180, line=later), Policy(on_taken_back=choice))
    assert step.taken_back == (150, 200)
    assert step.claims == ((150, 180),)
    assert step.state.log == ReadLog(later)


def test_a_commit_that_was_rebuilt_below_the_claims_removes_nothing() -> None:
    """Its epochs still have that of the last claimed offset, or it is of an earlier leader."""
    assert parting(KNOWN, 150, ReadLog(LINE)) == 200
    assert parting(KNOWN, 100, ReadLog(EpochHistory(((0, 0),)))) == 200
    assert parting(KNOWN, 100, ReadLog()) == 200
    assert parting(KNOWN, 160, ReadLog(EpochHistory(((0, 0), (3, 120), (5, 160))))) == 160
    assert parting(KNOWN, 300, ReadLog(EpochHistory(((0, 0), (5, 90), (6, 260))))) == 90


def test_records_without_an_epoch_part_by_a_lineage_that_is_new() -> None:
    """Magic 0 and 1: a lineage that is new names the offset; one from before the claims, or unknown, does not."""
    back = ReadLog(lineage=Lineage(4, 150, 200))
    claimed = PartitionClaims(0, 200, ReadLog())
    assert parting(claimed, 260, back) == 150
    assert parting(PartitionClaims(0, 200, back), 260, back) == 200
    assert parting(PartitionClaims(0, 200), 260, back) == 200
    table = TableState("prod", True, {"t": (IncarnationState("t", None, {0: claimed}),)})
    assert b'"epochs":[],"lineage":null' in table.encode()
    assert TableState.decode(table.encode(), "t") == table
    decoded = TableState.decode(table.encode().replace(b',"lineage":null', b""), "t")
    assert decoded.topics["t"][0].partitions[0].log is None


def test_claims_of_an_earlier_release_keep_their_rows() -> None:
    """They have no lineage, also where the commit had one: the offset where it went back was below them already."""
    claimed = PartitionClaims(0, 200, ReadLog(LINE))
    table = TableState("prod", True, {"t": (IncarnationState("t", None, {0: claimed}),)})
    assert TableState.decode(table.encode(), "t") == table
    earlier = TableState.decode(table.encode().replace(b',"lineage":null', b""), "t").topics["t"][0].partitions[0]
    now = ReadLog(EpochHistory(((9, 200),)), Lineage(3, 20, 31))
    assert parting(earlier, 260, now) == 200
    assert parting(claimed, 260, now) == 20


def test_offsets_that_retention_removed_are_an_error_or_noted() -> None:
    """The table does not claim what it did not read."""
    step = advance(KNOWN, seen(300, start=220), STRICT)
    assert step.problem is not None
    assert (step.problem.start, step.problem.end) == (200, 220)
    step = advance(KNOWN, seen(300, start=220), Policy(on_lost=OnLost.GO_ON))
    assert step.claims == ((220, 300),)
    assert step.state.lost == ((200, 220),)
    assert step.state.claims == ((0, 200), (220, 300))


@pytest.mark.parametrize(
    ("floor", "says", "lacks"),
    [
        (None, "are lost: the log starts at 220.*; on_lost: pass notes them and continues", "undo"),
        (220, "are lost: the log starts at 220.*; on_lost: pass notes them and continues", "undo"),
        (210, "are lost: .*; from 210 on they are only hidden: .*tsctl gc undo.*; then on_lost: pass", "continues"),
        (200, "are hidden by retention, .*a hold on the topic.*tsctl gc undo, shows them again", "on_lost"),
        (90, "are hidden by retention, .*a hold on the topic.*tsctl gc undo, shows them again", "on_lost"),
    ],
    ids=["unknown", "deleted", "deleted in part", "hidden", "hidden from further down"],
)
def test_offsets_that_can_be_shown_again_are_not_called_lost(floor: int | None, says: str, lacks: str) -> None:
    """During the grace the way back is a hold or an undo; `on_lost: pass` would leave them out permanently."""
    problem = advance(KNOWN, seen(300, start=220, floor=floor), STRICT).problem
    assert problem is not None
    assert re.search(says, problem.reason)
    assert lacks not in problem.reason


def test_a_table_waits_below_a_hole_and_the_transactions_that_are_open_at_it() -> None:
    """It claims nothing above it, and names the hole."""
    hole = PassedHole(240, 250, ((7, 210),))
    step = advance(KNOWN, seen(300, hole), STRICT)
    assert step.claims == ((200, 210),)
    assert step.waits == hole
    assert advance(step.state, seen(300, hole), STRICT).is_empty


def test_a_passed_hole_is_claimed_late_with_what_was_withheld() -> None:
    """Once, when it is filled wholly; until then the claims leave it out."""
    hole = PassedHole(240, 250, ((7, 210),))
    first = advance(KNOWN, seen(300, hole), PASSING)
    assert first.claims == ((200, 240), (250, 300))
    assert first.state.claims == ((0, 240), (250, 300))
    partly = advance(first.state, seen(300, PassedHole(245, 250)), PASSING)
    assert partly.is_empty
    late = advance(partly.state, seen(310), PASSING)
    assert late.late == (hole,)
    assert late.claims == ((300, 310),)
    assert late.state.claims == ((0, 310),)
    assert not advance(late.state, seen(310), PASSING).late


def test_a_hole_that_is_not_stable_to_its_end_is_not_passed() -> None:
    """Its other part would hide the transactions that are open at it after its first part is filled."""
    hole = PassedHole(240, 260, ((7, 210),))
    step = advance(KNOWN, seen(300, hole, stable=250), PASSING)
    assert step.claims == ((200, 210),)
    assert not step.state.holes


def test_a_transaction_that_spans_two_holes_stays_withheld_for_the_second() -> None:
    """When the first is filled without its marker, its records below the first are withheld for the second."""
    known = replace(KNOWN, holes=(PassedHole(100, 110, ((7, 90),)), PassedHole(150, 160, ((7, 140),))))
    step = advance(known, seen(200, PassedHole(150, 160, ((7, 90),))), PASSING)
    assert [hole.start for hole in step.late] == [100]
    assert step.state.holes == (PassedHole(150, 160, ((7, 90),)),)


def test_t03_a_filled_hole_waits_for_a_hole_ahead_that_hides_the_same_transaction() -> None:
    """Else a late claim would not add its records, and no later one would have its first offset."""
    known = PartitionClaims(0, 40, holes=(PassedHole(35, 40, ((7, 28),)),))
    ahead = PassedHole(44, 53, ((7, 28), (8, 40)))
    waiting = advance(known, seen(96, ahead, stable=40), PASSING)
    assert (waiting.late, waiting.state.holes) == ((), known.holes)
    passing = advance(known, seen(96, ahead), PASSING)
    assert passing.late == known.holes
    assert passing.state.holes == (ahead,)
    other = PassedHole(44, 53, ((8, 40),))
    assert advance(known, seen(96, other, stable=40), PASSING).late == known.holes


def test_a_transaction_that_begins_in_a_filled_part_of_a_hole_is_not_withheld() -> None:
    """A late claim of the hole has its records; a state with it could not be read."""
    known = PartitionClaims(0, 200, holes=(PassedHole(50, 60, ((7, 40),)),))
    step = advance(known, seen(200, PassedHole(55, 60, ((7, 40), (8, 52)))), PASSING)
    assert step.state.holes == (PassedHole(50, 60, ((7, 40),)),)


def test_a_hole_that_grows_is_noted_once() -> None:
    """The part behind a passed hole is a hole of its own."""
    known = replace(KNOWN, holes=(PassedHole(190, 200, ((7, 180),)),))
    step = advance(known, seen(250, PassedHole(190, 210, ((7, 180),))), PASSING)
    assert step.state.holes == (PassedHole(190, 200, ((7, 180),)), PassedHole(200, 210))
    assert step.claims == ((210, 250),)


def test_claims_are_cut_where_the_epochs_part() -> None:
    """With the holes and the losses above that offset."""
    known = PartitionClaims(0, 200, ReadLog(LINE), (PassedHole(50, 60), PassedHole(140, 170)), ((100, 110), (180, 190)))
    assert known.below(150) == PartitionClaims(
        0, 150, ReadLog(LINE), (PassedHole(50, 60), PassedHole(140, 150)), ((100, 110),)
    )
    assert known.below(-5).claims == ()


def test_ranges_without_others_are_ascending() -> None:
    """Also if these overlap, touch or reach outside."""
    assert without((10, 50), [(0, 12), (20, 30)], [(25, 35), (45, 60)]) == ((12, 20), (35, 45))
    assert without((10, 10)) == ()


def table() -> TableState:
    state = PartitionClaims(
        0,
        250,
        ReadLog(LINE, Lineage(3, 120, 140)),
        (PassedHole(100, 120, ((7, 90),)),),
        ((20, 30),),
        (Kept(200, 210, 9, "8a:1f"),),
    )
    old = IncarnationState("orders", None, {0: PartitionClaims(5, 5)})
    new = IncarnationState("orders~pQ", "pQ", {0: state, 3: PartitionClaims(0, 1)})
    return TableState("prod", True, {"orders": (old, new)})


def test_a_state_is_read_as_it_was_written() -> None:
    """Every field of it."""
    assert TableState.decode(table().encode(), "t") == table()


def test_rows_that_stay_are_noted() -> None:
    """In addition to those of earlier elections; without rows there is nothing to note."""
    state = table().keeping("orders", "orders~pQ", 3, Kept(0, 1, 1, "1:2"))
    found = state.incarnation("orders", "orders~pQ")
    assert found is not None
    assert found.partitions[3].kept == (Kept(0, 1, 1, "1:2"),)
    assert table().keeping("orders", "orders~pQ", 3, Kept(0, 1, 0, "0:0")) == table()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"to":250', '"to":-1'),
        ("[100,120,", "[100,90,"),
        ("[100,120,", "[100,251,"),
        ("[100,120,", "[25,120,"),
        ('"8a:1f"', '"8z:1f"'),
        ('"directory":"orders~pQ"', '"directory":"orders"'),
        ('"read_committed"', '"maybe"'),
        ('"3":', '"03":'),
        ('"orders":', '"or/ders":'),
        ("[[0,0],[3,120]]", "[[3,0],[0,120]]"),
    ],
)
def test_a_damaged_state_is_refused(old: str, new: str) -> None:
    """By an error of the project, that names its place."""
    data = table().encode().decode()
    assert old in data
    with pytest.raises(CorruptData, match="ts-head"):
        TableState.decode(data.replace(old, new, 1).encode(), "ts-head")
