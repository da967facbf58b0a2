"""Deletes of many keys in one request; tests/common/store/test_contract_writes.py has them with real servers."""

import pytest

from tests.common.store.servers import FakeServer, answer
from ts_common.errors import AccessDenied, StoreUnavailable
from ts_common.store.contract import ObjectStore


def test_what_could_not_be_deleted_is_counted(far: ObjectStore, fake: FakeServer) -> None:
    """S3 answers 200 with a list of failures; a missing key is not one."""

    def said(code: str) -> bytes:
        failures = "".join(
            f"<Error><Key>base/{key}</Key><Code>{why}</Code><Message>m</Message></Error>"
            for key, why in (("a", code), ("b", "NoSuchKey"))
        )
        return answer("200 OK", f"<DeleteResult>{failures}</DeleteResult>".encode())

    fake.answers = [said("InternalError")]
    with pytest.raises(StoreUnavailable, match="1 of 3 not deleted, the first is s3://archive/base/a: InternalError"):
        far.delete(["a", "b", "c"])
    fake.answers = [said("AccessDenied")]
    with pytest.raises(AccessDenied, match="s3:DeleteObject"):
        far.delete(["a", "b", "c"])
    fake.answers = [said("NoSuchKey")]
    far.delete(["a", "b", "c"])
