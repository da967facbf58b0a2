"""A provider of a user's own: the URL of the file, with Object Lock for seconds instead of days."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ts_common.endpoints.provider import UrlEndpointProvider
from ts_common.store.options import LockMode

SECONDS = 30
_DAY = 86_400


class ShortLocks(UrlEndpointProvider):
    """S3's date is absolute, so a fraction of a day is a valid period; files accept whole days only."""

    def __init__(self, cluster_id: str, config_dir: Path, properties: Mapping[str, str]) -> None:
        super().__init__(cluster_id, config_dir, properties)
        storing = replace(self.options.storing, object_lock_mode=LockMode.COMPLIANCE, object_lock_days=SECONDS / _DAY)
        self.options = replace(self.options, storing=storing)
