"""The broker's log directories: watched, listed and read. The only room that knows watchdog."""
