"""Options of the command line that choose an archive (`ts_reader.options.archive_name`) and its topics.

A topic argument is a name, or a regular expression over whole names (`ts_common.archive.topic_choice`).
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ts_common.archive.directories import TopicDirectories, list_topics
from ts_common.archive.topic_choice import topic_chooser
from ts_common.errors import ConfigurationError, QueryError
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.options import Endpoint, StorageOptions
from ts_common.suggestions import nearest
from ts_common.wording import some
from ts_reader.options.archive_name import CONFIG_VARIABLE, SOURCE, ArchiveName, name_archive, settled
from ts_reader.options.given import Given
from ts_reader.options.scan_options import INCARNATION
from ts_reader.reading.incarnation_option import NEWEST
from ts_reader.reading.topics import Topic, nothing_under, read_topics, topic_names
from tsctl.scan_options import WORDING

if TYPE_CHECKING:
    from ts_reader import Archive as ReaderArchive
    from ts_reader.query.bounds import Loss
    from ts_reader.schemas.schema_source import SchemaSource

_PARTITIONS: Final = re.compile(r"\d{1,10}(-\d{1,10})?(,\d{1,10}(-\d{1,10})?)*", re.ASCII)

TopicsArgument = Annotated[
    list[str] | None, typer.Argument(help="Names, or regular expressions of whole names; default: all topics.")
]
PartitionsOption = Annotated[
    str | None, typer.Option("--partition", "-p", help="Numbers and ranges, as in 0,3-5; default: all.")
]
PublicKeysOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--public-key",
        help="PEM file of a public key whose seals count; repeatable. No key is read from the archive.",
        metavar="FILE",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """The options that name an archive (`ts_common.option_groups`)."""

    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help=f"The agents' <clusterId>.properties, or its directory; default without --url: ${CONFIG_VARIABLE}.",
            metavar="FILE_OR_DIR",
        ),
    ] = None
    url: Annotated[
        str | None,
        typer.Option("--url", help="Location of the store, as in s3://bucket/base/prefix; instead of --config."),
    ] = None
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="The cluster's id; with --url, or a directory of several files.")
    ] = None
    entropy_bits: Annotated[
        int | None,
        typer.Option(
            "--entropy-bits", help="Number of entropy bits of the keys, with --url; default: from the archive."
        ),
    ] = None

    def name(self) -> ArchiveName:
        """Return the name of the archive.

        Raises:
            ConfigurationError: as `name_archive`.
        """
        return name_archive(self.config, self.url, self.cluster, self.entropy_bits)

    def reader(
        self, *, warn: "Callable[[str | Loss], None]", registry: "SchemaSource | str | None" = None
    ) -> "ReaderArchive":
        """Return the archive, for scans.

        Args:
            warn: is called with warnings and losses of scans.

        Raises:
            ConfigurationError: as `name_archive`.
        """
        from ts_reader import Archive as ReaderArchive  # noqa: PLC0415  (pyarrow, only for commands that decode)

        name = self.name()
        further: dict[str, Any] = {
            "registry": registry,
            "wording": replace(WORDING, names={**WORDING.names, "prefix_entropy_bits": name.option.removesuffix("=")}),
            "warn": warn,
        }
        if name.file is not None:
            return ReaderArchive(config=name.file.path, **further)
        return ReaderArchive(self.url, self.cluster, prefix_entropy_bits=self.entropy_bits, **further)


@dataclass(frozen=True, slots=True)
class HeldTopic:
    """A topic and the store that contains it.

    Attributes:
        store: open as long as the archive.
        topic: one incarnation.
    """

    store: ObjectStore
    topic: Topic


@dataclass(frozen=True, slots=True)
class ArchiveLocation:
    """One location of an archive.

    Attributes:
        store: open as long as the archive.
        has: whether readers read a topic from this location.
    """

    store: ObjectStore
    options: StorageOptions
    has: Callable[[str], bool]


class OpenArchive:
    """An archive with open stores; `open_archive` returns it.

    Attributes:
        keys: builds its object keys.

    Args:
        stores: the stores of its endpoints, in their order.
        warn: called with each warning for the operator.
    """

    def __init__(self, name: ArchiveName, stores: Sequence[ObjectStore], warn: Callable[[str], None]) -> None:
        self.keys = name.keys
        self._name = name
        self._stores = tuple(stores)
        self._warn = warn

    def topics(
        self,
        requested: Sequence[str] = (),
        partitions: frozenset[int] | None = None,
        incarnation: str = NEWEST,
        *,
        seals: bool = False,
    ) -> tuple[HeldTopic, ...]:
        """Return the requested topics by name, each with a snapshot of its partitions.

        Args:
            requested: names and regular expressions; empty: all topics.
            partitions: the partitions of each topic; None: all.
            incarnation: as in `parse_incarnation`.
            seals: whether sealed objects can replace a part of the listings.

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
            read = read_topics(store, self.keys, wanted, incarnation, seals=seals)
            found += [HeldTopic(store, topic) for topic in read.values()]
        if not known:
            raise QueryError(self._nothing())
        held = {entry.topic.name for entry in found}
        for text in requested:
            if not any(chooser([text])(name) for name in held):
                hint = nearest(text, known) or f"; it contains {some(sorted(known))}"
                raise QueryError(
                    f"topic {text}: cluster {self.keys.cluster} in {self._locations()} has no such topic{hint}"
                )
        found.sort(key=lambda entry: entry.topic.name)
        return tuple(found if partitions is None else _only(found, partitions))

    @property
    def stores(self) -> tuple[ObjectStore, ...]:
        """The stores, each location once: two endpoints can differ in their options only."""
        return tuple({store.location: store for store in self._stores}.values())

    @property
    def locations(self) -> tuple[ArchiveLocation, ...]:
        """The stores as `stores`, each with the topics of its location."""
        found: dict[str, list[Endpoint]] = {}
        for endpoint, store in zip(self._name.endpoints, self._stores, strict=True):
            found.setdefault(store.location, []).append(endpoint)
        return tuple(
            ArchiveLocation(store, endpoints[0].options, partial(self._is_in, endpoints))
            for store, endpoints in zip(self.stores, found.values(), strict=True)
        )

    def _is_in(self, endpoints: Sequence[Endpoint], topic: str) -> bool:
        return any(self._name.lies_in(topic, endpoint) for endpoint in endpoints)

    def names(self) -> tuple[str, ...]:
        """Return the names of all topics, sorted.

        Raises:
            QueryError: the archive has no objects under these entropy bits.
            StoreUnavailable, AccessDenied, BucketMissing: a request failed.
        """
        found = self.known_names()
        if not found:
            raise QueryError(self._nothing())
        return tuple(sorted(found))

    def known_names(self) -> frozenset[str]:
        """Return the names of all topics; empty if the archive has no topic.

        Raises:
            StoreUnavailable, AccessDenied, BucketMissing: a request failed.
        """
        found: set[str] = set()
        for endpoint, store in zip(self._name.endpoints, self._stores, strict=True):
            store.check()
            found |= {name for name in topic_names(store, self.keys) if self._name.lies_in(name, endpoint)}
        return frozenset(found)

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
        elsewhere = sorted(name for name in listed if not self._name.lies_in(name, endpoint))
        if elsewhere:
            self._warn(
                f"{store.location} holds objects of {some(elsewhere)}, which the file places elsewhere: left out"
            )
        return {name: directories for name, directories in listed.items() if name not in elsewhere}

    def _nothing(self) -> str:
        return nothing_under(self.stores, self.keys, self._name.option)

    def _locations(self) -> str:
        return ", ".join(store.location for store in self._stores)


