"""An agent of a later release, as a store sees it: its objects have more fields than this release reads.

For `--environment-provider tests.uploader.later_release:Later`.
"""

import json
from collections.abc import Callable

from ts_common.archive.commit import Commit
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.segment_metadata import SegmentMetadata
from ts_uploader.environment import Environment, ServerPropertiesEnvironment

MARK = "colour"  # a field that no release has
_commit: Callable[[Commit], bytes] = Commit.encode
_incarnations: Callable[[Incarnations], bytes] = Incarnations.encode
_metadata: Callable[[SegmentMetadata], dict[str, str]] = SegmentMetadata.encode


class Later(ServerPropertiesEnvironment):
    """The broker's own file, as ever; and from then on this process is of the later release."""

    def load(self) -> Environment:
        """See the contract."""
        Commit.encode = encode_commit  # type: ignore[method-assign]
        Incarnations.encode = encode_incarnations  # type: ignore[method-assign]
        SegmentMetadata.encode = encode_metadata  # type: ignore[method-assign]
        return super().load()


def encode_commit(self: Commit) -> bytes:
    """With a field more in the second line."""
    first, _, second = _commit(self).partition(b"\n")
    return first + b"\n" + json.dumps({**json.loads(second), MARK: "green"}).encode() + b"\n"


def encode_incarnations(self: Incarnations) -> bytes:
    """Add a field to the list, and to each entry."""
    fields = json.loads(_incarnations(self))
    rows = [{**row, MARK: "green"} for row in fields["incarnations"]]
    return json.dumps({"incarnations": rows, MARK: "green"}).encode()


def encode_metadata(self: SegmentMetadata) -> dict[str, str]:
    """With a field more."""
    return {**_metadata(self), f"ts-{MARK}": "green"}
