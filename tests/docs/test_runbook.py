"""docs/runbook.md and docs/repair.md next to a live agent: their commands work, and find what they look for.

`journalctl` shows the agent's own log, and refuses to look for a priority, as no line of an agent's has one;
`systemctl` does nothing, Kafka's tools are its classes, and what only an operator's host has (`dmesg`, `nc`, the
controller's log, an authorizer) is left out by name. What `aws` does there is tested in tests/deploy/test_policies.py,
what is written by hand in tests/docs/test_hidden_records.py.
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

PAGES = [CHECKOUT / "docs" / name for name in ("runbook.md", "repair.md")]
# Kafka's scripts are one line each: the class that they run.
_KAFKA = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-broker-api-versions.sh": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-dump-log.sh": "kafka.tools.DumpLogSegments",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
_NOT_HERE = ("dmesg ", "nc ", "grep -i unclean /var/log/kafka/", "kafka-acls.sh ", "aws ", "sed ", "diff ")
# Nothing that an agent writes has a priority, so `journalctl -p` would look well and find nothing.
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
    """Whether it starts a JVM, or what decodes segments."""
    return "tsctl verify" in command or any(tool in command for tool in _KAFKA)


@pytest.fixture(scope="module")
def shell(beside: Beside, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """The variables of the page, and a host's commands where this machine has none."""
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
    """Of the variables that the page sets, those that are others here."""
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
    """What the page sets, for the commands behind."""
    return "\n".join(command for command in COMMANDS if _SETTING.fullmatch(command))


def test_the_page_sets_each_variable_that_it_uses() -> None:
    """Once, and before it is used; a value that only the reader knows is `...`, which no program takes."""
    known = set[str]()
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


def test_each_command_that_asks_works(shell: Shell, values: dict[str, str]) -> None:
    """Agent, log and store are asked as the page says, and answer; a `grep` may find nothing."""
    asked = [c for c in COMMANDS if not takes_long(c) and not c.startswith(_NOT_HERE) and not _SETTING.fullmatch(c)]
    assert len(asked) > 15
    for command in asked:
        shell.run(settings(), _without_grep(command), **values)


def test_what_an_agent_warns_of_is_found_in_its_journal(tmp_path: Path) -> None:
    """In lines as the unit has them written, each look for a level finds all that is worse than information."""
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
    """Kafka's own tools take the options that the page gives them, and all is there."""
    asked = [command for command in COMMANDS if takes_long(command)]
    assert {tool for tool in _KAFKA if any(tool in command for command in asked)} == set(_KAFKA)
    for command in asked:
        shell.run(settings(), _without_grep(command.partition(" ; ")[2] or command), **values)


@pytest.mark.full
def test_more_retention_is_refused_until_it_is_said_how_much(shell: Shell, values: dict[str, str]) -> None:
    """Copied as it stands, the command that buys time changes nothing; what was read stands there still."""
    describe, alter = (command for command in COMMANDS if command.startswith("kafka-configs.sh"))
    before = shell.run(settings(), describe, **values)
    assert "retention.ms=" in before
    assert "cleanup.policy=" in before
    with pytest.raises(CommandFailedError, match="Invalid value"):
        shell.run(settings(), alter, **{**values, "MORE": "..."})
    assert shell.run(settings(), describe, **values) == before


def test_every_figure_that_is_looked_for_is_told() -> None:
    """Each metric in a `grep` of the page, or what it begins with, is one that the agent tells."""
    told = [family.name for family in families()]
    looked = [command for command in COMMANDS if "/metrics" in command and "grep" in command]
    assert len(looked) > 4
    for command in looked:
        begun = [one.removeprefix("^") for pattern in _patterns(command) for one in _alternatives(pattern)]
        names = [one.removesuffix("_total").removesuffix("_info") for one in begun if one.startswith("ts_uploader")]
        assert names, command
        assert [name for name in names if not any(one.startswith(name) for one in told)] == [], command


def test_every_event_that_is_looked_for_is_one_of_the_agents() -> None:
    """A `grep` for what nobody writes any more finds nothing, and looks like good news."""
    sources = "".join(path.read_text() for path in (CHECKOUT / "ts_uploader").rglob("*.py"))
    looked = [c for c in COMMANDS if "journalctl" in c and "grep" in c and '"level"' not in c]
    assert len(looked) > 8
    for command in looked:
        events = [one for pattern in _patterns(command) for one in _alternatives(pattern) if re.search(r"[ _]", one)]
        assert events, command
        assert [one for one in events if one not in sources and one != "main process exited"] == [], command


def _output(command: list[str]) -> str:
    """What a program writes to standard error."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def _patterns(command: str) -> list[str]:
    """What the `grep`s of a command look for."""
    return [quoted or plain for quoted, plain in re.findall(r"grep (?:-[A-Za-z]+\d* )*(?:'([^']+)'|(\S+))", command)]


def _alternatives(pattern: str) -> list[str]:
    """`^a_(b|c)` as `^a_b` and `^a_c`."""
    if match := re.fullmatch(r"(.*)\((.*)\)", pattern):
        return [match[1] + one for one in match[2].split("|")]
    return pattern.split("|")


def _without_grep(command: str) -> str:
    """The same, where finding nothing is no failure."""
    return re.sub(r"\bgrep (.*?)(?= \||$)", r"{ grep \1 || test $? = 1; }", command)
