"""The order of SASL's requests, and what a refused login reveals."""

import asyncio
import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.endpoint.network.raw_client import RawClient, framed
from tests.endpoint.network.small_cluster import SmallCluster, advance, serve
from ts_common.errors import ConfigurationError
from ts_endpoint.protocol.versions import Api
from ts_endpoint.security.login import MECHANISMS, Sasl, checked_mechanisms
from ts_endpoint.security.users import Users

PLAIN_OF_ALICE = b"\0alice\0correct horse"


def asked(users_file: Path, *requests: tuple[Api, int, dict[str, Any]], **options: Any) -> tuple[list[Any], bool]:
    """Return the replies to requests, and whether the connection ended after them."""
    users = Users(users_file)
    cluster = SmallCluster()

    async def client() -> tuple[list[Any], bool]:
        raw = await RawClient.open(cluster.bootstrap)
        replies = []
        for api, version, fields in requests:
            try:
                replies.append(await raw.ask(api, version, **fields))
            except (asyncio.IncompleteReadError, ConnectionError):
                await raw.close()
                return replies, True
        assert cluster.server is not None
        is_refused = cluster.server.counters.failed_logins.total() > 0
        if is_refused:  # the endpoint ends the connection, although the client would continue
            async with asyncio.timeout(60):
                assert await raw.ended()
            assert not cluster.server.counters.ended  # it was no timeout
        await raw.close()
        return replies, is_refused

    return serve(cluster, client, sasl=Sasl(MECHANISMS, users.keys, users.usual, 0.0), **options)


def handshake(mechanism: str, version: int = 1) -> tuple[Api, int, dict[str, Any]]:
    return Api.SASL_HANDSHAKE, version, {"mechanism": mechanism}


def token(message: bytes, version: int = 2) -> tuple[Api, int, dict[str, Any]]:
    return Api.SASL_AUTHENTICATE, version, {"auth_bytes": message}


METADATA = (Api.METADATA, 1, {"topics": None})
VERSIONS: tuple[Api, int, dict[str, Any]] = (Api.API_VERSIONS, 0, {})


@pytest.mark.parametrize("version", [0, 1, 2])
def test_requests_are_served_after_the_login(users_file: Path, version: int) -> None:
    """ApiVersions is answered before it; the session has no end."""
    replies, ended = asked(users_file, VERSIONS, handshake("PLAIN"), token(PLAIN_OF_ALICE, version), METADATA)

    assert [reply.error_code for reply in replies[:3]] == [ErrorCode.none] * 3
    assert replies[1].mechanisms == MECHANISMS
    assert replies[3].topics[0].name == "orders"
    assert not ended
    if version > 0:
        assert replies[2].session_lifetime.total_seconds() == 0


