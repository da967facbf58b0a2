"""docs/tsctl.md, "verify", on archives of real agents: one without fault, and one broken on purpose, in each way once.

The broken one had a change of leaders and an unclean election, which are no damage: their traces must not be reported
as damage, and its dead tail is a real one.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from kazoo.client import KazooClient

from dev.local.forks import write_command
from dev.local.kafka.cluster import LocalCluster, Record, wait_for
from dev.local.oracle import OracleFailedError, OracleRecord, dump
from dev.local.ports import free_ports
from tests.browser import look, open_page
from tests.docs.commands import CHECKOUT, Shell, blocks, commands
from tests.endpoint.kafka_clients.python_clients import up_to_an_error
from tests.endpoint.running import Running
from tests.faults.leaders import bases, die, move_leader, produce, wait_in_sync, wait_leadership_shipped, wait_led
from tests.matrix import cases
from tests.operator.breaking import flip_a_bit, make_hole, make_orphan, make_overlap, remove_index, stored
from tests.tsctl.report.pages import bars, part_of
from tests.tsctl.running import Ended, Run, runner
from tests.uploader.beside import PREFIX, Archive, archives
from tsctl.verify.segment_check import Depth

PAGE = CHECKOUT / "docs" / "tsctl.md"
STORE_ALONE, BESIDE_CLUSTER, _ = commands(blocks(PAGE, "verify", language="sh")[0])
EVERY_BYTE, DRAWN = commands(blocks(PAGE, "verify", language="sh")[1])
SMALL = {"segment.bytes": "20000"}
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
SECONDS = 120

HOLE, OVERLAP, ORPHAN, NO_INDEX, FLIPPED, UNTOUCHED = range(6)  # partitions of `broken`
DEAD_TAIL, MOVED = range(2)  # of `elected`, which two brokers hold
EXPECTED = {
    f"broken-{HOLE}": {"hole"},
    f"broken-{OVERLAP}": {"overlap"},
    f"broken-{ORPHAN}": {"orphan-segment"},
    f"broken-{NO_INDEX}": {"index-missing"},
    f"broken-{FLIPPED}": {"segment-damaged"},
    f"elected-{DEAD_TAIL}": {"dead-tail"},
}
SEEN_BY_READING = f"broken-{FLIPPED}"
HARMLESS = {f"broken-{OVERLAP}", f"elected-{DEAD_TAIL}"}  # information: no action needed, and the exit code is 0


@pytest.fixture(scope="module")
def cluster(two_brokers: LocalCluster) -> LocalCluster:
    """Return the cluster that other folders have too."""
    return two_brokers


@pytest.fixture
def tsctl(cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `tsctl` in this process, as a reader of the cluster's bucket."""
    assert cluster.s3 is not None
    for name, value in cluster.s3.environment().items():
        monkeypatch.setenv(name, value)
    return runner(capfd)


def shell_of(archive: Archive, directory: Path) -> Shell:
    """Where the page's commands find `tsctl`, and this archive in the place of the page's."""
    places = {
        "/etc/ts-uploader/conf": str(archive.config),
        "broker:9092": archive.cluster.bootstrap,
    }
    (programs := directory / "programs").mkdir(exist_ok=True)
    write_command(programs / "tsctl", "tsctl")
    return Shell(directory, places, programs, archive.s3.environment())


