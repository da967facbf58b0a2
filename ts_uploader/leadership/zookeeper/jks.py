"""Java's own key store format, JKS: certificates that are trusted, and private keys with their chains. Pure.

The format is that of OpenJDK's `sun.security.provider.JavaKeyStore`, and has not changed since version 2 of 1998::

    u4 magic 0xFEEDFEED   u4 version 1 or 2   u4 number of entries
    entry: u4 tag  utf alias  u8 date  and
      tag 1, a key:          u4 length, EncryptedPrivateKeyInfo; u4 number of certificates, each as below
      tag 2, a certificate:  utf type (version 2 only), u4 length, DER
    20 bytes: SHA-1 of the password in UTF-16BE, "Mighty Aphrodite", and all bytes before

All numbers are big-endian. A key is protected as `sun.security.provider.KeyProtector` does it: the encrypted bytes are
20 bytes of salt, the PKCS #8 key XORed with SHA-1 blocks (each of the password and the block before, the first of the
password and the salt), and the SHA-1 of the password and the key.

Why no library: the one there is, pyjks, had its last release in 2020 and needs a C compiler on each host (twofish).
"""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

from ts_common.wording import counted

MAGIC = bytes.fromhex("feedfeed")
_SIGNED_WITH = b"Mighty Aphrodite"
_DIGEST = 20
_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")  # OID 1.3.6.1.4.1.42.2.17.1.1, with its tag and length
_MOST = 10_000  # entries, or certificates of one; no operator's file has so many
_SEQUENCE, _OCTETS = 0x30, 0x04


class StoreError(ValueError):
    """A key store that cannot be used; the message has the reason, and no content of the store."""


@dataclass(frozen=True, slots=True)
class JksKey:
    """A private key.

    Attributes:
        alias: its name.
        pkcs8: the key as DER.
        chain: its certificates as DER, its own first.
    """

    alias: str
    pkcs8: bytes = field(repr=False)
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class JksStore:
    """The entries of a key store, in its own order.

    Attributes:
        trusted: certificates as DER.
        keys: private keys.
    """

    trusted: tuple[bytes, ...]
    keys: tuple[JksKey, ...]


def parse_jks(data: bytes, password: str, *, with_keys: bool) -> JksStore:
    """Return the content of a JKS file.

    Args:
        data: the whole file.
        password: of the store, and of its keys. Empty: the store's signature is not compared, as Java does it.
        with_keys: whether keys are decrypted; a trust store's are not of interest.

    Raises:
        StoreError: the password is another one, or the bytes are no JKS.
    """
    secret = password.encode("utf-16-be")
    content, digest = data[:-_DIGEST], data[-_DIGEST:]
    reader = _Reader(content)
    if reader.take(4) != MAGIC:
        raise StoreError("it is no JKS file")
    version = reader.number(4)
    if version not in {1, 2}:
        raise StoreError(f"it is a JKS file of version {version}; 1 and 2 are known")
    if password and not hmac.compare_digest(hashlib.sha1(secret + _SIGNED_WITH + content).digest(), digest):  # noqa: S324  (the format)
        raise StoreError("the password is wrong, or the file is damaged")
    trusted: list[bytes] = []
    keys: list[JksKey] = []
    for _ in range(reader.count()):
        tag = reader.number(4)
        alias = reader.text()
        reader.take(8)
        if tag == 1:
            protected = reader.sized()
            chain = tuple(reader.certificate(version) for _ in range(reader.count()))
            if with_keys:
                keys.append(JksKey(alias, _unprotected(protected, secret), chain))
        elif tag == 2:
            trusted.append(reader.certificate(version))
        else:
            raise StoreError(f"it is damaged: an entry has the tag {tag}")
    return JksStore(tuple(trusted), tuple(keys))


class _Reader:
    """Reads pieces of bytes; raises `StoreError` if one is missing."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise StoreError("it is cut off, or no JKS file")
        self._at += size
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def count(self) -> int:
        count = self.number(4)
        if count > _MOST:
            raise StoreError(f"it is damaged: it claims {counted(count, 'entry')}")
        return count

    def sized(self) -> bytes:
        return self.take(self.number(4))

    def text(self) -> str:
        return self.take(self.number(2)).decode("utf-8", errors="replace")

    def certificate(self, version: int) -> bytes:
        kind = self.text() if version == 2 else "X.509"
        if kind != "X.509":
            raise StoreError(f"it contains a certificate of type {kind}; only X.509 is supported")
        return self.sized()


def _unprotected(info: bytes, secret: bytes) -> bytes:
    outer = _der(info, _SEQUENCE)
    algorithm = _der(outer, _SEQUENCE)
    if not algorithm.startswith(_PROTECTOR):
        raise StoreError("a key in it is encrypted in another way than JKS does it")
    protected = _der(outer, _OCTETS, after=_SEQUENCE)
    sha1: Callable[[bytes], bytes] = lambda data: hashlib.sha1(data).digest()  # noqa: E731, S324  (the format)
    block, encrypted, digest = protected[:_DIGEST], protected[_DIGEST:-_DIGEST], protected[-_DIGEST:]
    stream = bytearray()
    while len(stream) < len(encrypted):
        block = sha1(secret + block)
        stream += block
    key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(sha1(secret + key), digest):
        raise StoreError("a key's password is another one than the store's, which ZooKeeper does not support either")
    return key


def _der(data: bytes, tag: int, after: int | None = None) -> bytes:
    """Return the content of the first DER value, which has this tag; with `after` that of the second."""
    reader = _Reader(data)
    for expected in (tag,) if after is None else (after, tag):
        found, size = reader.number(1), reader.number(1)
        if size & 0x80:
            size = reader.number(min(size & 0x7F, 4))
        content = reader.take(size)
        if found != expected:
            raise StoreError("a key in it is damaged")
    return content
