"""The soak: random faults under load for ten minutes, and what must be true meanwhile."""
