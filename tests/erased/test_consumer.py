"""The person's records in a consumer of the archive."""

from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from tests.consumer.archives import offsets_of, read_until
from tests.consumer.test_archive_alone import configuration
from tests.erased.canary import END, GONE, STAY, canary, log_of
from ts_consumer import TieredConsumer


def test_a_consumer_gets_no_record_of_the_person(tmp_path: Path) -> None:
    """It reaches the end, and a time leads to a record that is shown."""
    person = canary(tmp_path / "archive")
    gone = GONE | {218}
    person.archive.put_segment("t", END, log_of(person.person, END, 220, gone))
    person.archive.commit("t", 220, highest_base=END, log_start=None)
    person.erase(gone)
    with TieredConsumer(configuration(person.archive)) as consumer:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        found = read_until(consumer, {0: 220})
        assert offsets_of(found[0]) == [*STAY, *(each for each in range(END, 220) if each not in gone)]
        assert person.person not in str(found).encode()
        (at,) = consumer.offsets_for_times([TopicPartition("t", 0, 1110)], 10)
        assert at.offset == 120
