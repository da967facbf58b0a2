"""How long Kafka keeps a topic's segments."""
