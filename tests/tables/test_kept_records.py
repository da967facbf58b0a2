"""Elections over rows and refused records that both tables of a pair keep."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.common.log_format.build import batch, record
from tests.made_archive import MadeArchive
from tests.matrix import cases
from tests.tables.test_parsed_tables import FORMATS, NAME, Made, json_of
from ts_common.errors import DataLoss

JUNK: list[bytes | None] = [b"{"]
ROW = json_of({"id": 1})


@pytest.fixture(params=cases(FORMATS, quick=["iceberg"]))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """Offsets 0 to 29 are rows; of an earlier leader, 30 to 59 are refused."""
    made = Made(MadeArchive(tmp_path / "archive"), tmp_path / "lake", request.param, {"on_taken_back": "keep"})
    lead(made, 0, ROW * 30, (0, 0))
    lead(made, 30, JUNK * 30, (0, 0))
    made.tables.create(NAME)
    made.tables.run(NAME)
    return made


def lead(made: Made, start: int, values: Sequence[bytes | None], *epochs: tuple[int, int]) -> None:
    """Archive a segment of the leader of the last one of these epochs."""
    end, (epoch, _) = start + len(values), epochs[-1]
    records = [record(at, b"k", value) for at, value in enumerate(values)]
    made.archive.put_segment("t", start, batch(start, records, epoch=epoch), variant=bool(epoch))
    made.archive.commit("t", end, epochs=epochs, highest_base=start, last_stable_offset=end)


def kept(made: Made, of: str = "") -> list[tuple[int, int]]:
    """Return how many rows each offset from 25 on has."""
    return made.select("select _offset, count(*) from {} where _offset >= 25 group by 1 order by 1", of)


@pytest.mark.parametrize("later", [JUNK, ROW], ids=["refused", "rows"])
def test_a_second_election_inside_of_kept_refused_records_fails(made: Made, later: list[bytes | None]) -> None:
    """Before either table is changed; the message is that of rows which are kept."""
    lead(made, 30, later * 20, (0, 0), (2, 30))
    made.tables.run(NAME)
    assert made.tables.verify(NAME).differences == ()
    before = kept(made), kept(made, "_quarantine")
    lead(made, 40, later * 20, (0, 0), (2, 30), (3, 40))
    for _ in range(2):
        with pytest.raises(DataLoss, match=r"offsets 40 to 49 were removed .* create the table again"):
            made.tables.run(NAME)
    assert (kept(made), kept(made, "_quarantine")) == before
    (finding,) = made.tables.status(NAME).findings
    assert "create the table again" in finding
    compared = made.tables.verify(NAME)
    assert compared.differences == ()
    assert compared.notes == ("t-0: offsets 30 to 59 were removed from the log by an election",)


@pytest.mark.parametrize("start", [30, 25])
def test_a_second_election_that_removes_all_kept_refused_records_counts_them_again(made: Made, start: int) -> None:
    """Also those above the end of the second leader."""
    lead(made, 30, ROW * 20, (0, 0), (2, 30))
    made.tables.run(NAME)
    lead(made, start, JUNK * 10, (0, 0), (3, start))
    made.tables.run(NAME)
    assert made.tables.verify(NAME).differences == ()
    expected = dict.fromkeys(range(30, 60), 1)
    for offset in range(start, start + 10):
        expected[offset] = expected.get(offset, 0) + 1
    assert dict(kept(made, "_quarantine")) == expected
    assert dict(kept(made)) == dict.fromkeys(range(25, 50), 1)
