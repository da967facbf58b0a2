"""docs/runbook.md and docs/repair.md next to a live agent: their commands work, and find what they look for.

Stand-ins: `journalctl` prints the agent's own log and rejects a priority, because no line of an agent has one;
`systemctl` does nothing; Kafka's tools are its classes. Commands that need an operator's host (`dmesg`, `nc`, the
controller's log) are excluded by name. tests/deploy/test_maintenance_policies.py runs the `aws` commands,
tests/docs/test_hidden_records.py the writes by hand.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dev.local.forks import write_command
from dev.local.jvm import java_command
from tests.docs.commands import CHECKOUT, CommandFailedError, Shell, blocks, commands
from tests.docs.conftest import TOPIC, Beside
from ts_uploader.metrics.metrics_page import families

PAGES = [CHECKOUT / "docs" / name for name in ("runbook.md", "repair.md")]
# Each of Kafka's scripts runs one class.
_KAFKA = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-broker-api-versions.sh": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-dump-log.sh": "kafka.tools.DumpLogSegments",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
_NOT_HERE = ("dmesg ", "nc ", "grep -i unclean /var/log/kafka/", "aws ", "sed ", "diff ")
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
COMMANDS = [
    re.sub(r" +# .*", "", line) for page in PAGES for block in blocks(page, language="sh") for line in commands(block)
]


def takes_long(command: str) -> bool:
    """Return whether a command starts a JVM or decodes segments."""
    return "tsctl verify" in command or any(tool in command for tool in _KAFKA)


@pytest.fixture(scope="module")
def shell(beside: Beside, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a shell with the page's places and stand-ins for a host's commands."""
    programs = tmp_path_factory.mktemp("programs")
    made = {
        "journalctl": _JOURNALCTL.format(log=beside.agent.log),
        "systemctl": "true",
        **{tool: shlex.join(java_command("3.9", main, [])) + ' "$@"' for tool, main in _KAFKA.items()},
    }
    for name, line in made.items():
        write_program(programs / name, line)
    write_command(programs / "tsctl", "tsctl")
    broker = beside.archive.cluster.brokers[1]
    places = {
        "http://127.0.0.1:9464": f"http://{beside.agent.address}",
        "/etc/ts-uploader/conf": str(beside.config),
        "/etc/ts-uploader/environment": "/dev/null",  # the shell has the variables
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
    """Return the page's assignments, for the commands after them."""
    return "\n".join(command for command in COMMANDS if _SETTING.fullmatch(command))


def test_the_page_sets_each_variable_that_it_uses() -> None:
    """Once, and before it is used; a value that only the reader has is `...`, which no program accepts."""
    known = {"PATH"}
    for command in COMMANDS:
        assert set(re.findall(r"\$\{?([A-Z_]+)", command)) <= known, command
        if setting := _SETTING.fullmatch(command):
            assert setting[1] not in known, command
            known.add(setting[1])
    assert re.findall(r"^([A-Z_]+)=\.\.\.", settings(), re.MULTILINE) == [
        "MORE",
        "MARKER",
        "VERSION",
        "FIRST",
        "LINEAGE",
        "PAIR",
        "WHOLE",
        "TOPIC_ID",
        "OFFSET",
    ]


def test_each_read_only_command_works(shell: Shell, values: dict[str, str]) -> None:
    """Agent, log and store answer the page's commands; a `grep` may find nothing."""
    asked = [c for c in COMMANDS if not takes_long(c) and not c.startswith(_NOT_HERE) and not _SETTING.fullmatch(c)]
    assert len(asked) > 15
    for command in asked:
        shell.run(settings(), _without_grep(command), **values)


def test_what_an_agent_warns_of_is_found_in_its_journal(tmp_path: Path) -> None:
    """In the unit's log format, each `grep` for levels finds all events above the level info."""
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
    """Kafka's own tools accept the page's options, and `tsctl verify` finds nothing."""
    asked = [command for command in COMMANDS if takes_long(command)]
    assert {tool for tool in _KAFKA if any(tool in command for command in asked)} == set(_KAFKA)
    for command in asked:
        shell.run(settings(), _without_grep(command.partition(" ; ")[2] or command), **values)


@pytest.mark.full
def test_more_retention_needs_a_value(shell: Shell, values: dict[str, str]) -> None:
    """Without a value, the command that buys time fails and changes nothing."""
    describe, alter = (command for command in COMMANDS if command.startswith("kafka-configs.sh"))
    before = shell.run(settings(), describe, **values)
    assert "retention.ms=" in before
    assert "cleanup.policy=" in before
    with pytest.raises(CommandFailedError, match="Invalid value"):
        shell.run(settings(), alter, **{**values, "MORE": "..."})
    assert shell.run(settings(), describe, **values) == before


def test_every_metric_that_a_command_selects_exists() -> None:
    """Each metric in a `grep` of the page, or its prefix, is one of the agent's."""
    told = [family.name for family in families()]
    looked = [command for command in COMMANDS if "/metrics" in command and "grep" in command]
    assert len(looked) > 4
    for command in looked:
        begun = [one.removeprefix("^") for pattern in _patterns(command) for one in _alternatives(pattern)]
        names = [one.removesuffix("_total").removesuffix("_info") for one in begun if one.startswith("ts_uploader")]
        assert names, command
        assert [name for name in names if not any(one.startswith(name) for one in told)] == [], command


def test_every_event_that_a_command_selects_exists() -> None:
    """A `grep` for an event that no longer exists finds nothing, which looks like good news."""
    sources = "".join(path.read_text() for path in (CHECKOUT / "ts_uploader").rglob("*.py"))
    looked = [c for c in COMMANDS if "journalctl" in c and "grep" in c and '"level"' not in c]
    assert len(looked) > 8
    for command in looked:
        events = [one for pattern in _patterns(command) for one in _alternatives(pattern) if re.search(r"[ _]", one)]
        assert events, command
        assert [one for one in events if one not in sources and one != "main process exited"] == [], command


def _output(command: list[str]) -> str:
    """Return what a program writes to standard error."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def _patterns(command: str) -> list[str]:
    """Return the patterns of a command's `grep`s."""
    return [quoted or plain for quoted, plain in re.findall(r"grep (?:-[A-Za-z]+\d* )*(?:'([^']+)'|(\S+))", command)]


def _alternatives(pattern: str) -> list[str]:
    """Return `^a_b` and `^a_c` for `^a_(b|c)`."""
    if match := re.fullmatch(r"(.*)\((.*)\)", pattern):
        return [match[1] + one for one in match[2].split("|")]
    return pattern.split("|")


def _without_grep(command: str) -> str:
    """Return the command with `grep`s that succeed without a match."""
    return re.sub(r"\bgrep (.*?)(?= \||$)", r"{ grep \1 || test $? = 1; }", command)
