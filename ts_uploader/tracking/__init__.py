"""What each partition waits for and what is next, pure: no clock, socket or thread."""
