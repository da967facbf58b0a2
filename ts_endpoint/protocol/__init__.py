"""Kafka's protocol: frames, the versions that are served, requests and replies."""
