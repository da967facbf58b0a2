"""Key stores and trust stores as keytool and OpenSSL write them: PEM, JKS and PKCS12, whatever their names."""

import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from dev.local.kafka.zookeeper_security import PASSWORD, TYPES, KeyStores
from ts_uploader.leadership.zookeeper.jks import StoreError
from ts_uploader.leadership.zookeeper.key_stores import own_certificate, own_certificate_pem, trusted_certificates
from ts_uploader.leadership.zookeeper.security import StoreType


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> KeyStores:
    return KeyStores(tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("kind", TYPES)
def test_a_trust_store_holds_its_authority(stores: KeyStores, kind: str) -> None:
    """Each type returns the one certificate that was written to it."""
    (der,) = trusted_certificates(stores.trust[kind], StoreType(kind), PASSWORD)
    known = x509.load_pem_x509_certificate(stores.certificates.authority.read_bytes())
    assert x509.load_der_x509_certificate(der) == known


@pytest.mark.parametrize("kind", TYPES)
def test_a_key_store_holds_its_key_and_certificate(stores: KeyStores, kind: str) -> None:
    """Each type returns the key and the certificate that were written to it."""
    path = stores.client[kind]
    pem, (own,) = own_certificate(path, StoreType(kind), PASSWORD)
    assert pem == stores.certificates.client_key.read_bytes()
    assert own == x509.load_pem_x509_certificate(stores.certificates.client.read_bytes())
    assert own_certificate_pem(path, StoreType(kind), PASSWORD).count(b"-----BEGIN") == 2


@pytest.mark.parametrize(("content", "kind"), [("PKCS12", "JKS"), ("JKS", "PKCS12")])
def test_java_opens_either_type_as_the_other(stores: KeyStores, content: str, kind: str) -> None:
    """keytool writes PKCS12 whatever the file's name, so a file.jks usually is one."""
    assert trusted_certificates(stores.trust[content], StoreType(kind), PASSWORD)
    assert own_certificate(stores.client[content], StoreType(kind), PASSWORD)[1]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("password", ["another", ""])
def test_a_key_store_needs_its_password(stores: KeyStores, kind: str, password: str) -> None:
    """A wrong or missing password is an error that names the password, without its value."""
    with pytest.raises(StoreError, match="password") as refused:
        own_certificate(stores.client[kind], StoreType(kind), password)
    assert "another one" in str(refused.value) or "another" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_trust_store_has_another_password(stores: KeyStores, kind: str) -> None:
    """If a password is given, Java checks the store's signature, and so does the agent."""
    with pytest.raises(StoreError, match="the password is wrong"):
        trusted_certificates(stores.trust[kind], StoreType(kind), "another")


def test_a_jks_trust_store_needs_no_password(stores: KeyStores) -> None:
    """Its certificates are not encrypted, and Java reads them without a password."""
    assert len(trusted_certificates(stores.trust["JKS"], StoreType.JKS, "")) == 1


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("part", ["trust", "client"])
def test_a_damaged_store_is_an_error(stores: KeyStores, tmp_path: Path, kind: str, part: str) -> None:
    """A file that is truncated anywhere, empty, or absent always raises StoreError."""
    whole = getattr(stores, part)[kind].read_bytes()
    read = trusted_certificates if part == "trust" else own_certificate
    path = tmp_path / "damaged"
    for size in range(0, len(whole) - 30, 23):
        path.write_bytes(whole[:size])
        for password in ("", PASSWORD):
            with pytest.raises(StoreError):
                read(path, StoreType(kind), password)
    with pytest.raises(StoreError, match="No such file"):
        read(tmp_path / "absent", StoreType(kind), PASSWORD)


def test_a_key_of_another_certificate_is_refused(stores: KeyStores, tmp_path: Path) -> None:
    """A file with a key and another key's certificate is useless for authentication."""
    path = tmp_path / "mixed.pem"
    path.write_bytes(stores.certificates.client_key.read_bytes() + stores.certificates.server.read_bytes())
    with pytest.raises(StoreError, match="no certificate of its private key"):
        own_certificate(path, StoreType.PEM, "")


def test_a_chain_begins_with_its_own_certificate(stores: KeyStores, tmp_path: Path) -> None:
    """OpenSSL uses the first certificate for the key, so the file's order does not matter."""
    path = tmp_path / "chain.pem"
    authority, own = stores.certificates.authority.read_bytes(), stores.certificates.client.read_bytes()
    path.write_bytes(authority + stores.certificates.client_key.read_bytes() + own)
    _, chain = own_certificate(path, StoreType.PEM, PASSWORD)
    encoded = [each.public_bytes(serialization.Encoding.PEM) for each in chain]
    assert encoded == [own, authority]


def test_a_pem_file_of_another_type_is_named(stores: KeyStores, tmp_path: Path) -> None:
    """The file has another type than its setting or ending."""
    path = shutil.copy(stores.trust["PEM"], tmp_path / "trust.jks")
    with pytest.raises(StoreError, match="it is a PEM file"):
        trusted_certificates(Path(path), StoreType.JKS, PASSWORD)
