"""The soak: random faults under load for one minute or ten, and what must be true meanwhile."""
