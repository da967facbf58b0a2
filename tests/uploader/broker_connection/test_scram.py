"""The client's side of SCRAM, against the server's side that the endpoint has for Kafka's clients."""

import base64

import pytest

from ts_common.broker_connection.scram import ScramClient
from ts_common.errors import CorruptData
from ts_endpoint.security.scram import ScramExchange, ScramMechanism, keys_of, parse_first


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["agent", "a=b,c", "ägent"])
def test_a_login_proves_both_sides(mechanism: ScramMechanism, user: str) -> None:
    """Names with the characters that SCRAM escapes, and passwords beyond ASCII."""
    client = ScramClient(mechanism.value, user, "hush, hüsh=")
    first = parse_first(client.first)
    assert first.user == user
    server = ScramExchange(mechanism, first, keys_of(mechanism, "hush, hüsh="))
    last = server.prove(client.prove(server.challenge))
    assert last is not None
    client.check(last)
    wrong = ScramExchange(mechanism, first, keys_of(mechanism, "guessed"))
    assert wrong.prove(client.prove(wrong.challenge)) is None


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff",
        b"r={nonce},s=AAAA,i=4096",
        b"r=other,s=AAAA,i=4096",
        b"r={nonce}x,s=A,i=4096",
        b"r={nonce}x,s=AAAA,i=1",
        b"r={nonce}x,s=AAAA,i=99999999",
        b"r={nonce}x,s=AAAA,i=-4096",
        b"m=new,r={nonce}x,s=AAAA,i=4096",
    ],
)
def test_a_challenge_that_no_broker_sends_is_rejected(challenge: bytes) -> None:
    """No nonce of the server, another login's nonce, and iterations that are too few, or need minutes of CPU."""
    client = ScramClient("SCRAM-SHA-256", "agent", "hush")
    nonce = client.first.rpartition(b"r=")[2]
    with pytest.raises(CorruptData, match="SCRAM"):
        client.prove(challenge.replace(b"{nonce}", nonce))


@pytest.mark.parametrize("last", [b"", b"v=", b"v=" + base64.b64encode(bytes(32)), b"e=other-error"])
def test_a_server_without_the_keys_is_not_the_broker(last: bytes) -> None:
    """Its last message does not prove that it has the user's keys."""
    client = ScramClient("SCRAM-SHA-256", "agent", "hush")
    first = parse_first(client.first)
    server = ScramExchange(ScramMechanism.SHA_256, first, keys_of(ScramMechanism.SHA_256, "hush"))
    client.prove(server.challenge)
    with pytest.raises(CorruptData, match="does not prove"):
        client.check(last)
