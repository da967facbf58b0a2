"""Object stores: one contract, and a driver for each kind of store."""
