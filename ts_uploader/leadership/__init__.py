"""Which partitions this broker leads: one level-triggered contract, one module per source."""
