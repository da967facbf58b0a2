"""Where an archive is: its location and connection, or an agent's properties file that specifies them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ts_common.errors import ConfigurationError, QueryError
from ts_common.store.factory import Scheme
from ts_common.store.options import BY_ENVIRONMENT, Connection, Credentials, Endpoint, StorageOptions
from ts_common.suggestions import nearest
from ts_reader.options.given import Given
from ts_reader.options.scan_options import CLUSTER_ID, ENTROPY_BITS, LOCATION_URL
from ts_reader.options.value_types import CLUSTER_FILE
from ts_reader.query.query import Query, Subscription
from ts_reader.reading.cluster_file import ClusterFile, read_cluster_file

SOURCE: Final = "arguments of Archive"
_CREDENTIALS: Final = ("access_key_id", "secret_access_key", "session_token")


class Place:
    """The endpoints of an archive, and the endpoint of each topic.

    Attributes:
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

    def located(self, query: Query, topics: Callable[[], Sequence[str]]) -> Query:
        """Return a query with the endpoints of its topics.

        Args:
            topics: returns the topics of all endpoints, for a pattern.

        Raises:
            QueryError: the file places a topic nowhere.
            AccessDenied, BucketMissing, CorruptData, StoreUnavailable: from `topics`.
        """
        subscription = query.subscription
        if subscription.pattern is not None:  # a pattern is matched in each location, to the names of its topics
            matches = [name for name in topics() if subscription.pattern.search(name)]
            subscription = Subscription(topics=tuple(matches)) if matches else subscription
        topics_read = subscription.assigned or subscription.topics
        if self._file is None or not topics_read:
            return query
        try:
            (first, _), *others = self._file.locations(topics_read)
        except ConfigurationError as error:
            raise QueryError(str(error)) from error
        return replace(
            query,
            location=first.location,
            connection=first.options.connection,
            topics_elsewhere=tuple(others),
            subscription=subscription,
        )


def place_of_file(path: str | PathLike[str], given: Given | None = None) -> Place:
    """Return the place that an agent's `<clusterId>.properties` describes.

    Args:
        given: the arguments, with their problems; None for no others.

    Raises:
        ConfigurationError: there are such problems; or the file has another name, is missing or wrong.
    """
    given = given or Given({}, SOURCE)
    file = given.parse(given.wording.name("config"), str(path), CLUSTER_FILE, Path())
    given.check()
    read = read_cluster_file(file)
    endpoints = sorted(read.endpoints(), key=lambda endpoint: endpoint.location)
    return Place(file.stem, read.keys.entropy_bits, tuple(endpoints), read)


def place_of_arguments(given: Given) -> Place:
    """Return the place that the arguments of `ts_reader.Archive` describe.

    Raises:
        ConfigurationError: with all problems.
    """
    location, cluster, entropy_bits = given.read(LOCATION_URL), given.read(CLUSTER_ID), given.read(ENTROPY_BITS)
    connection = connection_of(given.value("storage_options"), given.problems)
    if location is not None and location.scheme is not Scheme.S3 and connection != BY_ENVIRONMENT:
        given.problems.append(f"storage_options: they apply to S3 only, and {location} is not S3; drop them")
    given.check()
    return Place(str(cluster), entropy_bits, (Endpoint(str(location), StorageOptions(connection)),))


def connection_of(options: Mapping[str, Any] | None, problems: list[str]) -> Connection:
    """Return the connection of `storage_options`, named as the attributes of `Connection` and `Credentials`.

    Args:
        options: names and values; None for the environment's.
        problems: one sentence is appended for each mistake.
    """
    given: Any = {} if options is None else options
    if not isinstance(given, Mapping):
        problems.append("storage_options: names and values are expected, as in {'region': 'eu-west-1'}")
        return BY_ENVIRONMENT
    if not given:
        return BY_ENVIRONMENT
    from ts_common.store.option_table import parse_options  # noqa: PLC0415  (pydantic)

    known = [name for name in Connection.__dataclass_fields__ if name != "credentials"]
    for name in given:
        if name not in known and name not in _CREDENTIALS:
            hint = nearest(str(name), [*known, *_CREDENTIALS])
            problems.append(f"storage_options: {name!r} is no option of a connection{hint}")
    texts = {_dotted(name): value for name, value in given.items() if name in known and value is not None}
    if isinstance(verify := given.get("tls_verify"), bool):
        texts["tls.verify"] = "true" if verify else "insecure"
    found: list[str] = []
    options_found = parse_options(texts, "storage_options: ", found)
    problems += [_in_python(problem, known) for problem in found]
    return replace(options_found.connection, credentials=_credentials(given, problems))


def _credentials(given: Mapping[str, Any], problems: list[str]) -> Credentials | None:
    """Return the credentials of `storage_options`; None for the environment's."""
    identity, secret, token = (given.get(name) for name in _CREDENTIALS)
    if identity is None and secret is None and token is None:
        return None
    if not all(isinstance(key, str) and key for key in (identity, secret)):
        problems.append("storage_options: access_key_id and secret_access_key are needed together")
    elif token is not None and not isinstance(token, str):
        problems.append("storage_options: session_token: a text is expected")
    return Credentials(str(identity), str(secret), token)


def _dotted(name: str) -> str:
    """Return an option's name in a properties file."""
    return name.replace("_", ".")


def _in_python(problem: str, known: Sequence[str]) -> str:
    """Return a problem with the names of options as `storage_options` has them."""
    for name in known:
        problem = re.sub(rf"(?<![\w.]){re.escape(_dotted(name))}(?![\w.])", name, problem)
    return problem
