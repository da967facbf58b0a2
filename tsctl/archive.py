"""Which archive a command is about: how it is named on the command line, and what of it is asked for.

An archive is named by a cluster's properties file (`--config`), the agent's own, or by `--url` and `--cluster`. A file
may place topics in several locations; then each is looked into for the topics that the file places there.

A topic is named as it is, or by a regular expression over whole names: what has a character that no topic's name can
have is one (`orders.*`, `(a.b)`).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from ts_common.archive.directories import TopicDirectories, list_topics
from ts_common.archive.layout import check_layout, keys_of
from ts_common.archive.object_keys import MAX_ENTROPY_BITS, ClusterKeys
from ts_common.config.cluster_config import ENTROPY_BITS_KEY
from ts_common.errors import ConfigurationError, QueryError
from ts_common.model import is_cluster_id, is_topic_name
from ts_common.reading.cluster_file import STUCK_AFTER_SECONDS, SUFFIX, ClusterFile, read_cluster_file
from ts_common.reading.incarnation_option import NEWEST, parse_incarnation
from ts_common.reading.topics import Topic, nothing_under, read_topics, some
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store, parse_location
from ts_common.store.options import Endpoint
from ts_common.suggestions import nearest

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
        keys: how its keys are made.
        endpoints: its locations, and how S3 is spoken to for each.
        file: of the cluster, where one was named.
        told: whether somebody said the number of entropy bits; else it is that of the layout, see `settled`.
    """

    keys: ClusterKeys
    endpoints: tuple[Endpoint, ...]
    file: ClusterFile | None = None
    told: bool = True

    @property
    def option(self) -> str:
        """How the number of entropy bits is written where this archive was named."""
        return "--entropy-bits=" if self.file is None else f"{ENTROPY_BITS_KEY}="

    @property
    def stuck_after_seconds(self) -> float:
        """After which its agents call a partition stuck; the default where no file says."""
        return STUCK_AFTER_SECONDS if self.file is None else self.file.stuck_after_seconds

    def lies_in(self, topic: str, endpoint: Endpoint) -> bool:
        """Whether a topic that is found in a location is one that readers look for there."""
        if self.file is None:
            return True
        try:
            return self.file.endpoint(topic) == endpoint
        except ConfigurationError:
            return False


@dataclass(frozen=True, slots=True)
class HeldTopic:
    """A topic in the store that holds it.

    Attributes:
        store: open for as long as the archive is.
        topic: one incarnation of it.
    """

    store: ObjectStore
    topic: Topic


def name_archive(
    config: Path | None, url: str | None, cluster: str | None = None, entropy_bits: int | None = None
) -> ArchiveName:
    """The archive that the options name.

    Raises:
        ConfigurationError: they name none, or contradict each other; all problems at once.
    """
    if config is not None:
        if url is not None or entropy_bits is not None:
            raise ConfigurationError(SOURCE, ["--config says location and entropy bits: drop --url and --entropy-bits"])
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
            problems.append("--cluster is missing: with --url it says whose topics")
    if cluster is not None and not is_cluster_id(cluster):
        problems.append(f"--cluster={cluster}: letters, digits, '.', '_' and '-' are expected")
    if entropy_bits is not None and not 0 <= entropy_bits <= MAX_ENTROPY_BITS:
        problems.append(f"--entropy-bits={entropy_bits}: 0 to {MAX_ENTROPY_BITS} is expected")
    if problems or url is None or cluster is None:
        raise ConfigurationError(SOURCE, problems)
    return ArchiveName(ClusterKeys(cluster, entropy_bits or 0), (Endpoint(url),), told=entropy_bits is not None)


def settled(name: ArchiveName, stores: Sequence[ObjectStore]) -> ArchiveName:
    """The archive with the number of entropy bits that its layouts say, where nobody said one.

    Args:
        name: of the archive.
        stores: of its endpoints.

    Raises:
        QueryError: a layout says another number than the one that was said.
        CorruptData, NewerFormat: a layout that is none, or is a later release's.
        StoreUnavailable, AccessDenied, BucketMissing: a store's.
    """
    if name.told:
        for store in stores:
            check_layout(store, name.keys, name.option)
        return name
    (store,) = stores  # only a file names several
    return replace(name, keys=keys_of(store, name.keys.cluster, None))


def _properties_file(config: Path, cluster: str | None) -> Path:
    """The one file that `--config` and `--cluster` name.

    Raises:
        ConfigurationError: there is none, or several, or another one.
    """
    if config.is_dir():
        found = sorted(config.glob(f"*{SUFFIX}"))
        if cluster is not None:
            return config / f"{cluster}{SUFFIX}"
        if len(found) == 1:
            return found[0]
        told = f"it holds {some(path.name for path in found)}: choose with --cluster" if found else "it holds none"
        raise ConfigurationError(str(config), [f"one <clusterId>{SUFFIX} is expected; {told}"])
    if config.suffix != SUFFIX or not is_cluster_id(config.stem):
        raise ConfigurationError(str(config), [f"a file named <clusterId>{SUFFIX}, or its directory, is expected"])
    if cluster is not None and cluster != config.stem:
        raise ConfigurationError(
            SOURCE, [f"--cluster={cluster}: the file is that of {config.stem}; drop one of the two"]
        )
    return config


