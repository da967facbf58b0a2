"""Watches, lists and reads the broker's log directories."""
