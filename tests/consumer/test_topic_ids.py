"""Topic ids as brokers have them, in the form of the archive; and topics that were created again."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Uuid

from tests.made_archive import CLUSTER, MadeArchive, batches
from ts_common.archive.incarnations import read_incarnations
from ts_common.model import TopicPartition
from ts_consumer.archive_tier import ArchiveTier
from ts_consumer.brokers import id_of
from ts_consumer.configuration import parse_configuration
from ts_consumer.errors import SeamRefused
from ts_consumer.modes import Extent, TierMode, Way
from ts_consumer.resolution import Resolver

FORMER, LATER = "A" * 21 + "Q", "B" * 21 + "Q"


@pytest.mark.parametrize("text", ["bO_FSezpQfGuk0ddoMQWEw", "-_-_-_-_-_-_-_-_-_-_-w", "AAAAAAAAAAAAAAAAAAAAAQ"])
def test_an_id_has_the_form_of_kafkas_tools(text: str) -> None:
    """librdkafka writes other characters, so half of all topics would have been those of another life."""
    data = base64.urlsafe_b64decode(f"{text}==")
    most, least = (int.from_bytes(half, signed=True) for half in (data[:8], data[8:]))
    assert id_of(Uuid(most, least)) == text


def test_a_broker_without_ids_has_none() -> None:
    """Kafka before 2.8 returns zero."""
    assert id_of(Uuid(0, 0)) is None


class OneTopic:
    """What brokers answer of one topic with 5,000 records."""

    def __init__(self) -> None:
        self.id, self.start = FORMER, 900

    def extent(self, _: object) -> Extent:
        return Extent(self.start, 5000)

    def topic_id(self, _: object) -> str:
        return self.id


def damage(archive: MadeArchive) -> None:
    """Put a damaged commit into the newest incarnation."""
    newest = read_incarnations(archive.store, archive.keys, "t")[0].newest_directory
    archive.store.put(archive.keys.partition(TopicPartition("t", 0), newest).commit, b"garbage")


@pytest.mark.parametrize("mode", [TierMode.KAFKA_PREFERRED, TierMode.TIERED_STORAGE_PREFERRED])
@pytest.mark.parametrize("change", [lambda _: None, damage], ids=["no commit yet", "damaged commit"])
def test_e04_a_topic_that_was_created_again_never_continues_the_former_history(
    tmp_path: Path, mode: TierMode, change: Callable[[MadeArchive], None]
) -> None:
    """Its archive has no commit yet, or a damaged one, so only brokers' topic id shows it. An election shows itself."""
    archive = MadeArchive(tmp_path / "store")
    archive.put_incarnations("t", FORMER)
    archive.put_segment("t", 0, batches((0, 1000)))
    archive.commit("t", 1000)
    keys = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "kafka.cluster.id": CLUSTER}
    configuration = parse_configuration(
        {**keys, "storage.service.endpoint.url": archive.location, "tiered.storage.mode": mode}
    )
    tier, brokers = ArchiveTier(configuration), OneTopic()
    asked: Any = brokers
    resolver = Resolver(configuration, tier, lambda: asked)
    first = resolver.resolve(("t", 0), 0, history=None, refusal=None, epoch=None)
    assert first.way is Way.ARCHIVE
    tier.forget(TopicPartition("t", 0))  # as the minute does that a listing counts
    again = resolver.resolve(("t", 0), 1000, history=first.plan, refusal=None, epoch=0)
    assert (again.way, again.offset) == (Way.KAFKA, 1000)
    archive.commit("t", 1000, epochs=((0, 0), (2, 600)))
    tier.forget(TopicPartition("t", 0))
    with pytest.raises(SeamRefused, match=r"an election removed records .* from offset 600 on"):
        resolver.resolve(("t", 0), 1000, history=first.plan, refusal=None, epoch=0)
    brokers.id, brokers.start = LATER, 0
    archive.put_incarnations("t", FORMER, LATER)
    change(archive)
    tier.forget(TopicPartition("t", 0))
    with pytest.raises(SeamRefused, match=f"created again.*{FORMER}"):
        resolver.resolve(("t", 0), 1000, history=first.plan, refusal=None, epoch=0)
