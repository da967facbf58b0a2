"""`offset.wm`, `log.start` and gap records: the position of an archive, and how it moves."""
