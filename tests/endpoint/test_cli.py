"""The command `ts-endpoint`: its options, mistakes, pages and ends."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from dev.local.certificates import Certificates
from dev.local.ports import free_ports
from dev.local.waiting import wait_for
from tests.endpoint.running import PARTITIONS, TOPIC, Running, made_archive, put_topic, running
from tests.made_archive import MadeArchive, batches
from ts_endpoint.cli import run
from ts_endpoint.security.users import read_users

_ANY_ARCHIVE = ("--url", "file:///no/such/archive", "--cluster", "prod")


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made_archive(tmp_path_factory.mktemp("made") / "archive").location


@pytest.fixture(scope="module")
def endpoint(location: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run one process, which no test ends."""
    with running(location, tmp_path_factory.mktemp("endpoint")) as (process,):
        yield process


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """Return the message of a command that ends with a code; in one line."""
    assert run(arguments) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    return " ".join(said.err.split())


def records(servers: str, topic: str = TOPIC, **options: Any) -> list[int]:
    """Return the offsets of partition 0, or raise the client's error."""
    with closing(
        Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False, **options})
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
        found: list[int] = []

        def one() -> bool:
            found.extend(message.offset() or 0 for message in consumer.consume(1000, 0.1) if message.error() is None)
            return len(found) >= high

        wait_for(one, f"{high} records", every=0)
        return found


def test_an_admin_client_reads_the_settings_of_topics_and_brokers(endpoint: Running) -> None:
    """Retention is the topic's own setting, which mirrors copy; all others are read-only defaults."""
    admin = AdminClient({"bootstrap.servers": endpoint.address})
    asked = [ConfigResource("topic", TOPIC), ConfigResource("broker", "0")]
    answers = admin.describe_configs(asked)
    topic, broker = (answers[each] for each in asked)
    found = {name: (each.value, each.is_default, each.is_read_only) for name, each in topic.result(30).items()}
    assert found == {
        "cleanup.policy": ("delete", True, True),
        "compression.type": ("producer", True, True),
        "max.message.bytes": ("134217728", True, True),
        "min.insync.replicas": ("1", True, True),
        "retention.bytes": ("-1", False, False),
        "retention.ms": ("-1", False, False),
    }
    settings = {name: each.value for name, each in broker.result(30).items()}
    assert (settings["log.retention.ms"], settings["auto.create.topics.enable"]) == ("-1", "false")


