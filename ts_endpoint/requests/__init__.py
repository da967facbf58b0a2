"""Requests about topics and records, and their answers."""
