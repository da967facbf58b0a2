"""Options of a command line that name an archive.

`--config` names an archive by a cluster's properties file, the one of the agents; `--url` and `--cluster` name it
without a file. Without `--config` and `--url`, the variable `TS_UPLOADER_CONFIG` has the value of `--config`.

A file may place topics in several locations. A command then reads in each location only the topics that the file places
there.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ts_common.archive.layout import check_layout, keys_of
from ts_common.archive.object_keys import ClusterKeys, partition_of
from ts_common.config.keys import ENTROPY_BITS_KEY
from ts_common.errors import ConfigurationError
from ts_common.model import is_cluster_id
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import parse_location
from ts_common.store.options import Endpoint
from ts_common.wording import some
from ts_reader.options.given import Given
from ts_reader.options.scan_options import CLUSTER_ID, ENTROPY_BITS, LOCATION_URL
from ts_reader.query.query import Wording
from ts_reader.reading.cluster_file import STUCK_AFTER_SECONDS, SUFFIX, ClusterFile, read_cluster_file

SOURCE: Final = "command line"
CONFIG_VARIABLE: Final = "TS_UPLOADER_CONFIG"
NAMES: Final = {"location": "--url", "cluster": "--cluster", "prefix_entropy_bits": "--entropy-bits"}
_WORDING: Final = Wording(names=NAMES, has_texts=True)


@dataclass(frozen=True, slots=True)
class ArchiveName:
    """An archive as the command line names it.

    Attributes:
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

    def whole(self, text: str) -> str:
        """Return a text with all keys of the cluster as the bucket has them: with the base prefix of their location."""
        return self.keys.in_text.sub(lambda key: self._base(key[1] or "") + key[0], text)

    def _base(self, directory: str) -> str:
        partition = partition_of(directory)
        topic = directory if partition is None else partition.topic
        endpoint = next((each for each in self.endpoints if self.lies_in(topic, each)), self.endpoints[0])
        return parse_location(endpoint.location).base

    def lies_in(self, topic: str, endpoint: Endpoint) -> bool:
        """Return whether readers read a topic from this location."""
        if self.file is None:
            return True
        try:
            return self.file.endpoint(topic) == endpoint
        except ConfigurationError:
            return False


def name_archive(
    config: Path | None, url: str | None, cluster: str | None = None, entropy_bits: int | None = None
) -> ArchiveName:
    """Return the archive that the options name.

    Raises:
        ConfigurationError: the options name no archive or contradict each other; it lists all problems.
    """
    option = "--config"
    if config is None and url is None and (text := os.environ.get(CONFIG_VARIABLE)):
        config, option = Path(text), CONFIG_VARIABLE
    if config is not None:
        if url is not None or entropy_bits is not None:
            raise ConfigurationError(
                SOURCE, [f"{option} sets the location and the entropy bits: remove --url and --entropy-bits"]
            )
        file = read_cluster_file(_properties_file(config, cluster, option))
        endpoints = sorted(file.endpoints(), key=lambda endpoint: endpoint.location)
        return ArchiveName(file.keys, tuple(endpoints), file)
    values = {"location": url, "cluster": cluster, "prefix_entropy_bits": entropy_bits}
    given = Given({name: value for name, value in values.items() if value is not None}, SOURCE, _WORDING)
    if url is None:
        given.problems.append(
            f"no archive is named: give --config FILE_OR_DIR or the variable {CONFIG_VARIABLE}, or --url with --cluster"
        )
    elif cluster is None:
        given.problems.append(
            f"--cluster is missing: --url requires it; `tsctl ls --url {url}` lists the clusters there"
        )
    location, cluster, bits = given.read(LOCATION_URL), given.read(CLUSTER_ID), given.read(ENTROPY_BITS)
    given.check()
    return ArchiveName(ClusterKeys(str(cluster), bits or 0), (Endpoint(str(location)),), bits_are_set=bits is not None)


def settled(name: ArchiveName, stores: Sequence[ObjectStore]) -> ArchiveName:
    """Return the archive with the number of entropy bits from its layout, unless an option or file sets it.

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


def _properties_file(config: Path, cluster: str | None, option: str) -> Path:
    """Return the file that `option` and `--cluster` name.

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
            SOURCE, [f"--cluster={cluster}: {option} names the file of {config.stem}; remove one of the two"]
        )
    return config
