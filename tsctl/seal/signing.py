"""Ed25519 signatures (RFC 8032) of heads: the private key of the sealer, and the public keys that an operator accepts.

No key is read from the bucket: who can write a seal there could also write a key. The library cryptography signs and
verifies; the standard library has no signatures.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from ts_common.errors import ConfigurationError
from ts_reader.options.archive_name import SOURCE

_MOST_BYTES: Final = 64 << 10  # of a file with a key
MAKE_A_KEY: Final = "openssl genpkey -algorithm ed25519 -out sealer.pem"


@dataclass(frozen=True, slots=True)
class AcceptedKey:
    """A public key that an operator trusts.

    Attributes:
        name: SHA-256 of the key in DER, in hexadecimal digits; heads name their key so.
        pem: the key as PEM.
    """

    name: str
    pem: bytes
    key: Ed25519PublicKey

    @classmethod
    def of(cls, key: Ed25519PublicKey) -> "AcceptedKey":
        """Return a key with its name."""
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return cls(sha256(der).hexdigest(), pem, key)

    def signed(self, signature: bytes, data: bytes) -> bool:
        """Return whether a signature of data is by this key."""
        try:
            self.key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Signer:
    """The private key of the sealer.

    Attributes:
        public: its public key.
    """

    public: AcceptedKey
    _key: Ed25519PrivateKey

    def sign(self, data: bytes) -> bytes:
        """Return the signature of data, 64 bytes."""
        return self._key.sign(data)


def read_signer(path: Path) -> Signer:
    """Return the private key in a PEM file.

    Raises:
        ConfigurationError: the file cannot be read, or has no Ed25519 private key without a password.
    """
    try:
        key = load_pem_private_key(_read(path, "--key"), None)
    except (ValueError, TypeError) as error:  # TypeError: it has a password
        raise _refused("--key", path, f"no private key without a password ({error}); make one: {MAKE_A_KEY}") from error
    except Exception as error:  # UnsupportedAlgorithm of the library, which is no ValueError
        raise _refused("--key", path, f"{error}; make a key: {MAKE_A_KEY}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _refused("--key", path, f"another kind than Ed25519; make one: {MAKE_A_KEY}")
    return Signer(AcceptedKey.of(key.public_key()), key)


def read_accepted(paths: Iterable[Path]) -> Mapping[str, AcceptedKey]:
    """Return the public keys in PEM files, by their names.

    Raises:
        ConfigurationError: a file cannot be read, or has no Ed25519 public key.
    """
    found = {}
    for path in paths:
        way = "write it with openssl pkey -in sealer.pem -pubout"
        try:
            key = load_pem_public_key(_read(path, "--public-key"))
        except ConfigurationError:
            raise
        except Exception as error:  # ValueError, or UnsupportedAlgorithm of the library
            raise _refused("--public-key", path, f"no public key ({error}); {way}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise _refused("--public-key", path, f"another kind than Ed25519; {way}")
        accepted = AcceptedKey.of(key)
        found[accepted.name] = accepted
    return found


def _read(path: Path, option: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise _refused(option, path, str(error.strerror or error)) from error


def _refused(option: str, path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(SOURCE, [f"{option}={path}: {reason}"])
