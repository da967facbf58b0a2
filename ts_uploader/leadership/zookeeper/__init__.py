"""Leadership from ZooKeeper: connection, security, state. The only room that knows kazoo."""
