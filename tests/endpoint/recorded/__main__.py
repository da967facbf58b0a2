"""Record what six clients send, and write the files of `requests/`.

`python -m tests.endpoint.recorded [CLIENT ...]` runs a broker of Kafka 4.1; it fetches and builds what is missing.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

from dev.local.kafka.cluster import LocalCluster
from tests.endpoint.recorded.frames import Recording, distinct
from tests.endpoint.recorded.recorder import Recorder
from tests.endpoint.recorded.sessions import SESSIONS
from tests.endpoint.recorded.topics import PREFIX, TOPICS, fill, topic_id


@contextmanager
def recorded_broker() -> Iterator[tuple[LocalCluster, Recorder]]:
    """Run a broker with the topics, which clients reach through a recorder."""
    cluster = LocalCluster(mode="kraft", name="recorded")
    with Recorder(cluster.brokers[1]) as recorder, cluster:
        open_producer = fill(cluster)
        yield cluster, recorder
        del open_producer


def record(cluster: LocalCluster, recorder: Recorder, client: str) -> Recording:
    """Run the session of a client, and return what it sent."""
    recorder.taken()
    SESSIONS[client](recorder.address, f"{PREFIX}{client}")
    frames, unserved = recorder.taken()
    if unserved:
        print(f"{client}: not served: {sorted(unserved)}")  # noqa: T201  (output of the command)
    ids: dict[UUID, str] = {topic_id(cluster, topic): topic for topic in TOPICS}
    return Recording(client, ids, distinct(frames))


def main(clients: Iterable[str]) -> None:
    """Record the clients of these names, or all."""
    with recorded_broker() as (cluster, recorder):
        for client in clients or SESSIONS:
            found = record(cluster, recorder, client)
            found.write()
            print(f"{client}: {len(found.frames)} requests of {len(found.kinds)} kinds")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
