"""Classic consumer groups, and the offsets that they commit."""
