"""The agent: its parts alone, then beside a real broker."""
