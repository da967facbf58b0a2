"""Segments to the store, and what helps readers to plan."""