def test_the_pages_of_a_process_report_what_it_serves(endpoint: Running) -> None:
    """Every metric has a number, but those of labels that nothing has counted yet."""
    assert records(endpoint.address) == list(range(1000))
    assert endpoint.facts("/healthz")["status"] == "ok"
    assert endpoint.facts("/readyz") == {
        "status": "ready",
        "listening": True,
        "partitions_in_memory": PARTITIONS,
        "lost_partitions": 0,
        "peers": {},
    }
    text = endpoint.page("/metrics")[1]
    without = {
        family.removesuffix("_total")
        for family in re.findall(r"^# TYPE (ts_endpoint_\w+) ", text, re.MULTILINE)
        if not re.search(rf"^{family}(_\w+)?(\{{.*\}})? ", text, re.MULTILINE)
    }
    assert without == {
        f"ts_endpoint_{name}"
        for name in (
            *("connections_refused", "connections_ended", "failed_logins", "request_errors", "failed_requests"),
            "peer_up",
        )
    }
    assert endpoint.metric('ts_endpoint_requests_total{kind="FETCH"}') >= 1
    assert endpoint.metric('ts_endpoint_store_requests_total{operation="list"}') >= 1
    assert endpoint.metric("ts_endpoint_store_received_bytes_total") > 1000
    assert endpoint.metric("ts_endpoint_fetch_seconds_count") >= 1
    assert endpoint.metric("ts_endpoint_offset_limit_bytes") == 64 << 20


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--config", "/no/prod.properties"], "/no/prod.properties"),
        (["--listen", "9092"], "--listen: '9092' is not of the form host:port"),
        (["--listen", "0.0.0.0:9092"], "--advertise: clients would be sent to 0.0.0.0:9092"),
        (["--peers", "a:1,b:1"], "--peers: a:1, b:1: no entry is this process, 127.0.0.1:9092; list it, or set --adv"),
        (
            ["--peers", "10.0.0.1:9092,10.0.0.2:9092", "--advertise", "10.0.0.1:9092"],
            "--http-address: the other processes read the health of this one at 10.0.0.1:9465, and 127.0.0.1 is loop",
        ),
        (
            ["--peers", "127.0.0.1:9092=127.0.0.1:1,127.0.0.1:9093"],
            "at 127.0.0.1:1, and it serves it at port 9465: make both equal",
        ),
        (["--http-address", "9465"], "--http-address: '9465' is not of the form host:port"),
        (["--tls-key", "key.pem"], "--tls-certificate and --tls-key belong together"),
        (["--tls-client-ca", "ca.pem"], "--tls-client-ca: it needs --tls-certificate and --tls-key"),
        (["--tls-certificate", "/no/c.pem", "--tls-key", "/no/k.pem"], "/no/c.pem: 1 problem - cannot read the file"),
        (["--users", "/no/users.yaml"], "/no/users.yaml: 1 problem - there is no such file: ts-endpoint user add"),
        (["--audit-log", "/no/audit.jsonl"], "--audit-log: 1 problem - /no/audit.jsonl: cannot write"),
        (["--sasl-mechanism", "PLAIN"], "--sasl-mechanism: it needs --users"),
        (
            ["--users", "u.yaml", "--sasl-mechanism", "PLAIN", "--listen", "10.0.0.1:9092"],
            "PLAIN would send passwords unencrypted",
        ),
        (["--users", "u.yaml", "--sasl-mechanism", "GSSAPI"], "GSSAPI: the mechanisms are"),
        (["--cache-mib", "1"], "--cache-mib=1: at least 16 is expected"),
        (["--refresh", "nan"], "--refresh=nan: at least 1 is expected"),
        (["--max-connections", "0"], "--max-connections=0: at least 1 is expected"),
        (["--entropy-bits", "-1"], "--entropy-bits=-1: a whole number from 0 to 128"),
    ],
)
def test_a_mistake_is_one_message_with_the_option_and_the_way_out(
    capsys: pytest.CaptureFixture[str], options: list[str], expected: str
) -> None:
    """With code 2, and without a traceback."""
    archive = () if "--config" in options else _ANY_ARCHIVE
    assert expected in refusal(capsys, "serve", *archive, *options)


def test_all_mistakes_are_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """An operator mends them in one round."""
    message = refusal(capsys, "serve", "--listen", "x", "--cache-mib", "0", "--tls-key", "k", "--url", "nfs://x")
    for part in ("5 problems", "--url=", "--cluster is missing", "--listen: ", "--cache-mib", "--tls-certificate"):
        assert part in message
    assert "no archive is named: give --config FILE_OR_DIR or the variable TS_UPLOADER_CONFIG, or --url" in refusal(
        capsys, "serve"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--url", "file:///no/such/archive"], "/no/such/archive"),
        (["--entropy-bits", "5"], "has no objects of cluster prod with --entropy-bits=5; found with no --entropy-bits"),
    ],
)
def test_what_only_the_store_shows_is_one_message_too(
    capsys: pytest.CaptureFixture[str], location: str, options: list[str], expected: str
) -> None:
    """A missing directory, other entropy bits: nothing would ever be served."""
    port, http_port = free_ports(2)
    addresses = ["--listen", f"127.0.0.1:{port}", "--http-address", f"127.0.0.1:{http_port}"]
    assert expected in refusal(capsys, "serve", "--url", location, "--cluster", "prod", *addresses, *options)


