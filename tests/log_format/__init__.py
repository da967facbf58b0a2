"""The log format: golden segments of a real broker, an independent encoder, and damage of every kind."""
