"""The state of each partition and its next tasks. Pure: no clock, socket or thread."""
