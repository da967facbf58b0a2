"""The configuration of a cluster: every key with its type, default and description."""