def test_e06_a_process_waits_unready_for_the_first_segment(tmp_path: Path) -> None:
    """With the reason in `/readyz` and the log; a restart would not help, so `/healthz` is 200. Then it serves."""
    archive = MadeArchive(tmp_path / "archive")
    port, http_port = free_ports(2)
    process = Running(archive.location, tmp_path / "log", port, http_port, ["--refresh", "1"])
    try:
        wait_for(lambda: process.page("/readyz")[0] == 503, "the page of a process that waits")
        wait_for(lambda: "reason" in process.facts("/readyz"), "the first look at the archive")
        facts = process.facts("/readyz")
        assert (facts["status"], facts["listening"]) == ("waiting", False)
        assert f"no segment of cluster prod is in {archive.location}" in facts["reason"]
        assert (process.page("/healthz")[0], process.facts("/healthz")["status"]) == (200, "waiting")
        wait_for(lambda: "archive_empty" in process.log, "a line of the log")
        put_topic(archive)
        process.wait_until_ready()
        assert records(process.address) == list(range(1000))
        assert not [line for line in process.log.splitlines() if "topic_read" in line]  # without users it names none
        assert process.stop() == 0
    finally:
        process.stop(signal.SIGKILL)


@pytest.mark.full
def test_a_process_that_waits_ends_by_a_signal(tmp_path: Path) -> None:
    """In order, with code 0. If the first segment has other entropy bits, it ends with 75, and a restart serves it."""
    port, http_port = free_ports(2)
    archive = MadeArchive(tmp_path / "archive", entropy_bits=3)
    options = ["--refresh", "1", "--groups", "memory"]
    process = Running(archive.location, tmp_path / "log", port, http_port, options)
    try:
        wait_for(lambda: "archive_empty" in process.log, "a process that waits")
        assert process.stop() == 0
        process = Running(archive.location, tmp_path / "log", port, http_port, options)
        wait_for(lambda: process.page("/readyz")[0] == 503, "a process that waits again")
        put_topic(archive)
        assert process.process.wait(60) == 75
        assert "found with --entropy-bits=3: set that option" in process.log
    finally:
        process.stop(signal.SIGKILL)


@pytest.mark.parametrize("option", ["--listen", "--http-address"])
def test_an_address_in_use_is_worth_another_start(
    capsys: pytest.CaptureFixture[str], endpoint: Running, location: str, option: str
) -> None:
    """A former process may be about to end; the message has the option and the address."""
    addresses = {
        name: f"127.0.0.1:{port}" for name, port in zip(("--listen", "--http-address"), free_ports(2), strict=True)
    }
    addresses[option] = endpoint.address if option == "--listen" else endpoint.http_address
    given = [word for pair in addresses.items() for word in pair]
    message = refusal(capsys, "serve", "--url", location, "--cluster", "prod", *given, code=75)
    assert f"{option} {addresses[option]}: another program listens there" in message


def test_a_properties_file_names_an_archive_with_several_locations(tmp_path: Path) -> None:
    """Each topic is served from its own location; one that lies in another location too is not listed twice."""
    for name in ("clicks", "others"):
        archive = MadeArchive(tmp_path / name)
        for topic, end in (("clicks", 10 if name == "clicks" else 20), ("orders", 30 if name == "others" else 40)):
            archive.put_segment(topic, 0, batches((0, end)))
            archive.commit(topic, end)
    (tmp_path / "prod.properties").write_text(
        "storage.service.endpoint.provider.class=tests.endpoint.locations:TwoLocations\n"
    )
    port, http_port = free_ports(2)
    process = Running(("--config", str(tmp_path / "prod.properties")), tmp_path / "log", port, http_port)
    try:
        process.wait_until_ready()
        assert records(process.address, "clicks") == list(range(10))
        assert records(process.address, "orders") == list(range(30))
    finally:
        process.stop(signal.SIGKILL)


