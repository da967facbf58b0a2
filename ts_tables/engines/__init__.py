"""Engines that run the tasks of a plan: processes of one machine, or Spark."""
