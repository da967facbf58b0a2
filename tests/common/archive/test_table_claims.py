"""What a table still needs, as an object of the archive."""

from pathlib import Path

import pytest

from tests.made_archive import MadeArchive
from ts_common.archive.table_claims import TableClaims, claims_key, read_claims, tables_with_claims
from ts_common.errors import CorruptData

CLAIMS = TableClaims("backup.orders", "17", 1_700_000_000_000, {"orders-0": 4711, "orders~pQ-_x-1": 0})


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    return MadeArchive(tmp_path)


def put(archive: MadeArchive, data: bytes) -> None:
    archive.store.put(claims_key(archive.keys, CLAIMS.table), data)


def test_claims_are_read_as_they_were_written(archive: MadeArchive) -> None:
    """And found by a listing."""
    assert read_claims(archive.store, archive.keys, CLAIMS.table) is None
    put(archive, CLAIMS.encode())
    assert read_claims(archive.store, archive.keys, CLAIMS.table) == CLAIMS
    archive.store.put(f"{archive.keys.cluster_prefix}claims/notes.txt", b"")
    archive.store.put(f"{archive.keys.cluster_prefix}claims/../x.json".replace("../", "a-b"), b"")
    assert tables_with_claims(archive.store, archive.keys) == [CLAIMS.table]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"orders-0", b"orders"),
        (b"orders-0", b"../orders-0"),
        (b'"table":"backup.orders"', b'"table":"backup.other"'),
    ],
)
def test_damaged_claims_are_refused(archive: MadeArchive, old: bytes, new: bytes) -> None:
    """By an error that names the object."""
    data = CLAIMS.encode()
    assert old in data
    put(archive, data.replace(old, new, 1))
    with pytest.raises(CorruptData, match=r"claims/backup\.orders\.json"):
        read_claims(archive.store, archive.keys, CLAIMS.table)


def test_a_name_that_leads_elsewhere_is_refused(archive: MadeArchive) -> None:
    """A table's name is a part of the key."""
    for name in ("", "../orders", "a/b", "a b"):
        with pytest.raises(ValueError, match="no name of a table"):
            claims_key(archive.keys, name)
