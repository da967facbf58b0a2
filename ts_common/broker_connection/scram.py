"""The client's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as Kafka's clients use it. Pure.

Names and passwords are the bytes of UTF-8 as they are, without SASLprep, as in Kafka's brokers and in librdkafka.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from typing import Final

from ts_common.errors import CorruptData

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_FIRST: Final = re.compile(
    r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9][0-9]{0,7})(?:,.*)?"
)
_FEWEST, _MOST = 4096, 1_000_000  # iterations; RFC 7677, and one second of CPU


class ScramClient:
    """One login.

    Attributes:
        first: the client's first message.
    """

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = secrets.token_urlsafe(24)
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._signature = b""
        self.first = f"n,,{self._bare}".encode()

    def prove(self, challenge: bytes) -> bytes:
        """Return the client's last message for the server's first one.

        Raises:
            CorruptData: the server's message has another form, another nonce, or too few or too many iterations.
        """
        text = challenge.decode("utf-8", "replace")
        found = _FIRST.fullmatch(text)
        if found is None or not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise CorruptData("SCRAM: the broker's first message is malformed, or has not this login's nonce")
        iterations = int(found["iterations"])
        if not _FEWEST <= iterations <= _MOST:
            raise CorruptData(f"SCRAM: {iterations} iterations; from {_FEWEST} to {_MOST} are expected")
        try:
            salt = base64.b64decode(found["salt"], validate=True)
        except binascii.Error:
            raise CorruptData("SCRAM: the broker's salt is no base64") from None
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        unproven = f"c=biws,r={found['nonce']}"  # the header `n,,`
        signed = f"{self._bare},{text},{unproven}".encode()
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def check(self, last: bytes) -> None:
        """Check that the server has the user's keys.

        Raises:
            CorruptData: its last message does not prove it: this is not the broker, or the message is malformed.
        """
        expected = b"v=" + base64.b64encode(self._signature)
        if not self._signature or not hmac.compare_digest(last.split(b",")[0], expected):
            raise CorruptData("SCRAM: the broker does not prove that it has this user's keys")
