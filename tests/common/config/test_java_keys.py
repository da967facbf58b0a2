from pathlib import Path

import pytest

from ts_common.config.cluster_config import parse_config
from ts_common.config.java_keys import find_java_key, is_of_collection, topic_of_retention
from ts_common.errors import ConfigurationError

KEYS = Path(__file__).parents[2] / "data" / "java-uploader" / "keys.csv"
GC = "ts.segment.uploader.segment.manager.gc."


def test_every_key_of_the_java_uploader_is_known() -> None:
    """No key of the Java uploader is an unknown key here."""
    lines = KEYS.read_text().splitlines()[1:]
    keys = [line.split(",")[0].replace("<topic>", "clicks").replace("*", "enabled") for line in lines]
    assert len(keys) > 15
    for key in keys:
        try:
            parse_config({key: ""}, "f")
        except ConfigurationError as error:
            assert "unknown key" not in str(error)  # noqa: PT017  (an empty value can be invalid)


def test_an_asterisk_in_a_pattern_matches_any_text() -> None:
    """Keys that contain a topic's name match; text around a pattern does not."""
    found = find_java_key(GC + "my.topic.retention.seconds")
    assert found is not None
    assert found.pattern == GC + "*.retention.seconds"
    assert find_java_key(GC + "my.topic.retention.seconds.more") is None
    assert find_java_key("my." + GC + "interval.seconds") is None


@pytest.mark.parametrize("name", ["com.pinterest.kafka.S3SegmentManager", "NoOpSegmentManager", "NoOp", ""])
def test_the_java_uploaders_own_segment_managers_cause_a_warning(name: str) -> None:
    """The keys of its default managers are accepted, because `tsctl gc` makes a policy of them."""
    _, warnings = parse_config({"ts.segment.uploader.segment.manager.class": name}, "f")
    assert [warning.partition(" has no effect on the agent: ")[0] for warning in warnings] == [
        "ts.segment.uploader.segment.manager.class"
    ]


def test_the_collection_of_a_file_is_kept_for_tsctl() -> None:
    """With the topic that a key names; the agent only warns."""
    properties = {GC + "a.b.retention.seconds": " 60 ", GC + "retention.seconds": "90", GC + "interval.seconds": "1"}
    config, warnings = parse_config({**properties, "ts.segment.uploader.upload.max.retries": "3"}, "f")
    assert config.java_collection == {key: value.strip() for key, value in properties.items()}
    assert len(warnings) == 4
    assert [topic_of_retention(key) for key in properties] == ["a.b", None, None]
    assert not is_of_collection("ts.segment.uploader.upload.max.retries")


def test_another_segment_manager_is_an_error() -> None:
    """An operator's own class would delete objects, so the agent does not ignore it in silence."""
    with pytest.raises(ConfigurationError, match="MyManager: this class is unsupported; remove the key"):
        parse_config({"ts.segment.uploader.segment.manager.class": "com.example.MyManager"}, "f")


def test_a_reporter_class_of_the_java_uploader_causes_a_warning() -> None:
    """The agent starts without a reporter; any other unknown reporter is an error."""
    config, warnings = parse_config({"metrics.reporter.class": "com.pinterest.Reporter"}, "prod.properties")
    assert config.reporter is None
    assert any("metrics.reporter.class has no effect" in warning for warning in warnings)
    with pytest.raises(ConfigurationError, match="'grafite' is unknown; expected graphite, statsd or module:Class"):
        parse_config({"metrics.reporter.class": "grafite"}, "prod.properties")
