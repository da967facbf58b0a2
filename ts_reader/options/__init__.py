"""The options of a scan: one description, which each side reads with its own names for them."""
