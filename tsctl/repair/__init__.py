"""Repairs of an archive: what is needed, from an earlier version, or by a request to the agents."""
