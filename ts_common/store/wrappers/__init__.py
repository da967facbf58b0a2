"""Stores around another store: request rate, bandwidth, writes without conditions."""
