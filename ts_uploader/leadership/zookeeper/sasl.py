"""The SASL mechanisms of ZooKeeper, for kazoo: those of pure-sasl, adapted to how ZooKeeper servers answer.

kazoo passes each message of the server to the mechanism that `sasl_options` names, and sends its answer. pure-sasl has
a registry of mechanisms. This module registers two more, under their own names, because:

- The credentials have to be read at each connection, so that a new password in a file needs no restart.
- A ZooKeeper without SASL answers each message with an empty one. pure-sasl would continue forever; here that fails.
- Java decodes user and password as ISO 8859-1 unless the client declares another charset, and pure-sasl declares none.
- An error in a mechanism's constructor would end kazoo's thread; here it is raised at the first message.

DIGEST-MD5 needs pure-sasl (the extra `sasl`). GSSAPI also needs the package kerberos (the extra `kerberos`), and MIT's
libraries. These read `KRB5_CONFIG`, and the keytab that `KRB5_CLIENT_KTNAME` names.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Any

from kazoo.exceptions import EXCEPTIONS, AuthFailedError

from ts_common.config.zookeeper_options import PREFIX
from ts_common.errors import ConfigurationError
from ts_uploader.leadership.zookeeper.security import DIGEST, GSSAPI, SOURCE, Login, Sasl

_DIGEST_HOST = "zk-sasl-md5"  # ZooKeeper's constant for every host (its `SecurityUtils`)
_OURS = {DIGEST: "ZOOKEEPER-DIGEST-MD5", GSSAPI: "ZOOKEEPER-GSSAPI"}
_SASL_REQUIRED = -124  # ZooKeeper's SESSIONCLOSEDREQUIRESASLAUTH, which kazoo does not define


class SaslRequired(AuthFailedError):  # type: ignore[misc]  # kazoo has no types
    """The server requires SASL, or rejects the credentials."""

    code = _SASL_REQUIRED


def sasl_options(sasl: Sasl, note: Callable[[str], None]) -> Mapping[str, Any]:
    """Return kazoo's `sasl_options`.

    Args:
        sasl: the settings; credentials are read now, and again with each connection.
        note: called with the reason of a login that failed on this side.

    Raises:
        ConfigurationError: the credentials cannot be read, or a package is missing.
    """
    login = sasl.read()
    _require("puresasl", "sasl", login.mechanism)
    if login.mechanism == GSSAPI:
        _require("kerberos", "kerberos", login.mechanism)
    _register()
    return {"mechanism": _OURS[login.mechanism], "service": sasl.service, "read": sasl.read, "note": note}


def register_errors() -> None:
    """Add the error of servers that require SASL to kazoo, whose thread dies of an undefined error."""
    EXCEPTIONS[_SASL_REQUIRED] = SaslRequired


def _require(module: str, extra: str, mechanism: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ConfigurationError(
            SOURCE,
            [
                f"{PREFIX}sasl.*, {PREFIX}jaas.*: {mechanism} needs the package {module}, which is not installed: pip "
                f"install --require-hashes --no-build-isolation -r requirements/{extra}.txt"
            ],
        )


def _register() -> None:
    # Imported here: most agents have neither package.
    import puresasl.mechanisms as known  # noqa: PLC0415

    class Digest(known.DigestMD5Mechanism):  # type: ignore[misc]  # pure-sasl has no types
        """DIGEST-MD5."""

        name = _OURS[DIGEST]

        def __init__(self, sasl: Any, read: Callable[[], Login], note: Callable[[str], None], **_: object) -> None:
            sasl.host = _DIGEST_HOST
            super().__init__(sasl)
            self._read, self._note, self._begun = read, note, False

        def process(self, challenge: bytes | None = None) -> bytes | None:
            if self._begun and not challenge:
                raise _refused(
                    self._note, "it answers without SASL: authProvider or its JAAS section Server is missing"
                )
            if not self._begun:
                self._begun = True
                login = _credentials(self._read, self._note)
                try:
                    self.username, self.password = login.username.encode("latin-1"), login.password.encode("latin-1")
                except UnicodeEncodeError:
                    why = "the user's name or password has characters beyond ISO 8859-1"
                    raise _refused(self._note, why) from None
            answer: bytes | None = super().process(challenge)
            return answer

    registered: dict[str, Any] = {Digest.name: Digest}
    if known.have_kerberos:

        class Kerberos(known.GSSAPIMechanism):  # type: ignore[misc]  # pure-sasl has no types
            """GSSAPI."""

            name = _OURS[GSSAPI]

            def __init__(self, sasl: Any, read: Callable[[], Login], note: Callable[[str], None], **_: object) -> None:
                known.Mechanism.__init__(self, sasl)
                self._read, self._note, self._begun = read, note, False

            def process(self, challenge: bytes | None = None) -> bytes:
                try:
                    if not self._begun:
                        self._begun = True
                        login = _credentials(self._read, self._note)
                        if login.keytab:
                            os.environ["KRB5_CLIENT_KTNAME"] = login.keytab
                            os.environ.setdefault("KRB5CCNAME", "MEMORY:ts-uploader")  # else a file in /tmp
                        super().__init__(self.sasl, principal=login.principal or None)
                    answer: bytes = super().process(challenge or b"")
                except known.kerberos.KrbError as error:
                    raise _refused(self._note, f"Kerberos: {_words(error)}") from error
                return answer

            def dispose(self) -> None:
                if hasattr(self, "context"):
                    super().dispose()

        registered[Kerberos.name] = Kerberos
    known.mechanisms.update(registered)


def _refused(note: Callable[[str], None], why: str) -> Exception:
    """Note why a login failed, and return the error that ends it."""
    from puresasl import SASLProtocolException  # noqa: PLC0415

    note(why)
    error: Exception = SASLProtocolException(why)
    return error


def _credentials(read: Callable[[], Login], note: Callable[[str], None]) -> Login:
    try:
        return read()
    except ConfigurationError as error:
        raise _refused(note, "; ".join(error.problems)) from error


def _words(error: Exception) -> str:
    """Return the texts of a Kerberos error, whose arguments are nested texts and codes."""
    found: list[str] = []

    def take(part: object) -> None:
        if isinstance(part, tuple):
            for each in part:
                take(each)
        elif isinstance(part, str):
            found.append(part)

    take(error.args)
    return ", ".join(found) or repr(error)
