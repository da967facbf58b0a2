"""The stores of the archive, open as long as the process."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ts_common.errors import ConfigurationError
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store
from ts_common.store.wrappers.counted import CountedStore, StoreCounts
from ts_common.store.wrappers.request_rate import Pace, PacedStore
from ts_endpoint.topics.catalog import Location
from ts_reader.options.archive_name import ArchiveName, settled

_THREADS: Final = 4  # of asynchronous puts, which only groups could use


@dataclass(frozen=True, slots=True)
class Stores:
    """The archive's stores.

    Attributes:
        name: of the archive, with the entropy bits of its layout.
        locations: each with its store, in the order of the endpoints.
        counts: requests of all stores.
        pace: the gate of all requests, which a store that throttles closes in part.
    """

    name: ArchiveName
    locations: Sequence[Location]
    counts: StoreCounts
    pace: Pace

    def locate(self, topic: str) -> Location | None:
        """Return where a topic is; None if the cluster's file places it nowhere."""
        if self.name.file is None:
            return self.locations[0]
        try:
            wanted = self.name.file.endpoint(topic)
        except ConfigurationError:
            return None
        places = zip(self.name.endpoints, self.locations, strict=True)
        return next((location for endpoint, location in places if endpoint == wanted), None)

    def close(self) -> None:
        """End waits for a store that throttles, and close all stores."""
        self.pace.close()
        for location in self.locations:
            location.store.close()


def open_stores(name: ArchiveName) -> Stores:
    """Open the stores of an archive, and read its layout.

    Raises:
        ConfigurationError, QueryError, CorruptData, NewerFormat: the archive is not as its options describe it.
        StoreUnavailable, AccessDenied, BucketMissing: a store does not answer, or rejects this identity.
    """
    counts, pace = StoreCounts(), Pace()
    opened: list[ObjectStore] = []
    for endpoint in name.endpoints:
        counted = CountedStore(open_store(endpoint.location, endpoint.options), counts)
        opened.append(PacedStore(counted, pace, threads=_THREADS))
        opened[-1].check()
    whole = settled(name, opened)
    return Stores(whole, [Location(store, whole.keys) for store in opened], counts, pace)
