"""Read Java's key stores, PEM files, PKCS #12 and JKS, as PEM for OpenSSL.

Java opens a JKS file as PKCS12 and the other way round (its `DualFormatJKS`), and `keytool` has written PKCS12 by
default since Java 9, whatever the file is called. So for these two types the content decides.
"""

from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

from ts_uploader.leadership.zookeeper.jks import MAGIC, JksStore, StoreError, parse_jks
from ts_uploader.leadership.zookeeper.security import StoreType

_LARGEST = 16 * 1024 * 1024  # bytes; a bundle of all public authorities has a quarter of one


def trusted_certificates(path: Path, kind: StoreType, password: str) -> list[bytes]:
    """Return the certificates of a trust store, as DER.

    Raises:
        StoreError: the file cannot be read, its password is another one, or it contains no certificate.
    """
    data = _read(path)
    if kind is StoreType.PEM:
        found = [_der(certificate) for certificate in _pem_certificates(data)]
    elif isinstance(store := _java_store(data, password, with_keys=False), JksStore):
        found = list(store.trusted)
    else:
        found = [_der(each.certificate) for each in store.additional_certs]
    if not found:
        raise StoreError("it contains no certificate that is trusted")
    return found


def own_certificate(path: Path, kind: StoreType, password: str) -> tuple[bytes, list[x509.Certificate]]:
    """Return the private key of a key store as PEM without encryption, and its certificates, its own first.

    Of several keys the first one.

    Raises:
        StoreError: the file cannot be read, its password is another one, or it contains no private key with a
            certificate.
    """
    data = _read(path)
    if kind is StoreType.PEM:
        key, certificates = _pem_key(data, password), _pem_certificates(data)
    elif isinstance(store := _java_store(data, password, with_keys=True), JksStore):
        if not store.keys:
            raise StoreError("it contains no private key")
        try:
            key = serialization.load_der_private_key(store.keys[0].pkcs8, None)
            certificates = [x509.load_der_x509_certificate(der) for der in store.keys[0].chain]
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise StoreError("its private key or a certificate of it is damaged, or of a kind unknown here") from None
    else:
        if store.key is None:
            raise StoreError("it contains no private key")
        key = store.key
        certificates = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
    public = _spki(key)
    own = [each for each in certificates if _der_of_key(each) == public]
    if not own:
        raise StoreError("it contains no certificate of its private key")
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(encoding, form, serialization.NoEncryption())
    return pem, [own[0], *(each for each in certificates if each is not own[0])]


def own_certificate_pem(path: Path, kind: StoreType, password: str) -> bytes:
    """Return the same as one text in PEM, as OpenSSL loads it.

    Raises:
        StoreError: as `own_certificate`.
    """
    key, chain = own_certificate(path, kind, password)
    return key + b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in chain)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise StoreError(f"it cannot be read: {error.strerror}") from error
    if len(data) > _LARGEST:
        raise StoreError("it is larger than any key store")
    return data


def _java_store(data: bytes, password: str, *, with_keys: bool) -> JksStore | PKCS12KeyAndCertificates:
    if data.startswith(MAGIC):
        return parse_jks(data, password, with_keys=with_keys)
    if data.lstrip().startswith(b"-----BEGIN"):
        raise StoreError("it is a PEM file, but its type is another")
    try:
        return pkcs12.load_pkcs12(data, password.encode() or None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if "password" in str(error):
            raise StoreError("the password is wrong, or the file is damaged") from None
        raise StoreError("it is neither PKCS12 nor JKS") from None


def _pem_certificates(data: bytes) -> list[x509.Certificate]:
    if b"CERTIFICATE-----" not in data:
        raise StoreError("it contains no certificate in PEM")
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        raise StoreError("a certificate in it is damaged") from None


def _pem_key(data: bytes, password: str) -> PrivateKeyTypes:
    if b"PRIVATE KEY-----" not in data:
        raise StoreError("it contains no private key in PEM")
    encrypted = b"ENCRYPTED" in data
    if encrypted and not password:
        raise StoreError("its private key is encrypted, and there is no password for it")
    try:
        return serialization.load_pem_private_key(data, password.encode() if encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        why = "the password of its private key is wrong, or the key is damaged" if encrypted else "its key is damaged"
        raise StoreError(why) from None


def _spki(key: PrivateKeyTypes) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.DER, form)


def _der_of_key(certificate: x509.Certificate) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return certificate.public_key().public_bytes(serialization.Encoding.DER, form)


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)
