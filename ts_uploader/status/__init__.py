"""Health, status and its page, over HTTP."""
