"""Key stores and trust stores as keytool and OpenSSL write them: PEM, JKS and PKCS12, whatever they are called."""

import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from ts_local.zookeeper_security import PASSWORD, TYPES, KeyStores
from ts_uploader.leadership.zookeeper.jks import StoreError
from ts_uploader.leadership.zookeeper.key_stores import own_certificate, own_certificate_pem, trusted_certificates
from ts_uploader.leadership.zookeeper.security import StoreType


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> KeyStores:
    return KeyStores(tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("kind", TYPES)
def test_a_trust_store_holds_its_authority(stores: KeyStores, kind: str) -> None:
    """The one certificate that went into it, of each type."""
    (der,) = trusted_certificates(stores.trust[kind], StoreType(kind), PASSWORD)
    known = x509.load_pem_x509_certificate(stores.certificates.authority.read_bytes())
    assert x509.load_der_x509_certificate(der) == known


@pytest.mark.parametrize("kind", TYPES)
def test_a_key_store_holds_its_key_and_certificate(stores: KeyStores, kind: str) -> None:
    """Both are those that went into it, of each type."""
    path = stores.client[kind]
    pem, (own,) = own_certificate(path, StoreType(kind), PASSWORD)
    assert pem == stores.certificates.client_key.read_bytes()
    assert own == x509.load_pem_x509_certificate(stores.certificates.client.read_bytes())
    assert own_certificate_pem(path, StoreType(kind), PASSWORD).count(b"-----BEGIN") == 2


@pytest.mark.parametrize(("content", "kind"), [("PKCS12", "JKS"), ("JKS", "PKCS12")])
def test_java_opens_either_type_as_the_other(stores: KeyStores, content: str, kind: str) -> None:
    """keytool writes PKCS12 whatever the file is called, so a file.jks is one of these as a rule."""
    assert trusted_certificates(stores.trust[content], StoreType(kind), PASSWORD)
    assert own_certificate(stores.client[content], StoreType(kind), PASSWORD)[1]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("password", ["another", ""])
def test_a_key_store_needs_its_password(stores: KeyStores, kind: str, password: str) -> None:
    """Another one, or none, is an error that names the password; none of them stands in it."""
    with pytest.raises(StoreError, match="password") as refused:
        own_certificate(stores.client[kind], StoreType(kind), password)
    assert "another one" in str(refused.value) or "another" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_trust_store_has_another_password(stores: KeyStores, kind: str) -> None:
    """Java compares the store's signature where a password is given, and so does the agent."""
    with pytest.raises(StoreError, match="the password is wrong"):
        trusted_certificates(stores.trust[kind], StoreType(kind), "another")


def test_a_jks_trust_store_needs_no_password(stores: KeyStores) -> None:
    """Its certificates are not encrypted, and Java reads them without one."""
    assert len(trusted_certificates(stores.trust["JKS"], StoreType.JKS, "")) == 1


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("part", ["trust", "client"])
def test_a_damaged_store_is_an_error(stores: KeyStores, tmp_path: Path, kind: str, part: str) -> None:
    """Cut off anywhere, empty, or absent: always a StoreError, and nothing else."""
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
    """A file with a key and somebody else's certificate cannot be shown to anybody."""
    path = tmp_path / "mixed.pem"
    path.write_bytes(stores.certificates.client_key.read_bytes() + stores.certificates.server.read_bytes())
    with pytest.raises(StoreError, match="no certificate of its private key"):
        own_certificate(path, StoreType.PEM, "")


def test_a_chain_begins_with_its_own_certificate(stores: KeyStores, tmp_path: Path) -> None:
    """OpenSSL takes the first one for the key's, whatever order the file has; a key without encryption will do."""
    path = tmp_path / "chain.pem"
    authority, own = stores.certificates.authority.read_bytes(), stores.certificates.client.read_bytes()
    path.write_bytes(authority + stores.certificates.client_key.read_bytes() + own)
    _, chain = own_certificate(path, StoreType.PEM, PASSWORD)
    encoded = [each.public_bytes(serialization.Encoding.PEM) for each in chain]
    assert encoded == [own, authority]


def test_a_pem_file_of_another_type_is_named(stores: KeyStores, tmp_path: Path) -> None:
    """The type that a setting or the ending says is not what the file is."""
    path = shutil.copy(stores.trust["PEM"], tmp_path / "trust.jks")
    with pytest.raises(StoreError, match="it is a PEM file"):
        trusted_certificates(Path(path), StoreType.JKS, PASSWORD)
