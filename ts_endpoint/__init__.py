"""A Kafka endpoint over an archive: any Kafka client reads archived topics, without a broker."""
