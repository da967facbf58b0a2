"""Files of TLS are read again when they change, subjects are Java's, and hostile bytes end their connection."""

import asyncio
import contextlib
import datetime
import os
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dev.local.certificates import Certificates
from tests.endpoint.network.raw_client import RawClient, framed
from tests.endpoint.network.requests import FETCH, fetched
from tests.endpoint.network.small_cluster import SmallCluster, advance, serve
from ts_common.errors import ConfigurationError
from ts_endpoint.contract import Session
from ts_endpoint.protocol.replies import Values
from ts_endpoint.protocol.requests import Request
from ts_endpoint.protocol.versions import Api
from ts_endpoint.security.tls import Tls, TlsFiles, subject_of


def copied(certificates: Certificates, directory: Path) -> TlsFiles:
    files = TlsFiles(directory / "tls.pem", directory / "tls.key")
    shutil.copy(certificates.server, files.certificate)
    shutil.copy(certificates.server_key, files.key)
    return files


def trusting(certificates: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates.authority))


def test_a_new_connection_has_the_certificate_of_the_changed_files(certificates: Certificates, tmp_path: Path) -> None:
    """A broken new file keeps the old certificate; connections that exist continue."""
    files = copied(certificates, tmp_path)
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other")
    cluster = SmallCluster()

    async def client() -> None:
        first = await RawClient.open(cluster.bootstrap, trusting(certificates))
        files.certificate.write_text("no PEM")
        second = await RawClient.open(cluster.bootstrap, trusting(certificates))
        shutil.copy(other.server, files.certificate)  # its key is not there yet
        third = await RawClient.open(cluster.bootstrap, trusting(certificates))
        shutil.copy(other.server_key, files.key)
        fourth, fifth = [await RawClient.open(cluster.bootstrap, trusting(other)) for _ in range(2)]
        for each in (first, second, third, fourth, fifth):
            await each.ask(Api.API_VERSIONS, 0)
            await each.close()

    with structlog.testing.capture_logs() as logs:
        serve(cluster, client, tls=Tls(files, check_seconds=0))

    assert [each["event"] for each in logs] == ["files_not_reloaded", "files_not_reloaded", "files_reloaded"]
    assert str(files.certificate) in logs[0]["error"]


def test_wrong_files_are_mistakes_that_name_the_file(certificates: Certificates, tmp_path: Path) -> None:
    """Missing files, no PEM, files that were swapped or cut, and a key of another certificate."""
    files = copied(certificates, tmp_path)
    cut = tmp_path / "cut.pem"
    cut.write_text("".join(files.certificate.read_text().splitlines(keepends=True)[1:]))
    cases = {
        "missing.pem": TlsFiles(tmp_path / "missing.pem", files.key),
        "missing.key": TlsFiles(files.certificate, tmp_path / "missing.key"),
        "client.key belongs to another certificate": TlsFiles(files.certificate, certificates.client_key),
        f"{files.key}.*no certificate in PEM": TlsFiles(files.key, files.certificate),
        f"{files.certificate}.*no private key in PEM": TlsFiles(files.certificate, files.certificate),
        "-----BEGIN ... CERTIFICATE----- is expected": TlsFiles(files.certificate, files.key, files.key),
        "no usable pair": TlsFiles(cut, files.key),
    }
    for text, wrong in cases.items():
        with pytest.raises(ConfigurationError, match=f"(?s){text}"):
            Tls(wrong)


def test_an_encrypted_key_is_rejected_without_a_password_prompt(certificates: Certificates, tmp_path: Path) -> None:
    """The process does not wait for a password."""
    files = copied(certificates, tmp_path)
    key = serialization.load_pem_private_key(certificates.server_key.read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    files.key.write_bytes(encrypted)

    with pytest.raises(ConfigurationError, match="the key is encrypted"):
        Tls(files)


def test_a_subject_is_written_as_java_writes_it() -> None:
    """The last part is first, special characters are escaped, and an address has its number and bytes."""
    parts = [
        (NameOID.COUNTRY_NAME, "DE"),
        (NameOID.ORGANIZATION_NAME, 'Example, "Inc"'),
        (NameOID.EMAIL_ADDRESS, "a@b.c"),
        (NameOID.COMMON_NAME, " reader #1 "),
    ]
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(_time(2020)).not_valid_after(_time(2040))
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)

    assert subject_of(certificate) == (
        'CN=\\ reader #1\\ ,1.2.840.113549.1.9.1=#16056140622e63,O=Example\\, \\"Inc\\",C=DE'
    )


def _time(year: int) -> Any:
    return datetime.datetime(year, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(500), b"\x16\x03\x01\xff\xff" + bytes(70_000)])
