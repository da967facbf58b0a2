"""Sockets of the endpoint: a listener, the loop of each connection, and limits."""
