"""The agent as a process: its threads' work and progress, its footprint on the host, reload."""
