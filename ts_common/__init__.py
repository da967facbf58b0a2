"""The common part of agent, readers and tools; it imports none of them."""