@contextmanager
def open_archive(name: ArchiveName, warn: Callable[[str], None]) -> Iterator[OpenArchive]:
    """Open the stores of an archive, and close them at the end of the block.

    Raises:
        QueryError, CorruptData, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `settled`.
    """
    with ExitStack() as stores:
        opened = [stores.enter_context(open_store(endpoint.location, endpoint.options)) for endpoint in name.endpoints]
        yield OpenArchive(settled(name, opened), opened, warn)


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
    given = Given({INCARNATION.name: text}, SOURCE, WORDING)
    incarnation = given.read(INCARNATION)
    given.check()
    return incarnation


def chooser(requested: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate that accepts the requested topics, as `topic_chooser`; without a request it accepts all.

    Raises:
        ConfigurationError: a text is neither a name nor a regular expression.
    """
    if not requested:
        return lambda _: True
    try:
        return topic_chooser(requested)
    except ValueError as error:
        raise ConfigurationError(SOURCE, [str(error)]) from error


def check_partitions(requested: frozenset[int], held: Collection[int], topics: Iterable[str]) -> None:
    """Check that each requested partition exists in one of the topics.

    Args:
        requested: numbers.
        held: the numbers that the topics have; if empty, nothing is checked.

    Raises:
        QueryError: a requested partition exists in no topic.
    """
    if held and (missing := requested - frozenset(held)):
        lacking = f"the store has no partition {some(map(str, sorted(missing)))} of topic {some(sorted(topics))}"
        raise QueryError(f"{lacking}; it has {some(map(str, sorted(held)))}")


def _only(topics: Sequence[HeldTopic], partitions: frozenset[int]) -> Iterator[HeldTopic]:
    """Yield the topics with the requested partitions only.

    Raises:
        QueryError: a requested partition exists in no topic.
    """
    held = {catalog.keys.partition.partition for entry in topics for catalog in entry.topic.partitions}
    check_partitions(partitions, held, (entry.topic.name for entry in topics))
    for entry in topics:
        chosen = tuple(catalog for catalog in entry.topic.partitions if catalog.keys.partition.partition in partitions)
        yield replace(entry, topic=replace(entry.topic, partitions=chosen))
