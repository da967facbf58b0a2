"""An archive in a bucket with versions, and what `tsctl repair` makes of it."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dev.local.waiting import wait_for
from tests.made_archive import MadeArchive, batches, steps
from tests.tsctl.running import Run
from ts_common.archive.catalog import PartitionCatalog, read_catalog
from ts_common.archive.commit import Commit
from ts_common.archive.object_keys import SegmentName
from ts_common.archive.repair_requests import answer_key, unanswered
from ts_common.store.contract import ObjectStore
from tsctl.repair.from_versions import PartitionVersions

SHIPPED = "1700000000000"
EPOCH = 4


def versions_of(store: ObjectStore, catalog: PartitionCatalog, refused: list[str] | None = None) -> PartitionVersions:
    """Return the versions of a partition, as a run of the command begins with them."""
    assert isinstance(catalog.commit, Commit)
    erased = catalog.read_erased(store)
    refused = [] if refused is None else refused
    return PartitionVersions(store, catalog, catalog.commit, erased, dry_run=False, refused=refused.append)


class Versioned:
    """An archive of segments `[0, 100) [100, 200) [200, 300)` of `t-0`, as shipped, in a bucket with versions."""

    def __init__(self, location: str, run: Run) -> None:
        self.made = MadeArchive(location)
        self.store = self.made.store
        self.keys = self.made.partition("t")
        self._run = run
        for base in (0, 100, 200):
            self.made.put_segment("t", base, batches(*steps(base, base + 100), epoch=EPOCH), index=b"", timeindex=b"")
            key = self.key(base)
            self.store.put(key, self.store.get(key)[0], metadata={**self.metadata(key), "ts-shipped": SHIPPED})
        self.made.commit("t", 300, epochs=((EPOCH, 0),), highest_base=200)

    def key(self, base: int, suffix: str = ".log") -> str:
        return self.keys.segment(SegmentName(base), suffix)

    def metadata(self, key: str) -> dict[str, str]:
        return dict(self.store.head(key).metadata)

    def damage(self, key: str) -> None:
        data = self.store.get(key)[0]
        self.store.put(key, data[:-1] + bytes([data[-1] ^ 1]), metadata=self.metadata(key))

    def tsctl(self, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        place = ("--url", self.made.location, "--cluster", "prod", "--entropy-bits", "0")
        ended = self._run(command, *place, "--depth", "full", "--json", *arguments)
        return ended.code, json.loads(ended.out)

    def repair(self, *arguments: str) -> tuple[int, list[tuple[str, int, int, list[str]]]]:
        """The code, and of each repair its status, range and the names of its objects."""
        code, document = self.tsctl("repair", *(() if "--wait" in arguments else ("--wait", "0s")), *arguments)
        names = [
            [key.removeprefix(f"base/{self.keys.prefix}")[18:] for key in each["objects"]]
            for each in document["repairs"]
        ]
        rows = [(each["status"], each["from"], each["to"]) for each in document["repairs"]]
        return code, [(*row, name) for row, name in zip(rows, names, strict=True)]

    def answered(self, content: bytes) -> tuple[int, list[tuple[str, int, int, list[str]]]]:
        """As `repair` of one range, with this answer of an agent."""

        def answer() -> None:
            wait_for(self.requests, "a request", 30)
            (id_,) = self.requests()
            self.store.put(answer_key(self.made.keys, id_), content)

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(answer)
            found = self.repair("--no-versions", "--wait", "30s")
            done.result()
        return found

    def assert_whole(self) -> None:
        code, document = self.tsctl("verify")
        assert (code, {each["severity"] for each in document["findings"]} - {"information"}) == (0, set())

    def requests(self) -> list[str]:
        return [id_ for id_, _ in unanswered(self.store, self.made.keys)]

    def versions(self) -> PartitionVersions:
        """The versions of the partition, as a run of the command begins with them."""
        return versions_of(self.store, read_catalog(self.store, self.keys))

    def logs(self) -> list[str]:
        """The names of the `.log` objects without leading zeros, in order."""
        names = [info.key.removeprefix(self.keys.prefix) for info in self.store.list(self.keys.prefix)]
        return [name[17:] for name in names if name.endswith(".log")]
