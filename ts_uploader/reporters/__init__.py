"""Metrics sent to a server that does not ask for them."""
