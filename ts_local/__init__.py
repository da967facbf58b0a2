"""A real Kafka, ZooKeeper and S3 server on loopback, for the demo, the tests and the benchmarks.

`ts_local.cluster.LocalCluster` is the way in: a context manager that starts servers on free loopback ports, hands out
their addresses and topic helpers, lets a test stop, kill, pause and restart each of them, and leaves nothing behind.
`python -m ts_local.jars` fetches what the servers are made of.
"""
