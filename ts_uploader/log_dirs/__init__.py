"""Watches, lists and reads the broker's log directories; the only package that imports watchdog."""
