"""Hosts with installed releases."""

from pathlib import Path

from dev.local.kafka.cluster import wait_for
from tests.faults.fleet.later import LATER, is_later
from tests.faults.leaders import PATIENCE
from tests.operator.broker_host import Host
from tests.uploader.beside import Archive


def host_beside(archive: Archive, directory: Path, **units: object) -> Host:
    """A host of broker 1 with release 0.1.0 installed, and a later one unpacked."""
    return Host(
        directory / "host",
        archive.cluster.logs,
        archive.s3.environment(),
        archive.cluster.brokers[1].server_properties,
        LATER,
        units,  # type: ignore[arg-type]
    )


def wait_release(archive: Archive, *, later: bool) -> None:
    """Wait until the release has written the commit, and moved it."""
    archive.wait_for_offset(archive.next_offset() + 1, seconds=PATIENCE)
    wait_for(
        lambda: is_later(archive, 0) == later, f"a commit of the {'later' if later else 'first'} release", PATIENCE
    )
