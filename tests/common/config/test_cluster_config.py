from pathlib import Path

import pytest

from ts_common.config.cluster_config import OffsetReset, is_changeable, load_config, parse_config, unit_of
from ts_common.errors import ConfigurationError

JAVA = Path(__file__).parents[2] / "data" / "java-uploader"


def test_all_problems_are_reported_at_once_with_key_and_reason() -> None:
    """One error lists every problem of a file, so that an operator corrects all of them at once."""
    with pytest.raises(ConfigurationError) as refused:
        parse_config(
            {
                "ts.segment.uploader.upload.thread.cont": "3",
                "ts.segment.uploader.upload.thread.count": "many",
                "ts.segment.uploader.kafka.topics.include": "a,(",
                "ts.segment.uploader.leadership.watcher.class": "craft",
                "ts.segment.uploader.offset.reset.strategy": "MIDDLE",
            },
            "prod.properties",
        )
    text = str(refused.value)
    assert text.startswith("prod.properties: 5 problems")
    assert "did you mean ts.segment.uploader.upload.thread.count?" in text
    assert "thread.count=many" in text
    assert "'(' is not a regular expression" in text
    assert "'craft' is unknown; expected zookeeper, kraft or module:Class" in text
    assert "EARLIEST" in text


def test_settings_of_librdkafka_are_passed_on_and_not_shown() -> None:
    """Any key below the prefix is passed on; no text form of the configuration contains a password among them."""
    prefix = "ts.segment.uploader.kafka.client."
    config, _ = parse_config({prefix + "sasl.password": "hush", prefix + "sasl.username": "u "}, "prod.properties")
    assert config.kafka_client == {"sasl.password": "hush", "sasl.username": "u"}
    assert "hush" not in f"{config} {config!r}"


def test_only_an_operators_reporter_class_has_keys_of_its_own() -> None:
    """Such a class gets any key without the prefix; with a built-in reporter or none, an unknown key is an error."""
    own = {"metrics.reporter.class": "mine:Reporter", "metrics.reporter.token": "hush", "metrics.reporter.port": "9"}
    config, _ = parse_config(own, "prod.properties")
    assert (config.reporter, config.reporter_port) == ("mine:Reporter", 9)
    assert config.reporter_options == {"token": "hush"}
    assert "hush" not in f"{config} {config!r}"
    for name in ("statsd", None):
        properties = {"metrics.reporter.prefux": "x"} | ({"metrics.reporter.class": name} if name else {})
        with pytest.raises(ConfigurationError, match=r"unknown key; did you mean metrics\.reporter\.prefix\?"):
            parse_config(properties, "prod.properties")


def test_a_topic_has_a_live_tail_if_it_is_shipped_and_selected() -> None:
    """Without an interval none has one; a topic's packs are those of the first group that matches it."""
    prefix = "ts.segment.uploader."
    selected = {
        f"{prefix}kafka.topics.exclude": "secret",
        f"{prefix}tail.topics.exclude": "bulk-.*",
        f"{prefix}tail.group.pay": "pay-.*",
        f"{prefix}tail.group.all-pay": "pay-.*,salary",
    }
    config, _ = parse_config(selected | {f"{prefix}tail.interval.ms": "700"}, "prod.properties")
    assert [config.tails(topic) for topic in ("clicks", "secret", "bulk-1")] == [True, False, False]
    assert [config.tail_group(topic) for topic in ("clicks", "salary", "pay-1")] == [None, "all-pay", "all-pay"]
    assert not parse_config(selected, "prod.properties")[0].tails("clicks")
    unconditional = {f"{prefix}tail.interval.ms": "700", "storage.service.conditional.writes": "false"}
    with pytest.raises(ConfigurationError, match="a live tail needs conditional writes"):
        parse_config(unconditional, "prod.properties")
    with pytest.raises(ConfigurationError, match="'a/b' is no name of a group"):
        parse_config({f"{prefix}tail.group.a/b": "x"}, "prod.properties")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the missing file, the others of its directory, and how the caller chooses one of them."""
    with pytest.raises(ConfigurationError, match=r"nowhere\.properties.*\n.*named <clusterId>\.properties$"):
        load_config(tmp_path / "nowhere.properties", "name {}")
    (tmp_path / "prod.properties").touch()
    with pytest.raises(ConfigurationError, match=r"the directory has prod\.properties$"):
        load_config(tmp_path / "nowhere.properties")
    with pytest.raises(ConfigurationError, match=r"the directory has prod\.properties: name prod$"):
        load_config(tmp_path / "nowhere.properties", "name {}")
    for number in range(11):
        (tmp_path / f"c{number:02}.properties").touch()
    with pytest.raises(ConfigurationError, match=r"c09\.properties and 2 more: name NAME$"):
        load_config(tmp_path / "nowhere.properties", "name {}")


def test_a_file_with_an_invalid_escape_is_an_error_that_names_it(tmp_path: Path) -> None:
    """An invalid Unicode escape in a properties file is a configuration error, not a traceback."""
    file = tmp_path / "prod.properties"
    file.write_text(r"metrics.reporter.host=\uXYZ")
    with pytest.raises(ConfigurationError, match=r"prod\.properties: 1 problem\n  - invalid properties file"):
        load_config(file)


def test_a_file_of_the_java_uploader_is_accepted() -> None:
    """Keys of the Java uploader keep their meaning; those without one here cause a warning."""
    config, warnings = load_config(JAVA / "my_test_kafka_cluster.properties")
    assert config.entropy_bits == 3
    assert config.leadership == "zookeeper"
    assert config.leadership_poll_seconds == 5
    assert config.offset_reset is OffsetReset.EARLIEST
    assert config.ships("codec-lz4")
    assert not config.ships("codec-lz4-more")
    assert any("upload.max.retries" in warning for warning in warnings)
    assert any("segment.manager.class" in warning for warning in warnings)


def test_exclude_overrides_include() -> None:
    """A topic that matches both patterns is not shipped."""
    prefix = "ts.segment.uploader.kafka.topics."
    config, _ = parse_config({prefix + "include": "a.*,b", prefix + "exclude": "ab.*"}, "f")
    assert [topic for topic in ("a", "ac", "ab", "abc", "b", "bc") if config.ships(topic)] == ["a", "ac", "b"]


def test_milliseconds_of_the_file_are_read_as_seconds() -> None:
    """The file has milliseconds, as Kafka's settings have; the properties in seconds are those divided by 1000."""
    prefix = "ts.segment.uploader."
    config, _ = parse_config({prefix + "upload.timeout.ms": "1500", prefix + "stuck.after.ms": "2500"}, "f")
    assert (config.upload_timeout_seconds, config.stuck_after_seconds) == (1.5, 2.5)


def test_location_and_s3_options_are_given_to_the_endpoint_provider() -> None:
    """The provider gets the keys of locations and of S3 that the file contains, and no others."""
    located = {
        "storage.service.endpoint.url": "s3://bucket/base",
        "storage.service.endpoint.s3.region": "eu-west-1",
    }
    config, _ = parse_config({**located, "ts.segment.uploader.nice": "5"}, "f")
    assert config.endpoint_properties == located


def test_changeable_keys_and_units_are_read_in_the_description() -> None:
    """A reload applies changeable fields only, and the page shows the unit of a number."""
    assert [is_changeable(name) for name in ("topics_include", "upload_threads")] == [True, False]
    assert [unit_of(name) for name in ("upload_timeout_ms", "upload_threads")] == ["ms", ""]
