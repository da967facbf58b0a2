"""The person's records in tables that are filled after the list."""

from pathlib import Path

import pytest

from tests.erased.canary import GONE, STAY, canary, log_of
from tests.tables.made_tables import MadeTable, verified
from ts_tables.files.layout import FileFormat


@pytest.mark.parametrize("form", [FileFormat.PARQUET, FileFormat.JSON_LINES])
def test_a_table_has_no_row_of_the_person(tmp_path: Path, form: FileFormat) -> None:
    """It claims the offsets, and the archive's rows are the table's; a later run reads a later list."""
    person = canary(tmp_path / "archive")
    person.erase()
    table = MadeTable(person.archive, tmp_path / "lake", format=form)
    table.create()
    assert table.run().records == len(STAY)
    assert table.offsets() == STAY
    assert verified(table).differences == ()
    gone = {205, 219}
    person.archive.put_segment("t", 200, log_of(person.person, 200, 220, gone))
    person.erase(GONE | gone, number=2)
    person.archive.commit("t", 220, highest_base=200, log_start=None)
    table.run()
    assert table.offsets() == [*STAY, *(each for each in range(200, 220) if each not in gone)]
    assert verified(table).differences == ()
    for path in (tmp_path / "lake").rglob("*"):
        assert not path.is_file() or person.person not in path.read_bytes()
