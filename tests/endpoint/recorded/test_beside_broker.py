"""Requests that six clients sent, to a broker and to an endpoint over its archive: each difference is explained."""

from collections.abc import Iterator, Sequence
from concurrent.futures import wait

import pytest

from dev.local.kafka.cluster import LocalCluster, Record
from dev.local.oracle import Isolation
from tests.endpoint.kafka_clients.interface import Client
from tests.endpoint.kafka_clients.programs import by_node
from tests.endpoint.recorded.__main__ import record
from tests.endpoint.recorded.beside import Beside, beside_of, compared
from tests.endpoint.recorded.built import built
from tests.endpoint.recorded.comparison import Difference
from tests.endpoint.recorded.explained import unexplained
from tests.endpoint.recorded.frames import Recording, read_recording
from tests.endpoint.recorded.recorder import Recorder
from tests.endpoint.recorded.sessions import SESSIONS
from tests.endpoint.recorded.topics import OPEN, PLAIN, PREFIX, TX, fill
from tests.oracle_topics.shipped import ISOLATIONS
from ts_endpoint.protocol.versions import Api


@pytest.fixture(scope="module")
def beside(live_broker: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """Fill topics of a broker, and serve its bytes."""
    opened = fill(live_broker)
    with beside_of(live_broker, tmp_path_factory.mktemp("recorded")) as found:
        yield found
    del opened


def of(found: Sequence[Difference]) -> str:
    """Return each difference once."""
    return "\n".join(["not explained:", *sorted({str(each) for each in found})])


def test_replies_to_recorded_requests_are_those_of_the_broker(beside: Beside) -> None:
    """The same bytes where both define them; the list of explanations has each other difference, and nothing more."""
    recordings = [*map(read_recording, SESSIONS), built()]
    found = [each for recording in recordings for each in compared(beside, recording)]
    left, needless = unexplained(found)
    assert not left, of(left)
    assert not needless, "\n".join(["explanations of no difference:", *map(repr, needless)])


@pytest.mark.full
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("client", ["kafkajs", "platformatic"])
def test_a_client_of_node_reads_transactions_as_from_the_broker(
    beside: Beside, client: str, isolation: Isolation
) -> None:
    """Every field of each record, in order, of three interleaved producers and of an open transaction."""
    reading = Client(client, by_node(client))
    broker, endpoint = (reading.read(each.address, [TX, OPEN], isolation) for each in (beside.broker, beside.endpoint))
    assert broker[TX]
    assert endpoint == broker


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Beside, dict[str, Recording]]]:
    """Record each client before a broker that was elected again, and serve its bytes."""
    cluster = LocalCluster(mode="kraft", name="recorded-again")
    with Recorder(cluster.brokers[1]) as recorder, cluster:
        opened = fill(cluster)
        cluster.brokers[1].restart()
        cluster.produce(PLAIN, [Record(b"of a later epoch")] * 10, partition=0)
        found = {client: record(cluster, recorder, client) for client in SESSIONS}
        groups = [f"{PREFIX}{client}" for client in SESSIONS]
        admin = cluster.admin()
        wait(admin.delete_consumer_groups(groups).values(), 60)
        with beside_of(cluster, tmp_path_factory.mktemp("recorded-again")) as beside:
            yield beside, found
        del opened


@pytest.mark.full
@pytest.mark.parametrize("client", SESSIONS)
def test_a_client_of_today_sends_what_was_recorded(recorded: tuple[Beside, dict[str, Recording]], client: str) -> None:
    """The same kinds and versions; and replies to these requests, with several leader epochs, are explained too."""
    beside, found = recorded
    # A session of a few seconds has a heartbeat or not.
    kinds = found[client].kinds ^ read_recording(client).kinds
    assert {kind for kind in kinds if kind[0] is not Api.HEARTBEAT} == set()
    left, _ = unexplained(compared(beside, found[client]))
    assert not left, of(left)


@pytest.mark.full
def test_replies_to_built_requests_are_those_of_a_broker_that_was_elected_again(
    recorded: tuple[Beside, dict[str, Recording]],
) -> None:
    """A last fetched epoch that ended gets the place where it did."""
    # The last test here: of its group, whose offsets are deleted, the broker still lists the name.
    left, _ = unexplained(compared(recorded[0], built()))
    assert not left, of(left)
