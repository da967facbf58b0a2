"""The names that messages of `kafka_segments` use: the options of Spark's own Kafka source."""

from typing import Final

from ts_reader.query.wording import Wording

SPARK: Final = Wording(
    entropy_bits="prefixEntropyBits=",
    pattern="subscribePattern=",
    partitions="assign",
    starting_offsets="startingOffsets",
    ending_offsets="endingOffsets",
    starting_timestamps="startingOffsetsByTimestamp",
    ending_timestamps="endingOffsetsByTimestamp",
    earliest="-2",
    latest="-1",
    without_match="startingOffsetsByTimestampStrategy=latest",
    despite_loss='To read what is there, set option("failOnDataLoss", "false")',
    exact_times='option("includeTimestampMs", "true") adds the time as stored',
    despite_corruption=(
        'To read what is whole, set option("mode", "DROPMALFORMED"), or "PERMISSIVE" to see where it is not'
    ),
)
