"""Options of the command line that name an archive and choose its topics.

`--config` names an archive by a cluster's properties file, the one of the agents; `--url` and `--cluster` name it
without a file. A file may place topics in several locations. A command then reads in each location only the topics that
the file places there.

A topic argument is a name, or a regular expression over whole names if it contains a character that no topic name can
have (`orders.*`, `(a.b)`).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.archive.directories import TopicDirectories, list_topics
from ts_common.archive.layout import check_layout, keys_of
from ts_common.archive.object_keys import MAX_ENTROPY_BITS, ClusterKeys
from ts_common.config.keys import ENTROPY_BITS_KEY
from ts_common.errors import ConfigurationError, QueryError
from ts_common.model import is_cluster_id, is_topic_name
from ts_common.reading.cluster_file import STUCK_AFTER_SECONDS, SUFFIX, ClusterFile, read_cluster_file
from ts_common.reading.incarnation_option import NEWEST, parse_incarnation
from ts_common.reading.topics import Topic, nothing_under, read_topics, some
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store, parse_location
from ts_common.store.options import Endpoint
from ts_common.suggestions import nearest
from tsctl.scan_options import WORDING

if TYPE_CHECKING:
    from ts_common.query.losses import Loss
    from ts_common.schemas.source import SchemaSource
    from ts_reader import Archive as ReaderArchive

SOURCE: Final = "command line"
_PARTITIONS: Final = re.compile(r"\d{1,10}(-\d{1,10})?(,\d{1,10}(-\d{1,10})?)*", re.ASCII)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="The agents' <clusterId>.properties, or its directory.", metavar="FILE_OR_DIR"),
]
UrlOption = Annotated[
    str | None, typer.Option("--url", help="Location of the store, as in s3://bucket/base/prefix; instead of --config.")
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", help="The cluster's id; with --url, or a directory of several files.")
]
EntropyOption = Annotated[
    int | None,
    typer.Option(
        "--entropy-bits",
        help="Number of entropy bits of the keys, with --url; default: from the archive.",
    ),
]
TopicsArgument = Annotated[
    list[str] | None, typer.Argument(help="Names, or regular expressions of whole names; default: all topics.")
]
PartitionsOption = Annotated[
    str | None, typer.Option("--partition", "-p", help="Numbers and ranges, as in 0,3-5; default: all.")
]
IncarnationOption = Annotated[
    str, typer.Option("--incarnation", help="Incarnation of a topic: newest, oldest, a number from 1, or a topic id.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


@dataclass(frozen=True, slots=True)
class ArchiveName:
    """An archive as the command line names it.

    Attributes:
        keys: builds its object keys.
        endpoints: its locations, each with the store's options.
        file: the cluster's file, if `--config` names one.
        bits_are_set: whether a file or an option sets the number of entropy bits; otherwise
            `settled` reads it from the layout.
    """

    keys: ClusterKeys
    endpoints: tuple[Endpoint, ...]
    file: ClusterFile | None = None
    bits_are_set: bool = True

    @property
    def option(self) -> str:
        """The option that sets the number of entropy bits of this archive."""
        return "--entropy-bits=" if self.file is None else f"{ENTROPY_BITS_KEY}="

    @property
    def stuck_after_seconds(self) -> float:
        """Return the seconds after which agents report a partition as stuck; the default without a file."""
        return STUCK_AFTER_SECONDS if self.file is None else self.file.stuck_after_seconds

    def lies_in(self, topic: str, endpoint: Endpoint) -> bool:
        """Return whether readers read a topic from this location."""
        if self.file is None:
            return True
        try:
            return self.file.endpoint(topic) == endpoint
        except ConfigurationError:
            return False


@dataclass(frozen=True, slots=True)
class HeldTopic:
    """A topic and the store that contains it.

    Attributes:
        store: open as long as the archive.
        topic: one incarnation.
    """

    store: ObjectStore
    topic: Topic


def name_archive(
    config: Path | None, url: str | None, cluster: str | None = None, entropy_bits: int | None = None
) -> ArchiveName:
    """Return the archive that the options name.

    Raises:
        ConfigurationError: the options name no archive or contradict each other; it lists all problems.
    """
    if config is not None:
        if url is not None or entropy_bits is not None:
            raise ConfigurationError(
                SOURCE, ["--config sets the location and the entropy bits: remove --url and --entropy-bits"]
            )
        file = read_cluster_file(_properties_file(config, cluster))
        endpoints = sorted(file.endpoints(), key=lambda endpoint: endpoint.location)
        return ArchiveName(file.keys, tuple(endpoints), file)
    problems = []
    if url is None:
        problems.append("no archive is named: give --config FILE_OR_DIR, or --url with --cluster")
    else:
        try:
            url = str(parse_location(url))
        except ConfigurationError as error:
            problems += [f"--url: {problem}" for problem in error.problems]
        if cluster is None:
            problems.append("--cluster is missing: --url requires it")
    if cluster is not None and not is_cluster_id(cluster):
        problems.append(f"--cluster={cluster}: letters, digits, '.', '_' and '-' are expected")
    if entropy_bits is not None and not 0 <= entropy_bits <= MAX_ENTROPY_BITS:
        problems.append(f"--entropy-bits={entropy_bits}: 0 to {MAX_ENTROPY_BITS} is expected")
    if problems or url is None or cluster is None:
        raise ConfigurationError(SOURCE, problems)
    return ArchiveName(ClusterKeys(cluster, entropy_bits or 0), (Endpoint(url),), bits_are_set=entropy_bits is not None)


def open_reader(
    config: Path | None,
    url: str | None,
    cluster: str | None,
    entropy_bits: int | None,
    *,
    warn: "Callable[[str | Loss], None]",
    registry: "SchemaSource | str | None" = None,
) -> "ReaderArchive":
    """Return the archive that the options name, for scans.

    Args:
        config: the options, like the next three.
        url: of the location.
        cluster: its id.
        entropy_bits: of the keys.
        warn: is called with warnings and losses of scans.
        registry: of schemas.

    Raises:
        ConfigurationError: as `name_archive`.
    """
    from ts_reader import Archive as ReaderArchive  # noqa: PLC0415  (pyarrow, only for commands that decode)

    name = name_archive(config, url, cluster, entropy_bits)
    further: dict[str, Any] = {
        "registry": registry,
        "wording": replace(WORDING, entropy_bits=name.option),
        "warn": warn,
    }
    if name.file is not None:
        return ReaderArchive(config=name.file.path, **further)
    return ReaderArchive(url, cluster, prefix_entropy_bits=entropy_bits, **further)


def settled(name: ArchiveName, stores: Sequence[ObjectStore]) -> ArchiveName:
    """Return the archive with the number of entropy bits from its layout, unless an option or file sets it.

    Args:
        name: the archive.
        stores: the stores of its endpoints.

    Raises:
        QueryError: the layout contradicts the number that was set.
        CorruptData, NewerFormat: the layout is malformed, or a later release wrote it.
        StoreUnavailable, AccessDenied, BucketMissing: a request failed.
    """
    if name.bits_are_set:
        for store in stores:
            check_layout(store, name.keys, name.option)
        return name
    (store,) = stores  # Only a file names several stores.
    return replace(name, keys=keys_of(store, name.keys.cluster, None))


def _properties_file(config: Path, cluster: str | None) -> Path:
    """Return the file that `--config` and `--cluster` name.

    Raises:
        ConfigurationError: no file matches, several do, or the options contradict each other.
    """
    if config.is_dir():
        found = sorted(config.glob(f"*{SUFFIX}"))
        if cluster is not None:
            return config / f"{cluster}{SUFFIX}"
        if len(found) == 1:
            return found[0]
        names = f"{some(path.name for path in found)}: choose one with --cluster" if found else "no such file"
        raise ConfigurationError(str(config), [f"expected one file <clusterId>{SUFFIX}; the directory has {names}"])
    if config.suffix != SUFFIX or not is_cluster_id(config.stem):
        raise ConfigurationError(str(config), [f"expected a file named <clusterId>{SUFFIX}, or its directory"])
    if cluster is not None and cluster != config.stem:
        raise ConfigurationError(
            SOURCE, [f"--cluster={cluster}: --config names the file of {config.stem}; remove one of the two"]
        )
    return config


class Archive:
    """An archive with open stores; `open_archive` returns it.

    Attributes:
        keys: builds its object keys.

    Args:
        name: the archive.
        stores: the stores of its endpoints, in their order.
        warn: called with each warning for the operator.
    """

    def __init__(self, name: ArchiveName, stores: Sequence[ObjectStore], warn: Callable[[str], None]) -> None:
        self.keys = name.keys
        self._name = name
        self._stores = tuple(stores)
        self._warn = warn

    def topics(
        self, requested: Sequence[str] = (), partitions: frozenset[int] | None = None, incarnation: str = NEWEST
    ) -> tuple[HeldTopic, ...]:
        """Return the requested topics by name, each with a snapshot of its partitions.

        Args:
            requested: names and regular expressions; empty: all topics.
            partitions: the partitions of each topic; None: all.
            incarnation: as in `parse_incarnation`.

        Raises:
            QueryError: the archive has no objects under these entropy bits, or no such topic, partition or incarnation.
            CorruptData: a commit, `log.start` or list of incarnations is malformed.
            StoreUnavailable, AccessDenied, BucketMissing: a request failed.
        """
        incarnation = _checked_incarnation(incarnation)
        found: list[HeldTopic] = []
        known: set[str] = set()
        choose = chooser(requested)
        for endpoint, store in zip(self._name.endpoints, self._stores, strict=True):
            listed = self._listed(endpoint, store)
            known |= listed.keys()
            wanted = {name: listed[name] for name in sorted(listed) if choose(name)}
            read = read_topics(store, self.keys, wanted, incarnation)
            found += [HeldTopic(store, topic) for topic in read.values()]
        if not known:
            raise QueryError(self._nothing())
        held = {entry.topic.name for entry in found}
        for text in requested:
            if not any(chooser([text])(name) for name in held):
                hint = nearest(text, known) or f"; it contains {some(known)}"
                raise QueryError(
                    f"topic {text}: cluster {self.keys.cluster} in {self._locations()} has no such topic{hint}"
                )
        found.sort(key=lambda entry: entry.topic.name)
        return tuple(found if partitions is None else _only(found, partitions))

    def store_of(self, topic: str) -> ObjectStore:
        """Return the store for a topic, whether or not the topic has objects.

        Raises:
            QueryError: the file places the topic in no location.
        """
        for endpoint, store in zip(self._name.endpoints, self._stores, strict=True):
            if self._name.lies_in(topic, endpoint):
                return store
        raise QueryError(f"topic {topic}: the file places it in none of {self._locations()}")

    def _listed(self, endpoint: Endpoint, store: ObjectStore) -> dict[str, TopicDirectories]:
        store.check()
        listed = list_topics(store, self.keys)
        elsewhere = [name for name in listed if not self._name.lies_in(name, endpoint)]
        if elsewhere:
            self._warn(
                f"{store.location} holds objects of {some(elsewhere)}, which the file places elsewhere: left out"
            )
        return {name: directories for name, directories in listed.items() if name not in elsewhere}

    def _nothing(self) -> str:
        if len(self._stores) == 1:
            return nothing_under(self._stores[0], self.keys, self._name.option)
        return f"{self._locations()} hold nothing of a cluster {self.keys.cluster} under these entropy bits"

    def _locations(self) -> str:
        return ", ".join(store.location for store in self._stores)


@contextmanager
def open_archive(name: ArchiveName, warn: Callable[[str], None]) -> Iterator[Archive]:
    """Open the stores of an archive, and close them at the end of the block.

    Raises:
        QueryError, CorruptData, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `settled`.
    """
    with ExitStack() as stores:
        opened = [stores.enter_context(open_store(endpoint.location, endpoint.options)) for endpoint in name.endpoints]
        yield Archive(settled(name, opened), opened, warn)


def parse_partitions(text: str | None) -> frozenset[int] | None:
    """Return the numbers of a list such as `0,3-5`; None for None.

    Raises:
        ConfigurationError: the list is malformed.
    """
    if text is None:
        return None
    if _PARTITIONS.fullmatch(text.replace(" ", "")):
        bounds = [part.partition("-") for part in text.replace(" ", "").split(",")]
        ranges = [range(int(low), int(high or low) + 1) for low, _, high in bounds]
        if all(len(numbers) for numbers in ranges) and sum(map(len, ranges)) <= 1_000_000:
            return frozenset(number for numbers in ranges for number in numbers)
    raise ConfigurationError(SOURCE, [f"--partition={text}: expected numbers and ranges, as in 0,3-5"])


def _checked_incarnation(text: str) -> str:
    try:
        return parse_incarnation(text)
    except ValueError as error:
        raise ConfigurationError(SOURCE, [f"--incarnation={text}: {error}"]) from error


def chooser(requested: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate that accepts the requested topics."""
    names = {text for text in requested if is_topic_name(text)}
    patterns = []
    for text in requested:
        if text not in names:
            try:
                patterns.append(re.compile(text))
            except re.error as error:
                raise ConfigurationError(SOURCE, [f"topic {text!r} is not a regular expression: {error}"]) from error
    return lambda name: not requested or name in names or any(pattern.fullmatch(name) for pattern in patterns)


def _only(topics: Sequence[HeldTopic], partitions: frozenset[int]) -> Iterator[HeldTopic]:
    """Yield the topics with the requested partitions only.

    Raises:
        QueryError: a requested partition exists in no topic.
    """
    held = {catalog.keys.partition.partition for entry in topics for catalog in entry.topic.partitions}
    if held and (missing := partitions - held):
        names = some(entry.topic.name for entry in topics)
        missing_ones = f"the store has no partition {some(map(str, sorted(missing)))} of topic {names}"
        raise QueryError(f"{missing_ones}; it has {some(map(str, sorted(held)))}")
    for entry in topics:
        chosen = tuple(catalog for catalog in entry.topic.partitions if catalog.keys.partition.partition in partitions)
        yield replace(entry, topic=replace(entry.topic, partitions=chosen))
