"""The index of keys: its stored form, its look-up, and the offsets that can have a key."""