@pytest.mark.parametrize(
    "requests",
    [
        [METADATA],
        [VERSIONS, METADATA],
        [handshake("PLAIN"), METADATA],
        [handshake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc"), METADATA],
    ],
)
def test_another_request_before_the_login_ends_the_connection(users_file: Path, requests: list[Any]) -> None:
    """As on a broker, it is not answered."""
    replies, ended = asked(users_file, *requests)

    assert len(replies) == len(requests) - 1
    assert ended


@pytest.mark.parametrize(
    "requests", [[token(PLAIN_OF_ALICE)], [handshake("PLAIN"), handshake("PLAIN")]], ids=["no handshake", "two"]
)
def test_sasl_in_the_wrong_order_is_an_illegal_state(users_file: Path, requests: list[Any]) -> None:
    """The reply has ILLEGAL_SASL_STATE, then the connection ends."""
    replies, ended = asked(users_file, *requests)

    assert replies[-1].error_code is ErrorCode.illegal_sasl_state
    assert ended


@pytest.mark.parametrize("request_after", [handshake("PLAIN"), token(PLAIN_OF_ALICE)])
def test_sasl_after_the_login_is_an_illegal_state(users_file: Path, request_after: Any) -> None:
    """The connection continues as its user."""
    replies, ended = asked(users_file, handshake("PLAIN"), token(PLAIN_OF_ALICE), request_after, METADATA)

    assert replies[2].error_code is ErrorCode.illegal_sasl_state
    assert replies[3].topics[0].name == "orders"
    assert not ended


def test_a_handshake_whose_messages_would_have_no_headers_is_refused(users_file: Path) -> None:
    """The reply has UNSUPPORTED_VERSION, then the connection ends."""
    replies, ended = asked(users_file, handshake("PLAIN", version=0))

    assert replies[0].error_code is ErrorCode.unsupported_version
    assert ended


def test_an_unknown_mechanism_is_answered_with_the_offered_ones(users_file: Path) -> None:
    """The reply has UNSUPPORTED_SASL_MECHANISM, then the connection ends."""
    replies, ended = asked(users_file, handshake("GSSAPI"))

    assert replies[0].error_code is ErrorCode.unsupported_sasl_mechanism
    assert replies[0].mechanisms == MECHANISMS
    assert ended


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong horse",
        b"\0nobody\0correct horse",
        b"\0alice\0",
        b"bob\0alice\0correct horse",
        b"",
        b"\xff",
        b"a\0",
    ],
)
def test_wrong_plain_credentials_have_one_text(users_file: Path, message: bytes) -> None:
    """Unknown user, wrong password, other authorization id and garbage are the same to a client."""
    replies, ended = asked(users_file, handshake("PLAIN"), token(message))

    assert replies[1].error_code is ErrorCode.sasl_authentication_failed
    assert replies[1].error_message == "Authentication failed: Invalid username or password"
    assert ended


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_wrong_scram_credentials_have_one_text_at_the_last_step(users_file: Path, user: str) -> None:
    """An unknown user receives a challenge too."""
    replies, ended = asked(
        users_file,
        handshake("SCRAM-SHA-512"),
        token(f"n,,n={user},r=abc".encode()),
        token(b"c=biws,r=abc,p=" + b"A" * 86 + b"=="),
    )

    assert replies[1].error_code is ErrorCode.none
    assert replies[2].error_code is ErrorCode.sasl_authentication_failed
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-512" in replies[2].error_message
    assert ended


def test_the_challenge_of_an_unknown_user_looks_as_that_of_a_known_one(users_file: Path) -> None:
    """It has the length of a real salt, the iterations of real keys, and is the same each time."""
    users = Users(users_file)
    sasl = Sasl(MECHANISMS, users.keys, users.usual)
    for mechanism in MECHANISMS[:2]:
        known, unknown = (sasl.keys_for(user, mechanism) for user in ("alice", "nobody"))

        assert len(unknown.salt) == len(known.salt)
        assert unknown.iterations == known.iterations
        assert sasl.keys_for("nobody", mechanism).salt == unknown.salt
        assert sasl.keys_for("nobody2", mechanism).salt != unknown.salt


def test_no_proof_makes_an_unknown_user_a_known_one(users_file: Path) -> None:
    """A client that computes with the keys of no password, all zeros, is refused."""
    users = Users(users_file)
    cluster = SmallCluster()

    async def client() -> Any:
        raw = await RawClient.open(cluster.bootstrap)
        await raw.ask(Api.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
        challenge = (await raw.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"n,,n=nobody,r=abc")).auth_bytes
        final = b"c=biws," + challenge.split(b",")[0]
        signed = b",".join([b"n=nobody,r=abc", challenge, final])
        proof = hmac.digest(bytes(hashlib.sha256().digest_size), signed, "sha256")
        message = final + b",p=" + base64.b64encode(proof)
        reply = await raw.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=message)
        await raw.close()
        return reply

    reply = serve(cluster, client, sasl=Sasl(MECHANISMS, users.keys, users.usual, 0.0))

    assert reply.error_code is ErrorCode.sasl_authentication_failed


