"""Archives of one person's records next to those of others, and the agents that may write to them."""

from pathlib import Path

from tests.common.log_format.build import batch, record
from tests.made_archive import CLUSTER, MadeArchive, batches, steps
from ts_common.archive.high_watermarks import Ends
from ts_common.format_version import FORMATS

PERSON = b"canary-5d0c91f2"


def put_agent(archive: MadeArchive, broker: int = 1) -> None:
    """Write what an agent of this release reports."""
    ends = Ends(broker, 1, {}, "0.4.0", FORMATS)
    archive.store.put(archive.keys.ends_of(broker), ends.encode())


def made_archive(location: str | Path, cluster: str = CLUSTER) -> MadeArchive:
    """Return an archive of two partitions of topic `t`, with one record of the person each, at offset 30."""
    made = MadeArchive(location, cluster=cluster)
    put_agent(made)
    log = batches(*steps(0, 30)) + batch(30, [record(0, PERSON, b'{"name":"' + PERSON + b'"}')])
    for partition in (0, 1):
        made.put_segment("t", 0, log, partition=partition)
        made.commit("t", 31, partition=partition)
    return made


def named(archive: MadeArchive) -> tuple[str, ...]:
    """Return the options that name an archive."""
    return "--url", archive.location, "--cluster", CLUSTER