class Archive:
    """An archive whose stores are open; made by `open_archive`.

    Attributes:
        keys: how its keys are made.

    Args:
        name: of the archive.
        stores: of its endpoints, in their order.
        warn: takes a sentence that an operator should know.
    """

    def __init__(self, name: ArchiveName, stores: Sequence[ObjectStore], warn: Callable[[str], None]) -> None:
        self.keys = name.keys
        self._name = name
        self._stores = tuple(stores)
        self._warn = warn

    def topics(
        self, asked: Sequence[str] = (), partitions: frozenset[int] | None = None, incarnation: str = NEWEST
    ) -> tuple[HeldTopic, ...]:
        """The topics that are asked for, each with a snapshot of its partitions, by name.

        Args:
            asked: names and regular expressions; none: all topics.
            partitions: which of each; None: all.
            incarnation: as `parse_incarnation` says.

        Raises:
            QueryError: the archive is not there under this width, or has no such topic, partition or incarnation.
            CorruptData: a commit, `log.start` or list of incarnations that is none.
            StoreUnavailable, AccessDenied, BucketMissing: a store's.
        """
        incarnation = _checked_incarnation(incarnation)
        found: list[HeldTopic] = []
        known: set[str] = set()
        choose = chooser(asked)
        for endpoint, store in zip(self._name.endpoints, self._stores, strict=True):
            listed = self._listed(endpoint, store)
            known |= listed.keys()
            wanted = {name: listed[name] for name in sorted(listed) if choose(name)}
            read = read_topics(store, self.keys, wanted, incarnation)
            found += [HeldTopic(store, topic) for topic in read.values()]
        if not known:
            raise QueryError(self._nothing())
        held = {entry.topic.name for entry in found}
        for text in asked:
            if not any(chooser([text])(name) for name in held):
                hint = nearest(text, known) or f"; it holds {some(known)}"
                raise QueryError(f"topic {text}: cluster {self.keys.cluster} in {self._locations()} has none{hint}")
        found.sort(key=lambda entry: entry.topic.name)
        return tuple(found if partitions is None else _only(found, partitions))

    def store_of(self, topic: str) -> ObjectStore:
        """The store where a topic lies, or would lie.

        Raises:
            QueryError: the file places the topic nowhere.
        """
        for endpoint, store in zip(self._name.endpoints, self._stores, strict=True):
            if self._name.lies_in(topic, endpoint):
                return store
        raise QueryError(f"topic {topic}: the file places it in none of {self._locations()}")

    def _listed(self, endpoint: Endpoint, store: ObjectStore) -> dict[str, TopicDirectories]:
        store.check()
        listed = list_topics(store, self.keys)
        strangers = [name for name in listed if not self._name.lies_in(name, endpoint)]
        if strangers:
            self._warn(
                f"{store.location} holds objects of {some(strangers)}, which the file places elsewhere: left out"
            )
        return {name: directories for name, directories in listed.items() if name not in strangers}

    def _nothing(self) -> str:
        if len(self._stores) == 1:
            return nothing_under(self._stores[0], self.keys, self._name.option)
        return f"{self._locations()} hold nothing of a cluster {self.keys.cluster} under these entropy bits"

    def _locations(self) -> str:
        return ", ".join(store.location for store in self._stores)


@contextmanager
def open_archive(name: ArchiveName, warn: Callable[[str], None]) -> Iterator[Archive]:
    """The archive's stores, opened; they are closed at the end of the block.

    Raises:
        QueryError, CorruptData, NewerFormat, StoreUnavailable, AccessDenied, BucketMissing: as `settled`.
    """
    with ExitStack() as stores:
        opened = [stores.enter_context(open_store(endpoint.location, endpoint.options)) for endpoint in name.endpoints]
        yield Archive(settled(name, opened), opened, warn)


def parse_partitions(text: str | None) -> frozenset[int] | None:
    """The numbers in `0,3-5`; None for no word on it.

    Raises:
        ConfigurationError: it is no such list.
    """
    if text is None:
        return None
    if _PARTITIONS.fullmatch(text.replace(" ", "")):
        bounds = [part.partition("-") for part in text.replace(" ", "").split(",")]
        ranges = [range(int(low), int(high or low) + 1) for low, _, high in bounds]
        if all(len(numbers) for numbers in ranges) and sum(map(len, ranges)) <= 1_000_000:
            return frozenset(number for numbers in ranges for number in numbers)
    raise ConfigurationError(SOURCE, [f"--partition={text}: numbers and ranges are expected, as in 0,3-5"])


def _checked_incarnation(text: str) -> str:
    try:
        return parse_incarnation(text)
    except ValueError as error:
        raise ConfigurationError(SOURCE, [f"--incarnation={text}: {error}"]) from error


def chooser(asked: Sequence[str]) -> Callable[[str], bool]:
    """Whether a topic is one of those that are asked for."""
    names = {text for text in asked if is_topic_name(text)}
    patterns = []
    for text in asked:
        if text not in names:
            try:
                patterns.append(re.compile(text))
            except re.error as error:
                raise ConfigurationError(SOURCE, [f"topic {text!r} is no regular expression: {error}"]) from error
    return lambda name: not asked or name in names or any(pattern.fullmatch(name) for pattern in patterns)


def _only(topics: Sequence[HeldTopic], partitions: frozenset[int]) -> Iterator[HeldTopic]:
    """The partitions that are asked for; each of them is one of some topic, or they are refused."""
    held = {catalog.keys.partition.partition for entry in topics for catalog in entry.topic.partitions}
    if held and (missing := partitions - held):
        names = some(entry.topic.name for entry in topics)
        told = f"the store holds no partition {some(map(str, sorted(missing)))} of topic {names}"
        raise QueryError(f"{told}, only {some(map(str, sorted(held)))}")
    for entry in topics:
        chosen = tuple(catalog for catalog in entry.topic.partitions if catalog.keys.partition.partition in partitions)
        yield replace(entry, topic=replace(entry.topic, partitions=chosen))
