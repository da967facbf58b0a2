"""Real Kafka clusters on loopback: brokers, controllers, ZooKeeper, topics, and the migration to KRaft."""
