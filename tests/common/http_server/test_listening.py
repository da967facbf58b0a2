"""Where a program's pages are served, and what is wrong with an address."""

import socket

import pytest

from ts_common.errors import AddressInUse, ConfigurationError
from ts_common.http_server.answers import Answers
from ts_common.http_server.listening import HttpServer, host_and_port


def test_a_free_port_is_shown_and_closed_at_the_end() -> None:
    """Also of a server that was never started."""
    server = HttpServer("127.0.0.1:0", Answers, "test")
    host, port = host_and_port(server.address)
    assert (host, port > 0) == ("127.0.0.1", True)
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port), timeout=30)


def test_an_address_in_use_can_be_free_soon() -> None:
    """The message has the option, the address and what may listen there."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(
            AddressInUse, match=rf"--http-address {address}: another program .* another endpoint; end it"
        ):
            HttpServer(address, Answers, "endpoint")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("9465", "'9465' is not of the form host:port"),
        (":9465", "is not of the form host:port"),
        ("127.0.0.1:x", "is not of the form host:port"),
        ("127.0.0.1:99999", "cannot listen on 127.0.0.1:99999"),
        ("192.0.2.1:0", "cannot listen on 192.0.2.1:0: .*; name another host:port"),
    ],
)
def test_a_wrong_address_is_an_error_with_the_option(address: str, expected: str) -> None:
    """An operator must change it."""
    with pytest.raises(ConfigurationError, match=expected) as error:
        HttpServer(address, Answers, "test")
    assert error.value.source == "--http-address"
