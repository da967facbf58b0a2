"""The configuration: our keys are checked together, and all others are librdkafka's."""

from pathlib import Path

import pytest

from ts_common.errors import ConfigurationError
from ts_consumer.configuration import OnGap, parse_configuration
from ts_consumer.modes import TierMode
from ts_reader.query.query import OnHole

PLACE = {"kafka.cluster.id": "prod", "storage.service.endpoint.url": "s3://bucket/base"}


def test_keys_of_librdkafka_stay_as_they_are() -> None:
    """Ours are not sent to it; it decides no offset itself."""
    found = parse_configuration({**PLACE, "group.id": "g", "auto.offset.reset": "earliest", "fetch.min.bytes": 7})
    assert found.live == {"group.id": "g", "auto.offset.reset": "earliest", "fetch.min.bytes": 7}
    assert found.live_part == {**found.live, "auto.offset.reset": "error", "enable.auto.offset.store": False}
    assert (found.reset, found.stores_offsets, found.read_committed) == ("earliest", True, True)


def test_defaults_are_those_that_the_page_lists() -> None:
    """Kafka is preferred; a gap is waited for, and a hole is an error."""
    found = parse_configuration(PLACE)
    assert (found.mode, found.on_gap, found.on_hole) == (TierMode.KAFKA_PREFERRED, OnGap.WAIT, OnHole.FAIL)
    assert found.endpoint("any").location == "s3://bucket/base"
    assert (found.cluster, found.entropy_bits, found.reset) == ("prod", None, "latest")


def test_every_mistake_is_named_at_once() -> None:
    """An unknown key has a suggestion, and each wrong value its choices."""
    with pytest.raises(ConfigurationError) as raised:
        parse_configuration(
            {
                "tiered.storage.mod": "x",
                "tiered.storage.mode": "BOTH",
                "tiered.storage.on.gap": "jump",
                "tiered.storage.refresh.ms": "soon",
                "tiered.storage.max.batch.bytes": "3_000_000",
                "client.id": "a\ud800",
                "auto.offset.reset": "never",
                "enable.auto.offset.store": "perhaps",
            }
        )
    text = str(raised.value)
    for part in (
        "tiered.storage.mod is unknown; did you mean tiered.storage.mode?",
        "tiered.storage.mode=BOTH: accepted are KAFKA_ONLY, KAFKA_PREFERRED",
        "tiered.storage.on.gap=jump: accepted are wait, error, skip",
        "tiered.storage.refresh.ms=soon",
        "tiered.storage.max.batch.bytes=3_000_000",
        "'client.id': its value is no Unicode text",
        "auto.offset.reset=never",
        "enable.auto.offset.store=perhaps",
        "kafka.cluster.id is missing",
    ):
        assert part in text, part


def test_the_agents_file_names_the_archive(tmp_path: Path) -> None:
    """One path suffices; a second place next to it is a contradiction."""
    file = tmp_path / "prod.properties"
    file.write_text("storage.service.endpoint.url=s3://bucket/base\nts.segment.uploader.s3.prefix.entropy.bits=5\n")
    found = parse_configuration({"tiered.storage.config": str(file)})
    assert (found.cluster, found.entropy_bits, found.endpoint("t").location) == ("prod", 5, "s3://bucket/base")
    with pytest.raises(ConfigurationError, match=r"sets kafka\.cluster\.id too"):
        parse_configuration({"tiered.storage.config": str(file), "kafka.cluster.id": "prod"})


def test_the_plain_client_needs_no_archive() -> None:
    """`KAFKA_ONLY` is the plain client with another name."""
    assert parse_configuration({"tiered.storage.mode": "kafka_only", "group.id": "g"}).mode is TierMode.KAFKA_ONLY
