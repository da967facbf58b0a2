"""Archives with a cache of their metadata, and stores that count requests."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import md5

from tests.asked_store import AskedStore
from tests.spark.archives import Archive
from ts_common.store.contract import ObjectInfo
from ts_uploader.shipping.metadata_cache_writer import write_cache_object


class Counting(AskedStore):
    """A store that records requests; its ETags are the MD5 of an object, as in S3."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield objects with the ETags of small objects, although the caller did not request them."""
        for info in super().list(prefix, start_after=start_after):
            if info.key.endswith("/log.start"):
                yield replace(info, etag=f'"{md5(self._inner.get(info.key)[0]).hexdigest()}"')
            else:
                yield info


def write_all(archive: Archive, next_offset: int) -> None:
    """Write as many cache objects as the segments need."""
    while write_cache_object(archive.store, archive.partition("t"), next_offset)[1]:
        pass
