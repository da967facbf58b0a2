"""Changes of the file of users: add and remove, for `ts-endpoint user`. Comments and order are kept."""

import os
import tempfile
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from ts_common.errors import ConfigurationError
from ts_endpoint.security.scram import ITERATIONS, ScramMechanism, keys_of
from ts_endpoint.security.users import read_users

_SHORTEST_PASSWORD: Final = 8
_MODE: Final = 0o600


def add_user(
    file: Path,
    name: str,
    password: str | None,
    *,
    topics: Sequence[str] = (),
    groups: Sequence[str] = (),
    bytes_per_second: int | None = None,
    iterations: int = ITERATIONS,
) -> None:
    """Add a user to a file, which is created if it is missing.

    A user that exists gets what is given, and keeps the rest: another password, or other topics.

    Args:
        name: of the user; of mutual TLS the subject of the certificate.
        password: in clear text; it is not written. None keeps the keys.
        topics: patterns, see `User`; empty to keep them.
        groups: patterns; empty to keep them.
        bytes_per_second: quota; None to keep it.

    Raises:
        ConfigurationError: the file is wrong, or an argument.
        OSError: the file cannot be written.
    """
    if password is not None and len(password) < _SHORTEST_PASSWORD:
        raise ConfigurationError(name, [f"the password has fewer than {_SHORTEST_PASSWORD} characters"])
    if not name or "\0" in name:
        raise ConfigurationError("the user", ["a name without NUL is expected"])
    content = _content(file) if file.exists() else {"users": {}}
    entry = content["users"].setdefault(name, {})
    if password is not None:
        for mechanism in ScramMechanism:
            entry[mechanism.value] = keys_of(mechanism, password, iterations=iterations).text()
    given = {"topics": [*topics] or None, "groups": [*groups] or None, "bytes_per_second": bytes_per_second}
    entry.update({key: value for key, value in given.items() if value is not None})
    _write(file, content)


def remove_user(file: Path, name: str) -> None:
    """Remove a user from a file.

    Raises:
        ConfigurationError: the file is wrong, or has no such user.
        OSError: the file cannot be written.
    """
    content = _content(file)
    if name not in content["users"]:
        raise ConfigurationError(str(file), [f"it has no user {name!r}: ts-endpoint user ls lists them"])
    del content["users"][name]
    _write(file, content)


def _yaml() -> YAML:
    yaml = YAML()
    yaml.width = 4096  # keys stay on one line
    yaml.preserve_quotes = True
    return yaml


def _content(file: Path) -> Any:
    """Return what a file contains, with its comments, once it is valid."""
    read_users(file)
    return _yaml().load(file.read_text())


def _write(file: Path, content: Any) -> None:
    """Replace a file at once, if its new content is valid; only its owner can read it, unless others could before."""
    text = StringIO()
    _yaml().dump(content, text)
    file = file.resolve()  # a link stays one
    former = file.stat() if file.exists() else None
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    new = Path(name)
    try:
        with os.fdopen(descriptor, "w") as writer:
            writer.write(text.getvalue())
            writer.flush()
            os.fsync(writer.fileno())
        _check(new, file)
        new.chmod(_MODE if former is None else former.st_mode & 0o777)
        if former is not None and (former.st_uid, former.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(new, former.st_uid, former.st_gid)  # root adds a user, the endpoint's user reads the file
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def _check(new: Path, file: Path) -> None:
    try:
        read_users(new)
    except ConfigurationError as error:
        raise ConfigurationError(str(file), error.problems) from None
