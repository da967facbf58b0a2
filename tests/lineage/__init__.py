"""The explicit-state model of the commit and `log.start`: protocol rules 5 and 6, and remote retention."""
