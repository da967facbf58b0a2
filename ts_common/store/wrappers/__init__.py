"""Wrappers of a store: request rate, bandwidth, writes without conditions."""
