import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ts_common.archive.commit import (
    LOG_NAME,
    Commit,
    ForeignCommit,
    Lineage,
    Live,
    LogStart,
    decode_commit,
    decode_log_start,
    encode_log_start,
    epoch_of,
    new_writer,
)
from ts_common.archive.epoch_history import EpochHistory
from ts_common.errors import CorruptData

OFFSETS = st.integers(0, 2**63 - 1)


@st.composite
def epoch_lines(draw: st.DrawFn) -> EpochHistory:
    epochs = sorted(draw(st.sets(st.integers(0, 1000), max_size=6)))
    starts = sorted(draw(st.sets(st.integers(0, 2**40), min_size=len(epochs), max_size=len(epochs))))
    return EpochHistory(tuple(zip(epochs, starts, strict=True)))


@st.composite
def lives(draw: st.DrawFn) -> Live:
    name = st.from_regex(LOG_NAME, fullmatch=True)
    return Live(
        draw(name), tuple(draw(st.lists(st.tuples(name, st.integers(0, 1000)), max_size=3))), draw(epoch_lines())
    )


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    return Commit(
        highest_base=draw(OFFSETS),
        next_offset=draw(OFFSETS),
        epoch=draw(st.integers(0, 2**31 - 1)),
        epochs=draw(epoch_lines()),
        last_stable_offset=draw(st.none() | OFFSETS),
        topic_id=draw(st.none() | st.text("abcXYZ019_-", min_size=22, max_size=22)),
        broker=draw(st.integers(0, 2**31 - 1)),
        time=draw(st.integers(0, 2**43)),
        nonce=draw(st.text("0123456789abcdef", min_size=16, max_size=16)),
        java=draw(st.none() | st.integers(0, 2**43)),
        live=draw(st.none() | lives()),
    )


@given(commits())
def test_a_commit_reads_back(commit: Commit) -> None:
    """Decoding returns every field, and the first line is the Java uploader's watermark."""
    data = commit.encode()
    assert decode_commit(data, "k") == commit
    assert data.split(b"\n")[0] == b"%020d" % commit.highest_base


def test_a_live_tail_is_one_more_field_of_version_1() -> None:
    """Older readers ignore the field, and show the closed segments: so it has no version of its own."""
    plain = Commit(100, 250, 7, EpochHistory(((5, 0),)), 250, None, 1, 1, "a")
    live = Live("1", (("2.pii", 5),), EpochHistory(((5, 250), (7, 1200))))
    text = b'"live":{"log":"1","of":[["2.pii",5]],"ahead":[[5,250],[7,1200]]}'
    assert replace(plain, live=live).encode() == plain.encode().replace(b"}\n", b"," + text + b"}\n")


@pytest.mark.parametrize("log", ["", "01", "-1", "1.", "1/2", "1.a.b", "..", "1." + "a" * 65])
def test_a_log_has_the_name_of_a_broker_and_perhaps_a_group(log: str) -> None:
    """The name is a part of keys: no other text can lead a reader to another prefix."""
    data = b'00000000000000000100\n{"next":250,"epoch":7,"epochs":[],"broker":1,"time":1,"nonce":"a","live":%s}'
    decode_commit(data % b'{"log":"1","of":[],"ahead":[]}', "k")
    with pytest.raises(CorruptData, match=r"is not of the form|at most"):
        decode_commit(data % b'{"log":"%s","of":[],"ahead":[]}' % log.encode(), "k")


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n"])
def test_a_commit_without_a_second_line_is_foreign(ending: bytes) -> None:
    """The Java uploader's watermark names a segment but no end."""
    assert decode_commit(b"00000000000000000200" + ending, "k") == ForeignCommit(200)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"200",
        b"0000000000000000020x",
        b'00000000000000000200\n{"next":7,"epoch":0,"epochs":[[1,5],[1,9]],"broker":1,"time":1,"nonce":"a"}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_commit_is_an_error_that_names_the_object(data: bytes) -> None:
    """The agent guesses neither a missing field nor a damaged one."""
    with pytest.raises(CorruptData, match="the/key"):
        decode_commit(data, "the/key")


@given(OFFSETS)
def test_a_log_start_reads_back(offset: int) -> None:
    """Decoding returns the offset in the twenty digits."""
    assert decode_log_start(encode_log_start(offset), "k") == LogStart(offset)


