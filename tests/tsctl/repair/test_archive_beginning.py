"""When an archive began again: what the versions of `offset.wm`, `log.start` and the segments prove."""

import pytest

from ts_common.archive.object_keys import PartitionKeys
from ts_common.model import TopicPartition
from ts_common.store.contract import ObjectInfo, ObjectVersion
from tsctl.repair.archive_beginning import find_beginning

KEYS = PartitionKeys(TopicPartition("t", 0), "c/t-0/")
FIRST, SECOND = f"{0:020d}.log", f"{100:020d}.log"
# For each name the times of its versions, the newest first; a negative one is a delete marker.
WIPED = {FIRST: (60, -40, 10), SECOND: (61, -40, 20), "log.start": (60, -41, 5), "offset.wm": (65, -42, 20, 10)}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({FIRST: (10,), SECOND: (-40, 20), "log.start": (5,), "offset.wm": (20, 10)}, None),
        (WIPED, 42),
        ({**WIPED, "offset.wm": (65, 20, 10)}, 41),  # one mark alone was deleted by hand
        ({**WIPED, SECOND: (61, -43, 20)}, 42),  # deleted after offset.wm
        ({FIRST: (10,), SECOND: (-40, 20), "log.start": (5,), "offset.wm": (65, -42, 20)}, None),  # offset.wm alone
        ({FIRST: (10,), SECOND: (-40, 20), "log.start": (60, -42, 5), "offset.wm": (20,)}, None),  # log.start alone
        ({FIRST: (-70, 10), "offset.wm": (65, -42, 20)}, None),  # deleted since
        ({**WIPED, "offset.wm": (95, -90, 65, -42, 20)}, 42),  # offset.wm alone, after all of it
        ({FIRST: (42,), "offset.wm": (65, -42, 20)}, 42),  # in the same second: doubt
        ({FIRST: (10,), "log.start": (-42, 5), "offset.wm": (20,)}, None),  # not written again
    ],
)
def test_an_archive_that_was_deleted_as_a_whole_began_again(
    stored: dict[str, tuple[int, ...]], expected: float | None
) -> None:
    """One deleted mark proves nothing while segments from before it are left."""

    def versions(prefix: str) -> list[ObjectVersion]:
        return [
            ObjectVersion(ObjectInfo(KEYS.prefix + name, 1, "e", abs(time)), str(time), time is times[0], time < 0)
            for name, times in sorted(stored.items())
            for time in times
            if (KEYS.prefix + name).startswith(prefix)
        ]

    assert find_beginning(versions, KEYS) == expected
