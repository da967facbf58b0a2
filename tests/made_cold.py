"""An archive in a bucket of moto. Segments in archive classes cannot be read there until they are restored."""

import json
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import pytest

from dev.local.loopback_http import request
from dev.local.stores.moto import MotoServer
from tests.made_archive import MadeArchive, batches
from ts_common.archive.object_keys import SegmentName

TOPIC: Final = "t"
STEP: Final = 10  # offsets of a segment


class ColdArchive(MadeArchive):
    """A topic of three segments in one partition, of ten offsets each.

    Attributes:
        bucket: its bucket.
        client: of the SDK.

    Args:
        location: of the store.
        client: of the SDK.
    """

    def __init__(self, location: str, client: Any) -> None:
        super().__init__(location)
        self.bucket = location.removeprefix("s3://").partition("/")[0]
        self.client = client
        for base in range(0, 3 * STEP, STEP):
            self.put_segment(TOPIC, base, batches((base, base + STEP)), index=b"", timeindex=b"")
        self.commit(TOPIC, 3 * STEP, highest_base=2 * STEP, last_stable_offset=3 * STEP)

    def key(self, base: int, suffix: str = ".log") -> str:
        """Return the key of an object of a segment."""
        return self.partition(TOPIC).segment(SegmentName(base), suffix)

    def freeze(self, *bases: int, storage_class: str = "GLACIER", suffixes: tuple[str, ...] = (".log",)) -> None:
        """Move segments to an archive class, as a lifecycle rule does."""
        for base in bases:
            for suffix in suffixes:
                key = f"base/{self.key(base, suffix)}"
                self.client.copy_object(
                    Bucket=self.bucket,
                    Key=key,
                    CopySource={"Bucket": self.bucket, "Key": key},
                    StorageClass=storage_class,
                    MetadataDirective="COPY",
                )


@contextmanager
def cold_archive(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ColdArchive]:
    """Make an archive in a bucket of its own, and set the environment for its store; nothing is frozen yet."""
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"cold-{uuid.uuid4().hex[:12]}"
    with closing(moto.client()) as client:
        client.create_bucket(Bucket=bucket)
        made = ColdArchive(f"s3://{bucket}/base", client)
        with made.store:
            yield made


@contextmanager
def slow_thaws(moto: MotoServer, looks: int) -> Iterator[None]:
    """Make a thaw end after so many looks at its state, instead of at once."""
    _set_transition(moto, {"progression": "manual", "times": looks})
    try:
        yield
    finally:
        _set_transition(moto, {"progression": "immediate"})


def _set_transition(moto: MotoServer, transition: dict[str, object]) -> None:
    body = json.dumps({"model_name": "s3::keyrestore", "transition": transition})
    status, _ = request(moto.port, "/moto-api/state-manager/set-transition", method="POST", body=body)
    assert status == 201, status
