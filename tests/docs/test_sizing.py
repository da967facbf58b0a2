"""docs/sizing.md: the requests of its tables, counted at a real S3 server."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from dev.local.kafka.cluster import wait_for
from dev.local.proxy.journal import Request
from tests.docs.conftest import Beside, produce
from tests.uploader.beside import BUCKET
from ts_common.archive.object_keys import CACHE_DIRECTORY

PAGE = Path(__file__).parents[2] / "docs" / "sizing.md"
_SEGMENTS = 4

Counts = Counter[tuple[str, str]]


def counted(requests: Sequence[Request]) -> Counts:
    """Return the number of requests of each method and kind of object, named as on the page."""
    found: Counts = Counter()
    for request in requests:
        name = request.path.rpartition("/")[2]
        if "list-type=2" in request.query:
            found["LIST", ""] += 1
        elif f"/{CACHE_DIRECTORY}" in request.path:
            found[request.method, "cache object"] += 1
        else:
            found[request.method, re.sub(r"^\d{20}", "", name)] += 1
    return found


def told(section: str) -> dict[tuple[str, str], float]:
    """Return the table of a section, with rows `| PUT | `.index` | 1 |`: method and object to number."""
    (text,) = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (PUT|GET|HEAD|LIST) \| (?:`([^`]+)`)?[^|]*\| ([\d.]+) \|$", text, re.MULTILINE)
    found: dict[tuple[str, str], float] = {}
    for method, kind, times in rows:
        found[method, kind] = found.get((method, kind), 0.0) + float(times)
    return found


def by_operation(beside: Beside) -> Counter[str]:
    """Return the requests since the start of the agent, by operation, as its metrics have them."""
    name = re.compile(r'ts_uploader_store_requests_total\{operation="(\w+)"\}')
    samples = ((name.fullmatch(sample), value) for sample, value in beside.agent.metrics().items())
    return Counter({found[1]: int(value) for found, value in samples if found and value})


def start_agent(beside: Beside) -> None:
    """Start the agent, and wait until it has read where to continue."""
    beside.agent.start()
    wait_for(lambda: "ts_uploader_partition_next_offset" in str(beside.agent.metrics()), "the position to be read")


def test_a_segment_costs_the_requests_of_the_page(beside: Beside) -> None:
    """For segments that close one by one: objects and commits exactly, other requests at most."""
    page = told("Requests of a segment")
    beside.agent.stop()  # its metrics count from its start, and a request that is under way now has no place in them
    start = len(beside.proxy.requests())
    start_agent(beside)
    before = len(beside.proxy.requests())
    for _ in range(_SEGMENTS):
        produce(beside.archive, 1)
        beside.archive.wait_until_shipped()
    found = counted(beside.proxy.requests()[before:])

    def counted_by_the_agent() -> bool:
        methods: Counter[str] = Counter()
        for (method, kind), times in counted(beside.proxy.requests()[start:]).items():
            methods[method.lower()] += 0 if kind == BUCKET else times  # one at the start, of no object
        return methods == by_operation(beside)

    wait_for(counted_by_the_agent, "the agent's metrics to have the requests that the proxy saw")
    assert found.keys() <= page.keys() | {("LIST", "")}  # of cache objects and segments, once after the start
    assert found["LIST", ""] <= 3
    puts = {kind for kind in page if kind[0] == "PUT" and kind[1] != "cache object"}
    assert {kind: found[kind] for kind in puts} == {kind: _SEGMENTS * page[kind] for kind in puts}
    # Cache objects have their own thread, which may still process the three segments that were shipped before.
    looks = page.keys() - puts
    assert [kind for kind in looks if found[kind] > (_SEGMENTS + 3) * page[kind] + 1] == []
    assert found["HEAD", ".log"] >= _SEGMENTS
    assert sum(page.values()) == 6
    assert sum(times for (method, _), times in page.items() if method == "PUT") == 4.5


def test_a_start_costs_the_requests_of_the_page(beside: Beside) -> None:
    """For a partition with a commit, when the agent starts again."""
    page = told("Requests of a start")
    beside.agent.stop()
    before = len(beside.proxy.requests())
    start_agent(beside)
    prefix = beside.archive.partition_keys().prefix
    asked = [r for r in beside.proxy.requests()[before:] if prefix in r.path or quote(prefix, safe="") in r.query]
    assert counted(asked) == page
