"""Who a client is, what it may read, and the record of what it read."""
