"""Every call of a store, and successful responses of S3."""

from collections.abc import Callable
from typing import Final

import pytest

from tests.common.store.servers import answer
from ts_common.store.contract import ObjectStore

MODIFIED: Final = "Sat, 21 Nov 2026 04:00:00 GMT"

Ask = Callable[[ObjectStore], object]

EVERY_CALL: Final = [
    pytest.param(lambda store: store.check(), id="check"),
    pytest.param(lambda store: store.put("a", b"x"), id="put"),
    pytest.param(lambda store: store.get("a"), id="get"),
    pytest.param(lambda store: store.head("a"), id="head"),
    pytest.param(lambda store: list(store.list()), id="list"),
    pytest.param(lambda store: list(store.list_directories()), id="list-directories"),
    pytest.param(lambda store: store.delete(["a"]), id="delete"),
]


def ok(body: bytes = b"", **headers: str) -> bytes:
    """Return a response with status 200, an ETag and a date."""
    return answer("200 OK", body, etag='"e"', last_modified=MODIFIED, **headers)
