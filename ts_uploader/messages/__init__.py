"""What the threads of the agent exchange: observations, tasks and their results."""