def test_a_large_frame_before_the_login_ends_the_connection(users_file: Path) -> None:
    """64 KiB suffice for a login; afterwards a larger frame is served."""
    replies, ended = asked(users_file, token(bytes(70_000)))
    assert replies == []
    assert ended

    replies, ended = asked(users_file, handshake("PLAIN"), token(PLAIN_OF_ALICE), token(bytes(70_000)))
    assert replies[2].error_code is ErrorCode.illegal_sasl_state
    assert not ended


def test_a_login_that_does_not_end_is_disconnected(users_file: Path) -> None:
    """Requests that are allowed before a login do not prolong its time; one that ended has no such end."""
    users = Users(users_file)
    cluster = SmallCluster()

    async def client() -> bool:
        raw, other = [await RawClient.open(cluster.bootstrap) for _ in range(2)]
        for api, version, fields in (handshake("PLAIN"), token(PLAIN_OF_ALICE)):
            await other.ask(api, version, **fields)
        advance(20)
        await raw.ask(Api.API_VERSIONS, 0)
        advance(11)
        ended = await raw.ended()
        await other.ask(Api.API_VERSIONS, 0)
        for each in (raw, other):
            await each.close()
        return ended

    assert serve(cluster, client, sasl=Sasl(MECHANISMS, users.keys, users.usual, 0.0))
    assert cluster.server is not None
    assert cluster.server.counters.ended == {"login_timeout": 1}


def test_a_listener_without_sasl_answers_a_handshake_with_an_illegal_state() -> None:
    """A client that expects SASL learns that the listener has no SASL."""
    cluster = SmallCluster()

    async def client() -> Any:
        raw = await RawClient.open(cluster.bootstrap)
        reply = await raw.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        await raw.close()
        return reply

    assert serve(cluster, client).error_code is ErrorCode.illegal_sasl_state


def test_the_reply_to_a_refused_login_is_sent_although_the_client_sent_more(users_file: Path) -> None:
    """Bytes that the endpoint does not read do not reset the connection before the reply arrives."""
    users = Users(users_file)
    cluster = SmallCluster()

    async def client() -> bytes:
        raw = await RawClient.open(cluster.bootstrap)
        await raw.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        await raw.send(framed(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong horse") + bytes(100_000))
        frame = await raw.frame()
        assert await raw.ended()
        await raw.close()
        return frame

    assert b"Invalid username" in serve(cluster, client, sasl=Sasl(MECHANISMS, users.keys, users.usual, 0.0))


@pytest.mark.parametrize(
    ("mechanisms", "encrypted", "loopback", "accepted", "expected"),
    [
        ([], True, False, False, MECHANISMS),
        ([], False, False, False, MECHANISMS[:2]),
        ([], False, True, False, MECHANISMS),
        (["PLAIN"], False, False, True, ("PLAIN",)),
        (["PLAIN"], False, True, False, ("PLAIN",)),
        (["PLAIN"], True, False, False, ("PLAIN",)),
    ],
)
def test_plain_is_offered_where_passwords_are_not_seen(
    mechanisms: list[str], encrypted: bool, loopback: bool, accepted: bool, expected: tuple[str, ...]
) -> None:
    """By TLS, on loopback, or if the operator accepts it."""
    assert (
        checked_mechanisms(mechanisms, is_encrypted=encrypted, is_loopback=loopback, plaintext_passwords=accepted)
        == expected
    )


def test_plain_without_tls_is_a_mistake_with_a_way_out() -> None:
    """All mistakes are reported at once."""
    with pytest.raises(ConfigurationError, match="2 problems") as error:
        checked_mechanisms(["PLAIN", "GSSAPI"], is_encrypted=False, is_loopback=False, plaintext_passwords=False)

    assert "--allow-plaintext-passwords" in str(error.value)
    assert "GSSAPI: the mechanisms are SCRAM-SHA-256" in str(error.value)
