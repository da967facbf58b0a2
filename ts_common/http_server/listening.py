"""An HTTP server on its own thread, at the address of the option `--http-address`."""

import errno
import threading
from typing import Final

from ts_common.errors import AddressInUse, ConfigurationError
from ts_common.http_server.answers import Answers
from ts_common.http_server.bounded_server import BoundedServer

OPTION: Final = "--http-address"


class HttpServer:
    """Serves pages from `start` to `stop`.

    Args:
        address: `host:port`; port 0 picks a free port.
        handler: class that answers one request.
        program: what may already listen there, for the message: "agent".

    Raises:
        ConfigurationError: the address is malformed, or not of this machine.
        AddressInUse: another program listens there.
    """

    def __init__(self, address: str, handler: type[Answers], program: str) -> None:
        host, port = host_and_port(address)
        try:
            self._server = BoundedServer((host, port), handler)
        except (OSError, OverflowError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                # A former process may be about to end: then this one must retry and not exit permanently.
                raise AddressInUse(
                    f"{OPTION} {address}: another program listens there, perhaps another {program}; end it, or name "
                    "another host:port"
                ) from error
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(
                OPTION, [f"cannot listen on {address}: {reason}; name another host:port"]
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    @property
    def address(self) -> str:
        """The address that the server listens on, as `host:port`."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to serve and close the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def host_and_port(address: str) -> tuple[str, int]:
    """Return both parts of `host:port`.

    Raises:
        ConfigurationError: the address has another form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigurationError(OPTION, [f"{address!r} is not of the form host:port"])
    return host, int(port)
