"""The agent: its parts alone, then with a real broker."""
