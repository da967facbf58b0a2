"""Building, merging and clearing the index of keys."""
