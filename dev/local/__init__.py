"""Real Kafka, ZooKeeper and S3 servers on loopback, for demo, tests and benchmarks.

`dev.local.kafka.cluster.LocalCluster` is the entry: a context manager that starts servers on free loopback ports and
deletes their data at the end. It has their addresses and helpers for topics, and a test can stop, kill, pause and
restart each server. `python -m dev.local.jars` fetches the jars.
"""
