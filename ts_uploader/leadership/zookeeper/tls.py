"""Make TLS connections to ZooKeeper, as its own client does, and explain why one failed.

The stores are read for each connection. So a certificate that was renewed on the disk is used for the next one.

- ZooKeeper's `ZKHostnameVerifier` accepts a certificate that names the host or its address. OpenSSL compares one of
  them. If the certificate does not name the host, a second connection compares the address.
- Java trusts each certificate of the trust store, also one that is not self-signed (partial chains).
"""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ts_common.broker_connection.security import load_own_certificate
from ts_common.errors import ConfigurationError
from ts_uploader.leadership.zookeeper.jks import StoreError
from ts_uploader.leadership.zookeeper.security import SOURCE, Store, Tls

_NO_SUCH_HOST, _NO_SUCH_ADDRESS = 62, 64  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_NOT_YET, _EXPIRED = 9, 10  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return OpenSSL's settings for a connection, from the stores as they are now.

    Raises:
        ConfigurationError: a store cannot be used, or a cipher suite is not known.
    """
    # cryptography costs some megabytes, and most agents connect without TLS.
    from ts_uploader.leadership.zookeeper.key_stores import own_certificate_pem, trusted_certificates  # noqa: PLC0415

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = tls.names_hosts
    context.minimum_version, context.maximum_version = tls.versions[0], tls.versions[-1]
    _set_ciphers(context, tls)
    if tls.truststore is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        with _naming(tls.truststore) as password:
            for der in trusted_certificates(tls.truststore.path, tls.truststore.kind, password):
                context.load_verify_locations(cadata=der)
    if tls.keystore is not None:
        with _naming(tls.keystore) as password:
            load_own_certificate(context, own_certificate_pem(tls.keystore.path, tls.keystore.kind, password))
    return context


def connect_tls(
    context: ssl.SSLContext, address: tuple[str, int], host: str, seconds: float | None, note: Callable[[OSError], None]
) -> ssl.SSLSocket:
    """Return a connection whose handshake is done.

    Args:
        context: its settings; used for this connection alone.
        host: the server's name, as `zookeeper.connect` has it.
        seconds: for each step of it.
        note: called with an alert that ends the connection later: with TLS 1.3 the server checks the client's
            certificate after the handshake.

    Raises:
        OSError: the handshake failed, or no process listens.
    """
    context.sslsocket_class = _noting(note)
    try:
        return _shake_hands(context, address, host, seconds)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code != _NO_SUCH_HOST or host == address[0]:
            raise
    return _shake_hands(context, address, address[0], seconds)


def why_tls_failed(error: OSError) -> str | None:
    """Return what is wrong and what to do, for the operator; None for an error that may end by itself."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in {_NO_SUCH_HOST, _NO_SUCH_ADDRESS}:
            return (
                "its certificate names neither this host nor its address; name the host in zookeeper.connect as the "
                "certificate does, or have a certificate issued that names it"
            )
        if error.verify_code in {_NOT_YET, _EXPIRED}:
            return f"its certificate is not valid now ({error.verify_message}); renew it, or set the clock"
        return (
            f"its certificate is not trusted ({error.verify_message}); the trust store has to hold the authority that "
            "signed it"
        )
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError) or "WRONG_VERSION_NUMBER" in str(error):
        return "it ended the TLS handshake; does this port speak TLS (secureClientPort)? Without TLS: ssl.client.enable"
    if isinstance(error, ssl.SSLError) and "ALERT" in str(error):
        reason = str(error.reason).lower().replace("_", " ")
        return (
            f"it rejects the TLS connection ({reason}): the agent's certificate (ssl.keystore.*), or the versions or "
            "cipher suites, are not what it accepts"
        )
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({str(error.reason).lower().replace('_', ' ')})"
    return None


def _shake_hands(context: ssl.SSLContext, address: tuple[str, int], name: str, seconds: float | None) -> ssl.SSLSocket:
    connection = socket.create_connection(address, seconds)
    try:
        return context.wrap_socket(connection, server_hostname=name)
    except BaseException:
        connection.close()
        raise


def _noting(note: Callable[[OSError], None]) -> type[ssl.SSLSocket]:
    class Noting(ssl.SSLSocket):
        def recv(self, *arguments: Any, **named: Any) -> bytes:
            try:
                return super().recv(*arguments, **named)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except OSError as error:
                note(error)
                raise

    return Noting


@contextmanager
def _naming(store: Store) -> Iterator[str]:
    """Hand out the store's password; an error names the store."""
    try:
        yield store.password.read()
    except (StoreError, ssl.SSLError) as error:
        why = str(error) if isinstance(error, StoreError) else "OpenSSL cannot use its content"
        secret = f"; its password is from {store.password.key}" if "password" in why else ""
        raise ConfigurationError(SOURCE, [f"{store.key}={store.path} ({store.kind}): {why}{secret}"]) from None


def _set_ciphers(context: ssl.SSLContext, tls: Tls) -> None:
    """Set the cipher suites that have these Java names; those of TLS 1.3 are OpenSSL's own choice."""
    named = [name for name in tls.ciphers if "_WITH_" in name]
    if not named:
        return
    known, wanted = {each["name"] for each in context.get_ciphers()}, [_openssl_name(name) for name in named]
    taken = [name for name in wanted if name in known]
    if not taken:
        raise ConfigurationError(
            SOURCE, [f"zookeeper.ssl.cipher.suites={','.join(named)}: OpenSSL has none of these; name others"]
        )
    context.set_ciphers(":".join(taken))


def _openssl_name(name: str) -> str:
    """Return OpenSSL's name of a Java cipher suite.

    Example: `TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256` is `ECDHE-RSA-AES128-SHA256`.
    """
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    return (cipher if exchange == "RSA" else f"{exchange}-{cipher}").replace("_", "-")
