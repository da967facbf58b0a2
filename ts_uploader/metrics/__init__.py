"""Prometheus metrics and their page."""
