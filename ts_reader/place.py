"""Where an archive is: its location and connection, or an agent's properties file that says so."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ts_common.archive.object_keys import MAX_ENTROPY_BITS
from ts_common.errors import ConfigurationError
from ts_common.model import is_cluster_id
from ts_common.query.query import Query, Subscription
from ts_common.reading.cluster_file import SUFFIX, ClusterFile, read_cluster_file
from ts_common.store.factory import parse_location
from ts_common.store.options import BY_ENVIRONMENT, Connection, Credentials, Endpoint, StorageOptions
from ts_common.suggestions import nearest

SOURCE: Final = "arguments of Archive"
_CREDENTIALS: Final = ("access_key_id", "secret_access_key", "session_token")


class Place:
    """The endpoints of an archive, and which topic is in which.

    Attributes:
        cluster: id of the cluster.
        entropy_bits: of the keys; None: as the archive's layout has it.
        endpoints: at least one.
    """

    def __init__(
        self, cluster: str, entropy_bits: int | None, endpoints: tuple[Endpoint, ...], file: ClusterFile | None = None
    ) -> None:
        self.cluster = cluster
        self.entropy_bits = entropy_bits
        self.endpoints = endpoints
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        if self._file is not None:  # a provider of endpoints may be any class, so the file is read again
            return place_of_file, (self._file.path,)
        return Place, (self.cluster, self.entropy_bits, self.endpoints)

    def endpoint(self, topic: str) -> Endpoint | None:
        """Return the endpoint of a topic; None if the file places it nowhere."""
        if self._file is None:
            return self.endpoints[0]
        try:
            return self._file.endpoint(topic)
        except ConfigurationError:
            return None

    def query(self, endpoint: Endpoint) -> Query:
        """Return a query of nothing at an endpoint, for its location, keys and connection."""
        return Query(
            endpoint.location, self.cluster, self.entropy_bits, Subscription(), connection=endpoint.options.connection
        )


def place_of_file(path: Path) -> Place:
    """Return the place that an agent's `<clusterId>.properties` describes.

    Raises:
        ConfigurationError: the file has another name, is missing or wrong.
    """
    if path.suffix != SUFFIX or not is_cluster_id(path.stem):
        raise ConfigurationError(SOURCE, [f"config={str(path)!r}: a file named <clusterId>{SUFFIX} is expected"])
    file = read_cluster_file(path)
    endpoints = sorted(file.endpoints(), key=lambda endpoint: endpoint.location)
    return Place(path.stem, file.keys.entropy_bits, tuple(endpoints), file)


def place_of_arguments(
    location: str | None, cluster: str | None, entropy_bits: int | None, options: Mapping[str, Any]
) -> Place:
    """Return the place that arguments describe.

    Raises:
        ConfigurationError: with all problems.
    """
    problems: list[str] = []
    if not isinstance(location, str):
        problems.append(
            'location: missing; as in Archive("s3://bucket/base/prefix", cluster="prod"), or file:///directory'
        )
    else:
        try:
            location = str(parse_location(location))
        except ConfigurationError as error:
            problems += error.problems
    if not isinstance(cluster, str) or not is_cluster_id(cluster):
        problems.append(
            f"cluster={cluster!r}: the cluster's part of the keys is expected: letters, digits, '.', '_' and '-'"
        )
    if entropy_bits is not None and entropy_bits not in range(MAX_ENTROPY_BITS + 1):
        problems.append(f"prefix_entropy_bits={entropy_bits!r}: a number from 0 to {MAX_ENTROPY_BITS} is expected")
    connection = _connection(options, problems)
    if problems or not isinstance(location, str) or not isinstance(cluster, str):
        raise ConfigurationError(SOURCE, problems)
    return Place(cluster, entropy_bits, (Endpoint(location, StorageOptions(connection)),))


def _connection(given: Mapping[str, Any], problems: list[str]) -> Connection:
    """Return the connection of `storage_options`, named as the attributes of `Connection` and `Credentials`."""
    if not given:
        return BY_ENVIRONMENT
    from ts_common.store.option_table import parse_options  # noqa: PLC0415  (pydantic)

    known = [name for name in Connection.__dataclass_fields__ if name != "credentials"]
    for name in given:
        if name not in known and name not in _CREDENTIALS:
            hint = nearest(str(name), [*known, *_CREDENTIALS])
            problems.append(f"storage_options: {name!r} is no option of a connection{hint}")
    texts = {
        name.replace("_", "."): ("true" if value is True else "insecure" if value is False else value)
        for name, value in given.items()
        if name in known and value is not None
    }
    options = parse_options(texts, "storage_options: ", problems)
    keys = [given.get(name) for name in _CREDENTIALS]
    if not any(keys):
        return options.connection
    if not all(isinstance(key, str) and key for key in keys[:2]):
        problems.append("storage_options: access_key_id and secret_access_key are needed together")
        return options.connection
    fields = {name: getattr(options.connection, name) for name in known}
    return Connection(**fields, credentials=Credentials(*keys))  # type: ignore[arg-type]  # checked above