def test_a_damaged_log_start_is_refused() -> None:
    """An empty object is damage, not offset 0."""
    with pytest.raises(CorruptData, match="20 digits"):
        decode_log_start(b"", "k")


OLDER, OWN, NEWER = Lineage(4, 60, 90), Lineage(5, 50, 100), Lineage(6, 40, 110)


@pytest.mark.parametrize(
    ("lineage", "fits", "shown"),
    [(OWN, True, 80), (OLDER, True, 50), (None, True, 50), (NEWER, False, None), (Lineage(5, 50, 99), False, None)],
)
def test_a_log_start_fits_a_commit_of_its_own_or_a_newer_lineage(
    lineage: Lineage | None, fits: bool, shown: int | None
) -> None:
    """An older one can be above the first offset of the commit's lineage, which then is the beginning."""
    log_start = LogStart(80, lineage)
    assert log_start.fits(OWN) is fits
    if shown is not None:
        assert log_start.shown_from(OWN) == shown


def test_a_log_start_with_a_lineage_reads_back() -> None:
    """The lineage is in the second line, and the first line stays as in version 1."""
    data = LogStart(80, OWN).encode()
    assert decode_log_start(data, "k") == LogStart(80, OWN)
    assert data.startswith(encode_log_start(80))


def test_a_log_start_in_another_lineage_carries_what_retention_and_erasure_wrote() -> None:
    """The floor is never above the start; where the two are equal, nothing is hidden."""
    before = LogStart(80, OLDER, floor=60, since="gc-1", erased=4, written_by="gc-1")
    for start, floor, since in ((70, 60, "gc-1"), (60, 60, None), (50, 50, None)):
        after = before.in_lineage(OWN, start)
        assert (after.offset, after.lineage, after.floor, after.since) == (start, OWN, floor, since)
        assert (after.erased, after.written_by is None) == (4, False)
        assert after.written_by != before.in_lineage(OWN, start).written_by


def test_a_log_start_in_another_lineage_has_no_writer_without_such_fields() -> None:
    """Its bytes are those of releases without a floor; the writer alone is no reason to differ."""
    for before in (LogStart(80, OLDER), LogStart(80, written_by="run-1")):
        assert before.in_lineage(OWN, 50) == LogStart(50, OWN)


def test_the_name_of_a_writer_has_its_kind_and_time_and_differs_each_time() -> None:
    """Equal bytes have an equal ETag, and a late write would succeed."""
    names = {new_writer("gc", 1_795_831_200.25) for _ in range(2)}
    assert len(names) == 2
    assert all(re.fullmatch(r"gc-20261128T020000250Z-[0-9a-f]{8}", name) for name in names)


def test_a_lineage_is_a_list_of_three_numbers() -> None:
    """The JSON form is `[epoch, begin, highest]`."""
    lineage = Lineage(5, 100, 250)
    assert lineage.encode() == [5, 100, 250]
    assert Lineage.decode([5, 100, 250]) == lineage


@pytest.mark.parametrize("fields", [None, [], [5, 100], [5, 100, 250, 1], [-1, 100, 250], ["5", 100, 250], {"a": 1}])
def test_any_other_value_is_rejected(fields: Any) -> None:
    """A lineage with a missing, negative or textual part is no lineage."""
    with pytest.raises(ValueError, match=r"list of three|whole number"):
        Lineage.decode(fields)


def test_no_lineage_is_older_than_each_lineage() -> None:
    """Lineages are ordered by the epoch of the agent whose commit went back."""
    assert epoch_of(None) < epoch_of(Lineage(0, 0, 0)) < epoch_of(Lineage(1, 0, 0))


def test_commits_share_the_parts_that_are_equal() -> None:
    """An agent has ten thousand in memory, most of partitions without writes since one election."""

    def made_by(nonce: str) -> Commit:
        live = Live("1", (), EpochHistory(((4, 0),)))
        return Commit(0, 0, 4, EpochHistory(((3, 0),)), 0, "".join(["A"] * 22), 1, 0, nonce, live=live)

    made = [made_by("one"), made_by("two")]
    first, second = (commit.shared for commit in made)
    assert [first, second] == made
    assert first.live is second.live
    assert first.epochs is second.epochs
    assert first.topic_id is second.topic_id
