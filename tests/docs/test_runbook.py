"""docs/runbook.md, followed with a live agent: its commands work, and what they search for exists.

`journalctl` prints the agent's own log, and rejects a search by priority, because no line of an agent has one.
`systemctl` does nothing. Kafka's tools are its classes. Commands of an operator's host (`dmesg`, `nc`, the controller's
log, an authorizer) are left out by name. tests/deploy/test_policies.py tests the commands of `aws`, and
tests/docs/test_hidden_records.py what is written by hand.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.commands import CHECKOUT, CommandFailedError, Shell, blocks, commands
from tests.docs.conftest import TOPIC, Beside
from ts_local.jvm import java_command
from ts_uploader.metrics.metrics_page import families

PAGE = CHECKOUT / "docs" / "runbook.md"
# Kafka's scripts are one line each: the class that they run.
_KAFKA = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-broker-api-versions.sh": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-dump-log.sh": "kafka.tools.DumpLogSegments",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
_NOT_HERE = ("dmesg ", "nc ", "grep -i unclean /var/log/kafka/", "kafka-acls.sh ", "aws ", "sed ", "diff ")
# No line of an agent has a priority, so `journalctl -p` would find nothing.
_JOURNALCTL = """case " $* " in *" -p"* | *" --priority"*) echo "no priorities" >&2; exit 1 ;; esac
cat {log}"""
_SETTING = re.compile(r"([A-Z_]+)=\S+")
_A_LINE_OF_EACH_LEVEL = """
import structlog
from ts_common.logs import LogFormat, configure_logs
configure_logs(LogFormat.JSON)
for level in ("info", "warning", "error", "critical"):
    getattr(structlog.get_logger(), level)(f"of {level}", key="value")
"""
COMMANDS = [re.sub(r" +# .*", "", line) for block in blocks(PAGE, language="sh") for line in commands(block)]


def takes_long(command: str) -> bool:
    """Return whether it starts a JVM, or a decoder of segments."""
    return "tsctl verify" in command or any(tool in command for tool in _KAFKA)


@pytest.fixture(scope="module")
def shell(beside: Beside, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a shell with the variables of the page, and replacements for a host's commands."""
    programs = tmp_path_factory.mktemp("programs")
    made = {
        "journalctl": _JOURNALCTL.format(log=beside.agent.log),
        "systemctl": "true",
        "tsctl": shlex.join([str(Path(sys.executable).with_name("tsctl"))]) + ' "$@"',
        **{tool: shlex.join(java_command("3.9", main, [])) + ' "$@"' for tool, main in _KAFKA.items()},
    }
    for name, line in made.items():
        write_program(programs / name, line)
    broker = beside.archive.cluster.brokers[1]
    places = {
        "http://127.0.0.1:9464": f"http://{beside.agent.address}",
        "/etc/ts-uploader/conf": str(beside.config),
        "/etc/kafka/server.properties": str(broker.server_properties),
    }
    return Shell(tmp_path_factory.mktemp("host"), places, programs, beside.archive.s3.environment())


@pytest.fixture(scope="module")
def values(beside: Beside) -> dict[str, str]:
    """Return the values of the page's variables that differ here."""
    return {
        "BROKER": beside.archive.cluster.bootstrap,
        "TOPIC": TOPIC,
        "LOG_DIR": str(beside.archive.cluster.brokers[1].log_dirs[0]),
        "MORE": "1209600000",
        "OFFSET": "0",
    }


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def settings() -> str:
    """Return the page's settings, for the commands after them."""
    return "\n".join(command for command in COMMANDS if _SETTING.fullmatch(command))


def test_the_page_sets_each_variable_that_it_uses() -> None:
    """It sets each of them once, and before its use; a value that only the reader has is `...`."""
    known = set[str]()
    for command in COMMANDS:
        assert set(re.findall(r"\$\{?([A-Z_]+)", command)) <= known, command
        if setting := _SETTING.fullmatch(command):
            assert setting[1] not in known, command
            known.add(setting[1])
    assert re.findall(r"^([A-Z_]+)=\.\.\.", settings(), re.MULTILINE) == [
        "MORE",
        "TOPIC_ID",
        "OFFSET",
        "MARKER",
        "VERSION",
        "FIRST",
        "LINEAGE",
        "PAIR",
        "WHOLE",
    ]


