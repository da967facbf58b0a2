"""The pages of a listing of S3.

Creating the SDK's paginator takes longer than reading a page. A listing has the state of thaws only on request: the
driver requests it from the first page on that has an object of an archive class.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ts_common.errors import StoreUnavailable
from ts_common.store.call import Call
from ts_common.store.listing import Onward
from ts_common.store.s3.error_translation import translated
from ts_common.store.s3.thaw import LISTED_STATE, may_be_frozen

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class Pages:
    """Listings of one bucket, for any threads.

    Args:
        client: of the SDK; it may repeat requests.
    """

    def __init__(self, client: "S3Client", bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._lists_thaws = False  # set by the first page with an object of an archive class

    def read(self, call: Call, prefix: str, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the pages of a listing.

        Args:
            call: the request, for messages.
            request: further arguments of ListObjectsV2.

        Raises:
            StoreUnavailable: the store does not answer, or the listing has no end.
            AccessDenied, BucketMissing: the request failed.
        """
        onward = Onward(call)
        following: dict[str, Any] = {}
        while True:
            with translated(call):
                page = self._page({"Bucket": self._bucket, "Prefix": prefix, **request, **following})
            yield page
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == following.get("ContinuationToken"):
                raise StoreUnavailable(
                    f"{call.operation} {call.target}: the page is truncated and has no new continuation token"
                )
            objects, directories = page.get("Contents", ()), page.get("CommonPrefixes", ())
            names = [*(each["Key"] for each in objects[-1:]), *(each["Prefix"] for each in directories[-1:])]
            onward.advance(max(names, default=""))
            following = {"ContinuationToken": token}

    def _page(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self._lists_thaws:
            page = self._client.list_objects_v2(**request)
            if not any(may_be_frozen(found.get("StorageClass")) for found in page.get("Contents", ())):
                return page
            self._lists_thaws = True
        return self._client.list_objects_v2(**request, **LISTED_STATE)
