"""Runs `tsctl verify` on an archive and returns its findings."""

import time

import pytest

from tests.made_archive import batches, steps
from tests.spark.archives import Archive
from ts_common.archive.object_keys import ClusterKeys
from tsctl.verify.findings import Finding
from tsctl.verify.segment_check import Depth
from tsctl.verify.verifier import Scope, Verified, Verifier

READING = pytest.mark.parametrize("depth", [Depth.HEADERS, Depth.FULL])


def put(archive: Archive, start: int, end: int, *, epoch: int = 0, topic: str = "t", variant: bool = False) -> None:
    log = batches(*steps(start, end), epoch=epoch)
    archive.put_segment(topic, start, log, index=b"", timeindex=b"", variant=variant)


def verify(
    archive: Archive, depth: Depth, *, in_flight_seconds: float = 0, keys: ClusterKeys | None = None
) -> Verified:
    scope = Scope(depth, in_flight_seconds=in_flight_seconds)
    verifier = Verifier(archive.store, keys or archive.keys, scope, clock=lambda: time.time() + 60)
    verifier.find()
    return verifier.run()


def codes(found: Verified) -> list[str]:
    return sorted(finding.kind.code for finding in found.all_findings)


def only(found: Verified) -> Finding:
    assert len(found.all_findings) == 1, [(f.kind.code, f.detail) for f in found.all_findings]
    return found.all_findings[0]
