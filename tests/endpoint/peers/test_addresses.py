"""What `--peers` accepts."""

import pytest

from ts_common.errors import ConfigurationError
from ts_endpoint.peers.addresses import Address, digest_of, own_entry, parse_address, parse_peers


def test_the_node_id_is_the_position_in_the_list() -> None:
    """The address for health is the process's host with the common port, unless an entry names another."""
    first, second, third = parse_peers("b:9092, a:9092=a:1,[::1]:9093", 9465)
    assert [each.node_id for each in (first, second, third)] == [0, 1, 2]
    assert (str(first.address), str(first.health)) == ("b:9092", "b:9465")
    assert (str(second.address), str(second.health)) == ("a:9092", "a:1")
    assert (third.address, str(third.health)) == (Address("::1", 9093), "[::1]:9465")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", "'a' is not of the form host:port"),
        ("a:0", "port from 1 to 65535"),
        ("a:65536", "port from 1 to 65535"),
        ("a:٣", "is not of the form"),
        (":9092", "is not of the form"),
        ("::1:9092", r"write an IPv6 address as \[address\]:port"),
        ("::1", r"write an IPv6 address as \[address\]:port"),
        ("a:1;b:1", "'a:1;b:1' is not of the form host:port; only --peers has several, with commas"),
        ("a:1,", "'' is not of the form"),
        ("a:1=b", "'b' is not of the form"),
        ("a:1,b:1,a:1", "a:1 is listed twice"),
        ("a:1,a:2", "a:1 and a:2 have the same address for health, a:9465"),
    ],
)
def test_a_wrong_list_is_an_error_with_its_entry(text: str, expected: str) -> None:
    """And with the option."""
    with pytest.raises(ConfigurationError, match=expected) as error:
        parse_peers(text, 9465)
    assert "--peers" in str(error.value)


def test_a_list_without_the_process_itself_is_an_error() -> None:
    """The message names the list, the process, and both ways out."""
    peers = parse_peers("a:1,b:1", 9465)
    assert own_entry(peers, parse_address("b:1", "--advertise")) is peers[1]
    with pytest.raises(ConfigurationError, match="b:1: no entry is this process, c:1; list it, or set --advertise"):
        own_entry(peers, Address("c", 1))


def test_the_digest_distinguishes_lists_and_clusters() -> None:
    """Also lists in another order, which would give other node ids."""
    digests = {
        digest_of(cluster, parse_peers(text, 9465))
        for cluster, text in [("prod", "a:1,b:1"), ("prod", "b:1,a:1"), ("prod", "a:1"), ("test", "a:1,b:1")]
    }
    assert len(digests) == 4
    assert digest_of("prod", parse_peers("a:1,b:1", 1)) == digest_of("prod", parse_peers("a:1,b:1", 2))
