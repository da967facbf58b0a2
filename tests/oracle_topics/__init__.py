"""Every kind of topic that Kafka can write, shipped by an agent, with the records of Kafka's Java consumer."""
