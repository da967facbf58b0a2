"""Tests that share one Spark session, its broker, topics and archives."""
