"""Sends metrics to a server that does not scrape them."""
