"""Mistakes in the catalog's properties, and errors of its libraries."""

from json import JSONDecodeError
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, NoSuchTableError

from tests.made_archive import MadeArchive, batches
from tests.tables.made_tables import MadeTable
from ts_common.errors import AccessDenied, CorruptData, OperatorError, StoreUnavailable
from ts_tables.iceberg.catalogs import open_catalog
from ts_tables.iceberg.translated_errors import calling
from ts_tables.targets import TableMissing


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"uri": "sqllight:///x"}, "sqllight"),
        ({"type": "sqll"}, "type sqll is unknown; accepted are rest, .*; did you mean sql?"),
        ({"uri": "no address"}, "no address|URL"),
        ({"uri": ""}, "SQL connection URI is required"),
        ({"uri": "sqlite:////no/such/tables.db"}, "unable to open database file; `uri` needs a directory that exists"),
        ({"warehouse": ""}, "table backup.t: `warehouse` is missing below `catalog`"),
    ],
    ids=["database", "type", "address", "no address", "no directory", "no warehouse"],
)
def test_a_wrong_property_is_the_operators_mistake(tmp_path: Path, properties: dict[str, str], reason: str) -> None:
    """It is no outage, which a scheduler would try again."""
    archive = MadeArchive(tmp_path / "archive")
    archive.put_segment("t", 0, batches((0, 3)))
    archive.commit("t", 3, last_stable_offset=3)
    with pytest.raises(OperatorError, match=reason):
        MadeTable(archive, tmp_path / "lake", further=properties).create()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ForbiddenError("no"), AccessDenied),
        (NoSuchTableError("n.t"), TableMissing),
        (ModuleNotFoundError("no module boto3"), OperatorError),
        (JSONDecodeError("Expecting value", "<html>", 0), StoreUnavailable),
        (ConnectionError("reset"), StoreUnavailable),
        (CommitFailedException("409"), StoreUnavailable),
        (OSError("AWS Error INVALID_ACCESS_KEY_ID during PutObject operation: no"), AccessDenied),
        (OSError("AWS Error NO_SUCH_BUCKET during PutObject operation: no"), OperatorError),
        (OSError("AWS Error SLOW_DOWN during PutObject operation: no"), StoreUnavailable),
        (CorruptData("damaged"), CorruptData),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_of_a_library_is_one_of_this_project(error: Exception, kind: type[Exception]) -> None:
    """With the name of the table; one of this project stays."""
    with pytest.raises(kind) as found, calling("table n.t"):
        raise error
    assert type(found.value) is kind


def test_a_catalog_without_an_address_is_named() -> None:
    """pyiceberg's own message names an option that `tsctl` does not have."""
    with pytest.raises(OperatorError, match=r"^catalog lake: `uri` is missing below `catalog`$"):
        open_catalog("lake", {"type": "sql"})


def test_a_store_that_is_not_at_aws_is_suggested() -> None:
    """Without an endpoint, pyarrow connects to AWS."""
    text = "AWS Error NETWORK_CONNECTION during HeadObject operation: Could not resolve host: b.s3.amazonaws.com"
    with pytest.raises(StoreUnavailable, match=r"set s3\.endpoint below `catalog`"), calling("table n.t"):
        raise OSError(text)
