"""Kafka's log format: bytes in, columns out; no clock, no socket, no thread."""
