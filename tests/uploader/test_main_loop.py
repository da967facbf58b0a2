"""The main loop: what it passes on of the messages in its inbox."""

import queue

from tests.uploader.tracking.messages import listing
from ts_common.config.cluster_config import OffsetReset
from ts_common.model import TopicPartition
from ts_uploader.log_dirs.segment_sizes import SegmentSizes
from ts_uploader.main_loop import Inbox, MainLoop, StopRequest
from ts_uploader.retention.known_settings import Settings
from ts_uploader.retention.topic_retention import BrokerDefaults
from ts_uploader.status.last_errors import LastErrors
from ts_uploader.tracking.contained_tracker import ContainedTracker
from ts_uploader.workers.task_queues import TaskQueues


def test_the_leadership_source_gets_a_hint_of_each_directory_that_was_listed() -> None:
    """Its own looks at ten thousand checkpoints are far apart."""
    inbox: Inbox = queue.SimpleQueue()
    looked: list[TopicPartition] = []
    loop = MainLoop(
        inbox,
        ContainedTracker(OffsetReset.EARLIEST),
        TaskQueues(lambda _: None),
        Settings(BrokerDefaults()),
        SegmentSizes(),
        LastErrors(),
        watch=lambda _: None,
        look_at=looked.append,
        reload=lambda: None,
        tick=lambda: None,
    )
    for message in (listing(0), listing(0, 100), StopRequest("the end")):
        inbox.put(message)
    loop.run()
    assert looked == [listing(0).partition] * 2
