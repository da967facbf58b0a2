"""Retention of the store: what is due, and its deletion in two phases (docs/protocol.md, Retention)."""
