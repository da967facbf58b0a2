"""An endpoint provider that does not return, for `storage.service.endpoint.provider.class`."""

import threading

from dev.local.waiting import wait_for
from ts_common.endpoints.provider import UrlEndpointProvider
from ts_common.store.options import Endpoint
from ts_uploader.process import progress

progress._LEAST_SECONDS, progress._TIMEOUTS = 5.0, 0  # this process is a test's own


class StandingStill(UrlEndpointProvider):
    """Blocks the threads that read positions, until the file `go` exists in the configuration's directory."""

    def endpoint(self, topic: str) -> Endpoint:
        """As its base, but later."""
        if threading.current_thread().name.startswith("lookup"):
            wait_for((self.config_dir / "go").exists, "the file", 600)
        return super().endpoint(topic)
