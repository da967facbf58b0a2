"""Azure's service: the requests to it, and what it stores."""

import pytest

from tests.conftest import AZURE_CONTAINER
from ts_common.errors import (
    CorruptData,
)
from ts_common.store.azure.service import given_name, stored_name
from ts_common.store.factory import open_store
from ts_common.store.http import driver as http_store
from ts_local.stores.azurite import AzuriteServer


@pytest.mark.parametrize("name", ["ts-end", "ts-time-max", "n", "0", "a_b", "a.b", "x-", "2nd"])
def test_names_of_metadata_are_returned_unchanged(name: str) -> None:
    """The service stores identifiers, and the driver returns the original names."""
    assert stored_name(name).isidentifier()
    assert stored_name(name).isascii()
    assert given_name(stored_name(name)) == name


def test_the_store_compares_the_md5_with_what_arrives(azure: AzuriteServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that change in transit are rejected, and nothing is written."""
    del azure
    with open_store(f"az://{AZURE_CONTAINER}/md5") as store:
        monkeypatch.setattr(http_store, "_md5_of", lambda _body: bytes(16))
        with pytest.raises(CorruptData, match="Md5Mismatch"):
            store.put("key", b"content")
        assert list(store.list()) == []
