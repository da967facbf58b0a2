"""Leadership from ZooKeeper: connection, security, state. The only package that imports kazoo."""
