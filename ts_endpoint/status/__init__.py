"""Metrics, health and readiness of the endpoint."""
