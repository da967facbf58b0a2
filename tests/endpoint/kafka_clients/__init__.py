"""Clients of Kafka, each unchanged and run as its user would, with one interface: a topic's records."""