def test_each_command_that_asks_works(shell: Shell, values: dict[str, str]) -> None:
    """Agent, log and store answer the commands of the page; a `grep` may find nothing."""
    asked = [c for c in COMMANDS if not takes_long(c) and not c.startswith(_NOT_HERE) and not _SETTING.fullmatch(c)]
    assert len(asked) > 15
    for command in asked:
        shell.run(settings(), _without_grep(command), **values)


def test_what_an_agent_warns_of_is_found_in_its_journal(tmp_path: Path) -> None:
    """In the unit's lines, each search for a level finds everything above information."""
    lines = [sys.executable, "-c", _A_LINE_OF_EACH_LEVEL]
    write_program(tmp_path / "journalctl", _JOURNALCTL.format(log=f"<<'EOF'\n{_output(lines)}EOF"))
    looked = [command for command in COMMANDS if '"level"' in command]
    assert len(looked) > 1
    for command in looked:
        found = Shell(tmp_path, {}, tmp_path).run(command).splitlines()
        assert [json.loads(line)["event"] for line in found] == ["of warning", "of error", "of critical"], command
    with pytest.raises(CommandFailedError):
        Shell(tmp_path, {}, tmp_path).run("journalctl -u ts-uploader -p warning")


@pytest.mark.full
def test_each_command_of_kafka_and_each_look_at_everything_works(shell: Shell, values: dict[str, str]) -> None:
    """Kafka's own tools accept the options of the page."""
    asked = [command for command in COMMANDS if takes_long(command)]
    assert {tool for tool in _KAFKA if any(tool in command for command in asked)} == set(_KAFKA)
    for command in asked:
        shell.run(settings(), _without_grep(command.partition(" ; ")[2] or command), **values)


@pytest.mark.full
def test_more_retention_is_refused_until_it_is_said_how_much(shell: Shell, values: dict[str, str]) -> None:
    """If it is copied unchanged, the command that increases retention changes nothing."""
    describe, alter = (command for command in COMMANDS if command.startswith("kafka-configs.sh"))
    before = shell.run(settings(), describe, **values)
    assert "retention.ms=" in before
    assert "cleanup.policy=" in before
    with pytest.raises(CommandFailedError, match="Invalid value"):
        shell.run(settings(), alter, **{**values, "MORE": "..."})
    assert shell.run(settings(), describe, **values) == before


def test_every_figure_that_is_looked_for_is_told() -> None:
    """Each metric in a `grep` of the page, or its beginning, is one of the agent's."""
    told = [family.name for family in families()]
    looked = [command for command in COMMANDS if "/metrics" in command and "grep" in command]
    assert len(looked) > 4
    for command in looked:
        begun = [one.removeprefix("^") for pattern in _patterns(command) for one in _alternatives(pattern)]
        names = [one.removesuffix("_total").removesuffix("_info") for one in begun if one.startswith("ts_uploader")]
        assert names, command
        assert [name for name in names if not any(one.startswith(name) for one in told)] == [], command


def test_every_event_that_is_looked_for_is_one_of_the_agents() -> None:
    """A `grep` for an event that no agent writes finds nothing, which would look like good news."""
    sources = "".join(path.read_text() for path in (CHECKOUT / "ts_uploader").rglob("*.py"))
    looked = [c for c in COMMANDS if "journalctl" in c and "grep" in c and '"level"' not in c]
    assert len(looked) > 8
    for command in looked:
        events = [one for pattern in _patterns(command) for one in _alternatives(pattern) if re.search(r"[ _]", one)]
        assert events, command
        assert [one for one in events if one not in sources and one != "main process exited"] == [], command


def _output(command: list[str]) -> str:
    """Return the standard error of a program."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def _patterns(command: str) -> list[str]:
    """Return the patterns of the `grep`s in a command."""
    return [quoted or plain for quoted, plain in re.findall(r"grep (?:-[A-Za-z]+\d* )*(?:'([^']+)'|(\S+))", command)]


def _alternatives(pattern: str) -> list[str]:
    """Split `^a_(b|c)` into `^a_b` and `^a_c`."""
    if match := re.fullmatch(r"(.*)\((.*)\)", pattern):
        return [match[1] + one for one in match[2].split("|")]
    return pattern.split("|")


def _without_grep(command: str) -> str:
    """Return the command with a `grep` that may find nothing."""
    return re.sub(r"\bgrep (.*?)(?= \||$)", r"{ grep \1 || test $? = 1; }", command)
