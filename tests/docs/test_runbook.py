"""docs/runbook.md, followed beside a live agent: its commands work, and what they look for is there to be found.

`journalctl` shows the agent's own log, `systemctl` does nothing, Kafka's tools are its classes, and what only an
operator's host has (`dmesg`, `nc`, the controller's log) is left out by name.
"""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.docs.commands import CHECKOUT, Shell, blocks, commands
from tests.docs.conftest import TOPIC, Beside
from ts_local.jvm import java_command
from ts_uploader.metrics_page import families

PAGE = CHECKOUT / "docs" / "runbook.md"
# Kafka's scripts are one line each: the class that they run.
_KAFKA = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-broker-api-versions.sh": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-dump-log.sh": "kafka.tools.DumpLogSegments",
}
_NOT_HERE = ("dmesg ", "nc ", "grep -i unclean /var/log/kafka/")
COMMANDS = [re.sub(r" +# .*", "", line) for block in blocks(PAGE, language="sh") for line in commands(block)]


def takes_long(command: str) -> bool:
    """Whether it starts a JVM, or what decodes segments."""
    return "tsctl verify" in command or any(tool in command for tool in _KAFKA)


@pytest.fixture(scope="module")
def shell(beside: Beside, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """The variables of the page, and a host's commands where this machine has none."""
    programs = tmp_path_factory.mktemp("programs")
    made = {
        "journalctl": f"cat {beside.agent.log}",
        "systemctl": "true",
        "tsctl": shlex.join([str(Path(sys.executable).with_name("tsctl"))]) + ' "$@"',
        **{tool: shlex.join(java_command("3.9", main, [])) + ' "$@"' for tool, main in _KAFKA.items()},
    }
    for name, line in made.items():
        (programs / name).write_text(f"#!/bin/sh\nexec {line}\n")
        (programs / name).chmod(0o755)
    broker = beside.archive.cluster.brokers[1]
    environment = {
        **beside.archive.s3.environment(),
        "BROKER": beside.archive.cluster.bootstrap,
        "TOPIC": TOPIC,
        "PARTITION": "0",
        "LOG_DIR": str(broker.log_dirs[0]),
        "BASE": f"{0:020d}",
    }
    places = {
        "http://127.0.0.1:9464": f"http://{beside.agent.address}",
        "/etc/ts-uploader/conf": str(beside.config),
        "/etc/kafka/server.properties": str(broker.server_properties),
    }
    return Shell(tmp_path_factory.mktemp("host"), places, programs, environment)


def settings() -> str:
    """What the page sets, for the commands behind."""
    return "\n".join(command for command in COMMANDS if re.fullmatch(r"[A-Z]+=\S+", command))


def test_each_command_that_asks_works(shell: Shell) -> None:
    """Agent, log and store are asked as the page says, and answer; a `grep` may find nothing."""
    asked = [c for c in COMMANDS if not takes_long(c) and not c.startswith(_NOT_HERE) and "=" not in c.split()[0]]
    assert len(asked) > 15
    for command in asked:
        shell.run(settings(), _without_grep(command))


@pytest.mark.full
def test_each_command_of_kafka_and_each_look_at_everything_works(shell: Shell) -> None:
    """Kafka's own tools take the options that the page gives them, and all is there."""
    asked = [command for command in COMMANDS if takes_long(command)]
    assert {tool for tool in _KAFKA if any(tool in command for command in asked)} == set(_KAFKA)
    for command in asked:
        shell.run(settings(), _without_grep(command.partition(" ; ")[2] or command))


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


def test_every_sentence_that_is_looked_for_is_one_of_the_agents() -> None:
    """A `grep` for what nobody writes any more finds nothing, and looks like good news."""
    sources = "".join(path.read_text() for path in (CHECKOUT / "ts_uploader").rglob("*.py"))
    looked = [c for c in COMMANDS if "journalctl" in c and "grep" in c]
    assert len(looked) > 8
    for command in looked:
        sentences = [one for pattern in _patterns(command) for one in _alternatives(pattern) if " " in one]
        assert sentences, command
        assert [one for one in sentences if one not in sources and one != "main process exited"] == [], command


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
