"""The agent as a process of its host: priority, memory, other agents, reload."""
