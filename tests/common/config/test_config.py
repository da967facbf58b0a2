from pathlib import Path

import pytest

from ts_common.config.cluster_config import OffsetReset, load_config, parse_config, reference_page
from ts_common.errors import ConfigurationError

JAVA = Path(__file__).parents[2] / "data" / "java-uploader"
DOCS = Path(__file__).parents[3] / "docs"


def test_all_problems_are_told_at_once_with_key_and_reason() -> None:
    """An operator mends a file in one go."""
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
    assert "'(' is no regular expression" in text
    assert "'craft' is none of zookeeper, kraft, module:Class" in text
    assert "EARLIEST" in text


def test_settings_of_librdkafka_are_handed_on_and_not_shown() -> None:
    """Each key behind the prefix, whatever it is; a password among them is in no text of the configuration."""
    prefix = "ts.segment.uploader.kafka.client."
    config, _ = parse_config({prefix + "sasl.password": "hush", prefix + "sasl.username": "u "}, "prod.properties")
    assert config.kafka_client == {"sasl.password": "hush", "sasl.username": "u"}
    assert "hush" not in f"{config} {config!r}"


def test_options_of_a_reporter_are_for_a_class_of_ones_own() -> None:
    """Any key behind the prefix, without it; beside a built-in one, or none, a key that is not known is an error."""
    own = {"metrics.reporter.class": "mine:Reporter", "metrics.reporter.token": "hush", "metrics.reporter.port": "9"}
    config, _ = parse_config(own, "prod.properties")
    assert (config.reporter, config.reporter_port) == ("mine:Reporter", 9)
    assert config.reporter_options == {"token": "hush"}
    assert "hush" not in f"{config} {config!r}"
    for name in ("statsd", None):
        said = {"metrics.reporter.prefux": "x"} | ({"metrics.reporter.class": name} if name else {})
        with pytest.raises(ConfigurationError, match=r"unknown key; did you mean metrics\.reporter\.prefix\?"):
            parse_config(said, "prod.properties")


def test_a_reporter_of_the_java_uploader_is_told_of_and_no_other_is_guessed() -> None:
    """Its file is understood; a class that is none is refused."""
    config, warnings = parse_config({"metrics.reporter.class": "com.pinterest.Reporter"}, "prod.properties")
    assert config.reporter is None
    assert any("metrics.reporter.class has no effect" in warning for warning in warnings)
    with pytest.raises(ConfigurationError, match="'grafite' is none of graphite, statsd, module:Class"):
        parse_config({"metrics.reporter.class": "grafite"}, "prod.properties")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The message says which file and how it is named."""
    with pytest.raises(ConfigurationError, match=r"nowhere\.properties"):
        load_config(tmp_path / "nowhere.properties")


def test_a_file_of_the_java_uploader_is_understood() -> None:
    """Its keys keep their meaning, and those without one are told in a warning."""
    config, warnings = load_config(JAVA / "my_test_kafka_cluster.properties")
    assert config.entropy_bits == 3
    assert config.leadership == "zookeeper"
    assert config.leadership_poll_seconds == 5
    assert config.offset_reset is OffsetReset.EARLIEST
    assert config.ships("codec-lz4")
    assert not config.ships("codec-lz4-more")
    assert any("upload.max.retries" in warning for warning in warnings)
    assert any("segment.manager.class" in warning for warning in warnings)


def test_every_key_of_the_java_uploader_is_known() -> None:
    """None of them is an unknown key here."""
    lines = (JAVA / "keys.csv").read_text().splitlines()[1:]
    keys = [line.split(",")[0].replace("<topic>", "clicks").replace("*", "enabled") for line in lines]
    assert len(keys) > 15
    for key in keys:
        try:
            parse_config({key: ""}, "f")
        except ConfigurationError as error:
            assert "unknown key" not in str(error)  # noqa: PT017  (an empty value may well be refused)


def test_exclude_wins_over_include() -> None:
    """A topic that both name is not shipped."""
    prefix = "ts.segment.uploader.kafka.topics."
    config, _ = parse_config({prefix + "include": "a.*,b", prefix + "exclude": "ab.*"}, "f")
    assert [topic for topic in ("a", "ac", "ab", "abc", "b", "bc") if config.ships(topic)] == ["a", "ac", "b"]


def test_the_reference_page_is_the_generated_one() -> None:
    """The page under docs never falls behind the code."""
    assert (DOCS / "configuration.md").read_text() == reference_page()


def test_names_of_hosts_are_taken_without_ports_and_patterns() -> None:
    """They are compared in lower case, and a leading dot stands for all names below."""
    key = "ts.segment.uploader.http.allowed.hosts"
    assert parse_config({key: " Pages.example., .Internal.example ,"}, "a file")[0].http_allowed_hosts == (
        "pages.example",
        ".internal.example",
    )
    for wrong in ("a:80", "*.example", "http://a", "a b"):
        with pytest.raises(ConfigurationError, match="is no host name"):
            parse_config({key: wrong}, "a file")
