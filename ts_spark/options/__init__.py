"""Spark's options and filters, as a query of the planner."""
