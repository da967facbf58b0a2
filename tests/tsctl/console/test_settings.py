"""Options, files and `--consumer-property` give librdkafka's settings by the rules of Kafka's tool."""

from dataclasses import replace

import pytest

from tsctl.console.settings import Options, consumer_settings

NOTHING = Options(None, None, None, from_beginning=False, partition=None)


def test_a_group_of_any_place_commits() -> None:
    """Without a group, nothing is committed for the new one."""
    assert "enable.auto.commit" not in consumer_settings(NOTHING, {"group.id": "a"}, {"group.id": "a"}, [])
    new = consumer_settings(NOTHING, {}, {}, [])
    assert new["enable.auto.commit"] == "false"
    assert new["group.id"] != consumer_settings(NOTHING, {}, {}, [])["group.id"]


def test_an_option_is_stronger_than_a_property_and_that_stronger_than_the_file() -> None:
    """Brokers and the isolation level have options; `client.id` has none."""
    file = {"client.id": "file", "isolation.level": "read_committed", "bootstrap.servers": "a:1", "linger.ms": "5"}
    given = {"client.id": "given", "auto.offset.reset": "earliest"}
    found = consumer_settings(replace(NOTHING, bootstrap_server="b:2"), file, given, [])
    assert found["isolation.level"] == "read_committed"
    assert (found["client.id"], found["bootstrap.servers"], found["linger.ms"]) == ("given", "b:2", "5")
    assert found["auto.offset.reset"] == "earliest"
    options = replace(NOTHING, isolation="read_uncommitted")
    assert consumer_settings(options, file, given, [])["isolation.level"] == "read_uncommitted"


@pytest.mark.parametrize(
    ("options", "given", "problem"),
    [
        (replace(NOTHING, group="a"), {"group.id": "b"}, "the groups differ: 'a', 'b'"),
        (replace(NOTHING, group="a", partition=0), {}, "--partition and a group"),
        (replace(NOTHING, from_beginning=True), {"auto.offset.reset": "latest"}, "--from-beginning and auto.offset"),
        (NOTHING, {"isolation.level": "any"}, "isolation level any: accepted are read_committed"),
        (NOTHING, {"group.id": ""}, "group.id is empty"),
        (NOTHING, {"error_cb": "x"}, "error_cb: a command line has no callbacks"),
    ],
)
def test_a_contradiction_is_a_mistake(options: Options, given: dict[str, str], problem: str) -> None:
    """As Kafka's tool refuses it."""
    problems: list[str] = []
    consumer_settings(options, {}, given, problems)
    assert len(problems) == 1
    assert problem in problems[0]
