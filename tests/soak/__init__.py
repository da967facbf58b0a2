"""Everything at once: faults at random, under load, for a minute or ten, and what must hold all the while."""
