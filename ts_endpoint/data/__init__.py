"""The bytes of partitions: chunks of segments in memory, read ahead, and what a Fetch cuts out of them."""