def test_the_second_signal_ends_the_process_at_once(location: str, tmp_path: Path) -> None:
    """The first one waits for a request in progress; here for a Fetch that waits for records."""
    with running(location, tmp_path) as (process,):
        waits = {"fetch.wait.max.ms": 60_000, "socket.timeout.ms": 120_000}
        with closing(Consumer({"bootstrap.servers": process.address, "group.id": "unused", **waits})) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0, OFFSET_END)])
            wait_for(
                lambda: consumer.poll(0) or 'requests_total{kind="FETCH"}' in process.page("/metrics")[1], "a Fetch"
            )
            process.process.send_signal(signal.SIGTERM)
            wait_for(lambda: process.facts("/healthz").get("status") == "stopping", "the stop to begin")
            assert process.stop(signal.SIGINT) == 128 + signal.SIGINT
            assert "endpoint_stopped" not in process.log


def test_options_set_tls_users_and_the_audit_log(location: str, tmp_path: Path) -> None:
    """A user reads what the file allows; others, and clients without TLS, get nothing."""
    certificates, users, audit = Certificates(tmp_path), tmp_path / "users.yaml", tmp_path / "audit.jsonl"
    password = tmp_path / "password"
    password.write_text("correct horse\n")
    for name, topic in (("alice", TOPIC), ("bob", "clicks*")):
        assert run(["user", "add", str(users), name, "--topic", topic, "--password-file", str(password)]) == 0
    files = ["--tls-certificate", str(certificates.server), "--tls-key", str(certificates.server_key)]
    with running(location, tmp_path, options=[*files, "--users", str(users), "--audit-log", str(audit)]) as (process,):

        def login(user: str) -> dict[str, Any]:
            return {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(certificates.authority),
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": user,
                "sasl.password": "correct horse",
            }

        assert len(records(process.address, **login("alice"))) == 1000
        with closing(Consumer({"bootstrap.servers": process.address, "group.id": "unused", **login("bob")})) as bob:
            error = bob.list_topics(TOPIC, timeout=30).topics[TOPIC].error
            assert error is not None
            assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert process.stop() == 0
        assert "listener_open" not in process.log
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert {(line["event"], line["user"]) for line in lines} >= {("topic_read", "alice")}


def test_users_are_added_changed_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file has keys and no password; a change keeps what is not given."""
    file, password = tmp_path / "users.yaml", tmp_path / "password"
    password.write_text("correct horse\n")
    add = ["user", "add", str(file)]
    assert run([*add, "alice", "--topic", "orders", "--topic", "clicks*", "--password-file", str(password)]) == 0
    assert run([*add, "alice", "--group", "*", "--bytes-per-second", "1000000"]) == 0
    assert run([*add, "CN=reader", "--topic", "*", "--no-password"]) == 0
    assert "correct horse" not in file.read_text()
    assert run(["user", "ls", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "CN=reader  topics=*",
        "alice  mechanisms=SCRAM-SHA-256,SCRAM-SHA-512  topics=orders,clicks*  groups=*  bytes_per_second=1000000",
    ]
    assert run(["user", "ls", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["user"] == "CN=reader"
    assert run(["user", "rm", str(file), "alice"]) == 0
    assert [*read_users(file)] == ["CN=reader"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["rm", "FILE", "bob"], "it has no user 'bob': ts-endpoint user ls lists them"),
        (["ls", "NO"], "there is no such file: ts-endpoint user add creates it"),
        (
            ["add", "FILE", "bob"],
            "standard input is no terminal to read it from: give --password-file, or --no",
        ),
        (["add", "FILE", "bob", "--password-file", "NO"], "--password-file: 1 problem - cannot read"),
        (["add", "FILE", "bob", "--no-password", "--topic", "a*b"], "'a*b': a name, the beginning of names and *"),
        (["add", "NO/users.yaml", "bob", "--no-password"], "it cannot be written: No such file or directory"),
    ],
)
def test_a_mistake_about_users_is_one_message(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    """With code 2; the file stays as it was."""
    file = tmp_path / "users.yaml"
    assert run(["user", "add", str(file), "alice", "--no-password"]) == 0
    before = file.read_text()
    given = [each.replace("FILE", str(file)).replace("NO", str(tmp_path / "no")) for each in arguments]
    assert expected in refusal(capsys, "user", *given)
    assert file.read_text() == before
