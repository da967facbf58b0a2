"""Checksums of puts: their values, and the comparison by S3 with what arrives."""

import base64
import io
import uuid

import pytest
from awscrt.checksums import crc32c

from dev.local.stores.s3 import S3Server
from tests.common.store.servers import FakeServer, answer
from ts_common.errors import CorruptData
from ts_common.store.checksums import ChecksumAlgorithm, checksum_argument
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import StorageOptions, Storing
from ts_common.store.validation import SizedBody


def stored(bucket: str, storing: Storing) -> ObjectStore:
    return open_store(f"s3://{bucket}/base", StorageOptions(storing=storing))


@pytest.fixture
def fake_answer() -> bytes:
    return answer("200 OK", etag='"e"')


# The published check values of the algorithms, for b"123456789".
CHECK_VALUES = {
    ChecksumAlgorithm.CRC32C: "e3069283",
    ChecksumAlgorithm.CRC32: "cbf43926",
    ChecksumAlgorithm.CRC64NVME: "ae8b14860a799888",
    ChecksumAlgorithm.SHA1: "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
    ChecksumAlgorithm.SHA256: "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
}


def text_of(algorithm: ChecksumAlgorithm) -> str:
    """Return the check value of an algorithm as a request has it."""
    return base64.b64encode(bytes.fromhex(CHECK_VALUES[algorithm])).decode()


@pytest.mark.parametrize("known", [None, crc32c(b"123456789")], ids=["computed", "given"])
@pytest.mark.parametrize("algorithm", ChecksumAlgorithm)
def test_the_argument_has_the_checksum_and_the_body_is_at_its_start(
    algorithm: ChecksumAlgorithm, known: int | None
) -> None:
    """Of bytes and of the first bytes of a reader; the put then sends the whole body."""
    expected = {"ChecksumAlgorithm": str(algorithm), f"Checksum{algorithm}": text_of(algorithm)}
    body = SizedBody(io.BytesIO(b"123456789 and more"), 9, "key")
    assert checksum_argument(algorithm, body, known, "key") == expected
    assert body.read() == b"123456789"
    assert checksum_argument(algorithm, b"123456789", known, "key") == expected


def test_a_given_crc_32c_costs_no_read() -> None:
    """The scan computed it, so the body is sent without a second reading."""

    class Unread(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            pytest.fail("the body was read")

    body = SizedBody(Unread(b"123456789"), 9, "key")
    assert checksum_argument(ChecksumAlgorithm.CRC32C, body, crc32c(b"123456789"), "key") == {
        "ChecksumAlgorithm": "CRC32C",
        "ChecksumCRC32C": text_of(ChecksumAlgorithm.CRC32C),
    }


@pytest.mark.parametrize("algorithm", [each for each in ChecksumAlgorithm if each is not ChecksumAlgorithm.CRC32C])
def test_the_reading_for_another_checksum_compares_the_given_crc_32c(algorithm: ChecksumAlgorithm) -> None:
    """With CRC32C the store compares it; any other checksum would cover bytes that no scan read."""
    with pytest.raises(CorruptData, match=r"key: the body's CRC-32C is e3069283; expected 00000001; nothing was sent"):
        checksum_argument(algorithm, b"123456789", 1, "key")


@pytest.mark.parametrize("algorithm", ChecksumAlgorithm)
def test_a_put_carries_the_requested_checksum(
    fake: FakeServer, fake_answer: bytes, algorithm: ChecksumAlgorithm
) -> None:
    """One, of the body's first `size` bytes, for a reader or bytes, with or without a given CRC-32C."""
    fake.answers = [fake_answer]
    with stored("archive", Storing(checksum_algorithm=algorithm)) as store:
        for known in (None, crc32c(b"123456789")):
            store.put("a", io.BytesIO(b"123456789 and more"), size=9, crc32c=known)
            store.put("a", b"123456789", crc32c=known)
    for headers in fake.headers:
        sent = {name: value for name, value in headers.items() if name.startswith("x-amz-checksum-")}
        assert sent == {f"x-amz-checksum-{algorithm.lower()}": text_of(algorithm)}
    assert len(fake.headers) == 4


@pytest.mark.parametrize("algorithm", ChecksumAlgorithm)
def test_a_body_that_changed_since_its_scan_is_refused(aws: S3Server, algorithm: ChecksumAlgorithm) -> None:
    """With every algorithm the CRC-32C of the scan is compared with the body, and nothing is written."""
    del aws
    with open_store(
        f"s3://contract/{uuid.uuid4().hex}", StorageOptions(storing=Storing(checksum_algorithm=algorithm))
    ) as store:
        content = b"0123456789" * 50_000
        for body in (content, io.BytesIO(content)):
            with pytest.raises(CorruptData):
                store.put("a", body, size=len(content), crc32c=crc32c(content) ^ 1)
        assert list(store.list()) == []
        store.put("a", io.BytesIO(content), size=len(content), crc32c=crc32c(content))
        assert store.get("a")[0] == content


class Changing(io.BytesIO):
    """A body with other bytes at its second reading."""

    seeks = 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self.seeks += 1
        if self.seeks > 1:
            self.getbuffer()[-1:] = b"!"
        return super().seek(offset, whence)


@pytest.mark.parametrize("algorithm", ChecksumAlgorithm)
def test_the_store_compares_each_checksum_with_what_arrives(aws: S3Server, algorithm: ChecksumAlgorithm) -> None:
    """SeaweedFS rejects a body that changes between the checksum and the request; nothing is written."""
    del aws
    with open_store(
        f"s3://contract/{uuid.uuid4().hex}", StorageOptions(storing=Storing(checksum_algorithm=algorithm))
    ) as store:
        with pytest.raises(CorruptData):
            store.put("a", Changing(b"0123456789"), size=10)
        assert list(store.list()) == []
