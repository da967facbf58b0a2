"""Reads and moves the position of an archive: `offset.wm`, `log.start` and gap records."""
