"""Metadata snapshots: what the cluster has in addition to records, read from the brokers and written to the stores."""
