"""The file of users: their keys, and what they may read.

::

    users:
      alice:
        SCRAM-SHA-256: salt=...,stored_key=...,server_key=...,iterations=8192   # ts-endpoint user add
        SCRAM-SHA-512: salt=...,stored_key=...,server_key=...,iterations=8192
        topics: [orders, "clicks.*", "audit*"]        # a name, the beginning of names and *, or *
        groups: ["*"]
        bytes_per_second: 10_000_000                  # unlimited without it
      CN=reader,O=Example:                            # a certificate's subject, of mutual TLS
        topics: ["*"]

The keys are Kafka's, in Kafka's form, and contain no password. The file is read again when it changes.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from ts_common.config.yaml_files import read_yaml, validate
from ts_common.errors import ConfigurationError
from ts_endpoint.security.reloaded import CHECK_SECONDS, Reloaded
from ts_endpoint.security.scram import ScramKeys, ScramMechanism, parse_keys

_MOST_BYTES: Final = 16 << 20
_FEWEST_BYTES_PER_SECOND: Final = 1024


def _keys_of(mechanism: ScramMechanism) -> BeforeValidator:
    def parsed(text: Any) -> ScramKeys:
        return parse_keys(mechanism, text if isinstance(text, str) else "")

    return BeforeValidator(parsed)


class User(BaseModel):
    """One user of the file.

    Attributes:
        sha_256, sha_512: keys of a mechanism; None if the user cannot log in by it.
        topics: patterns of the names that the user may read.
        groups: patterns of the consumer groups that the user may use.
        bytes_per_second: of replies, over all connections; None for no limit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, strict=True)

    sha_256: Annotated[ScramKeys | None, _keys_of(ScramMechanism.SHA_256)] = Field(None, alias="SCRAM-SHA-256")
    sha_512: Annotated[ScramKeys | None, _keys_of(ScramMechanism.SHA_512)] = Field(None, alias="SCRAM-SHA-512")
    topics: list[str] = Field(default_factory=list)
    groups: list[str] = Field(default_factory=list)
    bytes_per_second: int | None = Field(None, ge=_FEWEST_BYTES_PER_SECOND)

    @field_validator("topics", "groups")
    @classmethod
    def _are_patterns(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            if not pattern or "*" in pattern[:-1]:
                raise ValueError(f"{pattern!r}: a name, the beginning of names and *, or * is expected")
        return patterns

    @property
    def keys(self) -> Mapping[ScramMechanism, ScramKeys]:
        """The keys by mechanism."""
        both = {ScramMechanism.SHA_256: self.sha_256, ScramMechanism.SHA_512: self.sha_512}
        return {mechanism: keys for mechanism, keys in both.items() if keys is not None}


class _UsersFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    users: dict[str, User]


class _Names:
    """The names that some patterns match."""

    def __init__(self, patterns: list[str]) -> None:
        self._exact = frozenset(each for each in patterns if not each.endswith("*"))
        self._beginnings = tuple(each[:-1] for each in patterns if each.endswith("*"))

    def match(self, name: str) -> bool:
        return name in self._exact or name.startswith(self._beginnings)


class _Users:
    """The users of a file, as requests need them."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self.users = users
        self.topics = {name: _Names(user.topics) for name, user in users.items()}
        self.groups = {name: _Names(user.groups) for name, user in users.items()}
        shapes = Counter(
            (mechanism, len(keys.salt), keys.iterations)
            for user in users.values()
            for mechanism, keys in user.keys.items()
        )
        self.usual: dict[ScramMechanism, tuple[int, int]] = {}
        for (mechanism, salt_bytes, iterations), _ in shapes.most_common():
            self.usual.setdefault(mechanism, (salt_bytes, iterations))


class Users:
    """The users of a file: their keys, permissions and quotas; it is `ts_endpoint.contract.Permissions`.

    A user who is removed from the file may read nothing from then on, over connections that exist too.

    Args:
        check_seconds: as of `Reloaded`.

    Raises:
        ConfigurationError: the file is missing or wrong; with every problem.
    """

    def __init__(self, file: Path, *, check_seconds: float = CHECK_SECONDS) -> None:
        # A thousand users need a second.
        self._users = Reloaded(
            [file], lambda: _Users(read_users(file)), (ConfigurationError,), is_slow=True, check_seconds=check_seconds
        )

    def keys(self, user: str) -> Mapping[ScramMechanism, ScramKeys] | None:
        """Return the keys of a user; None for an unknown one."""
        found = self._users.current().users.get(user)
        return None if found is None else found.keys

    def usual(self) -> Mapping[ScramMechanism, tuple[int, int]]:
        """Return the mechanisms of most users, each with the bytes of a salt and the iterations."""
        return self._users.current().usual

    def may_read(self, user: str | None, topic: str) -> bool:
        """Return whether a user may read a topic, and see that it exists."""
        names = self._users.current().topics.get(user) if user is not None else None
        return names is not None and names.match(topic)

    def may_use(self, user: str | None, group: str) -> bool:
        """Return whether a user may join a group, and read and commit its offsets."""
        names = self._users.current().groups.get(user) if user is not None else None
        return names is not None and names.match(group)

    def bytes_per_second(self, user: str | None) -> int | None:
        """Return the quota of a user; None for no quota."""
        found = self._users.current().users.get(user) if user is not None else None
        return None if found is None else found.bytes_per_second


def read_users(file: Path) -> Mapping[str, User]:
    """Return the users of a file.

    Raises:
        ConfigurationError: it is missing, no YAML, or wrong; with every problem.
    """
    content = read_yaml(file, most_bytes=_MOST_BYTES, missing="there is no such file: ts-endpoint user add creates it")
    if not isinstance(content, Mapping):
        raise ConfigurationError(str(file), ["users: is expected, with a name and a description of each user"])
    return validate(_UsersFile, content, str(file)).users
