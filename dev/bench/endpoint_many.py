"""`python -m dev.bench.endpoint_many`: an endpoint with 10,000 partitions and 1,000 connections that wait.

An archive in a directory: a hundred topics of a hundred partitions, one small segment each. Measured are

- the requests to the store for the first Metadata of all topics;
- the memory after a client has read every partition, above that of a process with a tiny archive;
- the memory of each idle connection that has sent ApiVersions and Metadata of one topic.

The goals: under 250 MB above the imports, under 64 KB for a connection, no request for a partition. Exits with 1 if one
is missed; `--no-gate` only prints.
"""

import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient

from dev.bench.measuring.endpoint_runs import EndpointProcess
from dev.bench.measuring.made_archives import CLUSTER, TIME, ship, small_records, template_segment
from dev.bench.measuring.pairs import Goal, exit_code, gate_parser, print_goals, print_table
from dev.bench.measuring.raw_fetches import RawReader, boundaries_of
from ts_common.archive.incarnations import Incarnations
from ts_common.archive.object_keys import ClusterKeys
from ts_common.store.factory import open_store

MOST_MEMORY, MOST_OF_CONNECTION = 250e6, 64e3
_OPERATIONS = ("get", "head", "list")
_RECORDS = 5
_SEGMENT = template_segment(small_records(_RECORDS), 0, _RECORDS, 4, TIME, _RECORDS)


def fill(location: str, topics: int, partitions: int) -> None:
    """Put topics with one segment in each partition, and the list of incarnations that agents write."""
    with open_store(location) as store:

        def put(topic: int) -> None:
            name = f"topic-{topic:03d}"
            for number in range(partitions):
                ship(store, name, [(0, _SEGMENT)], 4 * _RECORDS, number)
            keys = ClusterKeys(CLUSTER)
            store.put(keys.incarnations(name), Incarnations(name).opened("A" * 21 + "Q", 0, keys).encode())

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(put, range(topics)))


def requests(endpoint: EndpointProcess) -> float:
    """Return the requests to the store so far."""
    total = 0.0
    for operation in _OPERATIONS:
        total += endpoint.metric(f'ts_endpoint_store_requests_total{{operation="{operation}"}}')
    return total


def list_all(endpoint: EndpointProcess) -> int:
    """Return the number of partitions that Metadata of all topics has."""
    metadata = AdminClient({"bootstrap.servers": endpoint.bootstrap}).list_topics(timeout=60)
    return sum(len(topic.partitions) for topic in metadata.topics.values())


def read_all(endpoint: EndpointProcess, topics: int, partitions: int) -> None:
    """Read every partition once."""
    where = boundaries_of([_SEGMENT[0]])
    for topic in range(topics):
        reader = RawReader(endpoint.address, f"topic-{topic:03d}", dict.fromkeys(range(partitions), where))
        reader.read_all()
        reader.close()


def connect(endpoint: EndpointProcess, count: int) -> list[socket.socket]:
    """Open connections that have sent one request each."""
    opened = []
    request = bytes.fromhex("0012 0000 00000001 0002 6964".replace(" ", ""))  # ApiVersions of version 0
    for _ in range(count):
        connected = socket.create_connection(endpoint.address)
        connected.sendall(len(request).to_bytes(4, "big") + request)
        length = int.from_bytes(connected.recv(4, socket.MSG_WAITALL), "big")
        connected.recv(length, socket.MSG_WAITALL)
        opened.append(connected)
    return opened


def main() -> int:
    """Fill, measure, report."""
    arguments = gate_parser(__doc__)
    arguments.add_argument("--topics", type=int, default=100)
    arguments.add_argument("--partitions", type=int, default=100, help="of each topic")
    arguments.add_argument("--connections", type=int, default=1000)
    options = arguments.parse_args()
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    with ExitStack() as ending:
        directory = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="bench-many.", dir=build)))
        for name, topics, partitions in (("tiny", 1, 1), ("many", options.topics, options.partitions)):
            (directory / name).mkdir()
            fill((directory / name).as_uri(), topics, partitions)
        limit = ["--max-connections", str(options.connections + 100)]
        limit += ["--max-connections-per-host", str(options.connections + 100)]
        tiny, many = (
            ending.enter_context(
                EndpointProcess((directory / name).as_uri(), CLUSTER, directory / f"{name}.log", limit)
            )
            for name in ("tiny", "many")
        )
        list_all(tiny)
        before = requests(many)
        found = list_all(many)
        sent = requests(many) - before
        if found != options.topics * options.partitions:
            raise RuntimeError(f"Metadata has {found} partitions; {options.topics * options.partitions} are expected")
        read_all(tiny, 1, 1)
        read_all(many, options.topics, options.partitions)
        memory = many.resident() - tiny.resident()
        alone = many.resident()
        opened = connect(many, options.connections)
        for each in opened:
            ending.callback(each.close)
        of_connection = (many.resident() - alone) / options.connections
    print_table(
        ("", "partitions", "requests at start", "of Metadata", "memory, MB", "a connection, KB"),
        [("", found, int(before), int(sent), memory / 1e6, of_connection / 1e3)],
    )
    print()
    goals = [
        Goal("requests of Metadata for a partition", sent / found, 0.01, at_least=False),
        Goal("memory above the imports", memory / 1e6, MOST_MEMORY / 1e6, at_least=False, unit=" MB"),
        Goal("an idle connection", of_connection / 1e3, MOST_OF_CONNECTION / 1e3, at_least=False, unit=" KB"),
    ]
    return exit_code(print_goals(goals), options)


if __name__ == "__main__":
    sys.exit(main())