def test_bytes_that_are_no_tls_end_their_connection_alone(certificates: Certificates, garbage: bytes) -> None:
    """Another client is served before and after."""
    cluster = SmallCluster()

    async def client() -> None:
        other = await RawClient.open(cluster.bootstrap, trusting(certificates))
        raw = await RawClient.open(cluster.bootstrap)
        await raw.send(garbage)
        with contextlib.suppress(ConnectionError):
            await raw.reader.read()
        await other.ask(Api.API_VERSIONS, 0)
        for each in (raw, other):
            await each.close()

    serve(cluster, client, tls=Tls(TlsFiles(certificates.server, certificates.server_key)))

    assert cluster.server is not None
    assert cluster.server.counters.ended["tls"] == 1


def test_a_health_check_of_a_load_balancer_is_not_logged(certificates: Certificates) -> None:
    """A connection without a byte is no attempt to use TLS."""
    cluster = SmallCluster()

    async def client() -> None:
        for _ in range(3):
            raw = await RawClient.open(cluster.bootstrap)
            await raw.close()
        assert cluster.server is not None
        while cluster.server.counters.accepted < 3 or cluster.server.connections:
            await asyncio.sleep(0)

    with structlog.testing.capture_logs() as logs:
        serve(cluster, client, tls=Tls(TlsFiles(certificates.server, certificates.server_key)))

    assert logs == []


def test_garbage_inside_tls_ends_its_connection(certificates: Certificates) -> None:
    """After the handshake the frames are checked as without TLS."""
    cluster = SmallCluster()

    async def client() -> bool:
        raw = await RawClient.open(cluster.bootstrap, trusting(certificates))
        await raw.send(b"\x7f\xff\xff\xff garbage")
        ended = await raw.ended()
        await raw.close()
        return ended

    assert serve(cluster, client, tls=Tls(TlsFiles(certificates.server, certificates.server_key)))


def test_garbage_between_records_of_tls_ends_its_connection(certificates: Certificates) -> None:
    """A connection that was taken over cannot be continued."""
    cluster = SmallCluster()

    async def client() -> None:
        raw = await RawClient.open(cluster.bootstrap, trusting(certificates))
        await raw.ask(Api.API_VERSIONS, 0)
        os.write(raw.writer.get_extra_info("socket").fileno(), b"no record of TLS")
        with contextlib.suppress(OSError):
            await raw.reader.read()
        assert cluster.server is not None
        while cluster.server.connections:
            await asyncio.sleep(0)
        await raw.close()

    serve(cluster, client, tls=Tls(TlsFiles(certificates.server, certificates.server_key)))
    assert cluster.server is not None
    assert cluster.server.counters.ended["tls"] == 1


def test_a_handshake_that_does_not_end_is_disconnected(certificates: Certificates) -> None:
    """A client that connects and sends nothing costs a connection for some seconds only."""
    cluster = SmallCluster()

    async def client() -> bool:
        raw = await RawClient.open(cluster.bootstrap)
        assert cluster.server is not None
        while not cluster.server.connections:
            await asyncio.sleep(0)
        advance(31)
        ended = await raw.ended()
        await raw.close()
        return ended

    assert serve(cluster, client, tls=Tls(TlsFiles(certificates.server, certificates.server_key)))
    assert cluster.server is not None
    assert cluster.server.counters.ended == {"login_timeout": 1}


def test_a_client_without_tls_learns_from_the_log_of_a_listener_without(certificates: Certificates) -> None:
    """The reason names TLS if the length is the begin of a TLS hello."""
    cluster = SmallCluster()

    async def client() -> None:
        with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
            await RawClient.open(cluster.bootstrap, trusting(certificates))

    with structlog.testing.capture_logs() as logs:
        serve(cluster, client)

    assert "the client seems to use TLS" in logs[0]["reason"]


@pytest.mark.parametrize("has_tls", [True, False], ids=["TLS", "TCP"])
def test_a_large_reply_in_many_pieces_arrives_whole(certificates: Certificates, has_tls: bool) -> None:
    """Pieces that are smaller and larger than a record of TLS keep their order, also if few bytes are sent at once."""
    cluster = SmallCluster()
    pieces = [bytes([number % 251]) * (number * 7919 % 300_000) for number in range(200)]

    async def fetch(request: Request, session: Session) -> Values:
        return fetched(*[memoryview(piece) for piece in pieces])

    cluster.handlers[Api.FETCH] = fetch

    async def client() -> bytes:
        raw = await RawClient.open(cluster.bootstrap, trusting(certificates) if has_tls else None)
        await raw.send(framed(Api.FETCH, 12, 1, **FETCH))
        frame = await raw.frame()
        await raw.ask(Api.API_VERSIONS, 0)  # nothing follows the frame
        await raw.close()
        return frame

    tls = Tls(TlsFiles(certificates.server, certificates.server_key)) if has_tls else None
    frame = serve(cluster, client, tls=tls)

    assert b"".join(pieces) in frame
