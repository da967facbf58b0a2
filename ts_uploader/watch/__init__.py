"""What the log directories hold: events as hints, listings as the truth; the only place that knows watchdog."""
