"""Tables of the newest record of each key: what is newest, and how a commit replaces the rows of buckets of keys."""
