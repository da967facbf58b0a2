"""The agent: one process on each Kafka broker's host, which ships closed log segments to an object store."""
