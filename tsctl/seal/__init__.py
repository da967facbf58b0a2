"""Seals: signed lists of what the archive has, in a chain; and proofs of a range of offsets."""
