"""Metadata of topics that the archive has or lacks."""

from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from tests.endpoint.clients import call, module_of, run, serving
from tests.made_archive import MadeArchive, batches
from ts_endpoint.protocol.versions import Api

TYPES = module_of(Api.METADATA)


def described(directory: Path, names: list[str], *, with_operations: bool) -> list[dict[str, Any]]:
    """Return the topics of a reply, of an archive with topic `t`."""
    archive = MadeArchive(directory / "archive")
    archive.put_segment("t", 0, batches((0, 5)))
    archive.commit("t", 5)
    wanted = tuple(TYPES.MetadataRequestTopic(topic_id=None, name=name) for name in names)
    body = TYPES.MetadataRequest(topics=wanted, include_topic_authorized_operations=with_operations)

    async def read() -> list[dict[str, Any]]:
        with serving(archive.store, archive.keys) as served:
            found: list[dict[str, Any]] = (await call(served, Api.METADATA, body))["topics"]
            return found

    found: list[dict[str, Any]] = run(read)
    return found


def test_a_topic_of_mirror_makers_offset_syncs_is_invalid(tmp_path: Path) -> None:
    """Its producer then reports an error at once; it would wait a minute, for each record, for an unknown topic."""
    found = described(tmp_path, ["mm2-offset-syncs.target.internal", "unknown"], with_operations=False)
    errors = {each["name"]: each["error_code"] for each in found}
    assert errors == {
        "mm2-offset-syncs.target.internal": ErrorCode.invalid_topic_exception,
        "unknown": ErrorCode.unknown_topic_or_partition,
    }


def test_what_a_user_may_do_is_returned_if_requested(tmp_path: Path) -> None:
    """Read, describe and describe configs; Kafka's value for none otherwise."""
    found = [
        described(tmp_path / str(wanted), ["t"], with_operations=wanted)[0]["topic_authorized_operations"]
        for wanted in (True, False)
    ]
    assert found == [1 << 3 | 1 << 8 | 1 << 10, -(1 << 31)]