def by_place(findings: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The codes of findings by where they are."""
    found: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        found[str(finding["where"])].add(str(finding["code"]))
    return dict(found)


def told(findings: list[dict[str, Any]]) -> dict[str, set[str]]:
    """`by_place`, without overlaps of `elected`: where two brokers rolled at different offsets there are some."""
    return by_place([one for one in findings if (one["code"], str(one["where"])[:7]) != ("overlap", "elected")])


def records(count: int, start: int = 0) -> list[Record]:
    return [Record(b"%06d" % n + bytes(150), key=b"k%d" % (n % 7)) for n in range(start, start + count)]


@pytest.fixture(scope="module")
def broken(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """Eight partitions that agents shipped; five of them were broken since, each in its own way.

    Among the others, one lost records in an unclean election, one changed its leader twice, one only lay there.
    """
    directory = tmp_path_factory.mktemp("broken")
    with archives(cluster, directory) as archive_of:
        archive = archive_of("broken", properties={PREFIX + "kafka.topics.include": "broken,elected"})
        cluster.create_topic("broken", assignment=[[2]] * 6, config=SMALL)
        cluster.create_topic("elected", assignment=[[1, 2]] * 2, config={**SMALL, **UNCLEAN})
        for topic, partitions in (("broken", 6), ("elected", 2)):
            for partition in range(partitions):
                cluster.produce(topic, records(500), partition=partition, config={"batch.size": 4000})
        agents = [archive.agent(broker, waits=False) for broker in (1, 2)]
        for agent in agents:
            agent.wait_ready()
        for partition in range(6):
            archive.wait_until_shipped(2, partition)
        elected = archive_of("elected")
        move_twice(elected, MOVED)
        lose_records(elected, DEAD_TAIL)
        for agent in agents:
            agent.stop()
        found = json.loads(shell_of(archive, directory).run(f"{STORE_ALONE} --in-flight-hours 0 --json"))["findings"]
        assert told(found) == {f"elected-{DEAD_TAIL}": {"dead-tail"}}
        cluster.brokers[1].wait_ready()
        wait_in_sync(cluster, elected.topic, 1, 2, partition=DEAD_TAIL)
        make_hole(archive, HOLE)
        make_overlap(archive, OVERLAP)
        make_orphan(archive, ORPHAN)
        remove_index(archive, NO_INDEX)
        flip_a_bit(archive, FLIPPED)
        yield archive


def move_twice(archive: Archive, partition: int) -> None:
    """A leader change, some records, and back; nothing is lost."""
    cluster = archive.cluster
    assert cluster.zookeeper is not None
    client = KazooClient(hosts=cluster.zookeeper.connect)
    client.start()
    for leader in (2, 1):
        wait_in_sync(cluster, archive.topic, 1, 2, partition=partition)
        move_leader(client, archive.topic, leader, 3 - leader, partition)
        cluster.produce(archive.topic, records(300), partition=partition, config={"batch.size": 4000})
        wait_leadership_shipped(archive, leader, partition)
    client.stop()
    client.close()


def lose_records(archive: Archive, partition: int) -> None:
    """Make an unclean election: broker 1 leads alone, and its agent ships; then broker 2 leads, without these records.

    Broker 1 is started again, but not awaited.
    """
    cluster = archive.cluster
    wait_in_sync(cluster, archive.topic, 1, 2, partition=partition)
    die(cluster, 2)
    wait_led(cluster, archive.topic, 1, partition)
    produce(cluster, archive.topic, "dead", 500, partition)
    archive.wait_until_shipped(1, partition)
    die(cluster, 1)
    cluster.brokers[2].start()
    wait_led(cluster, archive.topic, 2, partition)
    cluster.brokers[1].launch()
    produce(cluster, archive.topic, "living", 700, partition)
    wait_leadership_shipped(archive, 2, partition)


@pytest.fixture(scope="module")
def every_byte(broken: Archive, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the page's command that reads every byte finds, once for several tests."""
    shell = shell_of(broken, tmp_path_factory.mktemp("shell"))
    found: list[dict[str, Any]] = json.loads(shell.ends(1, f"{EVERY_BYTE} --json"))["findings"]
    return found


def test_what_was_broken_is_named_and_nothing_else(every_byte: list[dict[str, Any]]) -> None:
    """A hole, an overlap, an orphan, a missing index, a dead tail, a flipped bit, all at once: each where it is."""
    assert told(every_byte) == EXPECTED


@pytest.mark.parametrize("where", cases([*EXPECTED, f"broken-{UNTOUCHED}"], quick=[*EXPECTED][:2]))
def test_each_partition_by_itself_ends_as_the_page_describes(broken: Archive, tsctl: Run, where: str) -> None:
    """1 where something is worse than information, else 0; what only reading every byte shows, only that finds."""
    topic, _, partition = where.partition("-")
    expected = {} if where == SEEN_BY_READING else {where: EXPECTED[where]} if where in EXPECTED else {}
    ended = verify(tsctl, broken, Depth.HEADERS, topic, "-p", partition)
    assert told(ended.document["findings"]) == expected
    assert ended.code == (1 if expected and where not in HARMLESS else 0)
    if expected:
        assert verify(tsctl, broken, Depth.HEADERS, topic, "-p", partition, "--fail-on", "information").code == 1


def test_names_and_sizes_alone_show_less(broken: Archive, tsctl: Run) -> None:
    """A fault that a listing cannot show is left out, and no other is reported in its place."""
    ended = verify(tsctl, broken, Depth.LISTING)
    found = told(ended.document["findings"])
    assert {f"broken-{partition}" for partition in (ORPHAN, NO_INDEX)} <= set(found)
    assert SEEN_BY_READING not in found
    # Cache objects, if agents had time for some, show more.
    assert {where: codes for where, codes in found.items() if codes != EXPECTED.get(where)} == {}, ended.document
    assert ended.code == 1


def verify(tsctl: Run, archive: Archive, depth: Depth, *arguments: str) -> Ended:
    """Of an archive whose agents have ended."""
    given = ("--config", archive.config, "--json", "--depth", depth.value, "--in-flight-hours", "0")
    ended = tsctl("verify", *given, *arguments)
    assert ended.code in {0, 1}, ended.err
    return ended


def test_a_finding_names_key_and_offsets(broken: Archive, tsctl: Run) -> None:
    """The hole is the deleted segment; the finding names that the cluster still has it."""
    ended = verify(
        tsctl, broken, Depth.HEADERS, "broken", "-p", str(HOLE), "--bootstrap-server", broken.cluster.bootstrap
    )
    (hole,) = [finding for finding in ended.document["findings"] if finding["code"] == "hole"]
    segments = stored(broken, HOLE)
    assert hole["to"] == segments[2].name.base
    assert segments[1].name.base < hole["from"] < segments[2].name.base
    assert "the cluster still has" in hole["detail"]
    assert hole["severity"] == "data-loss"


def test_the_page_is_followed_on_a_broken_archive(broken: Archive, tmp_path: Path) -> None:
    """For people: a row for each finding, and a sentence for each kind; what is young may be in flight."""
    shell = shell_of(broken, tmp_path)
    said = shell.ends(1, STORE_ALONE)
    assert "data-loss" in said
    assert "hole: No live copy contains these offsets" in said
    assert "8 partitions" in said
    assert "orphan-segment" not in said
    assert "the cluster still has" in shell.ends(1, BESIDE_CLUSTER)


@pytest.fixture
def endpoint(broken: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """An endpoint over the broken archive."""
    for name, value in broken.s3.environment().items():
        monkeypatch.setenv(name, value)
    port, http_port = free_ports(2)
    options = ["--groups", "memory"]
    running = Running(["--config", str(broken.config)], tmp_path / "endpoint.log", port, http_port, options)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()


def test_unchanged_clients_read_what_is_not_lost(broken: Archive, endpoint: Running) -> None:
    """A hole and damage are errors of their partitions after the records before them; everything else is read."""
    written: dict[tuple[str, int], list[OracleRecord]] = defaultdict(list)
    for record in dump(broken.cluster.bootstrap, ["broken", "elected"]):
        written[record.topic, record.partition].append(record)
    assert len(written) == 8
    found: list[OracleRecord] = []
    for (topic, partition), records in sorted(written.items()):
        shown, error = up_to_an_error(endpoint.address, topic, partition)
        assert len(shown) > 50
        assert shown == records[: len(shown)]
        is_lost = topic == "broken" and partition in {HOLE, FLIPPED}
        assert error == (KafkaError.INVALID_MSG if is_lost else None), (topic, partition)
        if topic == "broken" and not is_lost:
            assert shown[-1].offset + 1 == broken.next_offset(partition)
        found += shown
    assert dump(endpoint.address, "elected") == [record for record in found if record.topic == "elected"]
    with pytest.raises(OracleFailedError, match=f"broken-{HOLE}"):
        dump(endpoint.address, "broken")


def test_mistakes_on_the_command_line_are_refused(broken: Archive, tsctl: Run, tmp_path: Path) -> None:
    """With 2, naming the mistake, and without a file."""
    config = ("--config", broken.config)
    assert tsctl("verify", *config, "nothing-of-that-name").code == 2
    assert tsctl("verify", *config, "--fail-on", "bad").code == 2
    nowhere = tsctl("report", *config, "--output", tmp_path / "no" / "x.html")
    assert nowhere.code == 2
    assert "no directory" in nowhere.err


@pytest.mark.full
def test_the_report_shows_what_was_broken(broken: Archive, tmp_path: Path) -> None:
    """Written in one step, opened in a browser: a row for each finding with its place, holes red, on a phone too."""
    page = tmp_path / "archive.html"
    page.write_text("what was here before")
    shell_of(broken, tmp_path).run(DRAWN)
    assert {path.name for path in tmp_path.iterdir()} == {"archive.html", "programs"}  # those of the shell
    document = open_page(page)
    rows = re.findall(r'<tr data-code="([^"]*)">.*?</td><td>([^<]*)</td>', document)
    assert told([{"code": code, "where": where} for code, where in rows]) == EXPECTED
    assert bars(part_of(document, "offsets-0"), "rgb(208, 0, 0)") == 1
    assert 'class="verdict data-loss"' in document
    phone = look(page.read_text(), tmp_path, width=390)
    assert phone["fetched"] == []
    assert phone["scrollWidth"] <= 390
    assert phone["smallest"] >= 11
    for where in EXPECTED:
        assert where in phone["text"]


@pytest.mark.full
def test_an_undamaged_archive_has_no_fault(cluster: LocalCluster, tsctl: Run, tmp_path: Path) -> None:
    """Compaction, transactions, leader changes, incarnations, every codec: nothing worse than information."""
    with archives(cluster, tmp_path) as archive_of:
        archive = archive_of("(codecs|compacted|returned|again|decided)", cluster_id="whole")
        cluster.create_topic("codecs", assignment=[[1]], config=SMALL)
        cluster.create_topic("decided", assignment=[[2]], config=SMALL)
        cluster.create_topic("again", assignment=[[1]], config=SMALL)
        compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **SMALL}
        cluster.create_topic("compacted", assignment=[[1]], config=compact)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            noise = [Record(bytes(range(256)) + b"%d" % n, key=b"%d" % n) for n in range(400)]
            cluster.produce("codecs", noise, partition=0, config={"compression.type": codec})
        cluster.produce("compacted", records(1500), partition=0, config={"enable.idempotence": "false"})
        cluster.produce("again", records(400), partition=0)
        cluster.create_topic("returned", assignment=[[1, 2]], config=SMALL)
        transact(cluster, "decided")
        for broker in (1, 2):
            archive.agent(broker)
        wait_for(lambda: reached(tsctl, archive, "again") > 0, "the first life to be shipped", SECONDS)
        assert cluster.zookeeper is not None
        client = KazooClient(hosts=cluster.zookeeper.connect)
        client.start()
        for leader in (2, 1, 2):
            cluster.produce("returned", records(300), partition=0)
            move_leader(client, "returned", leader, 3 - leader)
        cluster.produce("returned", records(300), partition=0)
        client.stop()
        client.close()
        cluster.delete_topic("again")
        cluster.create_topic("again", assignment=[[1]], config=SMALL)
        cluster.produce("again", records(700, 7000), partition=0)
        directory = cluster.brokers[1].partition_directory("compacted", 0)
        wait_for(
            lambda: sum(path.stat().st_size for path in directory.glob("*.log")) < 100_000,
            "the cleaner to come",
            SECONDS,
        )
        for topic, broker in (("codecs", 1), ("decided", 2), ("compacted", 1), ("again", 1), ("returned", 2)):
            active = bases(cluster, broker, topic)[-1]
            wait_for(partial(has_reached, tsctl, archive, topic, active), f"{topic} shipped", SECONDS)
        for depth in Depth:
            ended = verify(tsctl, archive, depth, "--bootstrap-server", cluster.bootstrap)
            worse = [finding for finding in ended.document["findings"] if finding["severity"] != "information"]
            assert worse == []
            assert ended.code == 0
        assert len(ended.document["partitions"]) == 6  # one of them a life that is over


def has_reached(tsctl: Run, archive: Archive, topic: str, offset: int) -> bool:
    """Whether readers see the newest life up to there."""
    return reached(tsctl, archive, topic) >= offset


def reached(tsctl: Run, archive: Archive, topic: str) -> int:
    """The next offset of partition 0 in the newest life."""
    ended = tsctl("ls", topic, "--json", "--config", archive.config)
    if ended.code:
        return 0
    partitions = ended.document["topics"][0]["partitions"]
    return max((partition["next_offset"] or 0 for partition in partitions), default=0)


def transact(cluster: LocalCluster, topic: str) -> None:
    producer = cluster.producer({"transactional.id": topic})
    producer.init_transactions(SECONDS)
    for number in range(6):
        producer.begin_transaction()
        for record in records(60):
            producer.produce(topic, record.value, record.key, partition=0)
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
