"""SCRAM's server: the example of RFC 7677, keys in Kafka's form, and messages that are refused."""

import base64
import hashlib
import hmac
import secrets

import pytest

from ts_endpoint.security.scram import (
    MalformedExchange,
    ScramExchange,
    ScramMechanism,
    has_password,
    keys_of,
    parse_first,
    parse_keys,
)

SHA_256 = ScramMechanism.SHA_256
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
OWN_NONCE = "rOprNGfwEbeRWgbNEkqO"
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()


@pytest.fixture
def exchange(monkeypatch: pytest.MonkeyPatch) -> ScramExchange:
    """The exchange of RFC 7677, section 3, after the client's first message."""
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _size: NONCE.removeprefix(OWN_NONCE))
    return ScramExchange(SHA_256, parse_first(FIRST), keys_of(SHA_256, "pencil", SALT, 4096))


def test_the_example_of_rfc_7677_succeeds(exchange: ScramExchange) -> None:
    """Challenge and the server's signature are those of the RFC."""
    assert exchange.challenge == f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert exchange.prove(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace(b"p=dHz", b"p=eHz"),
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"k0,p", b"k1,p"),
        FINAL.replace(b",p=", b",x=1,p="),
    ],
)
def test_a_changed_last_message_is_no_proof(exchange: ScramExchange, final: bytes) -> None:
    """Proof, channel binding, nonce and extensions are all verified."""
    assert exchange.prove(final) is None


def with_proof(exchange: ScramExchange, unproven: str) -> bytes:
    """Return the last message of a client that has the password."""
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signed = b",".join([FIRST[3:], exchange.challenge, unproven.encode()])
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    return f"{unproven},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(
    "unproven", [f"c=eSws,r={NONCE}", f"c=biws,r={NONCE}x", f"c=biws,r=x{NONCE}", f"c=biws,r={OWN_NONCE}{OWN_NONCE}"]
)
def test_a_proof_for_another_nonce_or_channel_binding_is_refused(exchange: ScramExchange, unproven: str) -> None:
    """Even if the client has the password: a recorded login cannot be repeated."""
    assert exchange.prove(with_proof(exchange, unproven)) is None


def test_a_client_that_repeats_its_own_nonce_before_the_whole_one_can_log_in(exchange: ScramExchange) -> None:
    """As librdkafka does before 2.6.1."""
    assert exchange.prove(with_proof(exchange, f"c=biws,r={OWN_NONCE}{NONCE}")) is not None


@pytest.mark.parametrize("final", [b"", b"c=biws", b"\xff", FINAL + b"=", FINAL[:-8], b"c=biws,r=a,p=!"])
def test_a_malformed_last_message_is_refused(exchange: ScramExchange, final: bytes) -> None:
    """No message of a client raises another error."""
    with pytest.raises(MalformedExchange):
        exchange.prove(final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff",
        b"n,,n=,r=abc",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,a=other,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=us\0er,r=abc",
    ],
)
def test_a_malformed_first_message_is_refused(first: bytes) -> None:
    """So are another authorization id, a channel binding, and a mandatory extension."""
    with pytest.raises(MalformedExchange):
        parse_first(first)


def test_a_name_with_comma_and_equals_sign_is_decoded() -> None:
    """A subject of a certificate can be a user name."""
    assert parse_first(b"n,,n=CN=3Da=2COU=3D2C,r=abc").user == "CN=a,OU=2C"


def test_a_name_is_decoded_once() -> None:
    """An encoded equals sign does not begin a further code."""
    assert parse_first(b"n,,n=a=3D2C,r=abc").user == "a=2C"


@pytest.mark.parametrize("mechanism", [*ScramMechanism])
def test_keys_survive_their_text_and_verify_their_password_alone(mechanism: ScramMechanism) -> None:
    """The form is Kafka's, and contains no password."""
    keys = keys_of(mechanism, "correct horse", iterations=4096)

    assert parse_keys(mechanism, keys.text()) == keys
    assert has_password(mechanism, keys, "correct horse")
    assert not has_password(mechanism, keys, "correct horsf")
    assert "correct" not in keys.text()
    assert keys.text().split(",")[3] == "iterations=4096"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=YQ==",
        keys_of(ScramMechanism.SHA_512, "x", iterations=4096).text(),
        keys_of(SHA_256, "x", iterations=4096).text().replace("iterations=4096", "iterations=1"),
        keys_of(SHA_256, "x", iterations=4096).text().replace("iterations=4096", "iterations=many"),
        keys_of(SHA_256, "x", iterations=4096).text().replace("salt=", "salt=!"),
    ],
)
def test_wrong_keys_are_refused(text: str) -> None:
    """Keys of another mechanism, few iterations and no base64 are mistakes."""
    with pytest.raises(ValueError, match=r"expected|bytes|base64"):
        parse_keys(SHA_256, text)
